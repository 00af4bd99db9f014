/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory of processes of one host that need not share a namespace: mapped,
 * and copied by GPUs' engines.  No messages; host memory is not moved.
 *
 *   iface -> conn (one per n-th endpoints of two interfaces: a Unix socket)
 *                 -> imports (allocations of the peer that are mapped here)
 *                 -> operations (puts and gets)
 *
 * To read: nvl_proto.h; nvl_op.c makes copies of a put or get; nvl_import.c
 * finds, maps and forgets the peer's memory, nvl_export.c says what local
 * memory may be mapped, and for how long; nvl_conn.c joins and ends a
 * connection, nvl_sock.c has its frames; nvl_ep.c and nvl_iface.c are the
 * contract.
 *
 * A mapping cannot be taken back, so before each batch of copies an importer
 * reads words of the owner.  The owner clears them and then waits for copies
 * that the importer's engines have, which it sees in pages of the importer,
 * even if the importer makes no progress.
 *
 * Everything runs in the caller's thread, inside progress(); a driver thread
 * only writes to an eventfd.  Two exceptions: mem_release() may run in any
 * thread, and a thread unmaps memory that is in no list any more.
 *
 * A callback of the caller runs only from progress() and from the calls that
 * say so; finished copies never call back: they set marks, which progress()
 * reads.
 */
#ifndef WEFT_DEVICES_NVL_H
#define WEFT_DEVICES_NVL_H

#include "devices/common/ep.h"
#include "stats/stats.h"
#include "devices/engine/copy.h"
#include "devices/local/local.h"
#include "devices/nvlink/nvl_map.h"
#include "devices/nvlink/nvl_proto.h"
#include "util/list.h"
#include "util/table.h"

#define NVL_MAX_IOV 8u
#define NVL_POLLS   256u /* progress calls between system calls */

/* Times that no setting changes. */
enum nvl_times {
	/*
	 * pause before trying again to send frames that did not fit the
	 * socket's buffer, since room there is no event that the interface
	 * waits for, and descriptors when too many are open
	 */
	NVL_SEND_AGAIN_MS = 2,
	/*
	 * the driver ends copies of a process that has ended, perhaps without a
	 * mark
	 */
	NVL_GONE_MS = 1000,
};

struct nvl_export;

/* An allocation of the peer's. */
struct nvl_import {
	struct weft_entry entry;      /* conn->by_id */
	struct weft_list link;	      /* conn->imports */
	struct weft_list opened_link; /* HANDLE: of all that are mapped so */
	uint32_t process;	      /* the key's */
	uint64_t base, size;	      /* in the peer's addresses */
	uint64_t mapped;	      /* bytes whose descriptors have arrived */
	unsigned int nparts;
	struct nvl_life whole;
	struct weft_engine *engine; /* it is mapped for */
	bool pending;		    /* descriptors are still arriving */
	int err;		    /* why it cannot be mapped, or 0 */
	unsigned int users;	    /* operations */
	struct weft_list waiting; /* operations that wait until it is mapped */
	struct nvl_mapping map;
};

/* A put or a get. */
struct nvl_op {
	struct weft_list link;	    /* conn->ops */
	struct weft_list wait_link; /* import->waiting */
	struct weft_list done_link; /* iface->done */
	struct nvl_conn *conn;
	struct weft_engine *engine;
	struct nvl_import *import; /* NULL: there is nothing to copy */
	struct weft_op *op;	   /* NULL: it was cancelled */
	bool get;
	int status;
	struct nvl_life life; /* of the peer's registration */
	uint64_t token;	      /* its key's */
	uint64_t addr;	      /* there */
	size_t total;
	unsigned int n, left; /* copies; unfinished ones */
	struct weft_copy copies[];
};

struct nvl_conn {
	struct weft_conn base;
	struct weft_source src;
	struct weft_list link; /* iface->conns, or dead */
	struct nvl_iface *iface;
	int fd;	      /* -1: not met yet */
	bool hung_up; /* the socket has ended */
	bool close_received;
	bool failed;	      /* a failed operation has ended it */
	uint64_t watchdog_ms; /* BROKEN: deadline for copies */
	struct weft_counters *stats;
	struct weft_list frames_out; /* that did not fit the socket */
	unsigned int nframes_out;

	/* the peer's memory */
	const struct nvl_table *table; /* the peer's; NULL: not yet */
	struct nvl_life access;	       /* this side's word in that table */
	struct weft_table by_id;
	struct weft_list imports; /* the most recently used one is the last */
	unsigned int nimports, npending;
	uint64_t imported; /* bytes of addresses for them */
	uint32_t ended;	   /* table->ended, when last read */

	struct weft_list ops;
	unsigned int nops;
	unsigned int copies; /* queued or with engines */

	/* this side's memory; all but fetches by nvl_export.c's lock */
	struct weft_list importer; /* all peers that may copy */
	uint64_t importer_id;
	const struct weft_engine_mark *marks; /* the peer's; NULL: not yet */
	struct nvl_life life; /* its word in this side's table */
	bool stuck; /* its copies were not done in time: wait no more */
	struct weft_list fetches; /* descriptors that it has asked for */
	uint64_t fetch_ms;	  /* when to try to send some again */
};

struct nvl_iface {
	struct weft_base base;
	struct weft_local local;
	struct weft_engines engines;
	struct weft_list conns, dead;
	struct weft_list done; /* operations to complete */
	unsigned int polls;
	bool armed;
};

static inline struct nvl_iface *nvl_iface(struct weft_iface *i)
{
	return container_of(i, struct nvl_iface, base.iface);
}

static inline struct nvl_conn *nvl_conn(struct weft_conn *c)
{
	return container_of(c, struct nvl_conn, base);
}

static inline bool nvl_conn_is_open(const struct nvl_conn *conn)
{
	return conn->base.state == WEFT_CONN_OPEN;
}

static inline bool nvl_is_alive(const struct nvl_table *t,
				const struct nvl_life *l)
{
	return l->slot < NVL_LIVES &&
	       atomic_load(&t->serial[l->slot]) == l->serial;
}

/* As the driver made it. */
struct nvl_part {
	uint64_t base;
	size_t size;
	unsigned long long buffer_id; /* never used again */
};

/* The state of waiting for a peer's copies. */
struct nvl_watch {
	unsigned int mark; /* streams before it have finished */
	bool snapped, gone;
	uint32_t seq;	   /* of @mark, once snapped */
	uint64_t until_ms; /* 0: not begun */
};

#endif

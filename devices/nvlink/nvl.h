/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVLink device's own objects: peers of one host that need not share a
 * namespace.  What is done with them is in the header of each file.
 *
 *   iface -> conn (one per n-th endpoints of two interfaces)
 *                 -> inbox (shared memory, one per direction)
 *                 -> rings (where bulk waits, on the reader's side)
 *                 -> transfers (puts and gets that still send)
 *         -> engine (one per CUDA context seen) -> streams -> copies
 *
 * A put, in the order in which to read: nvl_ep.c takes it; nvl_tx.c makes a
 * transfer of it and cuts that into chunks; nvl_ring.c finds room in a ring;
 * devices/engine has an engine copy there; nvl_inbox.c informs the peer; there
 * nvl_rx.c checks the key, has it copied to its place, gives the room back and
 * acknowledges. nvl_iface.c calls them in turn.  nvl_map.c makes what is
 * missing the first time, and so does devices/engine.
 *
 * Memory that the driver shares needs no ring: nvl_export.c gives it to a
 * peer that queries it, nvl_import.c does so and maps it, and nvl_direct.c
 * copies to and from where it lies.
 *
 * A connection: devices/session proves both sides, nvl_dial.c has it join,
 * nvl_close.c ends it, and a function that finds it broken marks it with
 * nvl_conn.c.
 *
 * Everything runs in the caller's thread, inside progress(); a driver thread
 * only writes to an eventfd.  Two exceptions: mem_release() may run anywhere;
 * it meets us in the region table and in the streams' `issued` and `finished`;
 * and a thread unmaps memory of peers that has left all our lists.
 *
 * A callback of the caller runs only from progress() and from the
 * calls that say so; copies never call back: they mark, progress delivers.
 */
#ifndef WEFT_DEVICES_NVL_H
#define WEFT_DEVICES_NVL_H

#include "bootstrap/hello.h"
#include "bootstrap/stats.h"
#include "devices/engine/copy.h"
#include "devices/ep.h"
#include "devices/local.h"
#include "devices/nvlink/nvl_proto.h"
#include "util/list.h"
#include "util/table.h"
#include "util/util.h"

struct nvl_transfer;
struct nvl_rxring;
struct nvl_txring;

#define NVL_MAX_IOV	8
#define NVL_CONN_CHUNKS 32u  /* of one connection: others get on */
#define NVL_POLLS	256u /* progress calls between system calls */

/*
 * Times that no setting changes; nvl_tune has two more.
 */
enum nvl_times {
	/* for frames that did not fit the socket's buffer: what
	   makes room there is not an event that the interface waits for */
	NVL_SEND_AGAIN_MS = 2,
	/* between two descriptors for a peer whose data is under way */
	NVL_EXPORT_MS = 1,
};

/* Measured on two H200 (tests/gpu); tests make them small. */
struct nvl_tune {
	size_t ring; /* bytes of a GPU ring, at most */
	size_t host_ring;
	size_t chunk_min, chunk_max;
	unsigned int idle_ms;  /* an idle ring is given back after */
	unsigned int retry_ms; /* before a budget is looked at again */
};
extern struct nvl_tune nvl_tune;

/* ---- parts of a connection ---------------------------------------------- */

/* Towards one place at the peer. */
struct nvl_route {
	uint8_t ring;	       /* id, NVL_NO_RING: none yet */
	bool wanted;	       /* requested, no reply yet */
	bool via_host_ring;    /* no ring there: the host's serves */
	bool not_direct;       /* nor can its memory be mapped, */
	bool not_by_handle;    /* or what has an IPC handle */
	uint64_t retry_ms;     /* of the next request; 0: none */
	unsigned int pause_ms; /* between that and the last time */
};

/* One part, at its requester. */
struct nvl_get {
	struct weft_list done_link; /* iface->done_gets */
	struct nvl_conn *conn;
	struct nvl_get_parent *parent; /* NULL: cancelled, nothing lands */
	void *addr;
	bool live, ended;
	uint64_t total, seen;
	unsigned int in_flight;
};

/* A put at its target, from its first chunk till it is placed. */
struct nvl_landing {
	struct weft_list link; /* iface->landed */
	struct nvl_conn *conn;
	bool live, done, placed; /* placed: but an earlier put is not */
	bool ended;		 /* no more chunks come */
	bool notify;
	uint32_t seq;
	int status;
	unsigned int in_flight;
	uint64_t total, seen;
	uint64_t tag;
};

/* ---- connections -------------------------------------------------------- */

struct nvl_inbox {
	struct nvl_inbox_head *head; /* NULL: not there yet */
	uint8_t *msgs;
	struct nvl_op *ops;
};

struct nvl_conn {
	struct weft_conn base;
	struct weft_source src;
	struct weft_list link; /* iface->conns, or dead */
	struct nvl_iface *iface;
	int fd;	      /* -1: not met yet */
	bool hung_up; /* the socket has ended */
	bool close_received;
	bool failed;	      /* an operation did, which has ended it */
	uint64_t watchdog_ms; /* BROKEN: copies are awaited until */
	struct weft_counters *stats;

	struct nvl_inbox rx, tx;
	uint64_t msg_head, op_head; /* of rx, local */
	uint64_t msg_tail, op_tail; /* of tx, local */
	uint64_t msg_room, op_room; /* of tx: heads last seen */
	uint32_t frames_sent, frames_read;
	struct nvl_op *deferred; /* records that did not fit: a queue */
	unsigned int deferred_n, deferred_at, deferred_cap;
	struct weft_list frames_out; /* frames that did not fit the socket */
	unsigned int nframes_out;

	/* the next message waits for puts below; see struct nvl_msg */
	uint64_t put_fence, direct_fence;
	/* puts from here: numbers [put_acked, put_next) are under way */
	uint64_t put_next, put_acked;
	struct nvl_transfer *puts[NVL_PUTS];
	bool acked_early[NVL_PUTS];
	/* puts to here: every one below `placed` is done */
	uint64_t placed;
	struct nvl_landing landing[NVL_PUTS];
	struct nvl_get gets[NVL_GETS];
	unsigned int ngets, next_get;
	struct nvl_transfer *replies[NVL_GETS];
	struct weft_list transfers;
	unsigned int ntransfers;
	unsigned int copies; /* with engines, for it */
	struct nvl_route paths[NVL_LOCS];
	struct nvl_txring *txrings[NVL_RINGS];
	struct nvl_rxring *rxrings[NVL_RINGS];

	/* local copies to and from its memory, and what is mapped */
	uint64_t direct_next, direct_placed; /* puts: as put_next, put_acked */
	bool direct_ended[NVL_DIRECTS];
	struct weft_list directs, direct_waiting;
	unsigned int ndirects, direct_copies;
	uint64_t used[NVL_VIEWS]; /* tokens of keys; 0: none */
	unsigned int nused;
	struct weft_table views; /* by the token of a key */
	struct weft_list view_list, imports;
	unsigned int nimports;
	uint64_t imported; /* bytes of addresses for them */
	bool marks_sent;
	uint32_t revoked; /* tx.head's, as last seen */
	/* its copies to and from local memory, and what it may map */
	const struct weft_engine_mark *peer_marks; /* NULL: not sent yet */
	struct weft_list grants;		   /* by nvl_export.c's lock */
	struct weft_list fetches; /* descriptors that it requested */
	uint64_t exported_ms;	  /* when it last got or requested one */
	bool export_refused;	  /* the kernel took no descriptor then */
	bool granted[NVL_VIEWS];  /* by that lock: slots in use */
	bool exports_stuck; /* by that lock: its copies did not end in time */
	uint32_t peer_puts, peer_gets; /* counted so far */
	uint64_t peer_put_bytes, peer_get_bytes;
};

struct nvl_iface {
	struct weft_base base;
	struct weft_local local;
	struct weft_list conns, dead;
	struct weft_engines engines;
	struct weft_list done, done_gets, landed, done_directs;
	unsigned int polls;
	unsigned int messages, notices; /* left to this progress() */
	bool armed;
	struct nvl_unmapper *unmapper; /* NULL: unmapped here and now */
};

/* nvl_conn.c */
/* To dial @remote, or NULL: it has dialled.  NULL: no memory. */
struct nvl_conn *nvl_conn_new(struct nvl_iface *iface,
			      const struct weft_address *remote,
			      uint64_t peer_id, uint32_t number);
/* Never calls back: marks it; progress() does the rest.  @err 0: in order. */
void nvl_conn_break(struct nvl_conn *conn, int err);
/*
 * An operation has failed here, which could not do @what: logged.  The same
 * with -EIO, and the peer learns of it; nothing behind the operation is
 * delivered there.
 */
void nvl_conn_fail(struct nvl_conn *conn, const char *what);
/* The peer says that one has failed there. */
void nvl_conn_told(struct nvl_conn *conn);

static inline struct nvl_iface *nvl_iface(struct weft_iface *i)
{
	return container_of(i, struct nvl_iface, base.iface);
}

static inline struct nvl_conn *nvl_conn(struct weft_conn *c)
{
	return container_of(c, struct nvl_conn, base);
}

#endif

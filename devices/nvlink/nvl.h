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

/* ---- nvl_sock.c: frames -------------------------------------------------- */

/* Sends @f, now or when there is room.  @fd (-1: none) stays the caller's. */
int nvl_sock_send(struct nvl_conn *conn, struct nvl_frame *f, int fd);
/* Sends what waits for room; -errno. */
int nvl_sock_flush(struct nvl_conn *conn);
/* Drops what waits. */
void nvl_sock_drop(struct nvl_conn *conn);
/*
 * 1: *@f was received, with *@fd, which is the caller's, or without its
 * descriptor if too many are open.  0: none; -errno: the socket has ended.
 */
int nvl_sock_recv(struct nvl_conn *conn, struct nvl_frame *f, int *fd);

/* ---- nvl_conn.c: joining and ending -------------------------------------- */

extern const struct weft_session_ops nvl_session_ops;
/* Never calls back: marks it; progress() does the rest.  @err 0: in order. */
void nvl_conn_break(struct nvl_conn *conn, int err);
/*
 * An operation has failed here, which could not do @what: logged.  The same
 * with -EIO, and the peer learns of it.
 */
void nvl_conn_fail(struct nvl_conn *conn, const char *what);
/* Sends a frame without a descriptor; breaks the connection if it cannot. */
void nvl_conn_send(struct nvl_conn *conn, struct nvl_frame *f);
/* Must the peer learn that our endpoint is gone? */
bool nvl_conn_owes_bye(const struct nvl_conn *conn);
/*
 * Ends the connection if it is due; the caller must hold nothing of it.  True:
 * it ended.
 */
bool nvl_conn_end(struct nvl_conn *conn);
/* Tells the peer that the interface closes in order, and ends it. */
void nvl_conn_close(struct nvl_conn *conn);
void nvl_conn_reap(struct nvl_iface *iface);

/* ---- nvl_op.c: puts and gets --------------------------------------------- */

/* As the contract's put() and get(), on a connection that is ready. */
int nvl_op_start(struct nvl_conn *conn, bool get, const struct weft_iov *iov,
		 unsigned int n, uint64_t addr, const void *rkey,
		 struct weft_op *op);
/* Its memory was mapped, or cannot be. */
void nvl_op_go(struct nvl_op *op);
/* Completes what has ended; the number. */
unsigned int nvl_op_deliver(struct nvl_iface *iface);
/* Ends operations that no engine has. */
void nvl_op_cancel(struct nvl_conn *conn);
/* Cancels all, and waits for the engines, bounded by the watchdog. */
void nvl_op_stop(struct nvl_conn *conn);
/* Completes all with @status, here and now. */
void nvl_op_drop(struct nvl_conn *conn, int status);

/* ---- nvl_import.c: the peer's memory ------------------------------------- */

/*
 * The allocation of @key, for copies by @engine, which it keeps until
 * nvl_import_put().  Maps it at its first use; import->pending: the peer is
 * asked for descriptors, and nvl_op_go() follows for the operations that wait.
 * NULL: *@err is why not.
 */
struct nvl_import *nvl_import_get(struct nvl_conn *conn,
				  const struct nvl_key *key,
				  struct weft_engine *engine, int *err);
void nvl_import_put(struct nvl_conn *conn, struct nvl_import *import);
/* The peer's reply: PART or NONE. */
int nvl_import_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd);
/* Unmaps what is not alive any more. */
void nvl_import_tick(struct nvl_conn *conn);
/* Unmaps all; no copy uses it. */
void nvl_import_close(struct nvl_conn *conn);
/*
 * Could memory of @key be mapped here?  The contract's mem_reaches(): tried
 * once per process whose keys are seen.
 */
int nvl_import_reaches(const void *rkey);
/* In a child: it has none. */
void nvl_import_forget(void);

static inline bool nvl_is_alive(const struct nvl_table *t,
				const struct nvl_life *l)
{
	return l->slot < NVL_LIVES &&
	       atomic_load(&t->serial[l->slot]) == l->serial;
}

/* ---- nvl_part.c: GPU memory as the driver made it ------------------------ */

/* As the driver made it. */
struct nvl_part {
	uint64_t base;
	size_t size;
	unsigned long long buffer_id; /* never used again */
};

/*
 * Those of cuMemCreate() around [@addr, @addr + @len), NVL_PARTS at most; 0:
 * not all can be mapped by descriptors.
 */
unsigned int nvl_parts_find(const struct weft_cuda *cu, uint64_t addr,
			    size_t len, struct nvl_part *parts);
/*
 * Does the driver have an IPC handle for the one around @addr?  In any process.
 */
bool nvl_part_handle(const struct weft_cuda *cu, uint64_t addr,
		     struct nvl_part *part, struct weft_cu_ipc *handle);
bool nvl_part_is_same(const struct nvl_part *a, const struct nvl_part *b);
/* A descriptor for others.  CUresult; INVALID_VALUE: another one is there. */
int nvl_part_export(const struct weft_cuda *cu, const struct nvl_part *part,
		    int *fd);

/* ---- nvl_life.c: what peers may access ----------------------------------- */

/*
 * The table exists from the first to the last of these calls; -errno, logged.
 */
int nvl_lives_begin(void);
void nvl_lives_end(void);
/* In a child: it has none. */
void nvl_lives_forget(void);
int nvl_lives_fd(void);
/* False, and a serial of 0: there are too many.  Memory leaves some free. */
bool nvl_life_begin(struct nvl_life *life);
bool nvl_life_begin_memory(struct nvl_life *life);
void nvl_life_end(struct nvl_life *life);
/*
 * Tells peers to check which of the allocations that they have mapped has
 * ended.
 */
void nvl_lives_allocation_ended(void);
/* The number of this process in keys; 0: there is none. */
uint32_t nvl_process(void);

/* ---- nvl_watch.c: copies of peers ---------------------------------------- */

/* The state of waiting for a peer's copies. */
struct nvl_watch {
	unsigned int mark; /* streams before it have finished */
	bool snapped, gone;
	uint32_t seq;	   /* of @mark, once snapped */
	uint64_t until_ms; /* 0: not begun */
};

/* Have all copies ended that the peer's engines had at the first call? */
bool nvl_watch_have_ended(const struct nvl_conn *conn, struct nvl_watch *w);
/*
 * The same, or the time for them is over: the driver ends those of a process
 * that has ended, perhaps without a mark.  nvl_export.c's lock is held.
 */
bool nvl_watch_is_over(struct nvl_conn *conn, struct nvl_watch *w);

/* ---- nvl_export.c: this process's memory --------------------------------- */

/* In a child: no peer is waited for. */
void nvl_export_forget(void);

/* Sets mem->exported where peers may map @mem. */
void nvl_export_add(struct weft_mem *mem);
/* Fills in the key of @mem, which may say that it cannot be mapped. */
void nvl_export_pack(const struct weft_mem *mem, struct nvl_key *key);
/*
 * Is @token of a registration of this process that has [@addr, @addr + @len)?
 * Then *@rkey is the region's.
 */
bool nvl_export_own(uint64_t token, uint64_t addr, uint64_t len,
		    struct weft_rkey *rkey);
/*
 * Ends all copies of peers to or from it: waits for those that their engines
 * have, bounded by the watchdog, or by a second if the peer has ended.  A peer
 * that was given up may copy nothing more, and is not waited for again.  Any
 * thread.
 */
void nvl_export_del(struct nvl_export *x);

/* Lets the peer copy, once it has conn->life; -ENOSPC. */
int nvl_export_join(struct nvl_conn *conn);
/* Its marks have arrived. */
int nvl_export_marks(struct nvl_conn *conn, int fd);
/* The peer asks for descriptors. */
int nvl_export_fetch(struct nvl_conn *conn, const struct nvl_frame *f);
/* Sends some of those: the number, or -errno: the connection is broken. */
int nvl_export_step(struct nvl_conn *conn);
bool nvl_export_is_due(const struct nvl_conn *conn);
/* Lets the peer start no more copies; false: its engines still have some. */
bool nvl_export_revoke(struct nvl_conn *conn);
/* The same, and waits as nvl_export_del(). */
void nvl_export_leave(struct nvl_conn *conn);
/* @conn is freed. */
void nvl_export_close(struct nvl_conn *conn);

/* ---- nvl_ep.c: the contract ---------------------------------------------- */

extern const struct weft_ep_ops nvl_ep_ops;
void nvl_ep_query(struct weft_ep *ep, struct weft_ep_attr *attr);
int nvl_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int n, struct weft_op *op);
ssize_t nvl_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg);
int nvl_ep_put(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op);
int nvl_ep_get(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey, struct weft_op *op);
void nvl_ep_fence(struct weft_ep *ep);

#endif

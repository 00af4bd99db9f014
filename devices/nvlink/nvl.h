/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVLink device's own objects: peers of one host that need not share a
 * namespace.
 *
 *   iface -> conn (one per pair) -> inbox (shared memory, one per direction)
 *                                -> rings (where bulk waits, reader's side)
 *                                -> jobs (puts and gets that still send)
 *         -> gpu (one per CUDA context seen) -> streams -> copies
 *
 * Everything runs in the caller's thread, inside progress(); a driver thread
 * only writes to an eventfd.  Two exceptions: mem_release() may run anywhere;
 * it meets us in the region table and in the streams' `issued` and `finished`;
 * and after weft_nvl_unmap_apart() a thread unmaps what has left all our lists.
 *
 * A callback of the caller runs only from nvl_iface_progress() and from the
 * calls that say so; copies never call back: they mark, progress delivers.
 */
#ifndef WEFT_DEVICES_NVL_H
#define WEFT_DEVICES_NVL_H

#include <pthread.h>
#include "bootstrap/hello.h"
#include "bootstrap/stats.h"
#include "devices/device.h"
#include "devices/ep_sn.h"
#include "devices/flush.h"
#include "devices/nvlink/nvl_copy.h"
#include "devices/nvlink/nvl_proto.h"
#include "devices/region.h"
#include "devices/stranger.h"
#include "util/cuda.h"
#include "util/list.h"
#include "util/util.h"

#define NVL_MAX_IOV	8
#define NVL_CONN_CHUNKS	32u		/* of one pair, so that others get on */
#define NVL_POLLS	256u		/* progress calls between system calls */
#define NVL_BUDGET_UNIT	(4ul << 20)	/* a ring is a multiple of this */

/*
 * Times that no setting changes; nvl_tune has two more.  How long a peer may
 * take to connect is WEFT_CONNECT_TIMEOUT.
 */
enum nvl_times {
	/* a listener's backlog is full: it is of this host, and reads soon */
	NVL_REDIAL_MS		= 5,
	/* for the peer's own dial, which was preferred; then ours again */
	NVL_YIELD_MS		= 2000,
	/* before accepting again where descriptors had run out or all places
	   were taken: who waits to be accepted would wake a sleeper each time */
	NVL_ACCEPT_PAUSE_MS	= 100,
	/* for frames or a hello that did not fit the socket's buffer: what
	   makes room there is not an event that the interface waits for */
	NVL_SEND_AGAIN_MS	= 2,
	/* progress() that comes this much later than it was due was kept by the
	   program: deadlines are for peers, and extended by the rest */
	NVL_STANDSTILL_MS	= 500,
	/* a copy that an engine has had for so long: the GPU is lost */
	NVL_WATCHDOG_MS		= 20000,
	/* unfinished for so long: the driver is asked why */
	NVL_SUSPECT_MS		= 1000,
	/* before looking at copies that ring no bell, as the driver refused */
	NVL_POLL_MS		= 1,
	/* the same where they ring: an engine that fails rings none */
	NVL_FAILURE_MS		= 1000,
	/* closing waits for a bell that the driver rings just now */
	NVL_LAST_BELL_MS	= 1000,
};

/* Measured on two H200 (tests/gpu); tests make them small. */
struct nvl_tune {
	size_t ring;			/* bytes of a GPU ring, at most */
	size_t host_ring;
	size_t chunk_min, chunk_max;
	unsigned int idle_ms;		/* an idle ring is given back after */
	unsigned int retry_ms;		/* before a budget is looked at again */
};
extern struct nvl_tune nvl_tune;

/* ---- rings (nvl_ring.c) ------------------------------------------------- */

/* Memory that both sides see; made by the reader, mapped by the writer. */
struct nvl_mapping {
	enum nvl_ring_kind kind;
	size_t size;
	int fd;				/* HOST: the memfd */
	void *host;			/* HOST: its mapping */
	bool pinned;			/* HOST: the driver knows it */
	uint64_t dev;			/* CUDA: its address */
	uint64_t access;		/* CUDA: ordinals that may reach it */
#define NVL_ORDINALS	64
	void *ctx;			/* in which it was mapped or pinned */
};

/* A chunk under way from here. */
struct nvl_txchunk {
	struct nvl_copy copy;
	struct nvl_op op;
	uint64_t end;
	struct nvl_job *job;		/* NULL: nobody waits any more */
	bool done;
};

struct nvl_txring {
	bool recalled;			/* to be closed when empty */
	struct nvl_mapping map;
	uint64_t pos, freed;		/* next free byte; all below is free */
	/* chunks [told, made): copying; [out, told): the reader has them */
	uint64_t made, told, out;
	uint64_t ends[NVL_RING_CHUNKS];
	struct nvl_txchunk chunks[NVL_RING_CHUNKS];
};

struct nvl_rxchunk {
	struct nvl_copy copy;
	struct nvl_op op;
	uint64_t end;
	bool done;
};

enum nvl_rxring_state {
	NVL_RXRING_OFFERED,
	NVL_RXRING_OPEN,
	NVL_RXRING_RECALLED,
};

struct nvl_rxring {
	enum nvl_rxring_state state;
	uint8_t loc;
	bool keep;			/* prepared ahead: never recalled */
	struct nvl_mapping map;
	unsigned int unit, units;	/* of a budget: first, number */
	char budget[48];		/* its name */
	uint64_t pos;			/* the next chunk begins here or later */
	uint64_t freed;
	uint64_t in, out;		/* chunks [out, in) are being copied */
	uint64_t used_ms;
	struct nvl_rxchunk chunks[NVL_RING_CHUNKS];
};

/* Towards one place at the peer. */
struct nvl_path {
	uint8_t ring;			/* id, NVL_NO_RING: none yet */
	bool wanted;			/* asked for, not answered yet */
	bool via_host;			/* no ring there: the host's serves */
	uint64_t retry_ms;		/* when to ask again; 0: never */
	unsigned int pause_ms;		/* between that and the last time */
};

/* ---- operations (nvl_tx.c, nvl_rx.c) ------------------------------------ */

enum nvl_job_kind { NVL_JOB_PUT, NVL_JOB_SERVE /* a get of the peer's */ };

struct nvl_job {
	struct weft_list link;		/* conn->jobs while bytes are unsent */
	struct weft_list done_link;	/* iface->done */
	enum nvl_job_kind kind;
	struct nvl_conn *conn;
	struct weft_op *op;		/* PUT; NULL: nobody waits any more */
	uint32_t seq;			/* PUT; SERVE: the get's id */
	struct weft_rkey key;		/* PUT: target; SERVE: source */
	uint64_t addr;			/* the peer's, of the first byte */
	uint64_t tag;
	uint8_t flags;			/* NVL_CHUNK_* */
	uint8_t loc;			/* where to, at the peer */
	bool aborted;			/* PUT: told so; its ack ends it */
	int status;
	size_t total, sent;
	unsigned int flying;		/* chunks of it with an engine */
	struct weft_cuda_ptr where;	/* of the source */
	unsigned int iov_i, iovcnt;
	size_t iov_off;
	struct weft_iov iov[NVL_MAX_IOV];
};

/* A get as its caller sees it: complete with its last part. */
struct nvl_get_parent {
	struct weft_op *op;		/* NULL: cancelled */
	unsigned int left;
	int status;
};

/* One part, at its requester. */
struct nvl_get {
	struct weft_list done_link;	/* iface->done_gets */
	struct nvl_conn *conn;
	struct nvl_get_parent *parent;	/* NULL: cancelled, nothing lands */
	void *addr;
	bool live, failed, ended;
	int status;
	uint64_t total, seen;
	unsigned int flying;
};

/* A put at its target, from its first chunk till it is placed. */
struct nvl_landing {
	struct weft_list link;		/* iface->landed */
	struct nvl_conn *conn;
	bool live, done, over;		/* over: but an earlier put is not */
	bool ended;			/* no more chunks come */
	bool notify;
	uint32_t seq;
	int status;
	unsigned int flying;
	uint64_t total, seen;
	uint64_t tag;
};

/* ---- connections -------------------------------------------------------- */

/* What an event of the iface's epoll stands for; else a conn. */
#define NVL_EV_LISTEN		2u
#define NVL_EV_LISTEN_PATH	4u
#define NVL_EV_WAKE		6u
#define NVL_EV_TIMER		8u

enum nvl_conn_state {
	NVL_CONN_DIALING,		/* connecting or in the hello, by us */
	NVL_CONN_WAITING,		/* the peer's dial was preferred */
	NVL_CONN_GREETING,		/* accepted, in the hello */
	NVL_CONN_JOINING,		/* proven; inboxes are being exchanged */
	NVL_CONN_OPEN,
	NVL_CONN_BROKEN,		/* copies are awaited, then it is freed */
	NVL_CONN_DEAD,			/* in iface->dead */
};

struct nvl_inbox {
	struct nvl_inbox_head *head;	/* NULL: not there yet */
	uint8_t *msgs;
	struct nvl_op *ops;
};

struct nvl_conn {
	struct weft_list link;		/* iface->conns, or dead */
	struct nvl_iface *iface;
	enum nvl_conn_state state;
	int fd;
	bool dialer, had_ep;
	bool hung_up;			/* the socket has ended */
	bool bye_sent, bye_seen, close_seen;
	int err;			/* BROKEN: why */
	uint64_t peer_id;
	uint32_t sn;
	struct weft_address *remote;	/* dialer's alone; with the key */
	struct weft_hello *hello;
	uint64_t deadline_ms;		/* until OPEN; BROKEN: watchdog */
	struct weft_stranger stranger;	/* GREETING */
	uint64_t retry_ms;
	struct nvl_ep *ep;
	struct weft_counters *stats;

	struct nvl_inbox rx, tx;
	uint64_t msg_head, op_head;	/* of rx, ours */
	uint64_t msg_tail, op_tail;	/* of tx, ours */
	uint64_t msg_room, op_room;	/* of tx: heads last seen */
	uint32_t frames_sent, frames_seen;
	struct nvl_op *later;		/* records that did not fit: a queue */
	unsigned int later_n, later_at, later_cap;
	struct weft_list frames_out;	/* frames that did not fit the socket */
	unsigned int nframes_out;

	uint64_t fence;			/* next message waits for puts below */
	bool was_full;			/* ready() said no: on_ready() is owed */
	/* puts from here: numbers [put_acked, put_next) are under way */
	uint64_t put_next, put_acked;
	struct nvl_job *puts[NVL_PUTS];
	bool settled[NVL_PUTS];
	/* puts to here: every one below `placed` is done */
	uint64_t placed;
	struct nvl_landing landing[NVL_PUTS];
	struct nvl_get gets[NVL_GETS];
	unsigned int ngets, next_get;
	struct nvl_job *serving[NVL_GETS];
	struct weft_list jobs;
	unsigned int njobs;
	unsigned int copies;		/* with engines, for this pair */
	struct nvl_path paths[NVL_LOCS];
	struct nvl_txring *txrings[NVL_RINGS];
	struct nvl_rxring *rxrings[NVL_RINGS];
};

struct nvl_ep {
	struct weft_ep base;
	struct weft_list link;		/* iface->eps */
	struct nvl_conn *conn;		/* NULL once dead */
	struct weft_ep_sn *numbers;
	uint64_t peer_id;
	uint32_t sn;
	int err;
	bool lost;			/* something was pending when it died */
	struct weft_flushes flushes;
};

struct nvl_iface {
	struct weft_iface base;
	struct weft_address *addr;	/* ours, with the key */
	uint64_t my_id;
	int epfd, wake_fd, timer_fd;
	int listen_fd, listen_path_fd;	/* -1: not there */
	struct nvl_run *run;		/* the shared folder; NULL: none */
	struct weft_list conns, dead, eps, gpus;
	unsigned int nconns;		/* in conns and dead */
	struct weft_ep_sns sns;
	struct weft_list done, done_gets, landed;
	struct weft_stats *stats;
	unsigned int polls;
	struct weft_strangers strangers;
	unsigned int messages, notices;	/* left to this progress() */
	uint64_t accept_ms;		/* nobody is accepted until; 0: all are */
	uint64_t due_ms;		/* progress() looks around by then */
	bool armed;
	bool for_kernels;		/* which wait for what we move */
	struct nvl_unmapper *unmapper;	/* NULL: unmapped here and now */
};

/* nvl_run.c: the folder that pods share */
struct nvl_run;
/* NULL: there is none that can be used; logs at INFO why. */
struct nvl_run *nvl_run_open(void);
void nvl_run_close(struct nvl_run *run);
/* Equal for two processes exactly when they see the same folder; never 0. */
uint64_t nvl_run_id(const struct nvl_run *run);
/* A listening socket for @id; its file goes away with nvl_run_unlisten(). */
int nvl_run_listen(struct nvl_run *run, uint64_t id);
void nvl_run_unlisten(struct nvl_run *run, uint64_t id);
/* 0, -EAGAIN (backlog full), or why not. */
int nvl_run_connect(struct nvl_run *run, int fd, uint64_t id);
/* A file in the folder, made if need be; -errno. */
int nvl_run_open_file(const struct nvl_run *run, const char *name);

/* nvl_budget.c: GPU memory for rings, all processes of the folder together */
/*
 * Takes up to @want units (NVL_BUDGET_UNIT) of GPU @name out of @limit, fewer
 * when little is left; the first one is told in *@first.  0: nothing is left.
 */
unsigned int nvl_budget_take(const struct nvl_run *run, const char *name,
			     unsigned int want, unsigned int limit,
			     unsigned int *first);
void nvl_budget_give(const char *name, unsigned int first, unsigned int units);

/* nvl_addr.c */
void nvl_addr_make(struct nvl_iface *iface);
bool nvl_addr_reaches(const struct nvl_iface *iface,
		      const struct weft_address *remote, const char **why);
bool nvl_addr_same_netns(const struct nvl_iface *iface,
			 const struct weft_address *remote);
bool nvl_addr_same_run(const struct nvl_iface *iface,
		       const struct weft_address *remote);
int nvl_addr_listen(uint64_t id);
int nvl_addr_connect(int fd, uint64_t id);

/* nvl_conn.c */
/* To dial @remote, or NULL: it has dialled.  NULL: no memory. */
struct nvl_conn *nvl_conn_new(struct nvl_iface *iface,
			      const struct weft_address *remote,
			      uint64_t peer_id, uint32_t sn);
/* A move that is not legal is logged and not made. */
void nvl_conn_set_state(struct nvl_conn *conn, enum nvl_conn_state to);
/* Never calls back: marks it; progress() does the rest.  @err 0: in order. */
void nvl_conn_break(struct nvl_conn *conn, int err);

/* nvl_dial.c: meeting */
void nvl_conn_dial(struct nvl_conn *conn);
/* Does the kernel let us dial it?  False: one warning has said why not. */
bool nvl_conn_may_dial(struct nvl_iface *iface,
		       const struct weft_address *remote);
/* Watches for peers that dial; -errno. */
int nvl_conn_listen(struct nvl_iface *iface);
void nvl_conn_accept(struct nvl_iface *iface, int listen_fd);
/* After a pause: descriptors had run out, or too many strangers were there. */
void nvl_conn_resume_accept(struct nvl_iface *iface, uint64_t now);
/* Goes on with the hello and the inboxes; the number of steps. */
unsigned int nvl_conn_step(struct nvl_conn *conn);
struct nvl_conn *nvl_conn_find(struct nvl_iface *iface, uint64_t peer_id,
			       uint32_t sn, const uint8_t *key);
/* This program kept us from looking for @stood ms. */
void nvl_conn_extend(struct nvl_conn *conn, uint64_t now, uint64_t stood);
/* Deadlines. */
unsigned int nvl_conn_tick(struct nvl_conn *conn, uint64_t now);

/* nvl_close.c */
/* The peer's end of the socket is closed and all it sent is delivered. */
void nvl_conn_on_hangup(struct nvl_conn *conn);
/* BROKEN and no copy left: ops end, the endpoint is told.  True: it is dead. */
bool nvl_conn_finish_close(struct nvl_conn *conn);
void nvl_conn_free(struct nvl_conn *conn);
void nvl_conn_reap(struct nvl_iface *iface);
/* Our endpoint is gone; the connection ends when the peer's is, too. */
unsigned int nvl_conn_maybe_end(struct nvl_conn *conn);
void nvl_conn_say_close(struct nvl_conn *conn);
/* Waits until no engine works for @conn any more, bounded by the watchdog. */
void nvl_conn_quiesce(struct nvl_conn *conn);
/* Completes its operations with @status, here and now. */
void nvl_conn_drop_ops(struct nvl_conn *conn, struct nvl_ep *ep, int status);
/* Nothing of the iface names @conn any more. */
void nvl_conn_forget(struct nvl_conn *conn);

/* nvl_sock.c: frames and descriptors */
int nvl_sock_send(struct nvl_conn *conn, struct nvl_frame *f, const int *fds,
		  unsigned int nfds);
/* 1: *@f and @fds are there (-1: none); 0: nothing; -errno: dead */
int nvl_sock_recv(struct nvl_conn *conn, struct nvl_frame *f,
		  int fds[NVL_FRAME_FDS]);
int nvl_sock_flush(struct nvl_conn *conn);
void nvl_sock_drop(struct nvl_conn *conn);
void nvl_sock_close_fds(const int *fds, unsigned int n);
/* Frames sent by the peer that have not been read, as its inbox says. */
int32_t nvl_sock_unseen(const struct nvl_conn *conn);
/* Are there any, on a socket that has not ended? */
bool nvl_sock_waiting(const struct nvl_conn *conn);

/* nvl_inbox.c */
/* The memory stays mapped when *@fd is closed. */
int nvl_inbox_make(struct nvl_inbox *box, int *fd);
/* -EINVAL: not sealed, or of another size. */
int nvl_inbox_map(struct nvl_inbox *box, int fd);
void nvl_inbox_close(struct nvl_inbox *box);
/* Wakes the peer if it sleeps; after anything it waits for was written. */
void nvl_inbox_bell(struct nvl_conn *conn);
/* The same for a peer that sleeps until its chunks are taken. */
void nvl_inbox_bell_credit(struct nvl_conn *conn);
/* Would a message, a put or a get be taken now? */
bool nvl_conn_ready(struct nvl_conn *conn);
/* Is there room for a message of @len?  A lying peer breaks the pair. */
bool nvl_msg_room(struct nvl_conn *conn, size_t len);
void *nvl_msg_begin(struct nvl_conn *conn, size_t len);
void nvl_msg_end(struct nvl_conn *conn, uint8_t kind, uint8_t id,
		 uint64_t fence, size_t len);
/* Sends, or keeps for later: the number kept is bounded by what is under way. */
void nvl_op_send(struct nvl_conn *conn, const struct nvl_op *op);
void nvl_op_retry(struct nvl_conn *conn);
/* 1: *@op is there; 0; -EPROTO */
int nvl_op_next(struct nvl_conn *conn, struct nvl_op *op);
void nvl_op_release(struct nvl_conn *conn);
unsigned int nvl_msg_progress(struct nvl_conn *conn);
/* Is there something that progress() would deliver? */
bool nvl_inbox_pending(struct nvl_conn *conn);
void nvl_inbox_sleep(struct nvl_conn *conn, bool on);

/* nvl_map.c */
/*
 * Shared memory whose size is sealed and whose pages are there: using it raises
 * no SIGBUS later.  Its descriptor, the caller's, or -errno.
 */
int nvl_map_memfd(const char *name, size_t size);
int nvl_map_host_make(struct nvl_mapping *m, size_t size);
int nvl_map_host_import(struct nvl_mapping *m, int fd, size_t size);
int nvl_map_cuda_make(struct nvl_mapping *m, struct nvl_gpu *gpu, size_t size,
		      int *fd);
/* For @gpu; nvl_map_reach() lets in others.  @fd stays the caller's. */
int nvl_map_cuda_import(struct nvl_mapping *m, struct nvl_gpu *gpu, int fd,
			size_t size);
/* Lets engines of @gpu copy to and from it: pins host memory, grants access. */
int nvl_map_reach(struct nvl_mapping *m, struct nvl_gpu *gpu);
/* Unmaps it, waiting for the kernels that run. */
void nvl_map_undo(struct nvl_mapping *m);

/* nvl_unmap.c */
/* The same, by a thread after weft_nvl_unmap_apart(). */
void nvl_map_close(struct nvl_iface *iface, struct nvl_mapping *m);
/* Waits for the thread, and unmaps what it has left. */
void nvl_unmap_end(struct nvl_iface *iface);

/* nvl_ring.c */
/* Asks the peer for a ring towards @loc, unless there is one or it was asked. */
void nvl_ring_ask(struct nvl_conn *conn, uint8_t loc);
/* What goes to @loc goes through host memory, and that is that. */
void nvl_ring_use_host(struct nvl_conn *conn, uint8_t loc);
struct nvl_txring *nvl_ring_for(struct nvl_conn *conn, struct nvl_job *job);
bool nvl_ring_take(struct nvl_txring *r, size_t len, uint64_t *pos);
void nvl_ring_credits(struct nvl_conn *conn);
bool nvl_ring_credit_pending(struct nvl_conn *conn);
/* All frames that have come; the number. */
unsigned int nvl_ring_read_frames(struct nvl_conn *conn);
int nvl_ring_offer(struct nvl_conn *conn, uint8_t loc, bool keep);
void nvl_ring_release(struct nvl_conn *conn, struct nvl_rxring *r,
		      uint8_t id);
void nvl_ring_tick(struct nvl_conn *conn, uint64_t now);
void nvl_ring_close_all(struct nvl_conn *conn);
/* Remembers where the process has GPU memory. */
void nvl_loc_learn(const struct weft_cuda_ptr *where);
bool nvl_loc_where(unsigned int loc, struct weft_cuda_ptr *where);

/* nvl_share.c */
/*
 * May memory of this GPU be exported, and other GPUs' be mapped for it?  Found
 * when first asked, which may take as long as NVML takes to begin; any thread.
 */
bool nvl_share_allowed(int ordinal);

/* nvl_tx.c */
/* Where it lies, by its registration or the driver; logs why not. */
int nvl_locate(const struct weft_iov *v, struct weft_cuda_ptr *where);
int nvl_tx_put(struct nvl_conn *conn, const struct weft_iov *iov,
	       unsigned int n, uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op);
int nvl_tx_serve(struct nvl_conn *conn, const struct nvl_op *op);
unsigned int nvl_tx_schedule(struct nvl_conn *conn);
int nvl_tx_ack(struct nvl_conn *conn, const struct nvl_op *op);
unsigned int nvl_tx_deliver(struct nvl_iface *iface);
void nvl_tx_finish(struct nvl_job *job, int status);
/* Its caller has gone; what is not with the peer yet is not sent. */
void nvl_tx_give_up(struct nvl_job *job, int status);

/* nvl_rx.c */
unsigned int nvl_rx_ops(struct nvl_conn *conn);
unsigned int nvl_rx_deliver(struct nvl_iface *iface);
int nvl_rx_get(struct nvl_conn *conn, const struct weft_iov *iov,
	       unsigned int n, uint64_t addr, const void *rkey,
	       struct weft_op *op);

/* nvl_ep.c */
/* NULL: no memory. */
int nvl_ep_create(struct weft_iface *iface, const struct weft_address *remote,
		  void *user, struct weft_ep **ep);
void nvl_ep_destroy(struct weft_ep *ep);
void nvl_ep_query(struct weft_ep *ep, struct weft_ep_attr *attr);
bool nvl_ep_ready(struct weft_ep *ep);
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
int nvl_ep_flush(struct weft_ep *ep, struct weft_op *op);
void nvl_ep_cancel(struct weft_ep *ep);
unsigned int nvl_ep_check_flush(struct nvl_ep *ep);

static inline struct nvl_iface *nvl_iface(struct weft_iface *i)
{
	return container_of(i, struct nvl_iface, base);
}

static inline struct nvl_ep *nvl_ep(struct weft_ep *e)
{
	return container_of(e, struct nvl_ep, base);
}

#endif

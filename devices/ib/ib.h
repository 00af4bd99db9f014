/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The InfiniBand and RoCE device's own objects.
 *
 * A peer is met over TCP (the tcp device, used through its own contract, is
 * the control plane: it proves both keys and watches the peer's kernel), and
 * QPs are exchanged there.  A connection has one or more RC QPs.  The first
 * carries messages, by SEND with credits, and all of them puts, by RDMA WRITE,
 * and gets, by RDMA READ.  A put that tells its target does so by an immediate
 * where it is one WRITE, which takes a credit too, else by a SEND behind it.
 *
 * One QP executes its requests in the order posted (InfiniBand Architecture
 * Specification, volume 1, section 9.5 "Transaction ordering"), so a message
 * behind a put on the same QP is delivered behind it, and a fence costs
 * nothing.  Between QPs there is no order: a message behind a fence waits until
 * what the others had is complete.
 *
 * The keys of the contract are those of the region table; what the adapter
 * wants (its rkey, and the region's bounds) a peer asks for once per key and
 * connection.  A request that the adapter refuses, because the key was revoked
 * meanwhile, ends its QP on both sides; both then make others, in the next
 * epoch, agree on which messages had arrived, and go on (ib_conn.c).
 *
 * Completions are gathered without calling back (ib_cq.c), so that also
 * cancel() can wait for the adapter; progress() delivers them.
 */
#ifndef WEFT_DEVICES_IB_H
#define WEFT_DEVICES_IB_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "bootstrap/settings.h"
#include "bootstrap/stats.h"
#include "bootstrap/verbs.h"
#include "devices/device.h"
#include "devices/ep_sn.h"
#include "devices/flush.h"
#include "devices/ib/ib_proto.h"
#include "devices/region.h"
#include "util/list.h"
#include "util/verbs.h"

#define IB_MAX_IOV	16
#define IB_SQ_DEPTH	64
#define IB_SQ_SPARE	16	/* of them kept from bulk, for messages */
#define IB_PIECE	(1u << 20)	/* bytes of one WRITE or READ */
#define IB_TOLD_MOST	(4u << 20)	/* of one with an immediate */
#define IB_MAX_QUEUED	16	/* operations taken, but not yet posted */
#define IB_USER_SLOTS	IB_CREDITS	/* send buffers that messages fill */
#define IB_TX_SLOTS	(IB_USER_SLOTS + 4)
#define IB_INLINE	64	/* bytes that go inside a request */
#define IB_KEYS		1024	/* resolved keys that a connection keeps */
#define IB_KEY_BUCKETS	64
#define IB_ANSWERS	64	/* questions of a peer that may wait */
#define IB_CONN_BUCKETS	256
#define IB_CQ_SIZE	16384
#define IB_TICK_MS	250
#define IB_POLL_EVERY	16	/* progress calls between looks at epoll */
#define IB_DRAIN_MS	5000	/* an adapter flushes a QP well within this */
/*
 * Epochs in a row without one completion: each ends an operation at least, or
 * gives it a registration of its own.
 */
#define IB_MAX_BREAKS	(2 * (IB_MAX_QPS * IB_SQ_DEPTH + IB_MAX_QUEUED))

/* ---- devices and memory, shared by the interfaces of a process ----------- */

struct ib_device {
	struct weft_list link;
	unsigned int refs;		/* interfaces */
	char name[WEFT_VERBS_NAME];
	const struct weft_verbs *v;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct weft_list ifaces;	/* ib_iface.device_link */
	pthread_t thread;		/* reads async events */
	int stop_fd;
};

/* ib_device.c */
int ib_device_get(const char *name, struct ib_device **dev);
void ib_device_put(struct ib_device *dev);
/* References to those that are open now, to be put back; how many. */
unsigned int ib_device_hold(struct ib_device **list, unsigned int max);
struct ib_iface;
void ib_device_watch(struct ib_device *dev, struct ib_iface *iface, bool on);

/* ib_mem.c: any thread */
int ib_mem_register(void *addr, size_t len, enum weft_mem_kind kind,
		    struct weft_mem **mem);
void ib_mem_pack(struct weft_mem *mem, void *rkey);
void ib_mem_release(struct weft_mem *mem);
/* A registration that covers it; false: none does. */
bool ib_mem_lkey(struct ib_device *dev, uint64_t addr, size_t len,
		 uint32_t *lkey);
/*
 * What a peer's question about @key is answered; -EACCES: no such key, others:
 * it stands for memory that cannot be registered with @dev, which was told.
 */
int ib_mem_resolve(struct ib_device *dev, const struct weft_rkey *key,
		   struct ib_key_answer *answer);
void ib_mem_device_gone(struct ib_device *dev);

/* ---- operations ---------------------------------------------------------- */

enum ib_op_kind {
	IB_OP_PUT,
	IB_OP_GET,
};

/* A put or a get. */
struct ib_op {
	struct weft_list link;	/* conn->queue, conn->posted or iface->finished */
	enum ib_op_kind kind;
	struct ib_conn *conn;
	struct weft_op *op;	/* NULL: nobody waits any more */
	int status;
	bool all_posted;
	unsigned int in_flight;	/* records in the ring */
	uint64_t remote_addr;
	struct weft_rkey rkey;
	bool notify;
	uint64_t tag;
	size_t total, off;	/* bytes; bytes posted */
	unsigned int iovcnt, iov_i;
	size_t iov_off;
	struct iovec iov[IB_MAX_IOV];
	bool own_mrs;		/* registered for this operation alone */
	struct ibv_mr *mr[IB_MAX_IOV];
};

/* A send buffer. */
struct ib_tx {
	struct weft_list link;	/* conn->tx_free */
	uint8_t *buf;
	uint32_t len;
	bool user;		/* a message: of IB_USER_SLOTS */
};

enum ib_rx_state {
	IB_RX_IDLE,
	IB_RX_POSTED,
	IB_RX_PENDING,		/* arrived, in iface->received */
};

/* A receive request, on all QPs but the first without a buffer. */
struct ib_rx {
	struct weft_list link;	/* iface->received */
	struct ib_qp *q;
	enum ib_rx_state state;
	uint8_t *buf;
	uint32_t len;
	bool told;		/* an immediate, of a WRITE of @len bytes */
	uint32_t imm;
};

enum ib_record_kind {
	IB_REC_SEND,
	IB_REC_WRITE,
	IB_REC_TELL,		/* a WRITE with an immediate */
	IB_REC_READ,
	IB_REC_PROBE,		/* an empty WRITE: is the path alive? */
};

/* A posted request: enough to post it again on another QP. */
struct ib_record {
	enum ib_record_kind kind;
	bool dropped;		/* its operation is given up, and @op NULL */
	struct ib_op *op;	/* NULL: message or probe */
	struct ib_tx *tx;	/* SEND */
	uint32_t seq;		/* SEND, TELL: what takes a credit */
	uint32_t imm;		/* TELL */
	unsigned int iov_i;
	uint64_t laddr, raddr;
	uint32_t len, rkey;
};

/* What the peer said a key stands for. */
struct ib_key {
	struct weft_list link;	/* a bucket */
	struct weft_list age;	/* conn->keys_age, oldest first */
	struct weft_rkey key;
	enum { IB_KEY_ASK, IB_KEY_ASKED, IB_KEY_KNOWN, IB_KEY_REFUSED } state;
	int err;		/* REFUSED: why */
	uint32_t rkey;
	uint64_t base, len;
};

struct ib_question {
	struct weft_list link;	/* conn->questions */
	struct weft_rkey key;
};

/* ---- connections --------------------------------------------------------- */

struct ib_cq {
	struct weft_list link;	/* iface->cqs */
	struct ibv_cq *cq;
	unsigned int used, size;	/* entries promised, entries there */
	bool dead;			/* nothing is learnt from it any more */
	_Atomic bool failed;		/* told by the device's thread */
};

/* A queue pair: what was posted on it, and what it receives. */
struct ib_qp {
	struct ib_conn *conn;
	unsigned int index;		/* in conn->q */
	struct ibv_qp *qp;		/* NULL between two epochs */
	uint32_t psn;
	uint32_t max_inline;
	/* receiving */
	struct ib_rx *rx;
	unsigned int nrx, rx_posted;
	uint32_t rx_next;		/* number of the next one in */
	unsigned int to_return;		/* credits owed to the peer */
	/* sending */
	unsigned int credits;
	uint32_t tx_next;		/* number of the next one out */
	struct ib_record ring[IB_SQ_DEPTH];
	unsigned int ring_head, ring_n;	/* posted and not completed */
	unsigned int tx_out;		/* of them with the adapter */
	unsigned int fenced;		/* of them what a fence waits for */
	/* watchdog */
	bool moved;			/* completed since the last tick */
	unsigned int silent_ms;		/* since the last completion */
};

enum ib_conn_state {
	IB_CONN_MEETING,	/* our QP waits for the peer's */
	IB_CONN_OPEN,		/* it sends; peer_ready: so may we */
	IB_CONN_DRAINING,	/* the QP is given up; it flushes */
	IB_CONN_DEAD,		/* in iface->dead */
};

struct ib_conn {
	struct weft_list link;		/* peer->conns, iface->dead */
	struct weft_list id_link;	/* iface->by_id */
	struct weft_list work_link;	/* iface->work: look at it */
	struct ib_iface *iface;
	struct ib_peer *peer;
	struct ib_ep *ep;
	uint32_t id, sn;
	enum ib_conn_state state;
	int broken;			/* to be failed by progress(): -errno */
	enum ibv_wc_status status;	/* of the request that broke it, or 0 */
	bool had_ep, bye_sent, bye_seen;
	/* the QPs and their peers */
	struct ib_qp *q;
	unsigned int nqps;		/* of both sides' the fewer, once met */
	/* one for all: between two, what comes first could be read last */
	struct ib_cq *cq;
	unsigned int next_q;		/* whose turn it is for bulk */
	uint32_t epoch;
	unsigned int breaks;
	uint64_t deadline_ms;		/* MEETING, DRAINING */
	bool want_break;
	bool judged;			/* why this epoch ended is known */
	bool refused;			/* it was this key */
	struct weft_rkey refused_key;
	bool say_info, peer_ready;
	bool got_info;			/* peer_info is of this epoch */
	struct ib_conn_info peer_info;
	/* buffers: one mapping, one registration */
	void *map;
	struct ibv_mr *mr;
	struct ib_tx tx[IB_TX_SLOTS];
	struct weft_list tx_free;
	unsigned int user_used, tx_used;	/* messages; all */
	/* sending */
	struct weft_list queue, posted;	/* struct ib_op */
	unsigned int nqueued, nops, nfinished;	/* the last: not told yet */
	bool fence_due;			/* behind what is in the queue */
	bool was_full;			/* on_ready() is owed */
	struct weft_list *keys;		/* IB_KEY_BUCKETS */
	struct weft_list keys_age;
	unsigned int nkeys, nasks;
	struct weft_list questions;
	unsigned int nquestions;
	struct weft_counters *stats;
};

/* The process behind an address: its control connection. */
struct ib_peer {
	struct weft_list link;		/* iface->peers */
	struct ib_iface *iface;
	struct weft_address addr;
	uint64_t id;
	struct weft_ep *ctl;		/* of the tcp device */
	uint64_t my_nonce, peer_nonce;	/* 0: not known yet */
	bool said_hello;		/* with peer_nonce in it */
	bool owes_hello;
	bool verified;			/* it has read what only it could */
	bool dead;			/* ctl told so, and is gone */
	struct weft_list conns;
};

struct ib_ep {
	struct weft_ep base;
	struct ib_conn *conn;		/* NULL once dead */
	struct weft_ep_sn *numbers;
	int err;
	bool cancelled;
	struct weft_flushes flushes;
};

struct ib_iface {
	struct weft_iface base;
	struct ib_device *dev;
	const struct weft_verbs *v;
	struct weft_verbs_port port;
	struct ibv_port_attr port_attr;
	size_t told_most;		/* bytes of a WRITE with an immediate */
	unsigned int gid_index, pkey_index, traffic_class;
	uint8_t gid[16];
	struct weft_iface *ctl;		/* of the tcp device */
	struct weft_address addr;
	uint64_t my_id;
	int epfd, wake_fd, timer_fd;
	struct ibv_comp_channel *channel;
	struct weft_list cqs;
	struct weft_list device_link;	/* dev->ifaces */
	struct weft_list peers, dead;
	struct weft_ep_sns sns;
	struct weft_list by_id[IB_CONN_BUCKETS];
	uint32_t next_id;
	struct weft_list work;		/* ib_conn.work_link */
	struct weft_list received;	/* ib_rx.link */
	struct weft_list finished;	/* ib_op.link */
	struct weft_stats *stats;
	unsigned int polls;
	unsigned int budget;		/* messages left to this progress() */
	bool closing;
	bool failing;			/* some connection is broken */
	bool timer_on;
	uint64_t tick_ms;
	/* told by the device's thread */
	_Atomic int port_event;		/* the last of its port, + 1 */
	_Atomic bool fatal;		/* the device has failed */
	_Atomic bool cq_failed;		/* some ib_cq of the device has */
	uint64_t port_down_ms;		/* since when; 0: it is up */
};

/* ib_iface.c */
int ib_iface_open(const char *name, int family, const struct weft_iface_cb *cb,
		  struct weft_iface **iface);
void ib_iface_close(struct weft_iface *iface);
void ib_iface_query(struct weft_iface *iface, struct weft_iface_attr *attr);
bool ib_iface_reaches(struct weft_iface *iface,
		      const struct weft_address *remote, const char **why);
unsigned int ib_iface_progress(struct weft_iface *iface);
int ib_iface_event_fd(struct weft_iface *iface);
int ib_iface_arm(struct weft_iface *iface);
void ib_iface_wake(struct ib_iface *iface);

/* ib_peer.c: the control plane */
extern const struct weft_iface_cb ib_ctl_callbacks;
struct ib_peer *ib_peer_get(struct ib_iface *iface,
			    const struct weft_address *addr);
void ib_peer_say(struct ib_peer *peer);
/* Our side of it has ended, or there is none: why, as in ib_proto.h. */
void ib_peer_say_gone(struct ib_peer *peer, uint32_t sn, int err,
		      enum ibv_wc_status status);
/* False: not now. */
bool ib_peer_say_kind(struct ib_peer *peer, uint32_t sn, enum ib_ctl kind);
struct ib_conn *ib_peer_conn(struct ib_peer *peer, uint32_t sn);
void ib_peers_reap(struct ib_iface *iface);
void ib_peers_close(struct ib_iface *iface);

/* ib_conn.c */
struct ib_conn *ib_conn_new(struct ib_peer *peer, uint32_t sn);
/* The peer's half arrived. */
void ib_conn_info(struct ib_conn *conn, const struct ib_conn_info *info);
/* Our half, to be sent. */
void ib_conn_fill_info(const struct ib_conn *conn, struct ib_conn_info *info);
/* Never calls back: progress() fails it. */
void ib_conn_break(struct ib_conn *conn, int err);
/* Gives the QP up; another one follows. */
void ib_conn_renew(struct ib_conn *conn);
void ib_conn_fail(struct ib_conn *conn, int err);
void ib_conn_work(struct ib_conn *conn);
/* What is to be done about it outside of callbacks; 1: something was. */
unsigned int ib_conn_step(struct ib_conn *conn);
void ib_conn_reap(struct ib_iface *iface);
struct ib_conn *ib_conn_find(struct ib_iface *iface, uint32_t id);

/* ib_qp.c */
int ib_qp_create(struct ib_qp *q);
int ib_qp_connect(struct ib_qp *q);
/*
 * Nothing arrives any more, and nothing posted is executed once tx_out is 0;
 * false: only destroying it makes sure.
 */
bool ib_qp_flush(struct ib_qp *q);
void ib_qp_destroy(struct ib_qp *q);
/* The same of all that a connection has. */
bool ib_qps_flush(struct ib_conn *conn);
void ib_qps_destroy(struct ib_conn *conn);
/* Requests that are with the adapter. */
unsigned int ib_qps_out(const struct ib_conn *conn);

/* ib_op.c: puts and gets, and what else waits for room */
/* Would a message leave at once? */
bool ib_conn_ready(const struct ib_conn *conn);
void ib_op_queue(struct ib_conn *conn, struct ib_op *op);
/* Gives it up: nothing of it will be posted any more. */
void ib_op_abort(struct ib_op *op, int status);
/* One of its records is done. */
void ib_op_record_done(struct ib_op *op);
void ib_op_pump(struct ib_conn *conn);
/* A message behind this waits for every put that was queued before it. */
void ib_op_fence(struct ib_conn *conn);
/*
 * Completes all puts and gets with @status, calling back; nothing of them may
 * be with the adapter any more.
 */
void ib_op_drop_all(struct ib_conn *conn, int status);

/* ib_tx.c: requests */
struct ib_tx *ib_tx_take(struct ib_conn *conn, bool user);
void ib_tx_give(struct ib_conn *conn, struct ib_tx *tx);
/* Is there room for one more request, and @spare after it? */
bool ib_tx_room(const struct ib_qp *q, unsigned int spare);
/*
 * Puts a record at the end of the ring and posts it.  -errno: it is not in
 * the ring, and its operation cannot go on.
 */
int ib_tx_post(struct ib_qp *q, const struct ib_record *rec);
/* Does it take one of the peer's receive requests, and has it a number? */
static inline bool ib_rec_counts(const struct ib_record *rec)
{
	return rec->kind == IB_REC_SEND || rec->kind == IB_REC_TELL;
}
/* Posts it, for which there has to be room; on failure the caller has it. */
int ib_tx_send(struct ib_conn *conn, struct ib_tx *tx, enum ib_kind kind,
	       uint8_t id, struct ib_op *op);
int ib_tx_probe(struct ib_qp *q);
void ib_tx_record_done(struct ib_conn *conn, struct ib_record *rec);
void ib_tx_completed(struct ib_qp *q, unsigned int index,
		     const struct ibv_wc *wc);
/* Is a put or get with the adapter? */
bool ib_tx_busy(const struct ib_conn *conn);

/* ib_resume.c: after the next QPs were connected, what the last left undone */
void ib_resume(struct ib_conn *conn);

/* ib_key.c */
struct ib_key *ib_key_get(struct ib_conn *conn, const struct weft_rkey *key);
void ib_key_forget(struct ib_conn *conn, struct ib_key *key);
void ib_key_drop(struct ib_conn *conn, const struct weft_rkey *key);
bool ib_key_allows(const struct ib_key *k, uint64_t addr, size_t len);
/* Sends the questions and answers that are due. */
void ib_key_pump(struct ib_conn *conn);
int ib_key_question(struct ib_conn *conn, const uint8_t *body, size_t len);
int ib_key_answer(struct ib_conn *conn, const uint8_t *body, size_t len);
void ib_keys_free(struct ib_conn *conn);

/* ib_cq.c */
/* Entries for all that @nqps QPs can have posted; NULL, errno. */
struct ib_cq *ib_cq_take(struct ib_iface *iface, unsigned int nqps);
void ib_cq_give(struct ib_iface *iface, struct ib_cq *cq, unsigned int nqps);
void ib_cqs_close(struct ib_iface *iface);
/* Ends what uses those that have failed. */
void ib_cqs_check(struct ib_iface *iface);
/* Gathers what is complete; calls nobody back. */
unsigned int ib_cq_gather(struct ib_iface *iface);
/* Calls back for what was gathered. */
unsigned int ib_cq_deliver(struct ib_iface *iface);
/* Asks for an event; -EBUSY: something was complete already. */
int ib_cq_arm(struct ib_iface *iface);
uint64_t ib_wr_id_send(const struct ib_qp *q, unsigned int index);
void ib_rx_post(struct ib_rx *rx);
/* Has anything arrived that was not handed over yet? */
bool ib_rx_waits(const struct ib_conn *conn);
void ib_rx_drop(struct ib_conn *conn);

/* ib_watch.c */
void ib_watch_start(struct ib_iface *iface);
void ib_watch_tick(struct ib_iface *iface);
void ib_watch_port(struct ib_iface *iface);

/* ib_ep.c */
int ib_ep_create(struct weft_iface *iface, const struct weft_address *remote,
		 void *user, struct weft_ep **ep);
void ib_ep_destroy(struct weft_ep *ep);
void ib_ep_query(struct weft_ep *ep, struct weft_ep_attr *attr);
bool ib_ep_ready(struct weft_ep *ep);
int ib_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		  unsigned int iovcnt, struct weft_op *op);
ssize_t ib_ep_message_pack(struct weft_ep *ep, uint8_t id,
			   size_t (*pack)(void *dest, void *arg), void *arg);
int ib_ep_put(struct weft_ep *ep, const struct weft_iov *iov,
	      unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
	      const struct weft_notify *notify, struct weft_op *op);
int ib_ep_get(struct weft_ep *ep, const struct weft_iov *iov,
	      unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
	      struct weft_op *op);
void ib_ep_fence(struct weft_ep *ep);
int ib_ep_flush(struct weft_ep *ep, struct weft_op *op);
void ib_ep_cancel(struct weft_ep *ep);
void ib_ep_check_flush(struct ib_conn *conn);
void ib_ep_failed(struct ib_ep *ep, int err);
void ib_ep_tell_ready(struct ib_conn *conn);

static inline struct ib_iface *ib_iface(struct weft_iface *i)
{
	return container_of(i, struct ib_iface, base);
}

static inline struct ib_ep *ib_ep(struct weft_ep *e)
{
	return container_of(e, struct ib_ep, base);
}

#endif

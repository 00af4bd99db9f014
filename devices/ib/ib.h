/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The InfiniBand and RoCE device's own objects.
 *
 * Peers meet over the tcp device, used through its contract as the control
 * plane: it proves both keys, watches the peer's kernel, and carries the
 * exchange of queue pairs.  An endpoint has one RC queue pair, which carries
 * messages, by SEND with credits, puts, by RDMA WRITE, and gets, by RDMA READ.
 * A put notifies its target by an immediate if it is one WRITE, else by a SEND
 * behind it.
 *
 * A queue pair executes its requests in the order posted (InfiniBand
 * Architecture Specification, volume 1, section 9.5 "Transaction ordering"), so
 * a message behind a put is delivered behind it, and a fence costs nothing.
 *
 * A request that an adapter refuses ends the queue pair on both sides, and with
 * it both endpoints; so does cancelling one that is posted, since an adapter
 * takes none back.
 *
 * Completions are gathered without callbacks (ib_done.c), so that cancel(),
 * too, can wait for the adapter; progress() delivers them.
 *
 * The files call each other downwards in this order: iface, timer, ep, conn and
 * peer, done, xfer, qp, mem, device.
 */
#ifndef WEFT_DEVICES_IB_H
#define WEFT_DEVICES_IB_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "devices/common/ep.h"
#include "stats/stats.h"
#include "devices/ib/ib_proto.h"
#include "host/verbs.h"
#include "settings/settings.h"
#include "util/drivers/verbs.h"
#include "util/list.h"
#include "util/table.h"

#define IB_MAX_IOV    16
#define IB_SQ_DEPTH   64
#define IB_SQ_SPARE   16	 /* reserved for messages */
#define IB_PIECE      (1u << 20) /* bytes of one WRITE or READ */
#define IB_MAX_IMM    (4u << 20) /* of one with an immediate */
#define IB_MAX_QUEUED 16	 /* operations accepted, but not posted yet */
#define IB_USER_SLOTS IB_CREDITS /* send buffers that messages fill */
#define IB_TX_SLOTS   (IB_USER_SLOTS + 4)
#define IB_INLINE     64  /* bytes that go inside a request */
#define IB_POLL_EVERY 16  /* progress calls between looks at epoll */
#define IB_REFUSAL_MS 100 /* for the answer to what the peer has refused */

struct ib_conn;
struct ib_iface;

struct ib_device {
	unsigned int number; /* below IB_MAX_DEVICES */
	unsigned int refs;   /* interfaces, registrations */
	unsigned int forks;  /* util/fork.h: whose it is */
	char name[WEFT_VERBS_NAME];
	const struct weft_verbs *v;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct weft_list alarms; /* struct ib_alarm */
	pthread_t thread;	 /* reads async events */
	int stop_fd;
};

/* What the device's thread reports to an interface. */
struct ib_alarm {
	struct weft_list link; /* device->alarms */
	unsigned int port;
	int wake_fd; /* the interface's eventfd, written for any of it */
	_Atomic int port_event; /* the last of its port, + 1 */
	_Atomic bool fatal;	/* the device has failed */
	_Atomic bool cq_failed; /* some completion queue of it has */
};

struct ib_cq {
	struct weft_list link; /* iface->cqs */
	struct ibv_cq *cq;
	unsigned int used, size; /* entries reserved, entries */
	bool dead;		 /* do not poll it any more */
	_Atomic bool failed;	 /* set by the device's thread */
};

/* wr_id: id of the connection << 32 | receive? | index */
#define IB_WR_RECV  BIT(31)
#define IB_WR_INDEX 0xffffu
_Static_assert(IB_SQ_DEPTH <= IB_WR_INDEX, "wr_id");

enum ib_op_kind {
	IB_OP_PUT,
	IB_OP_GET,
};

/* A put or a get. */
struct ib_op {
	struct weft_list
		link; /* conn->queue, conn->posted or iface->finished */
	enum ib_op_kind kind;
	struct ib_conn *conn;
	struct weft_op *op; /* NULL: cancelled */
	int status;
	bool all_posted;
	unsigned int in_flight; /* requests of it in the ring */
	uint64_t remote_addr;
	uint32_t rkey;
	bool notify;
	uint64_t tag;
	size_t total, off; /* bytes; bytes posted */
	unsigned int iovcnt, iov_i;
	size_t iov_off;
	struct {
		uint64_t addr;
		size_t len;
		uint32_t lkey;
		struct ibv_mr *mr; /* for this operation alone, or NULL */
	} iov[IB_MAX_IOV];
};

/* A send buffer. */
struct ib_tx {
	struct weft_list link; /* conn->tx_free */
	uint8_t *buf;
	uint32_t len;
	bool user; /* a message: of IB_USER_SLOTS */
};

enum ib_rx_state {
	IB_RX_IDLE,
	IB_RX_POSTED,
	IB_RX_PENDING, /* arrived, in iface->received */
};

struct ib_rx {
	struct weft_list link; /* iface->received */
	struct ib_conn *conn;
	enum ib_rx_state state;
	uint8_t *buf;
	uint32_t len;
	bool immediate; /* an immediate, of a WRITE of @len bytes */
	uint32_t imm;
};

/* A posted request without a completion yet. */
struct ib_request {
	struct ib_op *op; /* NULL: message or probe, or cancelled */
	struct ib_tx *tx; /* of a SEND */
};

/*
 * JOINING: our queue pair waits for the peer's; OPEN: it sends, and so may we
 * once peer_ready is set; CLOSED: it is in iface->dead.
 */
struct ib_conn {
	struct weft_conn base;
	struct weft_list link;	 /* peer->conns, iface->dead */
	struct weft_entry by_id; /* iface->by_id */
	struct ib_iface *iface;
	struct ib_peer *peer;
	uint32_t id;
	enum ibv_wc_status status; /* of what broke it, or 0 */
	bool info_due, peer_ready;
	bool got_info; /* peer_info is valid */
	struct ib_conn_info peer_info;
	/* the queue pair */
	struct ibv_qp *qp;
	struct ib_cq *cq;
	uint32_t psn;
	uint32_t max_inline;
	/* buffers: one mapping, one registration */
	void *map;
	struct ibv_mr *mr;
	struct ib_rx rx[IB_RX_SLOTS];
	struct ib_tx tx[IB_TX_SLOTS];
	struct weft_list tx_free;
	unsigned int user_used, tx_used; /* messages; all */
	unsigned int to_return;		 /* credits owed to the peer */
	bool answer_due;		 /* at once */
	/* sending */
	uint64_t sent, delivered; /* what takes credits, by the peer */
	uint64_t sent_message;	  /* `sent` at the last message */
	uint64_t sent_ask;	  /* `sent` at the last ASK */
	struct ib_request ring[IB_SQ_DEPTH]; /* requests that the adapter has */
	unsigned int ring_head, tx_out;
	struct weft_list queue, posted;	       /* struct ib_op */
	unsigned int nqueued, nops, nfinished; /* nfinished: not reported yet */
	/* watchdog */
	bool moved;		/* completed since the last tick */
	bool waits;		/* for a completion, at the last tick */
	unsigned int silent_ms; /* how long one has been waited for */
	struct weft_counters *stats;
};

/* The process behind an address: its control connection. */
struct ib_peer {
	struct weft_list link; /* iface->peers */
	struct ib_iface *iface;
	struct weft_address addr;
	uint64_t id;
	struct weft_ep *ctl;	       /* of the tcp device */
	uint64_t my_nonce, peer_nonce; /* 0: not known yet */
	bool hello_sent;	       /* with peer_nonce in it */
	bool owes_hello;
	bool verified; /* it knows the nonce that only it was sent */
	bool dead;     /* its control connection failed */
	struct weft_list conns;
};

/* Never calls back: progress() fails it.  The first error counts. */
static inline void ib_conn_break(struct ib_conn *conn, int err);

/* Messages that may be sent. */
static inline unsigned int ib_conn_credits(const struct ib_conn *conn)
{
	return IB_CREDITS - (unsigned int)(conn->sent - conn->delivered);
}

struct ib_iface {
	struct weft_base base;
	struct ib_device *dev;
	const struct weft_verbs *v;
	struct weft_verbs_port port;
	struct ibv_port_attr port_attr;
	size_t max_imm; /* bytes of a WRITE with an immediate */
	unsigned int gid_index, pkey_index, traffic_class;
	uint8_t gid[16];
	struct weft_iface *ctl; /* of the tcp device */
	struct weft_source ctl_src, channel_src;
	struct ibv_comp_channel *channel;
	struct weft_list cqs;
	struct ib_alarm alarm;
	struct weft_list peers, dead;
	struct weft_table by_id; /* of connections */
	uint32_t next_id;
	struct weft_list received; /* ib_rx.link */
	struct weft_list finished; /* ib_op.link */
	unsigned int polls;
	unsigned int budget; /* messages left to this progress() */
	bool closing;
	bool failing; /* some connection is broken */
	bool timer_on;
	uint64_t tick_ms;
	uint64_t port_down_ms; /* since when; 0: it is up */
};

static inline struct ib_iface *ib_iface(struct weft_iface *i)
{
	return container_of(i, struct ib_iface, base.iface);
}

static inline struct ib_conn *ib_conn(struct weft_conn *c)
{
	return container_of(c, struct ib_conn, base);
}

static inline void ib_conn_break(struct ib_conn *conn, int err)
{
	if (!conn->base.err)
		conn->base.err = err;
	conn->iface->failing = true;
	weft_conn_attend(&conn->base);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the adaptor's files share; see net.h for what it does.
 *
 * Ownership: a context owns its ports (weft ifaces), a port its peers
 * (endpoints).  A peer is shared by all comms between two processes, whichever
 * direction they go, and lives as long as a reference does, then until all its
 * messages are out.  Everything below is guarded by the context's lock, except
 * a request's state, which test() reads without it.
 */
#ifndef WEFT_NCCL_NET_INTERNAL_H
#define WEFT_NCCL_NET_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include "bootstrap/verbs.h"
#include "nccl_net/wire.h"
#include "util/cuda.h"
#include "util/list.h"

#define WEFT_NET_REQUESTS	32	/* NCCL_NET_MAX_REQUESTS */
#define WEFT_NET_TRIES		(WEFT_WAYS_MAX * 8)
/*
 * Sends up to this size travel as a message, receive posted or not: no round
 * trip, no acknowledgement, one copy.  Above, the copy costs more than both.
 */
#define WEFT_NET_EAGER		65536u
/* How far such sends may run ahead of the receives known to be posted. */
#define WEFT_NET_AHEAD		16u
/* After so many small receives in a row, their posting is no longer told. */
#define WEFT_NET_QUIET_AFTER	16u
/* POSTs go as one message of so many bytes at most: that many are gathered. */
#define WEFT_NET_POSTS		512u
/* How long a copy may be with an engine before it counts as lost. */
#define WEFT_NET_COPIES_MS	20000u

struct weft_net_port {
	struct weft_list link;			/* in net->ports */
	struct weft_net *net;
	const struct weft_dev_ops *ops;
	struct weft_iface *iface;
	struct weft_iface_attr attr;
	char netdev[WEFT_VERBS_NAME + 8];	/* or a port's, "mlx5_0:1" */
	enum weft_net_wire wire;
	/*
	 * Kernels wait for what it moves: nothing is sent that its receiver
	 * would have to keep, and a thread watches it (watch.c).
	 */
	bool kernels_wait;
	bool falls_back;			/* to TCP, with a word */
	unsigned int hca;			/* ib: which of weft_net_hcas() */
	unsigned int skipped;			/* calls of progress() */
	uint64_t speed;				/* bytes/s, 0 unknown */
	struct weft_list peers;			/* alive */
	struct weft_list leaving;		/* no comm left, or dead */
	struct weft_list shunned;		/* whom TCP has to reach */
};

struct weft_net_peer {
	struct weft_list link;			/* in port->peers or leaving */
	struct weft_net_port *port;
	struct weft_address addr;
	struct weft_ep *ep;			/* NULL once dead */
	int err;
	unsigned int cut;			/* puts that failed */
	bool prepared;				/* prepare() is done */
	bool flushing;
	unsigned int refs;
	struct weft_op flushed;
	struct weft_list comms;
	struct weft_list posting;		/* in net->posting */
	size_t posts_len;			/* that progress() sends */
	uint8_t posts[WEFT_NET_POSTS];
};

struct weft_net_thread {
	pthread_t id;
	bool on;				/* and is to stay */
};

struct weft_net {
	struct weft_list link;			/* of all contexts */
	pthread_mutex_t lock;
	struct weft_list ports;
	struct weft_list listeners;
	struct weft_list dialing;		/* comms not yet answered */
	struct weft_list posting;		/* peers that POSTs wait for */
	/* Listeners and comms; the ports are open while there are any. */
	unsigned int users;
	struct weft_net_comm **comms;		/* by slot of their id */
	unsigned int comms_size;
	uint16_t generation;
	bool closed;				/* by weft_net_close() */
	unsigned int leaving;			/* callers that closing waits for */
	struct weft_net_thread keeper;		/* see keeper.c */
	pthread_cond_t keeper_wake;
	pthread_cond_t pause;			/* weft_net_close() rings */
	struct weft_net_port *watched;		/* in ports, too; NULL: none */
	enum weft_net_wire best;		/* of the ports' */
	uint64_t calls;				/* of weft_net_progress() */
	struct weft_net_thread watcher;		/* see watch.c */
	int watch_fd;				/* wakes it; -1: it is not there */
	bool watch_asleep;			/* until NCCL calls */
	pthread_mutex_t stage_lock;		/* lanes, doubles: see stage.c */
	struct weft_list lanes, doubles;
	struct weft_list staged;		/* requests whose copy is out */
};

struct weft_net_listener {
	struct weft_list link;
	struct weft_net *net;
	uint64_t token;
	struct weft_list queue;			/* struct weft_net_comm, arrived */
	unsigned int queued;
};

struct weft_net_mr {
	struct weft_net *net;
	const struct weft_dev_ops *ops;
	struct weft_mem *mem;			/* NULL: revoked */
	uint8_t rkey[WEFT_RKEY_MAX];
	uintptr_t addr;
	size_t size;
	struct weft_cuda_ptr where;
	bool gpu;
	struct weft_net_lane *lane;		/* copies it; NULL: nobody does */
	struct weft_net_double *twin;		/* in host memory, shared */
	char *shadow;				/* its memory; NULL: none */
	unsigned int posted;			/* receives that name it */
	bool gone;				/* deregistered meanwhile */
};

enum weft_net_state {
	REQ_FREE,
	REQ_ACTIVE,
	REQ_DONE,
};

struct weft_net_request {
	struct weft_op op;
	struct weft_net_comm *comm;
	atomic_int state;
	int status;
	uint32_t seq;
	uint64_t calls;				/* net->calls at the last test */
	void *data;				/* receives */
	struct weft_net_mr *mr;			/* receives, and staged sends */
	size_t size;				/* posted, then true */
	struct weft_list staged;		/* in net->staged */
	void *event;				/* behind its copy */
	bool copied;				/* a staged send may go */
};

/* One try to reach the listener: a way of ours to a way of its. */
struct weft_net_try {
	enum { TRY_WAITING, TRY_STARTED, TRY_ASKED, TRY_FAILED } state;
	struct weft_net_port *port;
	struct weft_address addr;
	struct weft_net_peer *peer;
	int err;
};

struct weft_net_dial {
	struct weft_list link;			/* in net->dialing */
	struct weft_net_comm *comm;
	uint64_t listener;			/* the handle's token */
	uint64_t stage;				/* what the handle remembers */
	uint64_t deadline, next;		/* ms */
	bool refused;
	unsigned int n;
	struct weft_net_try try[WEFT_NET_TRIES];
};

struct weft_net_post {				/* a receive of the peer's */
	uint64_t addr, size;
	uint8_t rkey[WEFT_RKEY_MAX];
	uint32_t seq;
	bool gpu;
	bool there;
};

struct weft_net_stash {				/* came before its receive */
	void *data;
	uint32_t size;
	bool there;
};

struct weft_net_comm {
	struct weft_net *net;
	struct weft_list link;			/* in peer->comms, or in the
						   listener's queue */
	struct weft_net_peer *peer;
	struct weft_net_dial *dial;		/* until answered */
	bool sender;
	bool answered;				/* ACCEPT is out, or in */
	bool bye;				/* the peer closed its side */
	uint8_t way;				/* to be named in ACCEPT */
	uint32_t id, remote_id;
	uint64_t token;				/* of the connecting side */
	int err;
	uint32_t eager;				/* bytes */
	uint32_t seq;				/* of the next isend or irecv */
	uint64_t calls;				/* net->calls at the last isend */
	unsigned int active;			/* requests not done */
	unsigned int gpu_buffers;		/* registered so far */

	/* sender */
	struct weft_net_post post[WEFT_NET_REQUESTS];
	uint32_t known;				/* receives below: posted */
	bool peer_quiet, need;

	/* receiver */
	uint32_t told;				/* POSTs below: out */
	uint32_t seen;				/* SEEN (or POST) below: out */
	unsigned int small;			/* in a row */
	bool quiet, tell_quiet;
	struct weft_net_stash stash[WEFT_NET_REQUESTS];

	struct weft_net_request req[WEFT_NET_REQUESTS];
};

/* net.c */
extern const struct weft_iface_cb weft_net_events;	/* arg: the port */
unsigned int weft_net_progress(struct weft_net *net);
/*
 * NCCL asks for each of its requests in turn, tens of times a round: one who
 * asks makes progress unless somebody has since it last asked, which @calls
 * remembers.
 */
static inline bool weft_net_may_progress(struct weft_net *net, uint64_t *calls)
{
	const bool mine = *calls == net->calls;

	if (mine)
		weft_net_progress(net);
	*calls = net->calls;
	return mine;
}
/* Takes the watched port's new peers a step towards being ready for traffic. */
void weft_net_ready_peers(struct weft_net *net);

/* ports.c */
/* Opens the ports for the first user; the last one closes them. */
int weft_net_use(struct weft_net *net);
void weft_net_unuse(struct weft_net *net);
void weft_net_ports_close(struct weft_net *net);
/*
 * The port of NCCL's device @dev, which is opened when that device is first
 * used; NULL: it has none, or it cannot be had.
 */
struct weft_net_port *weft_net_hca_port(struct weft_net *net, int dev);
/* Who has this address is not reached by @port: do not try again. */
void weft_net_shun(struct weft_net_port *port, const struct weft_address *addr);
bool weft_net_shuns(const struct weft_net_port *port,
		    const struct weft_address *addr);

/* peer.c */
int weft_net_peer_get(struct weft_net_port *port,
		      const struct weft_address *addr,
		      struct weft_net_peer **peer);
void weft_net_peer_put(struct weft_net_peer *peer);
void weft_net_peer_fail(struct weft_net_peer *peer, int err);
/* Frees those of @port->leaving that are done with; @force: all. */
void weft_net_peer_reap(struct weft_net_port *port, bool force);
/* -EAGAIN: not now; other errors are the peer's. */
int weft_net_peer_send(struct weft_net_peer *peer, enum weft_net_msg id,
		       const void *buf, size_t len);

/*
 * As WEFT_MSG_POST, but with what else is posted till the next progress(): one
 * message costs as much as eleven.
 */
int weft_net_peer_post(struct weft_net_peer *peer,
		       const struct weft_msg_post *post);
/* Sends what peers owe. */
void weft_net_send_posts(struct weft_net *net);

/* Is there something that only progress() would get out? */
bool weft_net_peer_unsent(struct weft_net_peer *peer);

/* keeper.c */
void weft_net_keeper_init(struct weft_net *net);
/* The caller is about to be told that it need not come again. */
void weft_net_keeper_look(struct weft_net_peer *peer);
/* The lock is others' for so long, or until the context is closed. */
void weft_net_pause(struct weft_net *net, unsigned int us);

/* watch.c */
int weft_net_watch_start(struct weft_net *net);
/* The watched port comes or goes. */
void weft_net_watch_look(struct weft_net *net);

/* threads.c */
/* 0 or an errno; the lock is held. */
int weft_net_thread_start(struct weft_net *net, struct weft_net_thread *t,
			  void *(*run)(void *net));
/* Asked by the thread itself, with the lock. */
bool weft_net_thread_wanted(const struct weft_net_thread *t);
/* With the lock, which is others' until the threads have ended. */
void weft_net_threads_end(struct weft_net *net);
/* One of net->leaving less; the lock is held. */
void weft_net_left(struct weft_net *net);
/* Of a call that may have closed the last user: ends the threads, too. */
void weft_net_unlock(struct weft_net *net);

/* stage.c: GPU memory over a wire that takes host memory */
/*
 * Both without the lock, or with it where there is no other way: the driver may
 * take its time.  @own: NCCL's own buffer, which has to be taken; -ENOMEM: a
 * user's, and there are enough.
 */
int weft_net_stage_register(struct weft_net_comm *comm, struct weft_net_mr *mr,
			    bool own);
void weft_net_stage_release(struct weft_net_mr *mr);
/* The same place in the double. */
static inline void *weft_net_shadow(const struct weft_net_mr *mr,
				    const void *data)
{
	return mr->shadow + ((uintptr_t)data - mr->addr);
}
/* Copies @size bytes from (@in) or to the double; then request_staged(). */
int weft_net_stage(struct weft_net_request *req, const void *data, size_t size,
		   bool in);
void weft_net_stage_progress(struct weft_net *net);
/* No copy of @mr's (NULL: any) is under way any more. */
void weft_net_stage_drain(struct weft_net *net, struct weft_net_mr *mr);
/* Says that one was longer under way than WEFT_NET_COPIES_MS. */
void weft_net_stage_late(void);
/* The events that @comm's requests have. */
void weft_net_stage_forget(struct weft_net_comm *comm);
void weft_net_stage_close(struct weft_net *net);

/* devlist.c: -EINVAL, with a word: there is no such device */
int weft_net_check_device(int dev);

/* conn.c */
void weft_net_on_withdraw(struct weft_net *net, const void *buf, size_t len);
void weft_net_on_connect(struct weft_net_port *port, const void *buf,
			 size_t len);
void weft_net_on_accept(struct weft_net *net, const void *buf, size_t len,
			bool refused);
/* 0: @peer's port has all that traffic will need; -EAGAIN: not yet */
int weft_net_peer_ready(struct weft_net_peer *peer);
int weft_net_random_token(uint64_t *token);
/* What connect() and accept() begin with: the lock, unless it fails. */
int weft_net_begin(struct weft_net *net);

/* dial.c */
void weft_net_dial_failed(struct weft_net *net, struct weft_net_peer *peer,
			  int err);
void weft_net_dial_end(struct weft_net_comm *comm);
/* Before it, where NCCL gets no connection: the listener shall not wait. */
void weft_net_dial_withdraw(struct weft_net_comm *comm);
/* Lock held: frees those that NCCL has given up and cannot close. */
void weft_net_dials_forget(struct weft_net *net);

/* comm.c */
int weft_net_comm_new(struct weft_net *net, bool sender,
		      struct weft_net_comm **comm);
/* The end of one that was never handed out, or is closed. */
void weft_net_comm_free(struct weft_net_comm *comm);
struct weft_net_comm *weft_net_comm_find(struct weft_net *net, uint32_t id);
/* The one that a notification names; NULL: it is gone. */
struct weft_net_comm *weft_net_comm_tagged(struct weft_net *net,
					   const struct weft_tag *t);
void weft_net_comm_attach(struct weft_net_comm *comm,
			  struct weft_net_peer *peer);
void weft_net_comm_fail(struct weft_net_comm *comm, int err);

/* mr.c */
static inline bool weft_net_mr_covers(const struct weft_net_mr *mr,
				      const void *data, size_t size)
{
	return mr->mem && (uintptr_t)data >= mr->addr && size <= mr->size &&
	       (uintptr_t)data - mr->addr <= mr->size - size;
}
void weft_net_mr_revoke(struct weft_net_mr *mr);
void weft_net_mr_put(struct weft_net_mr *mr);

/* request.c */
/* Sends whatever this comm owes its peer, as far as the wire takes it. */
void weft_net_comm_push(struct weft_net_comm *comm);
void weft_net_on_request(struct weft_net *net, enum weft_net_msg id,
			 void *buf, size_t len);
void weft_net_on_notify(void *arg, uint64_t tag, uint64_t size);
void weft_net_request_end(struct weft_net_request *req, int status);
/* recv.c */
void weft_net_recv_push(struct weft_net_comm *comm);
void weft_net_on_eager(struct weft_net *net, uint8_t *buf, size_t len);
/* send.c: the copy of a staged send has ended; -EAGAIN: ask again */
int weft_net_send_staged(struct weft_net_request *req);
void weft_net_on_post(struct weft_net *net, const void *buf, size_t len);
/* A send or receive begins; its slot is free. */
struct weft_net_request *weft_net_request_start(struct weft_net_comm *comm,
						size_t size);
bool weft_net_slot_free(struct weft_net_comm *comm);
int weft_net_comm_error(struct weft_net_comm *comm);
int weft_net_send_seq(struct weft_net_comm *comm, enum weft_net_msg id,
		      uint32_t seq);
void weft_net_too_large(struct weft_net_comm *comm, uint32_t seq, uint64_t sent,
			uint64_t posted);
#define WEFT_NET_SLOT(seq)	((seq) % WEFT_NET_REQUESTS)

#endif

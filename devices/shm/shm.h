/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory between processes of one host that need not share a namespace: the
 * host's, and that of GPUs which cannot reach each other.
 *
 *   iface -> conn (one per n-th endpoints of two interfaces)
 *                 -> rings (shared memory, one per direction)
 *                 -> transfers (puts, gets, and replies to the peer's gets)
 *                 -> windows (the same for GPU memory, once there is some)
 *         -> engines (of GPUs, likewise)
 *
 * To read: shm_proto.h; shm_ring.c writes and reads records; shm_tx.c makes
 * records of transfers; shm_rx.c lands those of the peer; shm_conn.c joins and
 * ends a connection; shm_ep.c and shm_iface.c are the contract.  GPU memory:
 * shm_window.c has the windows, shm_stage.c fills them ahead of the records,
 * shm_place.c has them emptied.
 *
 * Bytes are copied twice, into the ring by the source and out of it by the
 * target, both at the same time.  Memory named by a peer may be unmapped by
 * now: the kernel copies between it and a bounce buffer.  The bounce buffer is
 * private to the interface: a peer could make the kernel wait for the lock of a
 * memfd that it shares, and with it mem_release().  No peer gets access to more
 * than the rings.
 *
 * Everything runs in the caller's thread; mem_release() may run in any thread;
 * the region table synchronises it, and it waits for engines.  Finished copies
 * never call back: they set marks, which progress() reads.
 */
#ifndef WEFT_DEVICES_SHM_H
#define WEFT_DEVICES_SHM_H

#include "devices/common/ep.h"
#include "devices/common/region.h"
#include "devices/engine/copy.h"
#include "devices/local/local.h"
#include "devices/shm/shm_proto.h"

#define SHM_MAX_IOV 8u
#define SHM_POLLS   256u   /* progress calls between looks at the clock, and */
#define SHM_POLL_NS 50000u /* so long at least between system calls */
#define SHM_STUCK   64u	   /* calls without room: the reader has stopped */
/*
 * Both sides copy at the same time, a piece of this size apart; a system call
 * each where a peer has named the memory.
 */
#define SHM_PIECE	(32u << 10)
#define SHM_SMALL_PIECE (8u << 10) /* in a small ring */

/* Of windows: measured with weft_nvl's rings of host memory; tests change it.
 */
struct shm_tune {
	size_t chunk; /* bytes of a copy at least, if there are so many */
	unsigned int idle_ms; /* an idle window is given back after */
};
extern struct shm_tune shm_tune;

/* One side of a direction. */
struct shm_ring {
	struct shm_head *shared;      /* NULL: not there yet */
	enum shm_which in;	      /* that of the next record */
	const _Atomic uint64_t *next; /* to read: the first word of that */
	/* head: at the writer what it last saw of it; tail: the writer's alone
	 */
	uint64_t head[SHM_RINGS], tail[SHM_RINGS];
};

enum shm_transfer_kind { SHM_TX_PUT, SHM_TX_GET, SHM_TX_REPLY };

struct shm_transfer {
	struct weft_list link; /* conn->queue, ->placing or ->asking */
	enum shm_transfer_kind kind;
	struct weft_op *op; /* NULL: cancelled */
	int status;	    /* it was given up, and ends with this error */
	bool begun;	    /* PUT: its first record is sent */
	struct shm_op what; /* as it is sent */
	uint64_t moved;	    /* bytes */
	/*
	 * Not NULL: its bytes go by a window.  Where each entry lies; REPLY:
	 * the only one is what the peer gets.
	 */
	struct weft_cuda_ptr *where;
	uint64_t staged;	/* bytes in the window, or being copied there */
	unsigned int in_flight; /* copies to or from its memory */
	unsigned int iov_i;
	size_t iov_off;
	struct weft_iov iov[SHM_MAX_IOV];
};

/* A put of the peer's, from its first record until it is acknowledged. */
struct shm_landing {
	bool ended; /* no more of it comes */
	int status;
	unsigned int in_flight; /* copies to its target */
	struct shm_op what;
	uint64_t seen;
};

/* Bytes in a window. */
struct shm_chunk {
	struct weft_copy copy;	/* the writer's */
	struct shm_transfer *t; /* at the writer; NULL: it was given up */
	struct shm_conn *conn;
	uint64_t start, pos, end; /* what it takes, and where it begins */
	size_t len;
	int status;
	unsigned int left; /* copies of it that have not ended */
};

struct shm_window {
	uint8_t *map;
	size_t size;
	bool pin_tried, pinned;
	struct weft_cuda_ctx ctx; /* that it was pinned in */
	uint64_t pos, freed; /* the next chunk's begin; all below is free */
	/*
	 * At the writer chunks [sent, in) are being filled, and the reader has
	 * [out, sent); it copies [out, in).
	 */
	uint64_t in, sent, out;
	uint64_t used_ms;
	struct shm_chunk chunks[SHM_CHUNKS];
};

/* A message that waits for puts. */
struct shm_held {
	struct weft_list link;
	struct shm_record r;
	uint8_t data[];
};

struct shm_conn {
	struct weft_conn base;
	struct weft_source src;
	struct weft_list link; /* iface->conns, or dead */
	bool still; /* only a record of the peer's is work for progress() */
	struct shm_ring rx, tx;
	struct shm_iface *iface;
	int fd;		 /* -1: not met yet */
	bool hung_up;	 /* the socket has ended ... */
	uint64_t rx_end; /* ... and no more can have been written */
	bool failed;	 /* an operation of this side */
	struct weft_counters *stats;

	uint64_t sent;	       /* bytes up to the last message's end */
	bool asked;	       /* a flush waits until they are read */
	uint64_t asked_read;   /* bytes read, when last checked */
	unsigned int tx_stuck; /* progress() calls without room */
	uint64_t tx_read;      /* of all rings, when last checked */
	/* rings that have pages, or cannot have them */
	bool made[SHM_RINGS], lacks[SHM_RINGS];
	uint64_t look_ms; /* when to look whether they are used */
	uint64_t looked;  /* what was sent then */

	struct weft_list queue;	  /* not all sent, in the order of the calls */
	struct weft_list placing; /* puts: to be acknowledged, in order */
	struct weft_list asking;  /* gets: to be replied to, in order */
	struct weft_list
		filling;   /* gets whose bytes are being copied, in order */
	unsigned int nops; /* puts and gets in them */
	unsigned int nreplies;
	uint64_t puts, puts_sent, puts_acked;
	uint64_t fence; /* the next message waits for so many puts */

	/* puts of the peer's [landed, begun) are under way */
	uint64_t begun, landed;
	uint64_t placed;     /* complete puts, counted from the first */
	bool landing_failed; /* stop reading */
	unsigned int ack_at, nacks;
	struct weft_list held; /* messages, in order */
	size_t held_bytes;

	struct shm_window *in, *out; /* to read, to write; NULL: none */
	bool wanted;		     /* `out`: asked for */
	int offer_fd; /* `in`: descriptor that is not sent yet, or -1 */
	unsigned int nstaging;	/* transfers in `queue` by the window */
	unsigned int nwindowed; /* puts among them, to their end */
	size_t fenced;	      /* bytes of messages that may wait at the peer */
	unsigned int copies;  /* with engines, for it */
	uint64_t watchdog_ms; /* BROKEN: deadline for copies */

	/* last, they are large */
	struct shm_landing landings[SHM_OPS];
	int acks[SHM_OPS]; /* for which the ring had no room: a queue */
};

struct shm_iface {
	struct weft_base base;
	struct weft_local local;
	int bounce_fd; /* -1: none */
	uint8_t *bounce;
	struct weft_list conns, dead;
	unsigned int polls;
	uint64_t polled_ns;
	unsigned int messages, notices; /* left to this progress() */
	unsigned int nmade[SHM_RINGS];	/* connections with `made` */
	struct weft_engines engines;
	unsigned int nwindows; /* large ones, to read */
	bool armed;
};

static inline struct shm_iface *shm_iface(struct weft_iface *i)
{
	return container_of(i, struct shm_iface, base.iface);
}

static inline struct shm_conn *shm_conn(struct weft_conn *c)
{
	return container_of(c, struct shm_conn, base);
}

static inline bool shm_conn_is_open(const struct shm_conn *conn)
{
	return conn->base.state == WEFT_CONN_OPEN;
}

/* There is something to do for it, which progress() would not see. */
static inline void shm_conn_attend(struct shm_conn *conn)
{
	conn->still = false;
}

/* May the message @r be delivered? */
static inline bool shm_record_is_due(const struct shm_conn *conn,
				     const struct shm_record *r)
{
	return !r->fenced || (int32_t)((uint32_t)conn->placed - r->fence) >= 0;
}

/* Does a message wait for progress() alone? */
static inline bool shm_conn_owes_messages(const struct shm_conn *conn)
{
	return !weft_list_empty(&conn->held) &&
	       shm_record_is_due(
		       conn,
		       &weft_list_first(&conn->held, struct shm_held, link)->r);
}

/* Bytes of @l cannot be placed. */
static inline void shm_landing_fail(struct shm_conn *conn,
				    struct shm_landing *l, int status)
{
	if (!l->status)
		l->status = status;
	conn->landing_failed = true;
}

/* ---- shm_break.c --------------------------------------------------------- */

/* Never calls back: marks it; progress() does the rest.  @err 0: in order. */
void shm_conn_break(struct shm_conn *conn, int err);
/* The peer reports a failed operation, which ends the connection. */
void shm_conn_told(struct shm_conn *conn);

/* ---- shm_ring.c: records ------------------------------------------------- */

/*
 * Creates the ring to read; *@fd, for the peer, is the caller's.  -errno,
 * logged.
 */
int shm_ring_make(struct shm_ring *ring, int *fd);
/*
 * Maps the peer's ring to write; takes @fd.  -EINVAL, logged: not such a file.
 */
int shm_ring_map(struct shm_ring *ring, int fd);
void shm_ring_close(struct shm_ring *ring);
/*
 * Is there room for a record of @len bytes?  -EPROTO: the peer's position is
 * impossible.
 */
bool shm_ring_has_room(struct shm_conn *conn, size_t len);
/* How much of @want the next record may carry, leaving room for messages. */
size_t shm_ring_bulk(struct shm_conn *conn, size_t want);
/* Where @len bytes may be written, if there is room, ... */
void *shm_ring_begin(struct shm_conn *conn, size_t len);
/* ... and the record is made, of at most as many, which the peer sees ... */
void shm_ring_end(struct shm_conn *conn, struct shm_record r);
/* ... if it is awake: wakes it, after anything that it may wait for. */
void shm_ring_wake(struct shm_conn *conn);
/*
 * Called by progress(); @wants: something waits for room.  Is the small ring
 * full?  Then the next records are in the short one.  Has the reader stopped?
 * Then they are in the long one, and when it runs again in the short one.
 */
void shm_ring_watch(struct shm_conn *conn, bool wants);
/* The timer has fired: rings that are not used give their pages back. */
void shm_ring_tick(struct shm_conn *conn, uint64_t now);
/* The interface has no more of those of @conn. */
void shm_ring_drop_counts(struct shm_conn *conn);
/* Bytes that the peer has read and handled. */
uint64_t shm_ring_read(const struct shm_conn *conn);
/* Bytes of records, in all rings, since the start. */
static inline uint64_t shm_ring_sum(const uint64_t at[SHM_RINGS])
{
	return at[SHM_IN_SMALL] + at[SHM_IN_SHORT] + at[SHM_IN_LONG];
}
/* Where it lies, and its size. */
static inline size_t shm_ring_at(enum shm_which in)
{
	return in == SHM_IN_SMALL   ? SHM_SMALL_AT
	       : in == SHM_IN_SHORT ? SHM_SHORT_AT
				    : SHM_LONG_AT;
}
static inline size_t shm_ring_size(enum shm_which in)
{
	return in == SHM_IN_SMALL   ? SHM_SMALL
	       : in == SHM_IN_SHORT ? SHM_SHORT
				    : SHM_LONG;
}
/* Is there a record? */
static inline bool shm_ring_has_next(const struct shm_conn *conn)
{
	return atomic_load_explicit(conn->rx.next, memory_order_relaxed);
}
/* 1: *@r is the next record, *@data its bytes; 0: none; -EPROTO. */
int shm_ring_next(struct shm_conn *conn, struct shm_record *r, uint8_t **data);
/* Lets the peer overwrite it. */
void shm_ring_release(struct shm_conn *conn, const struct shm_record *r);
/* Wakes a peer that waits for what was released. */
void shm_ring_wake_writer(struct shm_conn *conn);
/* Before the caller sleeps, perhaps until the peer has read; and after it. */
void shm_ring_sleep(struct shm_conn *conn, bool on, bool wants);

/* ---- shm_bounce.c: memory that a peer names -------------------------------
 */

/* -errno, logged; to be closed in any case. */
int shm_bounce_open(struct shm_iface *iface);
void shm_bounce_close(struct shm_iface *iface);
/* Copies from the ring to such memory, or back; false: a part is not mapped. */
bool shm_bounce_out(struct shm_iface *iface, void *to, const void *ring,
		    size_t len);
bool shm_bounce_in(struct shm_iface *iface, void *ring, const void *from,
		   size_t len);

/*
 * Can this process read (or write) the program's memory without a signal?  True
 * on Linux before 5.14, which cannot tell.
 */
bool shm_bounce_check(const void *p, size_t len, bool write);

/* ---- shm_window.c: windows of GPU memory ----------------------------------
 */

/*
 * The peer wants one: creates it, and sends it when the socket accepts it.
 * -errno.
 */
int shm_window_offer(struct shm_conn *conn);
/* Sends a window that is still to be sent; 1: it did. */
unsigned int shm_window_send(struct shm_conn *conn);
/*
 * A window of the peer's; takes @fd.  -EPROTO: it was not requested; or -errno.
 */
int shm_window_take(struct shm_conn *conn, size_t size, int fd);
/* The peer has left its window.  -EPROTO: it has none. */
int shm_window_left(struct shm_conn *conn);
/* The timer has fired: leaves an idle window. */
void shm_window_tick(struct shm_conn *conn, uint64_t now);
void shm_window_close(struct shm_conn *conn);
/* Pins the windows for fast copies by @engine, if possible. */
void shm_window_pin(struct shm_window *w, const struct weft_engine *engine);
/* To write: a chunk of @len bytes in one piece; NULL: no room. */
struct shm_chunk *shm_window_take_room(struct shm_conn *conn, size_t len);
/* The same without taking it. */
bool shm_window_has_room(struct shm_conn *conn, size_t len);
/* To read: the chunk that the peer has announced; NULL: it is impossible. */
struct shm_chunk *shm_window_claim(struct shm_conn *conn,
				   const struct shm_place *place);
/* Frees the room of chunks that were read, in order. */
void shm_window_free(struct shm_conn *conn);
static inline uint8_t *shm_chunk_bytes(const struct shm_window *w,
				       const struct shm_chunk *c)
{
	return w->map + c->pos % w->size;
}
/* Takes back copies that no engine has: all, once it is not open. */
void shm_window_cancel(struct shm_conn *conn);
/* The same, and waits for those that an engine has, bounded by the watchdog. */
void shm_window_stop(struct shm_conn *conn);

/* ---- shm_stage.c: filling them ------------------------------------------- */

/* Does @t use a window, and are bytes of it missing there? */
bool shm_stage_waits(const struct shm_transfer *t);
/*
 * Stages waiting transfers, in order, as far as there is room; returns how
 * much.
 */
unsigned int shm_stage_run(struct shm_conn *conn);
/* Would that do anything? */
bool shm_stage_can_run(struct shm_conn *conn);
/* The next chunk of @t, which is the first in the queue; NULL: not yet. */
struct shm_chunk *shm_stage_next(struct shm_conn *conn,
				 const struct shm_transfer *t);
/* The peer has the record of @c. */
void shm_stage_sent(struct shm_conn *conn, struct shm_chunk *c);
/* Drops what is staged of @t and was not sent. */
void shm_stage_drop(struct shm_conn *conn, const struct shm_transfer *t);

/* ---- shm_place.c: emptying them ------------------------------------------ */

/*
 * Is memory that the peer names a GPU's?  Managed memory is registered as the
 * host's, whose release waits for no engine.  -EACCES: the driver cannot tell.
 */
int shm_place_is_gpu(const void *p, struct weft_cuda_ptr *where);
/* Bytes of the put @l, or of the get @t, are in the window.  -EPROTO. */
int shm_place_put(struct shm_conn *conn, struct shm_landing *l,
		  const struct shm_place *place);
int shm_place_get(struct shm_conn *conn, struct shm_transfer *t,
		  const struct shm_place *place);

/* ---- shm_tx.c: what we send ---------------------------------------------- */

/*
 * A put or get of the program's, or (@op and @iov NULL) a reply; -ENOMEM.
 * @where: of each entry, or of what is replied, if it goes by a window, else
 * NULL.
 */
int shm_tx_add(struct shm_conn *conn, enum shm_transfer_kind kind,
	       const struct weft_iov *iov, unsigned int niov,
	       const struct weft_cuda_ptr *where, const struct shm_op *what,
	       struct weft_op *op);
/* Reports to the peer how its put ended; -EPROTO: it had no more. */
int shm_tx_ack(struct shm_conn *conn, int status);
/*
 * Sends acknowledgements as far as there is room; how many.  None while there
 * are messages which the peer takes for delivered with them, unless it @ends.
 */
unsigned int shm_tx_send_acks(struct shm_conn *conn, bool ends);
/*
 * An operation has failed here, which could not do @what: logged.  As
 * shm_conn_break() with -EIO, and the peer learns of it.
 */
void shm_tx_fail(struct shm_conn *conn, const char *what);
/* Sends what there is room for, up to a limit; returns how much. */
unsigned int shm_tx_run(struct shm_conn *conn);
/* Would that do anything? */
bool shm_tx_can_run(struct shm_conn *conn);
/* Is there anything left to send, now or later? */
bool shm_tx_waits(const struct shm_conn *conn);
/* The next piece of at most @max bytes of its memory. */
size_t shm_tx_piece(struct shm_transfer *t, size_t max, void **p);
/*
 * May this process copy from (@write: to) such a piece?  A piece no larger than
 * a message is not checked, like a message's payload: the system call would
 * cost as much as the whole put.
 */
bool shm_tx_may_copy(const struct shm_transfer *t, const void *p, size_t n,
		     bool write);
/* Frees it, and ends its op with @status. */
void shm_tx_finish(struct shm_conn *conn, struct shm_transfer *t, int status);
/*
 * Ends all ops with @status at once; transfers that have begun go on without
 * them.
 */
void shm_tx_give_up(struct shm_conn *conn, int status);

/* ---- shm_rx.c: what comes ------------------------------------------------ */

/* Handles records, up to a limit; how many. */
unsigned int shm_rx_run(struct shm_conn *conn);
/* Would that do anything? */
bool shm_rx_can_run(struct shm_conn *conn);
/* Is there something that waits for engines? */
bool shm_rx_awaits_engines(const struct shm_conn *conn);

/* ---- shm_conn.c: joining and ending -------------------------------------- */

extern const struct weft_session_ops shm_session_ops;
/* Must the peer learn, once there is room, that our endpoint is gone? */
bool shm_conn_owes_bye(const struct shm_conn *conn);
/*
 * Ends the connection if it is due; the caller must hold nothing of it.  True:
 * it ended.
 */
bool shm_conn_end(struct shm_conn *conn);
/* Tells the peer that the interface closes in order. */
void shm_conn_say_close(struct shm_conn *conn);
void shm_conn_free(struct shm_conn *conn);

/* ---- shm_ep.c: the contract ---------------------------------------------- */

extern const struct weft_ep_ops shm_ep_ops;
bool shm_ep_is_ready(struct weft_conn *conn);
void shm_ep_query(struct weft_ep *ep, struct weft_ep_attr *attr);
int shm_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int n, struct weft_op *op);
ssize_t shm_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg);
int shm_ep_put(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op);
int shm_ep_get(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey, struct weft_op *op);
void shm_ep_fence(struct weft_ep *ep);

#endif

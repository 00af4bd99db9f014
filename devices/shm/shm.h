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
 * To read: shm_proto.h; shm_ring.h writes and reads records, shm_ring.c has the
 * rings; shm_tx.c makes records of transfers; shm_rx.c lands those of the peer;
 * shm_conn.c joins and ends a connection; shm_ep.c and shm_iface.c are the
 * contract.  GPU memory: shm_window.c has the windows, shm_stage.c fills them
 * ahead of the records, shm_place.c has them emptied.
 *
 * Bytes are copied twice, into the ring by the source and out of it by the
 * target, both at the same time.  Memory named by a peer may be unmapped by
 * now: the kernel copies between it and a bounce buffer (common/bounce.h).  No
 * peer gets access to more than the rings.
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

#define SHM_MAX_IOV  8u
#define SHM_POLLS    256u   /* progress calls between looks at the clock, and */
#define SHM_POLL_NS  50000u /* so long at least between system calls */
#define SHM_AGAIN_MS 10u    /* until a writer that sleeps looks by itself */
#define SHM_STUCK    64u    /* calls without room: the reader has stopped */
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
	struct shm_head *shared; /* NULL: not there yet */
	/*
	 * Where the next record begins, bytes[at] of the ring `in`: at its
	 * tail, to read at its head, modulo its size.  Set by
	 * shm_ring_turn_to().
	 */
	enum shm_which in;
	uint8_t *bytes;
	size_t size, at;
	/*
	 * Of the writer: so much from `at` on may be written, or more.  What is
	 * used of the short one does not shrink while it is in it.
	 */
	size_t room;
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

	uint64_t sent;	     /* bytes up to the last message's end */
	bool asked;	     /* a flush waits until they are read */
	uint64_t asked_read; /* bytes read, when last checked */
	uint64_t armed_read; /* ... when it last went to sleep until more are */
	unsigned int tx_stuck; /* progress() calls without room */
	uint64_t tx_read;      /* of all rings, when last checked */
	/* rings that have pages, or cannot have them */
	bool made[SHM_RINGS], lacks[SHM_RINGS];
	size_t grown;	  /* bytes of the short one behind its first part */
	uint64_t look_ms; /* when to look whether they are used */
	uint64_t looked;  /* what was sent when it was last looked at */

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
	struct weft_list conns, dead;
	unsigned int polls;
	uint64_t polled_ns;
	unsigned int messages, notices; /* left to this progress() */
	bool idle;			/* the one before found nothing */
	unsigned int nmade[SHM_RINGS];	/* connections with `made` */
	size_t grown;			/* ... of all of them */
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

/*
 * There is something to do for it, which progress() would not see.  Not
 * weft_conn_attend(): progress() looks at each ring anyway, as its writer says
 * nothing, and where only a record is new it skips the rest by this flag.  In a
 * list each message would have to be put on it and taken off.
 */
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
	/* it has failed already, or its source has given it up */
	if (l->status)
		return;
	l->status = status;
	conn->landing_failed = true;
}

static inline uint8_t *shm_chunk_bytes(const struct shm_window *w,
				       const struct shm_chunk *c)
{
	return w->map + c->pos % w->size;
}

#endif

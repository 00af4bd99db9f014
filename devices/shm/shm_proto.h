/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What two processes of one host say to each other.  Both run on the same
 * kernel and processor, so fields are in native order; the wire version agreed
 * in the hello stands for all of it.
 *
 *   the socket: the ring's descriptor, once each way; then frames that wake a
 *   peer that sleeps, or have a window's descriptor; its end is the peer's.
 *
 *   the rings: a memfd that its reader made and sealed, one per direction.  In
 *   it are three rings, whose records have one order and carry all bytes but
 *   those of GPU memory; SHM_SWITCH goes on in another ring.
 *
 *   the windows: a memfd that its reader made and sealed, one per direction,
 *   once the writer has asked (SHM_WANT) and until it says that it leaves
 *   (SHM_LEAVE).  The writer fills it from its begin on, and again; records say
 *   where bytes lie.  So the engine of a GPU can be long ahead of the records.
 *
 * The order of records is that of what they say.  Puts come one after the
 * other, and so do their acknowledgements, gets and the replies to them:
 * nothing needs a number.  Messages may stand between the pieces of a put.
 *
 * The other process can change shared memory at any time.  Positions and
 * headers are copied out, then checked; sizes of mappings never come from
 * there.  Bodies are handed on where they lie: on_message() gets a pointer into
 * the ring, and what it reads twice may differ.  UCP's handlers copy the data
 * and read their own headers in place, so a peer that changes these meanwhile
 * can do what a peer that sends any header can (SECURITY.md, "Messages").
 */
#ifndef WEFT_DEVICES_SHM_PROTO_H
#define WEFT_DEVICES_SHM_PROTO_H

#include <stdatomic.h>
#include <stdint.h>
#include "devices/device.h"

#define SHM_MAX_MESSAGE (16u << 10)
/*
 * Bytes: see docs/performance/ucx-over-shm.md.  Most peers say little: a small
 * ring holds three of the largest messages.  A reader that runs is given a
 * short one, of which the writer uses the first part only, until the two are
 * busy: a ring that fits into the processors' own caches is slower than a
 * larger one, since each line that is written again is in the reader's cache,
 * too.  A reader that waits for a processor finds all that fits into a long one
 * in its turn.
 */
#define SHM_SMALL	(48u << 10)
#define SHM_SHORT	(2u << 20)
#define SHM_SHORT_BEGIN (512u << 10)
#define SHM_SHORT_REST	(SHM_SHORT - SHM_SHORT_BEGIN)
#define SHM_STEP	(64u << 10) /* that it grows by */
#define SHM_LONG	(8u << 20)
#define SHM_BUSY	(4u << 20) /* so many bytes between two ticks */
/*
 * Between n processes there are n * n rings.  Those that an interface writes to
 * have so much at most, all of the host's so much if each process has one
 * interface, and what is short or long only until it was idle for so long.
 */
#define SHM_MOST    (64u << 20)
#define SHM_ALL	    ((size_t)1 << 30)
#define SHM_IDLE_MS 1000u
#define SHM_OPS	    256u /* puts and gets under way, each way */

/*
 * An interface makes so many large windows, and small ones for all other peers:
 * pages of both are pinned.
 */
#define SHM_WINDOW	 (8u << 20)
#define SHM_WINDOW_SMALL (1u << 20)
#define SHM_WINDOWS	 16u
#define SHM_CHUNKS	 64u  /* in a window at a time */
#define SHM_CHUNK_ALIGN	 256u /* where one begins */
/*
 * Bytes of messages that may wait at their reader for puts before a fence,
 * records included.
 */
#define SHM_HELD (256u << 10)

/* Kind of the socket, in the purpose of the hello. */
#define SHM_PURPOSE 0x6d687377u /* "wshm" */

/* ---- the socket --------------------------------------------------------- */

enum shm_frame_type {
	SHM_FRAME_RING = 1, /* fd: the memfd that its sender reads */
	SHM_FRAME_WAKE,	    /* wakes a peer that sleeps */
	SHM_FRAME_WINDOW,   /* fd: a window that its sender reads */
	SHM_FRAME_TYPES,
};

#define SHM_FRAME_MAGIC 0x316d6877u

struct shm_frame {
	uint32_t magic;
	uint32_t type;
	uint64_t size;
};
_Static_assert(sizeof(struct shm_frame) == 16, "no holes");

/* ---- the ring ----------------------------------------------------------- */

/*
 * Positions count bytes since the start and never wrap, in each ring.  A line,
 * and the one that processors fetch beside it, has one writer; the sender reads
 * `sleeping` each time, `head` only when room is short.  How much there is to
 * read no count says: the first word of a record's header is not 0, and is
 * written last; behind the last record there is a word of 0.
 */
enum shm_which { SHM_IN_SMALL, SHM_IN_SHORT, SHM_IN_LONG, SHM_RINGS };

struct shm_head {
	/* the writer's: it sleeps until something is read, or SHM_AGAIN_MS */
	_Atomic uint32_t wants;
	_Atomic uint32_t closed; /* its interface has closed in order */
	_Atomic uint32_t failed; /* it ended because an operation failed */
	uint8_t pad0[116];
	_Atomic uint64_t head[SHM_RINGS]; /* the reader's, as the rest */
	_Atomic uint64_t window;	  /* of it, all below is free again */
	uint8_t pad1[96];
	_Atomic uint32_t sleeping; /* the reader is about to sleep: ring */
	uint8_t pad2[124];
};
_Static_assert(sizeof(struct shm_head) == 384, "whole cache lines");

/*
 * The rings, behind the head; only the small one has pages at first.  Pages are
 * given to the others and taken back: they begin where a page does, of Linux's
 * largest.  The first part of the short one has a page more, for the header
 * behind its last record.
 */
#define SHM_PAGE	(64u << 10)
#define SHM_SMALL_AT	4096u
#define SHM_SMALL_END	(SHM_SMALL_AT + SHM_SMALL)
#define SHM_SHORT_AT	SHM_PAGE
#define SHM_LONG_AT	(SHM_SHORT_AT + SHM_SHORT)
#define SHM_BEGIN_PAGES (SHM_SHORT_BEGIN + 4096u)
#define SHM_SIZE	(SHM_LONG_AT + SHM_LONG)
_Static_assert(SHM_SMALL_END <= SHM_SHORT_AT && SHM_LONG_AT % SHM_PAGE == 0 &&
		       SHM_SHORT_BEGIN % SHM_PAGE == 0 &&
		       SHM_SHORT_REST % SHM_STEP == 0,
	       "rings and what has pages of its own share none");

enum shm_kind {
	SHM_MESSAGE = 1,
	SHM_PAD,   /* to the end of the ring */
	SHM_BYE,   /* the sender's endpoint is gone */
	SHM_PUT,   /* begins a put: struct shm_op */
	SHM_DATA,  /* the next bytes of the put that has begun */
	SHM_ABORT, /* it ends here, incomplete */
	SHM_ACK,   /* the next put of the other side is placed, or has failed */
	SHM_GET,   /* please send this: struct shm_op */
	SHM_REPLY, /* the next bytes of the other side's next get */
	SHM_FAIL,  /* which will not be completed */
	SHM_SWITCH,  /* to another ring: id */
	SHM_DATA_AT, /* as DATA and REPLY, in the window: struct shm_place */
	SHM_REPLY_AT,
	SHM_WANT,  /* please send a window */
	SHM_LEAVE, /* which is not used any more, and of which all is read */
	SHM_KINDS,
};

struct shm_record {
	/* the first word, which is not 0 */
	uint32_t len; /* of what follows */
	uint8_t kind;
	uint8_t id;
	uint16_t fenced; /* MESSAGE: wait until ... */
	int32_t status;	 /* ACK, FAIL */
	uint32_t fence;	 /* ... so many puts are placed */
};
_Static_assert(sizeof(struct shm_record) == 16, "no holes");

struct shm_op {
	uint32_t slot, generation;
	uint64_t token;
	uint64_t addr;
	uint64_t len;	/* of the whole */
	uint64_t flags; /* SHM_OP_ */
	uint64_t tag;
};
_Static_assert(sizeof(struct shm_op) == 48, "no holes");

#define SHM_OP_NOTIFY 1u /* PUT: tell the target, with the tag */
#define SHM_OP_WINDOW 2u /* GET: by the window, it is for GPU memory */

struct shm_place {
	uint64_t pos; /* in the window, as in a ring */
	uint64_t len; /* of these bytes, which lie in one piece */
};
_Static_assert(sizeof(struct shm_place) == 16, "no holes");

/* The last byte of a packed key. */
enum shm_mem { SHM_MEM_HOST, SHM_MEM_GPU };

#endif

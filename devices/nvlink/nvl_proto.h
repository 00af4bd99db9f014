/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What two processes of one host say to each other.  Both run on the same
 * kernel and processor, so fields are in native order; the wire version agreed
 * in the hello stands for all of it.
 *
 * Three ways, each with its own use:
 *   the socket   frames with descriptors: rare, set-up and tear-down; and what
 *                wakes a peer that sleeps
 *   the inbox    a memfd that its reader made and sealed: messages, operation
 *                records, credits.  One per direction.
 *   the rings    GPU or host memory that carries bytes, on the reader's side
 *
 * The other process can change shared memory at any time: everything read from
 * there is copied out first and then judged; sizes of mappings never come from
 * there.
 */
#ifndef WEFT_DEVICES_NVLINK_PROTO_H
#define WEFT_DEVICES_NVLINK_PROTO_H

#include <stdatomic.h>
#include <stdint.h>
#include "devices/device.h"

#define NVL_MAX_MESSAGE (16u << 10)
#define NVL_MSG_RING	(256u << 10) /* bytes, a power of two */
#define NVL_OP_SLOTS	1024u	     /* records, a power of two */
#define NVL_RINGS	16u	     /* rings per direction of a connection */
#define NVL_RING_CHUNKS 64u	     /* chunks under way in one ring */
#define NVL_PUTS	512u	     /* puts under way: a power of two */
#define NVL_GETS	128u
#define NVL_DIRECTS	512u /* puts or gets by own copies under way */
#define NVL_VIEWS	512u /* registrations that a peer may map */
#define NVL_ALIGN	256u /* of a chunk in its ring */
/*
 * Allocations of one registration.  Each is a descriptor on its way through a
 * socket, of which the kernel allows as many as the limit on open files, often
 * 1024.
 */
#define NVL_PARTS 256u

/* Kind of the socket, in the purpose of the hello. */
#define NVL_PURPOSE 0x6c6e7677u /* "wvnl" */

/* ---- the socket --------------------------------------------------------- */

enum nvl_frame_type {
	NVL_FRAME_INBOX = 1,   /* fd: inbox memfd */
	NVL_FRAME_RING_WANT,   /* sender requests a ring towards `loc` */
	NVL_FRAME_RING_OFFER,  /* reader: ring `id` for `loc`; fd */
	NVL_FRAME_RING_STATE,  /* sender: `err` 0 mapped, else why not */
	NVL_FRAME_RING_NONE,   /* reader: no ring for `loc`, use the host's;
				  `err` -EOPNOTSUPP: for good */
	NVL_FRAME_RING_RECALL, /* reader wants ring `id` back */
	NVL_FRAME_RING_CLOSED, /* sender has unmapped ring `id` */
	NVL_FRAME_WAKE,	       /* wakes a sleeper; `frames` does not count it.
				  No eventfd: its O_NONBLOCK is of what both
				  hold, so that the peer could clear it and
				  make a write to a full one wait */
	/* memory that is copied to and from where it lies: nvl_export.c has its
	 * owner's side, nvl_import.c the other one */
	NVL_FRAME_MARKS,    /* fd: how far the sender's copies are; before... */
	NVL_FRAME_MAP_WANT, /* what the key stands for */
	NVL_FRAME_MAP_GRANT,  /* the same key: `err`, or where it lies */
	NVL_FRAME_MAP_FETCH,  /* and what maps allocation `id` */
	NVL_FRAME_MAP_PART,   /* fd: of its bytes [addr, addr+len) */
	NVL_FRAME_MAP_HANDLE, /* or `handle`: of all of it */
	NVL_FRAME_MAP_NONE,   /* there are none: `err` */
	NVL_FRAME_TYPES,
};

enum nvl_ring_kind {
	NVL_RING_HOST, /* a memfd */
	NVL_RING_CUDA, /* GPU memory, VMM */
};

#define NVL_FRAME_MAGIC 0x3476776eu

struct nvl_frame {
	uint32_t magic;
	uint8_t type;
	uint8_t nfds;
	uint8_t ring; /* id */
	uint8_t loc;
	int32_t err;
	uint32_t kind;
	uint64_t size; /* of a ring, an inbox, an allocation */
	/* MAP_ alone: of an allocation, never used again */
	uint64_t id, base;
	uint64_t addr, len; /* GRANT: what the key allows */
	uint64_t token;	    /* the key */
	uint32_t slot, generation;
	uint32_t view, serial; /* GRANT: as long as head->live[view] says so */
	uint8_t handle[64];    /* MAP_HANDLE */
};
_Static_assert(sizeof(struct nvl_frame) == 144, "no holes");

/*
 * Where memory is, as its owner counts: the last byte of a packed key, so that
 * the peer can choose a ring.  A hint: a wrong one costs speed or
 * an error, the owner looks for itself before anything lands.
 */
#define NVL_LOC_HOST	     0u
#define NVL_LOC_GPU(ordinal) ((ordinal) + 1u)
#define NVL_LOCS	     64u
#define NVL_LOC_DIRECT	     0x80u /* beside it: peers may map it */
#define NVL_LOC_HANDLE	     0x40u /* and that: by the driver's IPC handle */
_Static_assert(NVL_LOCS <= NVL_LOC_HANDLE, "bits of their own");

/* ---- the inbox ---------------------------------------------------------- */

/*
 * The writer owns the first line, the reader the rest.  Positions count bytes
 * (messages) or records (operations) since the start and never wrap.
 */
struct nvl_inbox_head {
	_Atomic uint64_t msg_tail;
	_Atomic uint64_t op_tail;
	_Atomic uint32_t frames; /* frames sent on the socket so far */
	_Atomic uint32_t wants;	 /* what the writer sleeps for: NVL_WANTS_ */
	/* the writer's own copies to and from the reader's memory: puts below
	 * this are placed; how many succeeded */
	_Atomic uint32_t direct_placed, direct_puts;
	_Atomic uint64_t direct_put_bytes, direct_get_bytes;
	_Atomic uint32_t direct_gets;
	/* NVL_CUT: puts were cut: of messages behind a fence above
	   `cut_fence`, in either half, none is delivered any more;
	   NVL_FAILED: the writer has ended the connection, too, since an
	   operation failed there */
	_Atomic uint32_t cut;
	_Atomic uint64_t cut_fence;
	_Atomic uint64_t msg_head;
	_Atomic uint64_t op_head;
	_Atomic uint32_t sleeping; /* the reader is about to sleep: ring */
	uint8_t pad1[44];
	/* per ring: everything up to here has been copied out */
	_Atomic uint64_t credit[NVL_RINGS];
	/* the reader's memory that the writer may copy to and from: serials,
	 * 0 or another one when it may no more */
	_Atomic uint32_t revoked; /* so often */
	uint8_t pad2[60];
	_Atomic uint32_t live[NVL_VIEWS];
};
_Static_assert(sizeof(struct nvl_inbox_head) == 320 + 4 * NVL_VIEWS,
	       "whole cache lines");

#define NVL_CUT	   1u
#define NVL_FAILED 2u

#define NVL_WANTS_ROOM	 1u /* in this inbox */
#define NVL_WANTS_CREDIT 2u /* for its chunks: in the other inbox */

enum nvl_op_type {
	NVL_OP_CHUNK = 1, /* bytes in a ring, for a put or a get */
	NVL_OP_ABORT,	  /* a put was cancelled: it ends here, incomplete */
	NVL_OP_ACK,	 /* a put is placed, or was aborted and nothing of it is
			    under way; any other status: it has failed, and
			    with it the connection */
	NVL_OP_GET,	 /* please send this region */
	NVL_OP_GET_FAIL, /* it could not be read: the same */
};

#define NVL_CHUNK_GET	 1u   /* belongs to a get: `seq` is its id */
#define NVL_CHUNK_NOTIFY 2u   /* tell the target when all is placed */
#define NVL_CHUNK_VOID	 4u   /* not copied: room taken, nothing else */
#define NVL_NO_RING	 0xff /* a chunk of no bytes */

struct nvl_op {
	uint8_t type;
	uint8_t flags;
	uint8_t ring;
	uint8_t loc; /* CHUNK: the key's; GET: where the requester
			wants it */
	int32_t status;
	uint32_t seq;	/* of the put, or the get's id */
	uint32_t len;	/* of this chunk */
	uint64_t addr;	/* target of this chunk; get: its offset */
	uint64_t total; /* of the whole put or get */
	uint64_t pos;	/* in the ring */
	uint32_t slot, generation;
	uint64_t token;
	uint64_t tag; /* NVL_CHUNK_NOTIFY */
};
_Static_assert(sizeof(struct nvl_op) == 64, "one cache line");

enum nvl_msg_kind {
	NVL_MSG_USER = 1,
	NVL_MSG_PAD,   /* to the end of the ring */
	NVL_MSG_BYE,   /* the sender's endpoint is gone */
	NVL_MSG_CLOSE, /* the sender's interface is gone, in order */
};

struct nvl_msg {
	uint32_t len; /* of what follows */
	uint8_t kind;
	uint8_t id;
	uint16_t zero;
	/* deliver when all puts below are placed: over rings, and in the
	   upper half by the sender's copies */
	uint64_t fence;
};
_Static_assert(sizeof(struct nvl_msg) == 16, "no holes");

/* ---- the inbox's layout -------------------------------------------------- */

#define NVL_INBOX_MSGS 4096u
#define NVL_INBOX_OPS  (NVL_INBOX_MSGS + NVL_MSG_RING)
#define NVL_INBOX_SIZE (NVL_INBOX_OPS + NVL_OP_SLOTS * sizeof(struct nvl_op))

#endif

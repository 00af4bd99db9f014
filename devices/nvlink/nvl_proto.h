/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What two processes of one host say to each other about GPU memory that one
 * maps and the other owns.  Both run on the same kernel and processor, so
 * fields are in native order; the wire version agreed in the hello stands for
 * all of it.
 *
 *   keys         say where memory lies and how it is mapped; the runtime
 *                carries them
 *   the socket   frames: descriptors, the end, and what wakes a peer that
 *                sleeps
 *   the table    of the owner's process, read by its peers: what they may
 *                still access
 *   the marks    of the importer's interface, read by its peers: which of its
 *                copies have ended
 *
 * The other process can change shared memory at any time: values are copied
 * before they are checked, and no size of a mapping is read from there.
 */
#ifndef WEFT_DEVICES_NVLINK_PROTO_H
#define WEFT_DEVICES_NVLINK_PROTO_H

#include <stdatomic.h>
#include <stdint.h>
#include "devices/device.h"

#define NVL_OPS	    512u /* puts and gets of a connection under way */
#define NVL_IMPORTS 512u /* allocations of a peer that are mapped */
/*
 * Allocations of one registration.  Each is a descriptor on its way through a
 * socket, of which the kernel allows as many as the limit on open files, often
 * 1024.
 */
#define NVL_PARTS 256u

/* Kind of the socket, in the purpose of the hello. */
#define NVL_PURPOSE 0x6c6e7677u /* "wvnl" */

/* ---- keys ---------------------------------------------------------------- */

/* A word of the table: it is alive as long as it is @serial. */
struct nvl_life {
	uint32_t slot;
	uint32_t serial; /* never 0 */
};

enum nvl_key_kind {
	NVL_KEY_NONE,	/* it cannot be mapped */
	NVL_KEY_HANDLE, /* of cuMemAlloc(): by the driver's IPC handle */
	NVL_KEY_PARTS,	/* of cuMemCreate(): by descriptors, on request */
};

/* Of a registration.  Copied out of where it lies, which has any alignment. */
struct nvl_key {
	uint64_t token;	      /* NVL_FRAME_FETCH shows that its sender has it */
	uint64_t addr, len;   /* that it allows */
	uint64_t id;	      /* of the allocation, in its process alone */
	uint64_t base, size;  /* of the allocation */
	struct nvl_life life; /* of the registration */
	struct nvl_life whole; /* of the allocation, while any is registered */
	uint32_t process;      /* another number in each */
	uint32_t kind;	       /* enum nvl_key_kind */
	uint8_t handle[64];
};
_Static_assert(sizeof(struct nvl_key) == 136, "no holes");
_Static_assert(sizeof(struct nvl_key) <= WEFT_RKEY_MAX, "it is a packed key");

/* ---- the socket ---------------------------------------------------------- */

enum nvl_frame_type {
	NVL_FRAME_TABLE = 1, /* fd; and `life`, the connection's in it */
	NVL_FRAME_MARKS,     /* fd; both are sent at once, ... */
	NVL_FRAME_READY,     /* and when the other side's are mapped, this */
	NVL_FRAME_WAKE,	     /* look at the table */
	NVL_FRAME_BYE,	     /* the sender's endpoint is gone */
	NVL_FRAME_CLOSE,     /* the sender's interface is gone, in order */
	NVL_FRAME_FAILED,    /* an operation failed there: the end */
	NVL_FRAME_FETCH,     /* what maps allocation `id`? */
	NVL_FRAME_PART,	     /* fd: the next of its parts, `len` bytes */
	NVL_FRAME_NONE,	     /* none: `err` */
	NVL_FRAME_TYPES,
};

#define NVL_FRAME_MAGIC 0x3576776eu

struct nvl_frame {
	uint32_t magic;
	uint32_t type;
	int32_t err;
	uint32_t zero;
	struct nvl_life life;
	uint64_t id;
	uint64_t token;
	uint64_t len;
};
_Static_assert(sizeof(struct nvl_frame) == 48, "no holes");

/* ---- the table ----------------------------------------------------------- */

/*
 * Allocations, registrations and connections of the owner.  What is not alive
 * is accessed no more; copies that engines have may end.
 */
#define NVL_LIVES      16384u
#define NVL_LIVES_KEPT 1024u /* for connections: memory takes none of them */

struct nvl_table {
	_Atomic uint32_t ended; /* so many allocations have */
	uint8_t pad[124];
	_Atomic uint32_t serial[NVL_LIVES];
};
_Static_assert(sizeof(struct nvl_table) == 128 + 4 * NVL_LIVES,
	       "whole cache lines");

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Import slots: the places of a loaded object that hold the addresses of the
 * functions it calls in others.  From then on only that object calls what is
 * written there; the rest of the process is not affected.
 */
#ifndef WEFT_NCCL_NET_INTRODUCE_SLOTS_H
#define WEFT_NCCL_NET_INTRODUCE_SLOTS_H

#include <stddef.h>

struct weft_slot {
	const char *name;   /* of the function */
	void *to;	    /* what to call instead */
	unsigned int group; /* bit: see weft_slots_write() */
};

/*
 * Makes the object that @inside lies in (an address of its code) call
 * @slots[].to for each name it imports, wherever such an import stands.  All or
 * nothing: -ENOENT when the object is not found, -ENOSYS when of one of the
 * @groups it imports no name, -EOPNOTSUPP for a processor that is not known, or
 * the -errno of an mprotect().  What is written already stays, and counts.
 * Slots that the dynamic linker has made read-only (RELRO) are so again when it
 * returns.
 */
int weft_slots_write(const void *inside, const struct weft_slot *slots,
		     size_t n, unsigned int groups);
/* The same but for writing: would it find them all? */
int weft_slots_find(const void *inside, const struct weft_slot *slots, size_t n,
		    unsigned int groups);

#endif

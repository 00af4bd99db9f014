/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Import slots: where a loaded object holds the addresses of the functions that
 * it calls in other objects.  Writing them affects only that object, not the
 * rest of the process.
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
 * the -errno of an mprotect().  Slots that were written before stay, and count.
 * Slots that the dynamic linker has made read-only (RELRO) are so again when it
 * returns.
 */
int weft_slots_write(const void *inside, const struct weft_slot *slots,
		     size_t n, unsigned int groups);
/* The same without writing: would it find them all? */
int weft_slots_find(const void *inside, const struct weft_slot *slots, size_t n,
		    unsigned int groups);

#endif

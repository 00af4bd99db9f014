/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies to and from memory that a peer named.  If it was unmapped meanwhile,
 * memcpy() would end the process, but a system call fails: the kernel copies
 * between it and a bounce buffer.
 *
 * The buffer is private to the interface: a peer could make the kernel wait for
 * the lock of a memfd that it shares, and with it mem_release().
 */
#ifndef WEFT_DEVICES_COMMON_BOUNCE_H
#define WEFT_DEVICES_COMMON_BOUNCE_H

#include <stddef.h>

struct weft_bounce {
	void *map; /* NULL: none yet, or a sandbox refuses it */
	int fd;	   /* if there is one */
};

void weft_bounce_close(struct weft_bounce *b);
/* From our own memory to a peer's, or back.  -EACCES: a part is not mapped. */
int weft_bounce_out(struct weft_bounce *b, void *to, const void *from,
		    size_t len);
int weft_bounce_in(struct weft_bounce *b, void *to, const void *from,
		   size_t len);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that two processes of a host share; its descriptor is sent over a
 * socket.
 */
#ifndef WEFT_DEVICES_COMMON_MEMFD_H
#define WEFT_DEVICES_COMMON_MEMFD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Shared memory of sealed size, all pages allocated, so that using it raises no
 * SIGBUS.  Mapped at *@p; returns its descriptor, which the caller owns, or
 * -errno.
 */
int weft_memfd_make(const char *name, size_t size, void **p);
/* The same, with pages for the first @there bytes only. */
int weft_memfd_make_sparse(const char *name, size_t size, size_t there,
			   void **p);
/*
 * Allocates pages of such memory, from a page boundary on.  False: none are
 * left, or Linux before 5.14 cannot tell.
 */
bool weft_memfd_fill(void *p, size_t len);
/* Can it? */
bool weft_memfd_can_fill(void);
/* Frees them again. */
bool weft_memfd_drop(void *p, size_t len);
/* As much as weft asks for. */
#define WEFT_MEMFD_MAX ((size_t)64 << 20)
/*
 * Does this work here?  A sandbox may refuse it.  0; -EFBIG: by the limit on
 * the size of files; or another -errno.
 */
int weft_memfd_check(void);
/*
 * Maps such memory of a peer, which must be sealed and of that size, with @prot
 * at *@p; @fd stays the caller's.  -EINVAL: it is other memory; or -errno;
 * logged.
 */
int weft_memfd_map(int fd, size_t size, int prot, void **p);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that two processes of a host share: its descriptor goes by a socket.
 */
#ifndef WEFT_DEVICES_LOCAL_MEMFD_H
#define WEFT_DEVICES_LOCAL_MEMFD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Shared memory whose size is sealed and whose pages are there: using it raises
 * no SIGBUS later.  Mapped at *@p; its descriptor, the caller's, or -errno.
 */
int weft_memfd_make(const char *name, size_t size, void **p);
/* The same, but only the first @there bytes have pages. */
int weft_memfd_make_sparse(const char *name, size_t size, size_t there,
			   void **p);
/*
 * Gives pages to such memory, from the begin of one on.  False: there are none,
 * or Linux before 5.14 cannot tell.
 */
bool weft_memfd_fill(void *p, size_t len);
/* Takes them away again. */
bool weft_memfd_drop(void *p, size_t len);
/* Would that work at all?  A sandbox may refuse it.  0 or -errno. */
int weft_memfd_check(void);
/*
 * Maps a peer's, which must be sealed and of that size, with @prot at *@p; @fd
 * stays the caller's.  -EINVAL (not such a file) or -errno, logged.
 */
int weft_memfd_map(int fd, size_t size, int prot, void **p);

#endif

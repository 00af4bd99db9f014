/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that two processes of a host share: its descriptor goes by a socket.
 */
#ifndef WEFT_DEVICES_MEMFD_H
#define WEFT_DEVICES_MEMFD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Shared memory whose size is sealed and whose pages are there: using it raises
 * no SIGBUS later.  Its descriptor, the caller's, or -errno.
 */
int weft_memfd_make(const char *name, size_t size);
/* Is a peer's of that size, and sealed? */
bool weft_memfd_is_sealed(int fd, size_t size);

#endif

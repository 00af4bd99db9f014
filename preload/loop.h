/* SPDX-License-Identifier: BSD-3-Clause */
/* Which epoll instances of this process wait for a descriptor. */
#ifndef WEFT_PRELOAD_LOOP_H
#define WEFT_PRELOAD_LOOP_H

#include <stdbool.h>

#define WEFT_LOOP_MAX 8u /* epoll instances in one answer */

/*
 * Find the epoll instances that watch @fd, directly or through others: ucxx
 * puts UCP's descriptor into its own instance, and asyncio that one into the
 * loop's.  Fills @epfds and returns their number; *@more: one of them watches
 * something else, too, as a program's event loop does.  Returns 0 if there are
 * more than WEFT_LOOP_MAX or /proc does not tell.  Thread-safe; takes about a
 * microsecond per open descriptor.
 */
unsigned int weft_loop_find(int fd, int epfds[WEFT_LOOP_MAX], bool *more);
/*
 * In a forked child: @epfd becomes an epoll instance that watches the same
 * descriptors and is this process's alone.
 */
void weft_loop_own(int epfd);

#endif

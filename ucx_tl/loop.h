/* SPDX-License-Identifier: BSD-3-Clause */
/* Which epoll instances of this process wait for a descriptor. */
#ifndef WEFT_UCX_TL_LOOP_H
#define WEFT_UCX_TL_LOOP_H

#include <stdbool.h>

#define WEFT_LOOP_MAX 8u /* epoll instances in one answer */

/*
 * Finds the epoll instances that watch @fd, by themselves or through others
 * which do: ucxx puts UCP's descriptor into an instance of its own, and
 * asyncio that one into the loop's.  Fills @epfds with them and returns how
 * many; @more tells whether one of them waits for anything else, as the loop
 * of a program does.  With more than WEFT_LOOP_MAX, or where /proc does not
 * tell, there are none.  Thread-safe; costs about a microsecond per open
 * descriptor.
 */
unsigned int weft_loop_find(int fd, int epfds[WEFT_LOOP_MAX], bool *more);

#endif

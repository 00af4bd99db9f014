/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interfaces in a forked child.  Their sockets, epoll sets, shared memory and
 * files are the parent's as well: the child closes its descriptors while it is
 * forked, so that peers see the parent's end however long the child lives, and
 * does nothing else.
 */
#ifndef WEFT_DEVICES_COMMON_FORKED_H
#define WEFT_DEVICES_COMMON_FORKED_H

struct weft_base;

/* In a child that is forked from now on @base is closed. */
void weft_forked_watch(struct weft_base *base);
/* @base has been closed here. */
void weft_forked_unwatch(struct weft_base *base);
/* In the child: closes *@fd, unless it is -1, and makes it that. */
void weft_forked_close(int *fd);

#endif

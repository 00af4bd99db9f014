/* SPDX-License-Identifier: BSD-3-Clause */
/* Small frames on a Unix socket, with or without a descriptor. */
#ifndef WEFT_DEVICES_LOCAL_FRAME_H
#define WEFT_DEVICES_LOCAL_FRAME_H

#include <stddef.h>
#include <sys/types.h>

/* 0, -EAGAIN, -errno; @fd stays the caller's; -1: none. */
int weft_frame_send(int sock, const void *frame, size_t len, int fd);
/*
 * At most @len bytes; how many.  0: the socket has ended; -EAGAIN: none came;
 * -EMFILE: all of them, but a descriptor was lost on its way; -errno.  *@fd
 * (-1: none) is the caller's, of *@nfds that came.
 */
ssize_t weft_frame_recv(int sock, void *frame, size_t len, int *fd,
			unsigned int *nfds);

#endif

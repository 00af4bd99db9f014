/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames. */
#ifndef WEFT_DEVICES_NVL_SOCK_H
#define WEFT_DEVICES_NVL_SOCK_H

#include "devices/nvlink/nvl.h"

/* Sends @f, now or when there is room.  @fd (-1: none) stays the caller's. */
int nvl_sock_send(struct nvl_conn *conn, struct nvl_frame *f, int fd);
/* Sends what waits for room; -errno. */
int nvl_sock_flush(struct nvl_conn *conn);
/* Drops what waits. */
void nvl_sock_drop(struct nvl_conn *conn);
/*
 * 1: *@f was received, with *@fd, which is the caller's, or without its
 * descriptor if too many are open.  0: none; -errno: the socket has ended.
 */
int nvl_sock_recv(struct nvl_conn *conn, struct nvl_frame *f, int *fd);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames with descriptors on a connection's Unix socket. */
#ifndef WEFT_DEVICES_NVL_SOCK_H
#define WEFT_DEVICES_NVL_SOCK_H

#include "devices/nvlink/nvl.h"

/*
 * 0: sent, or kept until there is room, or the socket has ended (hung_up).
 * @fd stays the caller's; -1: none.  -ENOBUFS: the peer reads nothing.
 */
int nvl_sock_send(struct nvl_conn *conn, struct nvl_frame *f, int fd);
/* 1: *@f is there and *@fd (-1: none), the caller's; 0: none; -errno: dead */
int nvl_sock_recv(struct nvl_conn *conn, struct nvl_frame *f, int *fd);
/* Sends what was kept, as far as it goes; 0 or -errno. */
int nvl_sock_flush(struct nvl_conn *conn);
/* Frees what was kept. */
void nvl_sock_drop(struct nvl_conn *conn);
/* Frames sent by the peer that have not been read, as its inbox says. */
int32_t nvl_sock_unread(const struct nvl_conn *conn);
/* Are there any, on a socket that has not ended? */
bool nvl_sock_waiting(const struct nvl_conn *conn);

#endif

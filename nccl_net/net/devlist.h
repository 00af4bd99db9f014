/* SPDX-License-Identifier: BSD-3-Clause */
/* The devices that NCCL sees. */
#ifndef WEFT_NCCL_NET_NET_DEVLIST_H
#define WEFT_NCCL_NET_NET_DEVLIST_H

/* -EINVAL, logged: no such device */
int weft_net_check_device(int dev);

#endif

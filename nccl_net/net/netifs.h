/* SPDX-License-Identifier: BSD-3-Clause */
/* The interfaces that NCCL's traffic may take. */
#ifndef WEFT_NCCL_NET_NET_NETIFS_H
#define WEFT_NCCL_NET_NET_NETIFS_H

struct weft_netif;

/*
 * Best first; *@list is malloc'ed, free() it.  Returns the count, at least 1,
 * or -ENODEV.  Logs why there is none.
 */
int weft_net_netifs(struct weft_netif **list);

#endif

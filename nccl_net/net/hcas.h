/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ports of verbs devices (InfiniBand, RoCE) that NCCL's traffic may take:
 * active, allowed by NCCL_IB_HCA and its like, and with a device node that this
 * process may open; none at all where NCCL_IB_DISABLE is set, without
 * libibverbs, or where weft was built without its headers.
 *
 * Found once per process: NCCL knows a device by its place in the list.
 */
#ifndef WEFT_NCCL_NET_NET_HCAS_H
#define WEFT_NCCL_NET_NET_HCAS_H

#include <stdbool.h>

struct weft_verbs_port;

#define WEFT_NET_HCAS_MAX 32

/* Returns the count; *@list is valid until weft_net_hcas_forget(). */
unsigned int weft_net_hcas(const struct weft_verbs_port **list);
/* NCCL_IB_DISABLE, read as NCCL does. */
bool weft_net_hcas_disabled(void);

/* The port cannot be used; logged: TCP carries its traffic. */
void weft_net_hca_give_up(unsigned int i);
bool weft_net_hca_usable(unsigned int i);

/* When NCCL unloads the plugin, which it may load again; and for tests. */
void weft_net_hcas_forget(void);

#endif

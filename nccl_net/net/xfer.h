/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives. */
#ifndef WEFT_NCCL_NET_NET_XFER_H
#define WEFT_NCCL_NET_NET_XFER_H

#include <stddef.h>
#include <stdint.h>
#include "nccl_net/net/net.h"
#include "nccl_net/net/wire.h"

struct weft_net_comm;

/* How many small sends may precede the receives known to be posted. */
#define WEFT_NET_AHEAD 16u
/* After so many small receives in a row, POSTs stop. */
#define WEFT_NET_QUIET_AFTER 16u

/* Sends pending messages of this comm, as far as the wire accepts them. */
void weft_net_comm_push(struct weft_net_comm *comm);
void weft_net_on_request(struct weft_net *net, enum weft_net_msg id, void *buf,
			 size_t len);
/* @arg: the port */
void weft_net_on_notify(void *arg, uint64_t tag, uint64_t size);

#endif

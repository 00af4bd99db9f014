/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening and accepting. */
#ifndef WEFT_NCCL_NET_NET_ACCEPT_H
#define WEFT_NCCL_NET_NET_ACCEPT_H

#include <stddef.h>
#include <stdint.h>
#include "nccl_net/net/net.h"
#include "util/list.h"

struct weft_net_port;

struct weft_net_listener {
	struct weft_list link; /* net->listeners */
	struct weft_net *net;
	uint64_t token;
	struct weft_list queue; /* comms not yet accepted */
	unsigned int queued;
};

void weft_net_on_connect(struct weft_net_port *port, const void *buf,
			 size_t len);
void weft_net_on_withdraw(struct weft_net *net, const void *buf, size_t len);

#endif

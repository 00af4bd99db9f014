/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: messages and fences. */
#ifndef WEFT_DEVICES_TCP_EP_H
#define WEFT_DEVICES_TCP_EP_H

#include "devices/tcp/tcp.h"

extern const struct weft_ep_ops tcp_ep_ops;
bool tcp_ep_unsent(struct weft_ep *ep);
int tcp_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int iovcnt);
ssize_t tcp_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg);
void tcp_ep_fence(struct weft_ep *ep);

#endif

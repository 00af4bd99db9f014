/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_DEVICES_IB_EP_H
#define WEFT_DEVICES_IB_EP_H

#include "devices/ib/ib.h"

extern const struct weft_ep_ops ib_ep_ops;
bool ib_ep_unsent(struct weft_ep *ep);
int ib_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		  unsigned int iovcnt);
ssize_t ib_ep_message_pack(struct weft_ep *ep, uint8_t id,
			   size_t (*pack)(void *dest, void *arg), void *arg);
int ib_ep_put(struct weft_ep *ep, const struct weft_iov *iov,
	      unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
	      const struct weft_notify *notify, struct weft_op *op);
int ib_ep_get(struct weft_ep *ep, const struct weft_iov *iov,
	      unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
	      struct weft_op *op);
void ib_ep_fence(struct weft_ep *ep);

#endif

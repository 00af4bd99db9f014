/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's end of a connection; see devices/device.h. */
#ifndef WEFT_DEVICES_NVL_EP_H
#define WEFT_DEVICES_NVL_EP_H

#include "devices/nvlink/nvl.h"

/* NULL: no memory. */
int nvl_ep_create(struct weft_iface *iface, const struct weft_address *remote,
		  void *user, struct weft_ep **ep);
void nvl_ep_destroy(struct weft_ep *ep);
void nvl_ep_query(struct weft_ep *ep, struct weft_ep_attr *attr);
int nvl_ep_prepare(struct weft_ep *ep, struct weft_mem *mem);
bool nvl_ep_ready(struct weft_ep *ep);
int nvl_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int n, struct weft_op *op);
ssize_t nvl_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg);
int nvl_ep_put(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op);
int nvl_ep_get(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey, struct weft_op *op);
void nvl_ep_fence(struct weft_ep *ep);
int nvl_ep_flush(struct weft_ep *ep, struct weft_op *op);
void nvl_ep_cancel(struct weft_ep *ep);
unsigned int nvl_ep_check_flush(struct nvl_ep *ep);

#endif

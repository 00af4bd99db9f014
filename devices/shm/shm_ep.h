/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract. */
#ifndef WEFT_DEVICES_SHM_EP_H
#define WEFT_DEVICES_SHM_EP_H

#include "devices/shm/shm.h"

extern const struct weft_ep_ops shm_ep_ops;
bool shm_ep_is_ready(struct weft_conn *conn);
bool shm_ep_unsent(struct weft_ep *ep);
int shm_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int n);
ssize_t shm_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg);
int shm_ep_put(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op);
int shm_ep_get(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey, struct weft_op *op);
void shm_ep_fence(struct weft_ep *ep);

#endif

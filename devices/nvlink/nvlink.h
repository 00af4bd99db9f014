/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the NVLink device does beyond the contract, for NCCL: everything that
 * allocates, registers or maps happens ahead, because once NCCL's kernel spins
 * on us such a call may never return.
 */
#ifndef WEFT_DEVICES_NVLINK_H
#define WEFT_DEVICES_NVLINK_H

#include "devices/device.h"

extern const struct weft_dev_ops weft_nvlink_ops;

/*
 * Makes ready what puts on @ep will need in both directions: streams for the
 * GPU that @gpu_memory is on (NULL: host memory only) and the host rings; and
 * waits for what weft_nvl_expose() has begun.  0: nothing will be allocated or
 * mapped any more for the memory known so far; -EINPROGRESS: call again after
 * progress(); else the endpoint's error.  To be called on both sides.
 */
int weft_nvl_prepare(struct weft_ep *ep, const void *gpu_memory);

/*
 * Lets the peer of @ep map the allocation that @mem lies in and write to it
 * without asking, until weft_nvl_unexpose(): a mapping cannot be revoked, so
 * this is for memory whose owner agrees (NCCL's own buffers), and only after
 * the peer is proven.  *@rkey is the key to give to that peer, and to no other.
 * Memory that cannot be exported, or WEFT_NVL_DIRECT=off, is no error: a ring
 * is made ready instead.  -EAGAIN: not connected yet.
 */
int weft_nvl_expose(struct weft_ep *ep, struct weft_mem *mem,
		    struct weft_rkey *rkey);
/* The peer unmaps when its copies have ended; nothing waits for it. */
void weft_nvl_unexpose(struct weft_ep *ep, struct weft_mem *mem);

#endif

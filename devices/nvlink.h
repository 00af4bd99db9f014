/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the NVLink device does beyond the contract, for NCCL: everything that
 * allocates, registers or maps happens ahead, because once NCCL's kernel spins
 * on us such a call may never return.
 */
#ifndef WEFT_DEVICES_NVLINK_H
#define WEFT_DEVICES_NVLINK_H

#include "devices/device.h"
#include "util/cuda.h"

/* Makes the streams of the calling thread's current context, if there is one. */
int weft_nvl_use_current(struct weft_iface *iface);

/*
 * Before the first GPU memory: kernels wait for what this interface moves.  It
 * works in a CUDA context of weft's own then (weft_cuda_own_get), and rings are
 * host memory, because a copy out of one on the GPU would be the compute
 * engine's, which the kernels have.
 */
void weft_nvl_serve_kernels(struct weft_iface *iface);

/*
 * Before the first peer: memory is unmapped by a thread of its own, because
 * that waits for the kernels that run.  -ENOMEM.
 */
int weft_nvl_unmap_apart(struct weft_iface *iface);

/*
 * Makes ready what puts on @ep will need in both directions: streams for the
 * GPU that @gpu_memory is on (NULL: host memory only) and the host rings.  0:
 * nothing will be allocated or mapped any more for the memory known so far;
 * -EINPROGRESS: call again after progress(); else the endpoint's error.  To be
 * called on both sides.
 */
int weft_nvl_prepare(struct weft_ep *ep, const void *gpu_memory);

/*
 * What has carried the bulk of @ep so far: puts and the peer's gets (@out), or
 * gets and the peer's puts.
 */
enum weft_nvl_ring {
	WEFT_NVL_RING_NONE,
	WEFT_NVL_RING_HOST,
	WEFT_NVL_RING_GPU,		/* maybe the host's as well */
};
enum weft_nvl_ring weft_nvl_ring(struct weft_ep *ep, bool out);

#endif

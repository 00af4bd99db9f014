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

/*
 * The calling thread's current context is one that peers' buffers are to be
 * reached from: its streams are made now.  No context: nothing to do.
 */
int weft_nvl_use_current(struct weft_iface *iface);

/*
 * Before the first GPU memory: kernels wait for what this interface moves.  It
 * works in a CUDA context of weft's own then (weft_cuda_own_get); a thread for
 * each makes the driver's calls for copies, where WEFT_NVL_THREAD allows it,
 * because the caller's own is the bottleneck; and rings are host memory, because
 * a copy out of one on the GPU would be the compute engine's, which the kernels
 * have.
 */
void weft_nvl_serve_kernels(struct weft_iface *iface);

/*
 * Before the first peer: memory is unmapped by a thread of its own, because
 * that waits for the kernels that run.  -ENOMEM.
 */
int weft_nvl_unmap_apart(struct weft_iface *iface);

/*
 * As put(), of memory that weft_cuda_query() has been asked about before: the
 * driver is asked nothing.
 */
int weft_nvl_put(struct weft_ep *ep, const struct weft_cuda_ptr *where,
		 const struct iovec *iov, unsigned int iovcnt,
		 uint64_t remote_addr, const struct weft_rkey *rkey,
		 const struct weft_notify *notify, struct weft_op *op);

/*
 * Makes ready what puts on @ep will need in both directions: streams for the
 * GPU that @gpu_memory is on (NULL: host memory only) and the host rings; and
 * waits for what weft_nvl_expose() has begun.  0: nothing will be allocated or
 * mapped any more for the memory known so far; -EINPROGRESS: call again after
 * progress(); else the endpoint's error.  To be called on both sides.
 */
int weft_nvl_prepare(struct weft_ep *ep, const void *gpu_memory);

/*
 * The allocation around registered memory, as it can be shown to peers.  The
 * driver may take its time for these, so they are for any thread, and not to be
 * called with what serialises the interface's calls.
 */
struct weft_nvl_export {
	uint64_t base, buffer_id;
	size_t size;			/* 0: it cannot be exported */
	int fd;				/* -1: not exported yet */
};
void weft_nvl_export_find(const struct weft_mem *mem,
			  struct weft_nvl_export *x);
/* Exports it; to be closed.  That it fails is no error: see weft_nvl_expose. */
void weft_nvl_export_open(const struct weft_mem *mem,
			  struct weft_nvl_export *x);
void weft_nvl_export_close(struct weft_nvl_export *x);

/*
 * Lets the peer of @ep map @x, the allocation that @mem lies in, and write to it
 * without asking, until weft_nvl_unexpose(): a mapping cannot be revoked, so
 * this is for memory whose owner agrees (NCCL's own buffers), and only after
 * the peer is proven.  *@rkey is the key to give to that peer, and to no other.
 * Memory that cannot be exported, or WEFT_NVL_DIRECT=off, is no error: a ring
 * is made ready instead.  -EAGAIN: not connected yet.  -ENODATA: this peer has
 * nothing of the allocation yet: weft_nvl_export_open(), and again.
 */
int weft_nvl_expose(struct weft_ep *ep, struct weft_mem *mem,
		    const struct weft_nvl_export *x, struct weft_rkey *rkey);
/* The peer unmaps when its copies have ended; nothing waits for it. */
void weft_nvl_unexpose(struct weft_ep *ep, struct weft_mem *mem);

/*
 * What has carried the bulk of @ep so far: puts and the peer's gets (@out), or
 * gets and the peer's puts.  Buffers that are mapped directly do not count.
 */
enum weft_nvl_ring {
	WEFT_NVL_RING_NONE,
	WEFT_NVL_RING_HOST,
	WEFT_NVL_RING_GPU,		/* maybe the host's as well */
};
enum weft_nvl_ring weft_nvl_ring(struct weft_ep *ep, bool out);

#endif

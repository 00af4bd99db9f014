/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the InfiniBand device does beyond the contract: GPU memory in the hands
 * of the adapter itself (GPUDirect RDMA).  An interface whose mem_kinds has
 * WEFT_MEM_CUDA registers it; what of it a put or get names on this side has to
 * be registered here, too, and the processor never touches it.
 */
#ifndef WEFT_DEVICES_IB_H_
#define WEFT_DEVICES_IB_H_

#include "devices/device.h"

/* How an adapter is given GPU memory: bits. */
#define WEFT_IB_DMABUF	1u	/* kernel 5.12, rdma-core 34, CUDA 11.7 */
#define WEFT_IB_PEERMEM	2u	/* the module nvidia_peermem, or nv_peer_mem */

/*
 * What kernel, library and adapter allow of that for verbs device @name
 * ("mlx5_0"), and the settings; the GPU's driver is not asked.  0: nothing, or
 * the device cannot be opened.  Found once per opening of the device.
 */
unsigned int weft_ib_gpu_ways(const char *name);

/*
 * As mem_register() of GPU memory, that a caller has a dma-buf of; @fd stays
 * the caller's, and @offset is that of @addr in it.
 */
int weft_ib_register_dmabuf(void *addr, size_t len, int fd, uint64_t offset,
			    struct weft_mem **mem);

/*
 * Does the adapter of @iface have a registration of @mem?  GPU memory that one
 * of several adapters took is registered, and no error.
 */
bool weft_ib_takes(struct weft_iface *iface, const struct weft_mem *mem);

/*
 * Makes all that weft_ib_flush_gpu() needs, once per interface; -errno, with a
 * word where it is an error of the adapter's.
 */
int weft_ib_flush_prepare(struct weft_iface *iface);
/*
 * What peers' puts, told of by now, have written to GPU memory may still be on
 * its way there: the notice is in host memory, and PCIe keeps no order between
 * the two.  This reads the byte at @addr of @mem back through the adapter, and a
 * read does not pass the writes before it (PCI Express Base Specification,
 * "Transaction Ordering Rules"; NCCL's net_ib does the same).
 * -EINPROGRESS: @op tells; -ENOMEM; -EINVAL: not of this interface's.
 */
int weft_ib_flush_gpu(struct weft_iface *iface, const struct weft_mem *mem,
		      uint64_t addr, struct weft_op *op);
/* @op is not to be told any more; nothing happens where it is not pending. */
void weft_ib_flush_forget(struct weft_iface *iface, struct weft_op *op);

#endif

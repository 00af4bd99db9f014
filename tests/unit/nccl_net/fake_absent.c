/* SPDX-License-Identifier: BSD-3-Clause */
/* What devices do beyond the contract, of those that are not there. */
#include <errno.h>
#include "devices/ib.h"
#include "devices/nvlink.h"

unsigned int weft_ib_gpu_ways(const char *name)
{
	(void)name;
	return 0;
}

int weft_ib_register_dmabuf(void *addr, size_t len, int fd, uint64_t offset,
			    struct weft_mem **mem)
{
	(void)addr;
	(void)len;
	(void)fd;
	(void)offset;
	(void)mem;
	return -EOPNOTSUPP;
}

bool weft_ib_takes(struct weft_iface *i, const struct weft_mem *mem)
{
	(void)i;
	(void)mem;
	return false;
}

int weft_ib_flush_prepare(struct weft_iface *i)
{
	(void)i;
	return -EOPNOTSUPP;
}

int weft_ib_flush_gpu(struct weft_iface *i, const struct weft_mem *mem,
		      uint64_t addr, struct weft_op *op)
{
	(void)i;
	(void)mem;
	(void)addr;
	(void)op;
	return -EOPNOTSUPP;
}

void weft_ib_flush_forget(struct weft_iface *i, struct weft_op *op)
{
	(void)i;
	(void)op;
}

int weft_nvl_use_current(struct weft_iface *i)
{
	(void)i;
	return 0;
}

void weft_nvl_serve_kernels(struct weft_iface *iface)
{
	(void)iface;
}

int weft_nvl_unmap_apart(struct weft_iface *iface)
{
	(void)iface;
	return 0;
}

int weft_nvl_prepare(struct weft_ep *ep, const void *gpu_memory)
{
	(void)ep;
	(void)gpu_memory;
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory for the adapter: by dma-buf, which is the kernel's own way, else by
 * the NVIDIA driver's module, which makes ibv_reg_mr() take GPU addresses.
 */
#include "devices/ib/ib.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "bootstrap/pci.h"
#include "util/cuda.h"
#include "util/log.h"
#include "util/util.h"

/* A library or kernel without it says EOPNOTSUPP, another one EBADF. */
static bool knows_dmabuf(const struct weft_verbs *v, struct ibv_pd *pd)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ibv_mr *mr;

	if (!v->reg_dmabuf_mr)
		return false;
	mr = v->reg_dmabuf_mr(pd, 0, page, 0, -1, IBV_ACCESS_LOCAL_WRITE);
	if (!mr)
		return errno == EBADF;
	v->dereg_mr(mr);
	return true;
}

static bool peermem_is_loaded(void)
{
	/* nv_mem, nv_mem_nc: the older module's clients in MLNX_OFED */
	static const char *const files[] = {
		"module/nvidia_peermem/version",
		"module/nv_peer_mem/version",
		"kernel/mm/memory_peers/nv_mem/version",
		"kernel/mm/memory_peers/nv_mem_nc/version",
	};
	char path[4096];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "%s/%s", weft_sysfs_root,
			 files[i]);
		if (!access(path, F_OK))
			return true;
	}
	return false;
}

unsigned int ib_gpu_find_ways(const struct weft_verbs *v, struct ibv_pd *pd)
{
	const struct weft_settings *s = weft_settings();
	unsigned int ways = 0;

	if (s->ib_gpu_direct == WEFT_OFF)
		return 0;
	if (s->ib_dmabuf != WEFT_OFF && knows_dmabuf(v, pd))
		ways |= WEFT_IB_DMABUF;
	if (peermem_is_loaded())
		ways |= WEFT_IB_PEERMEM;
	return ways;
}

unsigned int weft_ib_gpu_ways(const char *name)
{
	struct ib_device *dev;
	unsigned int ways;

	if (weft_settings()->ib_gpu_direct == WEFT_OFF ||
	    ib_device_get(name, &dev))
		return 0;
	ways = dev->gpu_ways;
	ib_device_put(dev);
	return ways;
}

/* -EOPNOTSUPP: there is none to be had. */
static int by_dmabuf(struct ib_device *dev, void *addr, size_t len, int access,
		     int fd, uint64_t offset, struct ibv_mr **mr)
{
	int own = -1, err = 0;

	if (fd < 0) {
		fd = own = weft_cuda_dmabuf(addr, len, &offset);
		if (own < 0)
			return own;
	}
	*mr = dev->v->reg_dmabuf_mr(dev->pd, offset, len, (uintptr_t)addr, fd,
				    access);
	if (!*mr)
		err = -errno;
	/* the registration has its own reference */
	if (own >= 0)
		close(own);
	return err;
}

int ib_gpu_register(struct ib_device *dev, void *addr, size_t len, int access,
		    int fd, uint64_t offset, struct ibv_mr **mr)
{
	const char *how = "dma-buf";
	int err = -EOPNOTSUPP;

	if (dev->gpu_ways & WEFT_IB_DMABUF)
		err = by_dmabuf(dev, addr, len, access, fd, offset, mr);
	if (err && dev->gpu_ways & WEFT_IB_PEERMEM) {
		how = "nvidia_peermem";
		*mr = dev->v->reg_mr(dev->pd, addr, len, access);
		err = *mr ? 0 : -errno;
	}
	if (err && err != -EOPNOTSUPP)
		weft_warn_once("cannot register %zu bytes of GPU memory at %p with '%s' by %s (%s): it goes by another adapter or through host memory where it can; WEFT_IB_GPU_DIRECT=off does not try",
			       len, addr, dev->name, how, strerror(-err));
	return err;
}

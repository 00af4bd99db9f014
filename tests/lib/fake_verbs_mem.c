/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake's memory registrations: of the process, and of the fake GPUs. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/pci.h"
#include "tests/lib/fake_verbs_int.h"
#include "util/cuda.h"
#include "util/util.h"

int fake_dmabuf_errno[FAKE_DEVICES];

static struct ibv_mr *make_mr(struct ibv_pd *pd, uint64_t addr, uint64_t len,
			      uint64_t pages, int access)
{
	struct ibv_mr *mr;
	struct fake_smr *s;
	unsigned int i;

	mr = calloc(1, sizeof(*mr));
	fake_lock();
	for (i = 1; fake_shm->mr[i].used; i++)
		if (i + 1 == FAKE_MRS)
			abort();
	s = &fake_shm->mr[i];
	s->used = true;
	s->pid = getpid();
	s->pd = pd->handle;
	/* another low byte each time, as adapters do */
	s->key = i << 8 | ((s->key + 1) & 0xff);
	s->addr = addr;
	s->len = len;
	s->pages = pages;
	s->access = access;
	mr->lkey = mr->rkey = s->key;
	fake_live.mrs++;
	fake_unlock();
	mr->pd = pd;
	mr->context = pd->context;
	mr->addr = (void *)(uintptr_t)addr;
	mr->length = len;
	return mr;
}

static bool good_access(size_t len, int access)
{
	return len && (!(access & IBV_ACCESS_REMOTE_WRITE) ||
		       access & IBV_ACCESS_LOCAL_WRITE);
}

/*
 * Where the fake driver has the bytes of a dma-buf is in its name
 * (fake_cuda_dmabuf.c); false: it is none.
 */
static bool read_dmabuf(int fd, uint64_t *at, uint64_t *size)
{
	char link[64], name[128] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, name, sizeof(name) - 1) > 0 &&
	       sscanf(name, "/memfd:fakedmabuf-%lx-%lx", at, size) == 2;
}

/* As the module nvidia_peermem asks the driver, if it is loaded. */
static bool gpu_pages(void *addr, uint64_t *pages)
{
	void *(*inside)(void *p), *lib;
	char path[256];

	snprintf(path, sizeof(path), "%s/module/nvidia_peermem",
		 weft_sysfs_root);
	if (access(path, F_OK))
		return false;
	lib = dlopen(getenv("WEFT_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
	*(void **)&inside = lib ? dlsym(lib, "fake_cuda_inside") : NULL;
	*pages = inside ? (uintptr_t)inside(addr) : 0;
	if (lib)
		dlclose(lib);
	return *pages;
}

struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			   int access)
{
	uint64_t pages = (uintptr_t)addr;
	struct weft_cuda_ptr info;

	if (fake_fails("reg_mr"))
		return NULL;
	if (!good_access(len, access)) {
		errno = EINVAL;
		return NULL;
	}
	/* the kernel has no pages for an address of a GPU's */
	if (weft_cuda_program_gpus() > 0 && !weft_cuda_init() &&
	    !weft_cuda_query(addr, &info) && info.where == WEFT_CUDA_DEVICE &&
	    !gpu_pages(addr, &pages)) {
		errno = EFAULT;
		return NULL;
	}
	return make_mr(pd, (uintptr_t)addr, len, pages, access);
}

/* drivers/infiniband/core/uverbs_std_types_mr.c, ib_umem_dmabuf_get() */
struct ibv_mr *fake_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				  size_t len, uint64_t iova, int fd,
				  int access)
{
	const uint64_t in_page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;
	uint64_t at, size;

	if (fake_fails("reg_dmabuf_mr"))
		return NULL;
	errno = fake_dmabuf_errno[container_of(pd->context, struct fake_context,
					       base)->dev];
	if (errno)
		return NULL;
	if (fcntl(fd, F_GETFD) < 0)
		errno = EBADF;
	else if (!read_dmabuf(fd, &at, &size) || !good_access(len, access) ||
		 (offset & in_page) != (iova & in_page) || offset > size ||
		 len > size - offset)
		errno = EINVAL;
	return errno ? NULL : make_mr(pd, iova, len, at + offset, access);
}

int fake_dereg_mr(struct ibv_mr *mr)
{
	const int err = fake_fails("dereg_mr") ? EIO : 0;

	fake_lock();
	fake_mr_find(mr->lkey)->used = false;
	fake_live.mrs--;
	fake_unlock();
	free(mr);
	return err;
}

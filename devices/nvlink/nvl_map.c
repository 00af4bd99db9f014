/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that two processes see: GPU memory of the driver's virtual memory
 * management, or a sealed memfd.  Made by the reader, mapped by the writer.
 * And the program's, which the driver's IPC handles stand for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/memfd.h"
#include "devices/nvlink/nvl_map.h"
#include "util/log.h"

static void set_host(struct nvl_mapping *m, int fd, void *p, size_t size)
{
	*m = (struct nvl_mapping){
		.kind = NVL_RING_HOST, .size = size, .fd = fd, .host = p
	};
}

int nvl_map_host_make(struct nvl_mapping *m, size_t size)
{
	void *p;
	int fd = weft_memfd_make("weft-ring", size, &p);

	if (fd < 0)
		return weft_fail(fd, "cannot set up a ring of %zu bytes", size);
	set_host(m, fd, p, size);
	return 0;
}

int nvl_map_host_import(struct nvl_mapping *m, int fd, size_t size)
{
	void *p;
	int err;

	err = weft_memfd_map(fd, size, PROT_READ | PROT_WRITE, &p);
	if (err)
		return err;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0) {
		err = -errno;
		munmap(p, size);
		return err;
	}
	set_host(m, fd, p, size);
	return 0;
}

static struct weft_cu_alloc_prop make_prop(int dev)
{
	return (struct weft_cu_alloc_prop){
		.type = WEFT_CU_ALLOCATION_PINNED,
		.handle_types = WEFT_CU_HANDLE_POSIX_FD,
		.location = { WEFT_CU_LOCATION_DEVICE, dev },
	};
}

static int set_access(const struct weft_cuda *cu, struct nvl_mapping *m,
		      int ordinal)
{
	struct weft_cu_access access = {
		.location = { WEFT_CU_LOCATION_DEVICE, 0 },
		.flags = WEFT_CU_ACCESS_READWRITE,
	};
	int r;

	r = cu->device_get(&access.location.id, ordinal);
	if (!r)
		r = cu->mem_access(m->dev, m->size, &access, 1);
	if (!r && ordinal < NVL_ORDINALS)
		m->access |= BIT(ordinal);
	return r;
}

static void unmap_handle(const struct weft_cuda *cu, struct nvl_mapping *m)
{
	uint64_t at = m->dev;
	unsigned int i;

	if (!m->parts)
		cu->mem_unmap(m->dev, m->size);
	/* what was mapped by one call is unmapped by one call */
	for (i = 0; i < m->nparts; at += m->parts[i++])
		cu->mem_unmap(at, m->parts[i]);
	cu->address_free(m->dev, m->size);
	m->dev = 0;
}

/* Gives @handle an address, which no GPU may use yet; CUresult. */
static int map_handle(const struct weft_cuda *cu, struct nvl_mapping *m,
		      unsigned long long handle, size_t size)
{
	int r;

	*m = (struct nvl_mapping){ .kind = NVL_RING_CUDA,
				   .size = size,
				   .fd = -1 };
	r = cu->address_reserve(&m->dev, size, 0, 0, 0);
	if (r)
		return r;
	r = cu->mem_map(m->dev, size, 0, handle, 0);
	if (r) {
		cu->address_free(m->dev, size);
		m->dev = 0;
	}
	return r;
}

int nvl_map_cuda_make(struct nvl_mapping *m, struct weft_engine *gpu,
		      size_t size)
{
	struct weft_cu_alloc_prop prop;
	unsigned long long handle;
	struct weft_cuda_scope s;
	int r, dev, err, fd = -1;

	if (!nvl_share_allowed(gpu->ordinal))
		return -EOPNOTSUPP;
	err = weft_cuda_enter(&s, gpu->ctx);
	if (err)
		return err;
	r = s.cu->device_get(&dev, gpu->ordinal);
	if (r)
		goto out;
	prop = make_prop(dev);
	r = s.cu->mem_create(&handle, size, &prop, 0);
	if (r)
		goto out;
	r = s.cu->mem_export(&fd, handle, WEFT_CU_HANDLE_POSIX_FD, 0);
	if (r)
		fd = -1;
	else
		r = map_handle(s.cu, m, handle, size);
	if (!r) {
		r = set_access(s.cu, m, gpu->ordinal);
		if (r)
			unmap_handle(s.cu, m);
	}
	/* the mapping keeps the memory */
	s.cu->mem_release(handle);
	if (r && fd >= 0)
		close(fd);
out:
	weft_cuda_leave(&s);
	if (!r) {
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		m->fd = fd;
		m->ctx = gpu->ctx;
		return 0;
	}
	weft_warn_once("no ring of %zu MiB on GPU %d (%s): data for it goes "
		       "through host memory",
		       size >> 20, gpu->ordinal, weft_cuda_error_name(r));
	return weft_cuda_errno(r);
}

int nvl_map_cuda_reserve(struct nvl_mapping *m, struct weft_engine *gpu,
			 size_t size)
{
	struct weft_cuda_scope s;
	int r, err;

	if (!nvl_share_allowed(gpu->ordinal))
		return -EOPNOTSUPP;
	err = weft_cuda_enter(&s, gpu->ctx);
	if (err)
		return err;
	*m = (struct nvl_mapping){
		.kind = NVL_RING_CUDA, .size = size, .fd = -1, .ctx = gpu->ctx
	};
	m->parts = malloc(sizeof(*m->parts));
	r = m->parts ? s.cu->address_reserve(&m->dev, size, 0, 0, 0)
		     : WEFT_CU_OUT_OF_MEMORY;
	if (r) {
		m->dev = 0;
		free(m->parts);
		m->parts = NULL;
	}
	weft_cuda_leave(&s);
	return weft_cuda_errno(r);
}

int nvl_map_cuda_part(struct nvl_mapping *m, uint64_t offset, int fd,
		      size_t len)
{
	size_t *parts = realloc(m->parts, (m->nparts + 1) * sizeof(*parts));
	unsigned long long handle;
	struct weft_cuda_scope s;
	int r, err;

	if (!parts)
		return -ENOMEM;
	m->parts = parts;
	err = weft_cuda_enter(&s, m->ctx);
	if (err)
		return err;
	r = s.cu->mem_import(&handle, (void *)(intptr_t)fd,
			     WEFT_CU_HANDLE_POSIX_FD);
	if (!r) {
		r = s.cu->mem_map(m->dev + offset, len, 0, handle, 0);
		s.cu->mem_release(handle);
	}
	weft_cuda_leave(&s);
	if (!r)
		parts[m->nparts++] = len;
	return weft_cuda_errno(r);
}

/* The peer's word for its size is none: a copy behind its end is an error of
   the whole context. */
static bool is_mapped(const struct weft_cuda *cu, uint64_t p, size_t size)
{
	uint64_t base;
	size_t len;

	/* of a small allocation it may be the block that has it */
	return !cu->address_range(&base, &len, p) && base <= p &&
	       p - base <= len && size <= len - (p - base);
}

int nvl_map_cuda_handle(struct nvl_mapping *m, struct weft_engine *gpu,
			const void *handle, size_t size)
{
	struct weft_cu_ipc h;
	struct weft_cuda_scope s;
	uint64_t p;
	int r;

	*m = (struct nvl_mapping){ .kind = NVL_RING_CUDA,
				   .size = size,
				   .fd = -1,
				   .ctx = gpu->ctx,
				   .by_handle = true };
	if (!nvl_share_allowed(gpu->ordinal))
		return WEFT_CU_NOT_SUPPORTED;
	if (weft_cuda_enter(&s, gpu->ctx))
		return WEFT_CU_INVALID_CONTEXT;
	memcpy(&h, handle, sizeof(h));
	r = s.cu->ipc_open(&p, h, WEFT_CU_IPC_LAZY_PEER_ACCESS);
	if (!r && !is_mapped(s.cu, p, size)) {
		s.cu->ipc_close(p);
		r = WEFT_CU_INVALID_VALUE;
	}
	if (!r)
		m->dev = p;
	weft_cuda_leave(&s);
	return r;
}

static bool has_access(const struct nvl_mapping *m,
		       const struct weft_engine *gpu)
{
	return m->kind == NVL_RING_HOST
		       ? m->pinned
		       : gpu->ordinal < NVL_ORDINALS &&
				 (m->access & BIT(gpu->ordinal));
}

int nvl_map_reach(struct nvl_mapping *m, struct weft_engine *gpu)
{
	struct weft_cuda_scope s;
	int r, err;

	if (has_access(m, gpu))
		return 0;
	err = weft_cuda_enter(&s, gpu->ctx);
	if (err)
		return err;
	if (m->kind == NVL_RING_CUDA) {
		r = set_access(s.cu, m, gpu->ordinal);
	} else {
		r = s.cu->host_register(m->host, m->size,
					WEFT_CU_HOSTREGISTER_PORTABLE);
		m->pinned = !r;
		m->ctx = gpu->ctx;
		if (r)
			weft_warn_once("host memory for a ring cannot be "
				       "registered with CUDA (%s): raise the "
				       "limit on locked memory",
				       weft_cuda_error_name(r));
	}
	weft_cuda_leave(&s);
	return weft_cuda_errno(r);
}

/* A context that its owner has destroyed took the memory with it. */
void nvl_map_undo(struct nvl_mapping *m)
{
	struct weft_cuda_scope s;

	if (m->kind == NVL_RING_HOST) {
		if (!m->host)
			return;
		if (m->pinned && !weft_cuda_enter(&s, m->ctx)) {
			s.cu->host_unregister(m->host);
			weft_cuda_leave(&s);
		}
		munmap(m->host, m->size);
	} else if (m->dev && !weft_cuda_enter(&s, m->ctx)) {
		if (m->by_handle)
			s.cu->ipc_close(m->dev);
		else
			unmap_handle(s.cu, m);
		weft_cuda_leave(&s);
	}
	if (m->fd >= 0)
		close(m->fd);
	free(m->parts);
	memset(m, 0, sizeof(*m));
	m->fd = -1;
}

int nvl_map_cuda_import(struct nvl_mapping *m, struct weft_engine *gpu, int fd,
			size_t size)
{
	int err = nvl_map_cuda_reserve(m, gpu, size);

	if (err)
		return err;
	err = nvl_map_cuda_part(m, 0, fd, size);
	if (!err)
		err = nvl_map_reach(m, gpu);
	if (!err)
		return 0;
	nvl_map_undo(m);
	if (err == -ENODEV)
		weft_warn_once(
			"a peer's GPU cannot be reached from this "
			"container (its device node is not here): data "
			"for it goes through host memory, at a seventh "
			"of NVLink's speed; give each container all GPUs "
			"of the host and choose by CUDA_VISIBLE_DEVICES");
	else
		weft_warn_once("memory of a peer's GPU cannot be mapped (%s): "
			       "data for it goes through host memory",
			       strerror(-err));
	return err;
}

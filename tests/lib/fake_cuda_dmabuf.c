/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake driver's dma-bufs: descriptors whose name says where in this process
 * the bytes are, for who plays the adapter (fake_verbs.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/fake_cuda_int.h"

#define HOST_PAGE	4096ul

_Atomic bool fake_dmabuf;

EXPORT int cuMemGetHandleForAddressRange(void *handle, uint64_t ptr,
					 size_t size, int type,
					 unsigned long long flags)
{
	char name[64];
	struct object *o;
	uint64_t end;
	int fd = -1;

	GATE(CONTEXT);
	if (type != WEFT_CU_RANGE_DMA_BUF_FD || flags || !size ||
	    (ptr | size) % HOST_PAGE)
		return WEFT_CU_INVALID_VALUE;
	if (!fake_dmabuf)
		return WEFT_CU_NOT_SUPPORTED;
	pthread_mutex_lock(&fake_lock);
	o = fake_find(ptr, 1);
	end = o ? (o->base + o->size + HOST_PAGE - 1) & -HOST_PAGE : 0;
	if (o && (o->kind == MALLOC || o->kind == MAPPED) &&
	    ptr + size <= end) {
		snprintf(name, sizeof(name), "fakedmabuf-%lx-%zx",
			 o->backing + (ptr - o->base), size);
		fd = memfd_create(name, 0);
	}
	pthread_mutex_unlock(&fake_lock);
	if (fd < 0)
		return WEFT_CU_INVALID_VALUE;
	*(int *)handle = fd;
	return 0;
}

EXPORT void fake_cuda_dmabuf(bool on)
{
	fake_dmabuf = on;
}

EXPORT void *fake_cuda_guarded(int ordinal, size_t size)
{
	void *p = fake_cuda_malloc(ordinal, size), *inside;

	inside = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (inside == MAP_FAILED || mprotect(p, size, PROT_NONE))
		abort();
	pthread_mutex_lock(&fake_lock);
	fake_find((uintptr_t)p, size)->backing = (uintptr_t)inside;
	pthread_mutex_unlock(&fake_lock);
	return p;
}

void *fake_bytes(uint64_t p)
{
	void *inside = fake_cuda_inside((void *)(uintptr_t)p);

	return inside ? inside : (void *)(uintptr_t)p;
}

EXPORT void *fake_cuda_inside(void *p)
{
	struct object *o;
	uint64_t inside;

	pthread_mutex_lock(&fake_lock);
	o = fake_find((uintptr_t)p, 1);
	inside = o ? o->backing + ((uintptr_t)p - o->base) : 0;
	pthread_mutex_unlock(&fake_lock);
	return (void *)(uintptr_t)inside;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake driver's virtual memory management: memfds. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/cuda/fake_cuda_int.h"

EXPORT int cuMemCreate(unsigned long long *handle, size_t size,
		       const struct weft_cu_alloc_prop *prop,
		       unsigned long long flags)
{
	struct handle *h;
	char name[32];

	GATE(UNSAFE);
	if (flags || !size || size % PAGE_2M ||
	    prop->type != WEFT_CU_ALLOCATION_PINNED ||
	    (prop->handle_types & ~WEFT_CU_HANDLE_POSIX_FD) || prop->win32 ||
	    prop->location.type != WEFT_CU_LOCATION_DEVICE ||
	    prop->location.id >= fake_gpus)
		return WEFT_CU_INVALID_VALUE;
	if (fake_full)
		return WEFT_CU_OUT_OF_MEMORY;
	h = calloc(1, sizeof(*h));
	h->phys = fake_phys_of[prop->location.id];
	snprintf(name, sizeof(name), "fakecuda-%d", h->phys);
	h->fd = memfd_create(name, MFD_CLOEXEC);
	h->size = size;
	h->types = prop->handle_types;
	h->refs = 1;
	if (h->fd < 0 || ftruncate(h->fd, size))
		abort();
	__atomic_fetch_add(&fake_live.handles, 1, __ATOMIC_RELAXED);
	*handle = (uintptr_t)h;
	return 0;
}

static void handle_put(struct handle *h)
{
	if (--h->refs)
		return;
	close(h->fd);
	free(h);
	__atomic_fetch_sub(&fake_live.handles, 1, __ATOMIC_RELAXED);
}

EXPORT int cuMemRelease(unsigned long long handle)
{
	GATE(0);
	pthread_mutex_lock(&fake_lock);
	handle_put((struct handle *)(uintptr_t)handle);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

EXPORT int cuMemRetainAllocationHandle(unsigned long long *handle, void *addr)
{
	struct object *o;

	GATE(0);
	pthread_mutex_lock(&fake_lock);
	o = fake_find((uintptr_t)addr, 1);
	if (o && o->kind == MAPPED) {
		o->handle->refs++;
		*handle = (uintptr_t)o->handle;
	}
	pthread_mutex_unlock(&fake_lock);
	return o && o->kind == MAPPED ? 0 : WEFT_CU_INVALID_VALUE;
}

EXPORT int
cuMemGetAllocationPropertiesFromHandle(struct weft_cu_alloc_prop *prop,
				       unsigned long long handle)
{
	const struct handle *h = (struct handle *)(uintptr_t)handle;
	int i;

	GATE(0);
	for (i = 0; fake_phys_of[i] != h->phys; i++)
		;
	*prop = (struct weft_cu_alloc_prop){
		.type = WEFT_CU_ALLOCATION_PINNED,
		.handle_types = h->types,
		.location = { WEFT_CU_LOCATION_DEVICE, i },
	};
	return 0;
}

EXPORT int cuMemExportToShareableHandle(void *shareable,
					unsigned long long handle, int type,
					unsigned long long flags)
{
	struct handle *h = (struct handle *)(uintptr_t)handle;

	GATE(0);
	if (type != WEFT_CU_HANDLE_POSIX_FD || flags || !(h->types & type))
		return WEFT_CU_INVALID_VALUE;
	*(int *)shareable = dup(h->fd);
	return 0;
}

EXPORT int cuMemImportFromShareableHandle(unsigned long long *handle,
					  void *shareable, int type)
{
	int fd = (int)(intptr_t)shareable, i;
	char link[64], target[64] = "";
	struct handle *h;
	off_t size;

	GATE(UNSAFE);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (type != WEFT_CU_HANDLE_POSIX_FD ||
	    readlink(link, target, sizeof(target) - 1) < 0 ||
	    strncmp(target, "/memfd:fakecuda-", 16))
		return WEFT_CU_INVALID_VALUE;
	for (i = 0; i < fake_gpus && fake_phys_of[i] != target[16] - '0'; i++)
		;
	if (i == fake_gpus || fake_mig())
		return WEFT_CU_INVALID_DEVICE; /* no device node here */
	size = lseek(fd, 0, SEEK_END);
	h = calloc(1, sizeof(*h));
	h->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	h->size = size;
	h->phys = fake_phys_of[i];
	h->refs = 1;
	__atomic_fetch_add(&fake_live.handles, 1, __ATOMIC_RELAXED);
	*handle = (uintptr_t)h;
	return 0;
}

EXPORT int cuMemAddressReserve(uint64_t *ptr, size_t size, size_t align,
			       uint64_t addr, unsigned long long flags)
{
	void *p;

	GATE(UNSAFE);
	p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return WEFT_CU_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake_lock);
	fake_add(RESERVED, (uintptr_t)p, size, 0);
	__atomic_fetch_add(&fake_live.reservations, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&fake_lock);
	*ptr = (uintptr_t)p;
	return 0;
}

EXPORT int cuMemAddressFree(uint64_t ptr, size_t size)
{
	struct object *o;

	GATE(UNSAFE);
	pthread_mutex_lock(&fake_lock);
	o = fake_exact(RESERVED, ptr, size);
	if (o && !fake_has(MAPPED, ptr, size)) {
		o->kind = FREE;
		__atomic_fetch_sub(&fake_live.reservations, 1,
				   __ATOMIC_RELAXED);
		munmap((void *)(uintptr_t)ptr, size);
	} else {
		o = NULL;
	}
	pthread_mutex_unlock(&fake_lock);
	return o ? 0 : WEFT_CU_INVALID_VALUE;
}

HOOKABLE(cuMemMap);
int cuMemMap(uint64_t ptr, size_t size, size_t offset,
	     unsigned long long handle, unsigned long long flags)
{
	struct handle *h = (struct handle *)(uintptr_t)handle;
	struct object *o = NULL;
	int i;

	GATE(UNSAFE);
	if (offset || flags || size > h->size || size % PAGE_2M)
		return WEFT_CU_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	if (fake_within(RESERVED, ptr, size) && !fake_has(MAPPED, ptr, size)) {
		for (i = 0; fake_phys_of[i] != h->phys; i++)
			;
		o = fake_add(MAPPED, ptr, size, i);
		o->handle = h;
		h->refs++;
		__atomic_fetch_add(&fake_live.maps, 1, __ATOMIC_RELAXED);
		if (mmap((void *)(uintptr_t)ptr, size, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, h->fd, 0) == MAP_FAILED)
			abort();
	}
	pthread_mutex_unlock(&fake_lock);
	return o ? 0 : WEFT_CU_INVALID_VALUE;
}

HOOKABLE(cuMemUnmap);
int cuMemUnmap(uint64_t ptr, size_t size)
{
	struct object *o;

	GATE(UNSAFE);
	pthread_mutex_lock(&fake_lock);
	o = fake_exact(MAPPED, ptr, size);
	if (o) {
		mmap((void *)(uintptr_t)ptr, size, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		handle_put(o->handle);
		o->kind = FREE;
		__atomic_fetch_sub(&fake_live.maps, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&fake_lock);
	return o ? 0 : WEFT_CU_INVALID_VALUE;
}

EXPORT int cuMemSetAccess(uint64_t ptr, size_t size,
			  const struct weft_cu_access *desc, size_t n)
{
	struct object *o;
	uint64_t at, access = 0;

	GATE(UNSAFE);
	for (; n; n--, desc++) {
		if (desc->flags != WEFT_CU_ACCESS_READWRITE)
			return WEFT_CU_INVALID_VALUE;
		if (desc->location.id < 0 || desc->location.id >= fake_gpus)
			return WEFT_CU_INVALID_DEVICE;
		access |= BIT(desc->location.id);
	}
	if (!access)
		return WEFT_CU_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	/* whole mappings, one behind the other */
	for (at = ptr; at < ptr + size; at += o->size) {
		o = fake_find(at, 1);
		if (!o || o->kind != MAPPED || o->base != at ||
		    at + o->size > ptr + size)
			break;
		o->access |= access;
	}
	pthread_mutex_unlock(&fake_lock);
	return at == ptr + size ? 0 : WEFT_CU_INVALID_VALUE;
}

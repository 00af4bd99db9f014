/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What UCX's own CUDA modules call of the driver (libuct_cuda and libucm_cuda
 * of 1.18 to 1.23), so that the fake can stand as libcuda.so.1 before an
 * unchanged UCX.  What needs a real GPU says that it is not supported.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/cuda/fake_cuda_int.h"

#define NOT_FOUND 500 /* CUDA_ERROR_NOT_FOUND */

EXPORT int cuGetErrorString(int err, const char **text)
{
	*text = err ? "an error of the fake driver" : "no error";
	return 0;
}

EXPORT int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

EXPORT int cuCtxSetFlags(unsigned int flags)
{
	GATE(CONTEXT);
	return 0;
}

EXPORT int cuCtxGetFlags(unsigned int *flags)
{
	GATE(CONTEXT);
	*flags = 0; /* those of cuCtxSetFlags() are not kept */
	return 0;
}

/* ---- devices and contexts ------------------------------------------------ */

EXPORT int cuDeviceGetName(char *name, int len, int dev)
{
	GATE(0);
	snprintf(name, len, "a fake GPU %d", fake_phys_of[dev]);
	return 0;
}

EXPORT int cuDeviceTotalMem_v2(size_t *size, int dev)
{
	GATE(0);
	*size = 16ul << 30;
	return 0;
}

EXPORT int cuDeviceGetUuid(struct weft_cu_uuid *uuid, int dev)
{
	GATE(0);
	memset(uuid, 0xa0 + fake_phys_of[dev], sizeof(*uuid));
	return 0;
}

EXPORT int cuCtxGetApiVersion(void *ctx, unsigned int *version)
{
	GATE(0);
	*version = 13000;
	return 0;
}

/* ---- memory -------------------------------------------------------------- */

HOOKABLE(cuMemAlloc_v2);
int cuMemAlloc_v2(uint64_t *p, size_t size) HOOKED(cuMemAlloc_v2);
int cuMemAlloc_v2(uint64_t *p, size_t size)
{
	GATE(CONTEXT | UNSAFE);
	if (!p || !size)
		return WEFT_CU_INVALID_VALUE;
	if (fake_full || size > 1ul << 40)
		return WEFT_CU_OUT_OF_MEMORY;
	*p = (uintptr_t)fake_cuda_malloc(fake_current()->ordinal, size);
	return 0;
}

HOOKABLE(cuMemAllocManaged);
int cuMemAllocManaged(uint64_t *p, size_t size, unsigned int flags)
	HOOKED(cuMemAllocManaged);
int cuMemAllocManaged(uint64_t *p, size_t size, unsigned int flags)
{
	GATE(CONTEXT | UNSAFE);
	*p = (uintptr_t)fake_cuda_managed(fake_current()->ordinal, size);
	return 0;
}

/* Only what it allocated, and by its first address. */
HOOKABLE(cuMemFree_v2);
int cuMemFree_v2(uint64_t p) HOOKED(cuMemFree_v2);
int cuMemFree_v2(uint64_t p)
{
	struct object *o;
	bool own;

	GATE(UNSAFE);
	pthread_mutex_lock(&fake_lock);
	o = fake_find(p, 1);
	own = o && o->base == p &&
	      (o->kind == MALLOC || o->kind == MANAGED_MEM);
	pthread_mutex_unlock(&fake_lock);
	if (!own)
		return WEFT_CU_INVALID_VALUE;
	fake_cuda_free((void *)(uintptr_t)p);
	return 0;
}

int cuMemAllocAsync(uint64_t *p, size_t size, void *stream)
	HOOKED(cuMemAllocAsync);
HOOKABLE(cuMemAllocAsync);
int cuMemAllocAsync(uint64_t *p, size_t size, void *stream)
{
	GATE(CONTEXT);
	*p = (uintptr_t)fake_cuda_pool(fake_current()->ordinal, size);
	return 0;
}

int cuMemFreeAsync(uint64_t p, void *stream) HOOKED(cuMemFreeAsync);
HOOKABLE(cuMemFreeAsync);
int cuMemFreeAsync(uint64_t p, void *stream)
{
	GATE(0);
	fake_cuda_free((void *)(uintptr_t)p);
	return 0;
}

EXPORT int cuMemGetAllocationGranularity(size_t *size,
					 const struct weft_cu_alloc_prop *prop,
					 int option)
{
	GATE(0);
	*size = PAGE_2M;
	return 0;
}

EXPORT int cuCtxSynchronize(void)
{
	GATE(CONTEXT | NO_CAPTURE);
	fake_streams_drain();
	return 0;
}

/* The driver's one-attribute form refuses what it does not know. */
EXPORT int cuPointerGetAttribute(void *value, int attr, uint64_t ptr)
{
	bool known;

	GATE(0);
	pthread_mutex_lock(&fake_lock);
	known = fake_find(ptr, 1);
	pthread_mutex_unlock(&fake_lock);
	if (!known)
		return WEFT_CU_INVALID_VALUE;
	switch (attr) {
	case WEFT_CU_POINTER_CONTEXT:
	case WEFT_CU_POINTER_MEMORY_TYPE:
	case WEFT_CU_POINTER_BUFFER_ID:
	case WEFT_CU_POINTER_IS_MANAGED:
	case WEFT_CU_POINTER_ORDINAL:
		return cuPointerGetAttributes(1, &attr, &value, ptr);
	}
	return WEFT_CU_INVALID_VALUE;
}

/* SYNC_MEMOPS, which memory of cuMemCreate() does not have. */
EXPORT int cuPointerSetAttribute(const void *value, int attr, uint64_t ptr)
{
	struct object *o;

	GATE(0);
	pthread_mutex_lock(&fake_lock);
	o = fake_find(ptr, 1);
	pthread_mutex_unlock(&fake_lock);
	return o && o->kind == MAPPED ? WEFT_CU_NOT_SUPPORTED : 0;
}

EXPORT int cuMemRangeGetAttribute(void *value, size_t size, int attr,
				  uint64_t ptr, size_t len)
{
	GATE(0);
	return WEFT_CU_INVALID_VALUE;
}

/* ---- streams ------------------------------------------------------------- */

EXPORT int cuStreamSynchronize(void *stream)
{
	GATE(CONTEXT | UNSAFE);
	return fake_stream_wait(stream);
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t n,
				void *stream)
{
	return cuMemcpyAsync(dst, src, n, stream);
}

EXPORT int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t n)
{
	GATE(CONTEXT | UNSAFE);
	fake_streams_drain();
	memcpy((void *)(uintptr_t)dst, src, n);
	return 0;
}

struct callback {
	void (*fn)(void *stream, int status, void *arg);
	void *stream, *arg;
};

static void call_back(void *p)
{
	struct callback cb = *(struct callback *)p;

	free(p);
	cb.fn(cb.stream, 0, cb.arg);
}

EXPORT int cuStreamAddCallback(void *stream,
			       void (*fn)(void *stream, int status, void *arg),
			       void *arg, unsigned int flags)
{
	struct callback *cb = malloc(sizeof(*cb));
	int err;

	if (flags || !cb) {
		free(cb);
		return WEFT_CU_INVALID_VALUE;
	}
	*cb = (struct callback){ fn, stream, arg };
	err = cuLaunchHostFunc(stream, call_back, cb);
	if (err)
		free(cb);
	return err;
}

/* ---- what this GPU cannot do --------------------------------------------- */

#define NOT_HERE(name)                        \
	EXPORT int name(void)                 \
	{                                     \
		return WEFT_CU_NOT_SUPPORTED; \
	}
NOT_HERE(cuMemPoolDestroy)
NOT_HERE(cuMemPoolExportPointer)
NOT_HERE(cuMemPoolExportToShareableHandle)
NOT_HERE(cuMemPoolImportFromShareableHandle)
NOT_HERE(cuMemPoolImportPointer)
NOT_HERE(cuMemPoolSetAccess)

/* ---- looking them up ----------------------------------------------------- */

EXPORT int cuDeviceCanAccessPeer(int *can, int dev, int peer)
{
	GATE(0);
	*can = dev != peer;
	return 0;
}

/*
 * Those that CUDA's runtime or a test looks up: the name without its suffix,
 * the version it is of, the symbol.
 */
#define LOOKUPS(X)                                                \
	X(cuCtxSetFlags, 12010, cuCtxSetFlags)                    \
	X(cuCtxSynchronize, 2000, cuCtxSynchronize)               \
	X(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset) \
	X(cuDriverGetVersion, 2020, cuDriverGetVersion)           \
	X(cuGetProcAddress, 11030, cuGetProcAddress)              \
	X(cuGetProcAddress, 12000, cuGetProcAddress_v2)           \
	X(cuInit, 2000, cuInit)                                   \
	X(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle)             \
	X(cuMemAlloc, 3020, cuMemAlloc_v2)                        \
	X(cuMemFree, 3020, cuMemFree_v2)                          \
	X(cuMemFreeAsync, 11020, cuMemFreeAsync)                  \
	X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2)

/* what dlsym() finds; of some the C name is another one, behind it */
#define X(name, version, symbol) extern char found_##symbol[] __asm__(#symbol);
LOOKUPS(X)
#undef X

static const struct {
	const char *name;
	int from;
	void *fn;
} lookups[] = {
#define X(name, version, symbol) { #name, version, found_##symbol },
	LOOKUPS(X)
#undef X
};

int cuGetProcAddress_v2(const char *name, void **fn, int version,
			uint64_t flags, int *found);

EXPORT int cuGetProcAddress(const char *name, void **fn, int version,
			    uint64_t flags)
{
	return cuGetProcAddress_v2(name, fn, version, flags, NULL);
}

EXPORT int cuGetProcAddress_v2(const char *name, void **fn, int version,
			       uint64_t flags, int *found)
{
	unsigned int i;

	*fn = NULL;
	for (i = 0; i < ARRAY_SIZE(lookups); i++)
		if (!strcmp(lookups[i].name, name) &&
		    lookups[i].from <= version)
			*fn = lookups[i].fn;
	if (found)
		*found = !*fn; /* CUdriverProcAddressQueryResult */
	return *fn ? 0 : NOT_FOUND;
}

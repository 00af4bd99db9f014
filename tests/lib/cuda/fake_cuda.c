/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake driver's devices, contexts and memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/cuda/fake_cuda_int.h"

#define GREEN	4096u /* contexts at a time */
#define OBJECTS 4096

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct fake_cuda_live fake_live;
unsigned int fake_delay_us = 200;
bool fake_no_write, fake_full, fake_all;
_Atomic bool fake_wrong;

static struct object objects[OBJECTS];
static struct context contexts[GPUS], green[GREEN];
int fake_phys_of[GPUS], fake_gpus;
int fake_inits;
static uint64_t next_id = 1;
static __thread struct context *stack[16];
__thread int fake_depth, fake_capture_mode;

/* ---- objects ------------------------------------------------------------- */

struct context *fake_current(void)
{
	return fake_depth ? stack[fake_depth - 1] : NULL;
}

struct object *fake_find(uint64_t p, size_t len)
{
	unsigned int i;

	for (i = 0; i < OBJECTS; i++)
		if (objects[i].kind > RESERVED && p >= objects[i].base &&
		    p + len <= objects[i].base + objects[i].size)
			return &objects[i];
	return NULL;
}

bool fake_has(enum kind kind, uint64_t p, size_t len)
{
	unsigned int i;

	for (i = 0; i < OBJECTS; i++)
		if (objects[i].kind == kind && objects[i].base < p + len &&
		    p < objects[i].base + objects[i].size)
			return true;
	return false;
}

bool fake_within(enum kind kind, uint64_t p, size_t len)
{
	unsigned int i;

	for (i = 0; i < OBJECTS; i++)
		if (objects[i].kind == kind && p >= objects[i].base &&
		    p + len <= objects[i].base + objects[i].size)
			return true;
	return false;
}

struct object *fake_add(enum kind kind, uint64_t base, uint64_t size,
			int ordinal)
{
	unsigned int i;

	for (i = 0; i < OBJECTS && objects[i].kind; i++)
		;
	if (i == OBJECTS)
		abort();
	objects[i] = (struct object){ .kind = kind,
				      .base = base,
				      .size = size,
				      .ordinal = ordinal,
				      .id = next_id++ };
	return &objects[i];
}

struct object *fake_exact(enum kind kind, uint64_t base, size_t size)
{
	unsigned int i;

	for (i = 0; i < OBJECTS; i++)
		if (objects[i].kind == kind && objects[i].base == base &&
		    objects[i].size == size)
			return &objects[i];
	return NULL;
}

/* ---- devices and contexts ------------------------------------------------ */

void fake_find_gpus(void)
{
	const char *nodes = getenv(FAKE_CUDA_NODES);
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	if (fake_gpus)
		return;
	if (visible && !*visible)
		nodes = "";
	for (nodes = nodes ? nodes : "01"; *nodes; nodes++)
		fake_phys_of[fake_gpus++] = *nodes - '0';
}

bool fake_mig(void)
{
	return getenv(FAKE_CUDA_MIG);
}

EXPORT int cuInit(unsigned int flags)
{
	const char *us = getenv(FAKE_CUDA_DELAY);

	if (flags)
		return WEFT_CU_INVALID_VALUE;
	while (getenv(FAKE_CUDA_HANG))
		pause();
	if (!fake_inits) {
		fake_find_gpus();
		if (us)
			fake_delay_us = atoi(us);
		fake_no_write = getenv(FAKE_CUDA_NO_WRITE);
		fake_wrong = getenv(FAKE_CUDA_WRONG);
		fake_full = getenv(FAKE_CUDA_FULL);
		fake_all = getenv(FAKE_CUDA_ALL);
	}
	fake_inits++;
	return fake_gpus ? 0 : WEFT_CU_NO_DEVICE;
}

EXPORT int cuGetErrorName(int err, const char **name)
{
	*name = err == WEFT_CU_INVALID_DEVICE	 ? "CUDA_ERROR_INVALID_DEVICE"
		: err == WEFT_CU_OUT_OF_MEMORY	 ? "CUDA_ERROR_OUT_OF_MEMORY"
		: err == WEFT_CU_INVALID_VALUE	 ? "CUDA_ERROR_INVALID_VALUE"
		: err == WEFT_CU_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
						 : "CUDA_ERROR_FAKE";
	return 0;
}

EXPORT int cuDeviceGetCount(int *n)
{
	GATE(0);
	*n = fake_gpus;
	return 0;
}

EXPORT int cuDeviceGet(int *dev, int ordinal)
{
	GATE(0);
	if (ordinal < 0 || ordinal >= fake_gpus)
		return WEFT_CU_INVALID_DEVICE;
	*dev = ordinal;
	return 0;
}

EXPORT int cuDeviceGetUuid_v2(struct weft_cu_uuid *uuid, int dev)
{
	GATE(0);
	memset(uuid, 0xa0 + fake_phys_of[dev], sizeof(*uuid));
	return 0;
}

EXPORT int cuDeviceGetAttribute(int *v, int attr, int dev)
{
	const char *old = getenv(FAKE_CUDA_NO_VMM);

	GATE(0);
	switch (attr) {
	case 33: /* CU_DEVICE_ATTRIBUTE_PCI_BUS_ID */
		*v = 0xe0 + fake_phys_of[dev];
		break;
	case 34: /* ..._PCI_DEVICE_ID */
	case 50: /* ..._PCI_DOMAIN_ID */
		*v = 0;
		break;
	case WEFT_CU_DEVICE_VMM:
		*v = !old || !strchr(old, '0' + fake_phys_of[dev]);
		break;
	default:
		*v = 1;
	}
	return 0;
}

EXPORT int cuDevicePrimaryCtxGetState(int dev, unsigned int *flags, int *active)
{
	GATE(0);
	*flags = 0;
	*active = contexts[dev].refs > 0;
	return 0;
}

static void make_context(struct context *c, int ordinal)
{
	static _Atomic unsigned long long last;

	c->ordinal = ordinal;
	if (!c->id)
		c->id = ++last;
}

EXPORT int cuDevicePrimaryCtxRetain(void **ctx, int dev)
{
	GATE(0);
	make_context(&contexts[dev], dev);
	contexts[dev].refs++;
	*ctx = &contexts[dev];
	return 0;
}

/* Its memory ends with it, but not that of cuMemCreate(). */
static void free_context_memory(const struct context *c)
{
	unsigned int i;

	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < OBJECTS; i++)
		if (objects[i].ctx != c)
			continue;
		else if (objects[i].kind == MALLOC && objects[i].block) {
			fake_ipc_free(&objects[i]);
		} else if (objects[i].kind == MALLOC ||
			   objects[i].kind == MANAGED_MEM) {
			munmap((void *)(uintptr_t)objects[i].base,
			       objects[i].size);
			objects[i].kind = FREE;
		}
	pthread_mutex_unlock(&fake_lock);
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int dev)
{
	GATE(0);
	if (!--contexts[dev].refs) {
		contexts[dev].id = 0;
		free_context_memory(&contexts[dev]);
	}
	return 0;
}

EXPORT int cuDevicePrimaryCtxReset(int dev)
{
	GATE(UNSAFE);
	contexts[dev].refs = 0;
	contexts[dev].id = 0;
	free_context_memory(&contexts[dev]);
	return 0;
}

EXPORT void *fake_cuda_green(int ordinal)
{
	struct context *c;

	pthread_mutex_lock(&fake_lock);
	for (c = green; c < green + GREEN && c->refs > 0; c++)
		;
	if (c < green + GREEN) {
		make_context(c, ordinal);
		c->refs = 1;
	}
	pthread_mutex_unlock(&fake_lock);
	return c < green + GREEN ? c : NULL;
}

EXPORT int cuCtxPushCurrent_v2(void *ctx)
{
	struct context *c = ctx;

	GATE(0);
	if (!c || c->refs <= 0 || fake_depth == 16)
		return WEFT_CU_INVALID_CONTEXT;
	stack[fake_depth++] = c;
	return 0;
}

EXPORT int cuCtxPopCurrent_v2(void **ctx)
{
	if (!fake_depth)
		return WEFT_CU_INVALID_CONTEXT;
	fake_depth--;
	if (ctx)
		*ctx = stack[fake_depth];
	return 0;
}

EXPORT int cuCtxGetCurrent(void **ctx)
{
	GATE(0);
	*ctx = fake_depth ? stack[fake_depth - 1] : NULL;
	return 0;
}

EXPORT int cuCtxGetId(void *ctx, unsigned long long *id)
{
	struct context *c = ctx ? ctx : fake_current();

	GATE(0);
	if (!c || !c->id)
		return WEFT_CU_INVALID_CONTEXT;
	*id = c->id;
	return 0;
}

EXPORT int cuCtxGetDevice(int *dev)
{
	GATE(CONTEXT);
	*dev = stack[fake_depth - 1]->ordinal;
	return 0;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int old = fake_capture_mode;

	if (*mode < 0 || *mode > 2)
		return WEFT_CU_INVALID_VALUE;
	fake_capture_mode = *mode;
	*mode = old;
	return 0;
}

/* ---- memory -------------------------------------------------------------- */

EXPORT int cuPointerGetAttributes(unsigned int n, int *attrs, void **values,
				  uint64_t ptr)
{
	static struct object all = { .kind = MALLOC, .ctx = &contexts[0] };
	struct object *o;
	unsigned int i;

	GATE(0);
	pthread_mutex_lock(&fake_lock);
	o = fake_find(ptr, 1);
	if (!o && fake_all)
		o = &all;
	for (i = 0; i < n; i++) {
		switch (attrs[i]) {
		case WEFT_CU_POINTER_CONTEXT:
			*(void **)values[i] = o ? o->ctx : NULL;
			break;
		case WEFT_CU_POINTER_MEMORY_TYPE:
			*(unsigned int *)values[i] =
				!o		    ? 0
				: o->kind == PINNED ? WEFT_CU_MEMORY_HOST
						    : WEFT_CU_MEMORY_DEVICE;
			break;
		case WEFT_CU_POINTER_BUFFER_ID:
			*(unsigned long long *)values[i] = o ? o->id : 0;
			break;
		case WEFT_CU_POINTER_IS_MANAGED:
			*(unsigned int *)values[i] =
				o && o->kind == MANAGED_MEM;
			break;
		case WEFT_CU_POINTER_ORDINAL:
			*(int *)values[i] = o ? o->ordinal : -2;
			break;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

EXPORT int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t ptr)
{
	struct object *o;

	GATE(CONTEXT);
	pthread_mutex_lock(&fake_lock);
	o = fake_find(ptr, 1);
	if (o) {
		*base = o->base;
		*size = o->size;
	}
	pthread_mutex_unlock(&fake_lock);
	return o ? 0 : WEFT_CU_INVALID_VALUE;
}

EXPORT int cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	struct object *o;

	GATE(UNSAFE | CONTEXT);
	pthread_mutex_lock(&fake_lock);
	if (fake_find((uintptr_t)p, size)) {
		pthread_mutex_unlock(&fake_lock);
		return WEFT_CU_ALREADY_REGISTERED;
	}
	o = fake_add(PINNED, (uintptr_t)p, size,
		     stack[fake_depth - 1]->ordinal);
	o->ctx = stack[fake_depth - 1];
	__atomic_fetch_add(&fake_live.pinned, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

EXPORT int cuMemHostUnregister(void *p)
{
	unsigned int i;

	GATE(UNSAFE);
	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < OBJECTS; i++)
		if (objects[i].kind == PINNED &&
		    objects[i].base == (uintptr_t)p)
			break;
	if (i < OBJECTS) {
		objects[i].kind = FREE;
		__atomic_fetch_sub(&fake_live.pinned, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&fake_lock);
	return i < OBJECTS ? 0 : WEFT_CU_INVALID_VALUE;
}

EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *dptr, void *p,
					unsigned int flags)
{
	GATE(0);
	*dptr = (uintptr_t)p;
	return 0;
}

/* ---- control ------------------------------------------------------------- */

EXPORT int fake_cuda_inits(void)
{
	return fake_inits;
}

EXPORT void fake_cuda_live(struct fake_cuda_live *l)
{
	*l = fake_live;
}

EXPORT void fake_cuda_delay(unsigned int us)
{
	fake_delay_us = us;
}

EXPORT void *fake_cuda_context(int ordinal)
{
	void *ctx;

	if (!fake_inits)
		cuInit(0);
	return cuDevicePrimaryCtxRetain(&ctx, ordinal) ? NULL : ctx;
}

EXPORT void fake_cuda_reset(int ordinal)
{
	cuDevicePrimaryCtxReset(ordinal);
}

static void *program_memory(struct context *c, size_t size, enum kind kind)
{
	struct object *o;
	void *p;

	p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		abort();
	pthread_mutex_lock(&fake_lock);
	o = fake_add(kind, (uintptr_t)p, size, c->ordinal);
	o->ctx = c;
	pthread_mutex_unlock(&fake_lock);
	return p;
}

EXPORT void *fake_cuda_malloc_in(void *ctx, size_t size)
{
	struct context *c = ctx;
	struct object *o;
	uint64_t p = 0;

	pthread_mutex_lock(&fake_lock);
	o = fake_ipc_alloc(c->ordinal, size);
	if (o) {
		o->ctx = c;
		p = o->base;
	}
	pthread_mutex_unlock(&fake_lock);
	return o ? (void *)(uintptr_t)p : program_memory(c, size, MALLOC);
}

/* Of a GPU whose context need not be there. */
static struct context *primary_of(int ordinal)
{
	make_context(&contexts[ordinal], ordinal);
	return &contexts[ordinal];
}

EXPORT void *fake_cuda_malloc(int ordinal, size_t size)
{
	return fake_cuda_malloc_in(primary_of(ordinal), size);
}

EXPORT void *fake_cuda_managed(int ordinal, size_t size)
{
	return program_memory(primary_of(ordinal), size, MANAGED_MEM);
}

EXPORT void *fake_cuda_pool(int ordinal, size_t size)
{
	void *p = program_memory(primary_of(ordinal), size, MALLOC);

	pthread_mutex_lock(&fake_lock);
	fake_find((uintptr_t)p, size)->ctx = NULL;
	pthread_mutex_unlock(&fake_lock);
	return p;
}

EXPORT void fake_cuda_map(void *at, int ordinal, size_t size, int types)
{
	struct weft_cu_alloc_prop prop = {
		.type = WEFT_CU_ALLOCATION_PINNED,
		.handle_types = types,
		.location = { WEFT_CU_LOCATION_DEVICE, ordinal },
	};
	struct weft_cu_access access = { prop.location,
					 WEFT_CU_ACCESS_READWRITE };
	const uint64_t p = (uintptr_t)at;
	unsigned long long h;

	if (cuMemCreate(&h, size, &prop, 0) || cuMemMap(p, size, 0, h, 0) ||
	    cuMemSetAccess(p, size, &access, 1))
		abort();
	cuMemRelease(h);
}

/* As NCCL allocates: with a descriptor, and of no context. */
EXPORT void *fake_cuda_vmm(int ordinal, size_t size)
{
	uint64_t p;

	size = (size + PAGE_2M - 1) & ~(PAGE_2M - 1);
	if (cuMemAddressReserve(&p, size, 0, 0, 0))
		abort();
	fake_cuda_map((void *)(uintptr_t)p, ordinal, size,
		      WEFT_CU_HANDLE_POSIX_FD);
	return (void *)(uintptr_t)p;
}

EXPORT void *fake_cuda_segments(int ordinal, unsigned int n, int types)
{
	unsigned int i;
	uint64_t p;

	if (cuMemAddressReserve(&p, n * PAGE_2M, 0, 0, 0))
		abort();
	for (i = 0; i < n; i++)
		fake_cuda_map((void *)(uintptr_t)(p + i * PAGE_2M), ordinal,
			      PAGE_2M, types);
	return (void *)(uintptr_t)p;
}

EXPORT void fake_cuda_unmap(void *p, size_t size)
{
	fake_streams_drain();
	if (cuMemUnmap((uintptr_t)p, size))
		abort();
}

EXPORT void fake_cuda_free(void *p)
{
	struct object *o;
	uint64_t size;

	fake_streams_drain();
	pthread_mutex_lock(&fake_lock);
	o = fake_find((uintptr_t)p, 1);
	size = o->size;
	if (o->kind == MALLOC && o->block) {
		fake_ipc_free(o);
		o = NULL;
	} else if (o->kind != MAPPED) {
		o->kind = FREE;
		munmap(p, size);
		o = NULL;
	}
	pthread_mutex_unlock(&fake_lock);
	if (o) {
		cuMemUnmap((uintptr_t)p, size);
		cuMemAddressFree((uintptr_t)p, size);
	}
}

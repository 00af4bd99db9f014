/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libweft_cuda.so: has cudaMalloc() and cuMemAlloc() return memory that a peer
 * can map.
 *
 * LD_PRELOAD loads it, which weft run sets with WEFT_CUDA_EXPORTABLE=on; else
 * no process has it.  Like libweft_preload.so it needs only libc, in versions
 * that every system of the last ten years has, and runs no constructor.
 *
 * Programs and the CUDA runtime, shared or static, look the driver's functions
 * up in libcuda.so.1: by dlsym(), or by cuGetProcAddress(), which they look up
 * by dlsym().  So dlsym() is interposed, and answers for that library alone.
 * UCX's memory hooks look up in their own library and patch the driver itself;
 * they see the mappings that are made here, as they see those of a program.
 *
 * An allocation of a granule (2 MiB) or more becomes one of cuMemCreate(),
 * mapped at an address of its own.  What cannot be one, for whatever reason, is
 * the driver's: callers get its memory or its error.  Smaller ones are the
 * driver's, too: it packs them, and a whole granule for each would waste most.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ucx_tl/env_flag.h"
#include "ucx_tl/load.h"
#include "util/cuda.h"
#include "util/util.h"

/* What is answered with a function of this file: X(field, symbol, arguments) */
#define REDIRECTED(X)                                                         \
	X(mem_alloc, cuMemAlloc_v2, (uint64_t * ptr, size_t size))            \
	X(mem_free, cuMemFree_v2, (uint64_t ptr))                             \
	X(mem_free_async, cuMemFreeAsync, (uint64_t ptr, void *st))           \
	X(mem_free_async_ptsz, cuMemFreeAsync_ptsz, (uint64_t ptr, void *st)) \
	X(ipc_get, cuIpcGetMemHandle, (void *handle, uint64_t ptr))           \
	X(reset_v1, cuDevicePrimaryCtxReset, (int dev))                       \
	X(reset, cuDevicePrimaryCtxReset_v2, (int dev))                       \
	X(release_v1, cuDevicePrimaryCtxRelease, (int dev))                   \
	X(release, cuDevicePrimaryCtxRelease_v2, (int dev))                   \
	X(destroy, cuCtxDestroy_v2, (void *ctx))                              \
	X(get_proc_v1, cuGetProcAddress,                                      \
	  (const char *name, void **fn, int version, uint64_t flags))         \
	X(get_proc, cuGetProcAddress_v2,                                      \
	  (const char *name, void **fn, int version, uint64_t flags,          \
	   int *status))                                                      \
	X(get_proc_ptsz, cuGetProcAddress_v2_ptsz,                            \
	  (const char *name, void **fn, int version, uint64_t flags,          \
	   int *status))

struct driver {
	void *handle;
	struct weft_cuda cu;
#define X(field, symbol, args) int(*field) args;
	REDIRECTED(X)
#undef X
	int (*can_access)(int *can, int dev, int peer);
};

#define X(field, symbol, args) WEFT_EXPORT int symbol args;
REDIRECTED(X)
#undef X

typedef void *(*dlsym_fn)(void *handle, const char *name);

/* ---- the driver ---------------------------------------------------------- */

#ifdef __powerpc64__
#define WEFT_GLIBC_BASE "GLIBC_2.17" /* ppc64le's first */
#endif

/*
 * libc's, or that of another library that interposes it.  The version is one
 * that every glibc has: a lookup that fails allocates, and the caller may be a
 * malloc() that looks for the next one.
 */
static dlsym_fn get_next_dlsym(void)
{
	static _Atomic(dlsym_fn) found;
	dlsym_fn fn = atomic_load_explicit(&found, memory_order_relaxed);
	void *next;

	if (fn)
		return fn;
	*(void **)&fn = dlvsym(RTLD_NEXT, "dlsym", WEFT_GLIBC_BASE);
	/* dlvsym() skips what has no version */
	next = fn(RTLD_NEXT, "dlsym");
	if (next)
		*(void **)&fn = next;
	atomic_store_explicit(&found, fn, memory_order_relaxed);
	return fn;
}

static bool is_on(void)
{
	static atomic_int on = -1;
	int now = atomic_load_explicit(&on, memory_order_relaxed);

	if (now < 0) {
		now = weft_env_flag("WEFT_CUDA_EXPORTABLE") == 1;
		atomic_store_explicit(&on, now, memory_order_relaxed);
	}
	return now;
}

/*
 * The driver that the program has loaded, or NULL.  No lock: callers may hold
 * the dynamic linker's.
 */
static const struct driver *get_driver(void)
{
	static _Atomic(struct driver *) driver;
	struct driver *d = atomic_load_explicit(&driver, memory_order_acquire);
	struct driver *other = NULL;
	dlsym_fn find = get_next_dlsym();
	void *handle;

	if (d)
		return d;
	handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (!handle)
		return NULL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->handle = handle; /* never closed */
#define X(field, symbol, args) *(void **)&d->cu.field = find(handle, #symbol);
	WEFT_CUDA_CALLS(X)
#undef X
#define X(field, symbol, args) *(void **)&d->field = find(handle, #symbol);
	REDIRECTED(X)
#undef X
	*(void **)&d->can_access = find(handle, "cuDeviceCanAccessPeer");
	if (atomic_compare_exchange_strong(&driver, &other, d))
		return d;
	free(d);
	return other;
}

/* ---- what can be exported ------------------------------------------------ */

#define GPUS 64 /* drivers have at most 32 (NV_MAX_DEVICES, nvlimits.h) */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct gpu {
	enum { UNKNOWN, NATIVE, EXPORTABLE } state;
	struct weft_cu_alloc_prop prop;
	struct weft_cu_access access[GPUS];
	size_t naccess, granule;
} gpus[GPUS];

static void warn_native(int dev, const char *why)
{
	dprintf(STDERR_FILENO,
		"weft: warning: WEFT_CUDA_EXPORTABLE has no effect on GPU %d: "
		"%s\n",
		dev, why);
}

static bool has_attribute(const struct driver *d, int attr, int dev)
{
	int v = 0;

	return !d->cu.device_attr(&v, attr, dev) && v;
}

/*
 * The driver copies between cuMemAlloc()'s memory of any two GPUs, and gives
 * GPUs access when the program enables it.  To memory of cuMemCreate() they
 * have what is given here, which is all of it.
 */
static bool grant_access(const struct driver *d, struct gpu *gpu, int dev)
{
	int n = 0, i, can;

	if (!d->can_access || d->cu.device_count(&n) || n > GPUS)
		return false;
	for (i = 0; i < n; i++) {
		can = 0;
		if (i != dev && (d->can_access(&can, i, dev) || !can))
			return false;
		gpu->access[i].location.type = WEFT_CU_LOCATION_DEVICE;
		gpu->access[i].location.id = i;
		gpu->access[i].flags = WEFT_CU_ACCESS_READWRITE;
	}
	gpu->naccess = (size_t)n;
	return true;
}

/* With the lock. */
static void look_at_gpu(const struct driver *d, struct gpu *gpu, int dev)
{
	gpu->state = NATIVE;
#define X(field, symbol, args)                                       \
	if (!d->cu.field) {                                          \
		warn_native(dev, "the driver has no " #symbol "()"); \
		return;                                              \
	}
	WEFT_CUDA_CALLS(X)
#undef X
	if (!has_attribute(d, WEFT_CU_DEVICE_VMM, dev) ||
	    !has_attribute(d, WEFT_CU_DEVICE_POSIX_FD, dev)) {
		warn_native(dev, "it cannot export memory as a file "
				 "descriptor");
		return;
	}
	gpu->prop.type = WEFT_CU_ALLOCATION_PINNED;
	gpu->prop.handle_types = WEFT_CU_HANDLE_POSIX_FD;
	gpu->prop.location.type = WEFT_CU_LOCATION_DEVICE;
	gpu->prop.location.id = dev;
	gpu->prop.flags.rdma = has_attribute(d, WEFT_CU_DEVICE_VMM_RDMA, dev);
	if (d->cu.mem_granularity(&gpu->granule, &gpu->prop,
				  WEFT_CU_GRANULARITY_MINIMUM) ||
	    !gpu->granule) {
		warn_native(dev, "its granularity is unknown");
		return;
	}
	if (!grant_access(d, gpu, dev)) {
		warn_native(dev, "another visible GPU has no peer access to "
				 "it; choose by CUDA_VISIBLE_DEVICES");
		return;
	}
	gpu->state = EXPORTABLE;
}

/* NULL: memory of this one is the driver's. */
static const struct gpu *get_gpu(const struct driver *d, int dev)
{
	struct gpu *gpu = &gpus[dev];

	pthread_mutex_lock(&lock);
	if (gpu->state == UNKNOWN)
		look_at_gpu(d, gpu, dev);
	pthread_mutex_unlock(&lock);
	return gpu->state == EXPORTABLE ? gpu : NULL;
}

/* ---- allocations --------------------------------------------------------- */

struct allocation {
	struct allocation *next;
	uint64_t base;
	size_t size; /* whole granules */
	/*
	 * A byte of the driver's.  Programs rely on cuMemFree() to wait for the
	 * GPU, which cuMemUnmap() does not.  cuCtxSynchronize() would, but
	 * fails while a stream captures, and ends its capture.
	 *
	 * It also ends with its context, and shows that this has ended.  The
	 * context's address would not: the next one may get it, and what is
	 * allocated in a green context is the primary one's.
	 */
	uint64_t fence;
	unsigned long long id; /* of @fence; never that of another */
};

#define BUCKETS 1024u
static struct allocation *buckets[BUCKETS];
/*
 * The process that allocates.  The driver refuses every call of its children,
 * and one may have been forked while the lock was held.
 */
static _Atomic(pid_t) owner;

static struct allocation **bucket_of(uint64_t base)
{
	return &buckets[(base >> 21) % BUCKETS];
}

static void add_allocation(struct allocation *a)
{
	struct allocation **at = bucket_of(a->base);

	pthread_mutex_lock(&lock);
	atomic_store(&owner, getpid());
	a->next = *at;
	*at = a;
	pthread_mutex_unlock(&lock);
}

/* The one that begins at @base, no longer in the table; NULL: none does. */
static struct allocation *take_allocation(uint64_t base)
{
	struct allocation **at = bucket_of(base), *a;

	if (!base || atomic_load(&owner) != getpid())
		return NULL;
	pthread_mutex_lock(&lock);
	while (*at && (*at)->base != base)
		at = &(*at)->next;
	a = *at;
	if (a)
		*at = a->next;
	pthread_mutex_unlock(&lock);
	return a;
}

static bool has_allocation(uint64_t ptr)
{
	const struct allocation *a;
	bool has = false;
	unsigned int i;

	if (atomic_load(&owner) != getpid())
		return false;
	pthread_mutex_lock(&lock);
	for (i = 0; i < BUCKETS; i++)
		for (a = buckets[i]; a; a = a->next)
			has |= ptr - a->base < a->size;
	pthread_mutex_unlock(&lock);
	return has;
}

/* The driver's number of the allocation at @ptr, 0: there is none. */
static int get_id(const struct driver *d, uint64_t ptr, unsigned long long *id)
{
	int attr = WEFT_CU_POINTER_BUFFER_ID;
	void *value = id;

	*id = 0;
	return d->cu.pointer_attrs(1, &attr, &value, ptr);
}

/* CUresult, and which @call failed. */
static int map_memory(const struct driver *d, const struct gpu *gpu,
		      struct allocation *a, const char **call)
{
	unsigned long long handle;
	int r;

	*call = "cuMemCreate";
	r = d->cu.mem_create(&handle, a->size, &gpu->prop, 0);
	if (r)
		return r;
	*call = "cuMemAddressReserve";
	r = d->cu.address_reserve(&a->base, a->size, 0, 0, 0);
	if (!r) {
		*call = "cuMemMap";
		r = d->cu.mem_map(a->base, a->size, 0, handle, 0);
		if (!r) {
			*call = "cuMemSetAccess";
			r = d->cu.mem_access(a->base, a->size, gpu->access,
					     gpu->naccess);
			if (r)
				d->cu.mem_unmap(a->base, a->size);
		}
		if (r)
			d->cu.address_free(a->base, a->size);
	}
	/* the mapping keeps it */
	d->cu.mem_release(handle);
	return r;
}

/* Of a GPU that is full programs learn from the driver. */
static void warn_refused(const struct driver *d, int dev, size_t size,
			 const char *call, int err)
{
	static atomic_bool warned;
	const char *name = NULL;

	if (err == WEFT_CU_OUT_OF_MEMORY || atomic_exchange(&warned, true))
		return;
	d->cu.error_name(err, &name);
	dprintf(STDERR_FILENO,
		"weft: warning: WEFT_CUDA_EXPORTABLE has no effect on %zu "
		"bytes of GPU %d: %s() failed (%s), so they go through a "
		"ring; if this driver or container never allows it, unset it\n",
		size, dev, call, name ? name : "an unknown error");
}

static bool allocate(const struct driver *d, uint64_t *ptr, size_t size)
{
	struct allocation *a;
	const struct gpu *gpu;
	const char *call;
	int dev, r;

	if (!ptr || d->cu.ctx_device(&dev) || dev < 0 || dev >= GPUS)
		return false;
	gpu = get_gpu(d, dev);
	if (!gpu || size < gpu->granule || size > SIZE_MAX - gpu->granule)
		return false;
	a = calloc(1, sizeof(*a));
	if (!a)
		return false;
	a->size = (size + gpu->granule - 1) / gpu->granule * gpu->granule;
	if (d->mem_alloc(&a->fence, 1)) {
		free(a);
		return false;
	}
	call = "cuPointerGetAttributes";
	r = get_id(d, a->fence, &a->id);
	if (!r)
		r = map_memory(d, gpu, a, &call);
	if (r) {
		d->mem_free(a->fence);
		free(a);
		warn_refused(d, dev, size, call, r);
		return false;
	}
	*ptr = a->base;
	add_allocation(a);
	return true;
}

static int unmap(const struct driver *d, struct allocation *a)
{
	int r = d->cu.mem_unmap(a->base, a->size);

	if (r)
		return r;
	d->cu.address_free(a->base, a->size);
	free(a);
	return 0;
}

/* True: it was one of these, and *@r is cuMemFree()'s answer. */
static bool release(const struct driver *d, uint64_t ptr, int *r)
{
	struct allocation *a = take_allocation(ptr);

	if (!a)
		return false;
	*r = a->fence ? d->mem_free(a->fence) : 0;
	if (!*r) {
		a->fence = 0;
		*r = unmap(d, a);
	}
	if (*r)
		add_allocation(a);
	return true;
}

static bool has_ended(const struct driver *d, const struct allocation *a)
{
	unsigned long long id;

	return !get_id(d, a->fence, &id) && id != a->id;
}

/* What a context that is gone has left. */
static void release_ended(const struct driver *d)
{
	struct allocation **at, *a, *gone = NULL;
	unsigned int i;

	if (atomic_load(&owner) != getpid())
		return;
	pthread_mutex_lock(&lock);
	for (i = 0; i < BUCKETS; i++)
		for (at = &buckets[i]; (a = *at);) {
			if (!has_ended(d, a)) {
				at = &a->next;
				continue;
			}
			*at = a->next;
			a->next = gone;
			gone = a;
		}
	pthread_mutex_unlock(&lock);
	while ((a = gone)) {
		gone = a->next;
		if (unmap(d, a))
			free(a);
	}
}

/* ---- the driver's functions ---------------------------------------------- */

int cuMemAlloc_v2(uint64_t *ptr, size_t size)
{
	const struct driver *d = get_driver();

	if (!d)
		return WEFT_CU_NOT_INITIALIZED;
	return is_on() && allocate(d, ptr, size) ? 0 : d->mem_alloc(ptr, size);
}

int cuMemFree_v2(uint64_t ptr)
{
	const struct driver *d = get_driver();
	int r;

	if (!d)
		return WEFT_CU_NOT_INITIALIZED;
	return release(d, ptr, &r) ? r : d->mem_free(ptr);
}

/* Also for memory of cuMemAlloc(); waiting for all is more than was asked. */
int cuMemFreeAsync(uint64_t ptr, void *st)
{
	const struct driver *d = get_driver();
	int r;

	if (!d)
		return WEFT_CU_NOT_INITIALIZED;
	return release(d, ptr, &r) ? r : d->mem_free_async(ptr, st);
}

int cuMemFreeAsync_ptsz(uint64_t ptr, void *st)
{
	const struct driver *d = get_driver();
	int r;

	if (!d)
		return WEFT_CU_NOT_INITIALIZED;
	return release(d, ptr, &r) ? r : d->mem_free_async_ptsz(ptr, st);
}

int cuIpcGetMemHandle(void *handle, uint64_t ptr)
{
	const struct driver *d = get_driver();
	static atomic_bool warned;
	int r;

	if (!d)
		return WEFT_CU_NOT_INITIALIZED;
	r = d->ipc_get(handle, ptr);
	if (r && has_allocation(ptr) && !atomic_exchange(&warned, true))
		dprintf(STDERR_FILENO,
			"weft: warning: cudaIpcGetMemHandle() fails for memory "
			"that WEFT_CUDA_EXPORTABLE made exportable; unset it "
			"for programs that need CUDA IPC\n");
	return r;
}

/* Reset, or released by its last user, a primary context is not active. */
static int end_context(const struct driver *d, int r, int dev)
{
	unsigned int flags;
	int active = 1;

	if (!r && !d->cu.primary_state(dev, &flags, &active) && !active)
		release_ended(d);
	return r;
}

#define END_OF_CONTEXT(symbol, field)                      \
	int symbol(int dev)                                \
	{                                                  \
		const struct driver *d = get_driver();     \
                                                           \
		if (!d)                                    \
			return WEFT_CU_NOT_INITIALIZED;    \
		return end_context(d, d->field(dev), dev); \
	}
END_OF_CONTEXT(cuDevicePrimaryCtxReset, reset_v1)
END_OF_CONTEXT(cuDevicePrimaryCtxReset_v2, reset)
END_OF_CONTEXT(cuDevicePrimaryCtxRelease, release_v1)
END_OF_CONTEXT(cuDevicePrimaryCtxRelease_v2, release)

int cuCtxDestroy_v2(void *ctx)
{
	const struct driver *d = get_driver();
	int r;

	if (!d)
		return WEFT_CU_NOT_INITIALIZED;
	r = d->destroy(ctx);
	if (!r)
		release_ended(d);
	return r;
}

/* ---- how programs find them ---------------------------------------------- */

/* The one of this file instead of the driver's @fn, or @fn. */
static void *redirect(const struct driver *d, void *fn)
{
#define X(field, symbol, args)                     \
	if (fn && fn == *(void *const *)&d->field) \
		return (void *)symbol;
	REDIRECTED(X)
#undef X
	return fn;
}

static int answer(const struct driver *d, int r, void **fn)
{
	if (!r && fn && is_on())
		*fn = redirect(d, *fn);
	return r;
}

int cuGetProcAddress(const char *name, void **fn, int version, uint64_t flags)
{
	const struct driver *d = get_driver();

	if (!d)
		return WEFT_CU_NOT_INITIALIZED;
	return answer(d, d->get_proc_v1(name, fn, version, flags), fn);
}

int cuGetProcAddress_v2(const char *name, void **fn, int version,
			uint64_t flags, int *status)
{
	const struct driver *d = get_driver();

	if (!d)
		return WEFT_CU_NOT_INITIALIZED;
	return answer(d, d->get_proc(name, fn, version, flags, status), fn);
}

int cuGetProcAddress_v2_ptsz(const char *name, void **fn, int version,
			     uint64_t flags, int *status)
{
	const struct driver *d = get_driver();

	if (!d)
		return WEFT_CU_NOT_INITIALIZED;
	return answer(d, d->get_proc_ptsz(name, fn, version, flags, status),
		      fn);
}

static void *find_in_driver(void *handle, const char *name)
{
	const struct driver *d = get_driver();
	/* last, for dlerror() */
	void *fn = get_next_dlsym()(handle, name);

	/* to the dynamic linker a library has one handle */
	return d && d->handle == handle ? redirect(d, fn) : fn;
}

static bool is_redirected(const char *name)
{
	static const char *const names[] = {
#define X(field, symbol, args) #symbol,
		REDIRECTED(X)
#undef X
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* Where dlsym() below goes on, with its arguments. */
__attribute__((visibility("hidden"), used)) dlsym_fn
weft_choose_dlsym(void *handle, const char *name);
dlsym_fn weft_choose_dlsym(void *handle, const char *name)
{
	return handle != RTLD_DEFAULT && handle != RTLD_NEXT && is_on() &&
			       is_redirected(name)
		       ? find_in_driver
		       : get_next_dlsym();
}

/*
 * void *dlsym(void *handle, const char *name).  By a jump: what RTLD_NEXT means
 * depends on the return address.
 */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n"
	"	endbr64\n"
	"	push %rdi\n"
	"	push %rsi\n"
	"	sub $8, %rsp\n"
	"	call weft_choose_dlsym\n"
	"	add $8, %rsp\n"
	"	pop %rsi\n"
	"	pop %rdi\n"
	"	jmp *%rax\n"
	".size dlsym, . - dlsym\n"
	".popsection");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
	".globl dlsym\n"
	".type dlsym, %function\n"
	"dlsym:\n"
	"	hint #34\n" /* bti c */
	"	stp x29, x30, [sp, #-32]!\n"
	"	mov x29, sp\n"
	"	stp x0, x1, [sp, #16]\n"
	"	bl weft_choose_dlsym\n"
	"	mov x16, x0\n"
	"	ldp x0, x1, [sp, #16]\n"
	"	ldp x29, x30, [sp], #32\n"
	"	br x16\n"
	".size dlsym, . - dlsym\n"
	".popsection");
#elif defined(__powerpc64__) && _CALL_ELF == 2
__asm__(".pushsection .text\n"
	".p2align 2\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n"
	"0:	addis 2, 12, .TOC. - 0b@ha\n"
	"	addi 2, 2, .TOC. - 0b@l\n"
	".localentry dlsym, . - dlsym\n"
	"	mflr 0\n"
	"	std 0, 16(1)\n"
	"	stdu 1, -48(1)\n"
	"	std 3, 32(1)\n"
	"	std 4, 40(1)\n"
	"	bl weft_choose_dlsym\n"
	"	nop\n"
	"	mr 12, 3\n" /* from which it finds its own r2 */
	"	ld 3, 32(1)\n"
	"	ld 4, 40(1)\n"
	"	addi 1, 1, 48\n"
	"	ld 0, 16(1)\n"
	"	mtlr 0\n"
	"	mtctr 12\n"
	"	bctr\n"
	".size dlsym, . - dlsym\n"
	".popsection");
#else
#error "write dlsym() for this architecture"
#endif

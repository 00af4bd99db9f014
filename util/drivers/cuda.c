/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/drivers/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"
#include "util/util.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_cuda table;
static const struct weft_cuda *_Atomic ready;
static bool tried;
static int found;
/* libraries loaded so far when the driver was last looked for and not found */
static _Atomic unsigned long long without;

static void *resolve_symbol(void *lib, const char *symbol, bool needed,
			    int *err)
{
	void *p = dlsym(lib, symbol);

	if (!p && needed && !*err)
		*err = weft_fail(
			-ELIBBAD,
			"the CUDA driver has no '%s'; GPU memory is not used (drivers from 12.0 on have it)",
			symbol);
	return p;
}

static const char *driver_name(void)
{
	const char *name = secure_getenv("WEFT_LIBCUDA");

	return name && *name ? name : "libcuda.so.1";
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *loads)
{
	*(unsigned long long *)loads = info->dlpi_adds;
	return 1; /* stop at the first library: all report the same count */
}

/*
 * The driver, if the process has loaded it.  This is called often, and dlopen()
 * searches all folders for a library that is not loaded: so only look again
 * after other libraries were loaded.
 */
static void *find_loaded(void)
{
	unsigned long long loads = 0;
	void *lib;

	dl_iterate_phdr(count_loads, &loads);
	if (loads == without)
		return NULL;
	lib = dlopen(driver_name(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (!lib)
		without = loads;
	return lib;
}

int weft_cuda_program_gpus(void)
{
	void *lib = find_loaded();
	int (*count)(int *n);
	int n = 0, r;

	if (!lib)
		return -ENOENT;
	/* fails, and does nothing else, before the program's cuInit() */
	*(void **)&count = dlsym(lib, "cuDeviceGetCount");
	r = count ? count(&n) : WEFT_CU_NOT_INITIALIZED;
	dlclose(lib);
	return r ? -ENODEV : n;
}

bool weft_cuda_program_lacks(int attr)
{
	void *lib = find_loaded();
	const int n = weft_cuda_program_gpus();
	int (*get)(int *value, int attr, int dev);
	bool lacks = false;
	int v = 0, i;

	if (!lib)
		return false;
	*(void **)&get = dlsym(lib, "cuDeviceGetAttribute");
	for (i = 0; get && i < n && !lacks; i++)
		lacks = !get(&v, attr, i) && !v;
	dlclose(lib);
	return lacks;
}

static int load_driver(void)
{
	const char *name = driver_name();
	void *lib;
	int r, err = 0;

	/* never closed: the program uses the same one */
	lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return weft_fail(-ENOENT,
				 "cannot load the CUDA driver '%s' (%s)", name,
				 dlerror());
#define X(field, symbol, args) \
	*(void **)&table.field = resolve_symbol(lib, #symbol, true, &err);
	WEFT_CUDA_CALLS(X)
#undef X
#define X(field, symbol, args) \
	*(void **)&table.field = resolve_symbol(lib, #symbol, false, &err);
	WEFT_CUDA_OPTIONAL(X)
#undef X
	if (err)
		return err;
	r = table.init(0);
	if (r)
		return weft_fail(weft_cuda_errno(r), "cuInit says %s",
				 weft_cuda_error_name(r));
	atomic_store_explicit(&ready, &table, memory_order_release);
	return 0;
}

int weft_cuda_init(void)
{
	int err;

	if (weft_cuda())
		return 0;
	pthread_mutex_lock(&lock);
	if (!tried) {
		found = load_driver();
		tried = true;
	}
	err = found;
	pthread_mutex_unlock(&lock);
	return err;
}

const struct weft_cuda *weft_cuda(void)
{
	return atomic_load_explicit(&ready, memory_order_acquire);
}

void weft_cuda_reset(void)
{
	pthread_mutex_lock(&lock);
	atomic_store(&ready, NULL);
	memset(&table, 0, sizeof(table));
	tried = false;
	atomic_store(&without, 0);
	pthread_mutex_unlock(&lock);
}

int weft_cuda_enter(struct weft_cuda_scope *s, void *ctx)
{
	int r;

	s->cu = weft_cuda();
	s->pushed = false;
	if (!s->cu)
		return -ENODEV;
	s->mode = WEFT_CU_CAPTURE_RELAXED;
	r = s->cu->capture_mode(&s->mode);
	if (r)
		return weft_cuda_errno(r);
	if (!ctx)
		return 0;
	r = s->cu->ctx_push(ctx);
	if (r) {
		s->cu->capture_mode(&s->mode);
		return weft_cuda_errno(r);
	}
	s->pushed = true;
	return 0;
}

int weft_cuda_enter_kept(struct weft_cuda_scope *s,
			 const struct weft_cuda_ctx *ctx)
{
	unsigned long long id;
	int err = weft_cuda_enter(s, ctx->ptr);

	if (err)
		return err;
	/* one that cannot be asked is taken for the same */
	if (s->cu->ctx_id(NULL, &id) || id == ctx->id)
		return 0;
	weft_cuda_leave(s);
	return -ENODEV;
}

void weft_cuda_leave(struct weft_cuda_scope *s)
{
	void *ctx;

	if (s->pushed)
		s->cu->ctx_pop(&ctx);
	/* restore the mode that weft_cuda_enter() replaced */
	s->cu->capture_mode(&s->mode);
}

/* The context to use for memory of GPU @ordinal that belongs to no context. */
static int find_context(const struct weft_cuda *cu, int ordinal, void **ctx)
{
	unsigned int flags;
	int dev, mine, active = 0;
	void *current = NULL;

	if (cu->device_get(&dev, ordinal))
		return -ENODEV;
	if (!cu->primary_state(dev, &flags, &active) && active) {
		/* it is active: retaining it creates no context */
		if (cu->primary_retain(ctx, dev))
			return -ENODEV;
		cu->primary_release(dev);
		return 0;
	}
	if (!cu->ctx_current(&current) && current && !cu->ctx_device(&mine) &&
	    mine == dev) {
		*ctx = current;
		return 0;
	}
	return -ENODEV;
}

int weft_cuda_query(const void *p, struct weft_cuda_ptr *info)
{
	int attrs[] = { WEFT_CU_POINTER_CONTEXT, WEFT_CU_POINTER_MEMORY_TYPE,
			WEFT_CU_POINTER_ORDINAL, WEFT_CU_POINTER_IS_MANAGED,
			WEFT_CU_POINTER_BUFFER_ID };
	unsigned int type = 0, managed = 0;
	struct weft_cuda_scope s;
	unsigned long long id = 0;
	void *ctx = NULL;
	int ordinal = 0, err = 0, r;
	void *values[] = { &ctx, &type, &ordinal, &managed, &id };

	memset(info, 0, sizeof(*info));
	if (weft_cuda_enter(&s, NULL))
		return 0;
	/* an unknown address is no error: all values are zero */
	r = s.cu->pointer_attrs(ARRAY_SIZE(attrs), attrs, values, (uintptr_t)p);
	/* during exit the driver is gone and knows no memory */
	if (r) {
		if (r != WEFT_CU_DEINITIALIZED) {
			err = weft_cuda_errno(r);
			weft_warn_once(
				"the CUDA driver cannot tell what memory is at %p (%s)",
				p, weft_cuda_error_name(r));
		}
		goto out;
	}
	info->managed = managed;
	info->buffer_id = id;
	if (type == WEFT_CU_MEMORY_HOST) {
		info->where = WEFT_CUDA_PINNED;
	} else if (type == WEFT_CU_MEMORY_DEVICE) {
		if (!ctx)
			err = find_context(s.cu, ordinal, &ctx);
		info->where = WEFT_CUDA_DEVICE;
		info->ordinal = ordinal;
		info->ctx.ptr = ctx;
		if (!err && s.cu->ctx_id(ctx, &info->ctx.id))
			err = -ENODEV;
	}
out:
	weft_cuda_leave(&s);
	return err;
}

void *weft_cuda_any_context(void)
{
	struct weft_cuda_scope s;
	void *ctx = NULL;
	int n = 0, i;

	if (!weft_cuda() && (weft_cuda_program_gpus() <= 0 || weft_cuda_init()))
		return NULL;
	if (weft_cuda_enter(&s, NULL))
		return NULL;
	if (s.cu->ctx_current(&ctx))
		ctx = NULL;
	if (s.cu->device_count(&n))
		n = 0;
	for (i = 0; i < n && !ctx; i++)
		if (find_context(s.cu, i, &ctx))
			ctx = NULL;
	weft_cuda_leave(&s);
	return ctx;
}

int weft_cuda_errno(int err)
{
	switch (err) {
	case WEFT_CU_SUCCESS:
		return 0;
	case WEFT_CU_INVALID_VALUE:
	case WEFT_CU_INVALID_HANDLE:
		return -EINVAL;
	case WEFT_CU_OUT_OF_MEMORY:
		return -ENOMEM;
	case WEFT_CU_NOT_INITIALIZED:
	case WEFT_CU_DEINITIALIZED:
	case WEFT_CU_NO_DEVICE:
	case WEFT_CU_INVALID_DEVICE:
	case WEFT_CU_INVALID_CONTEXT:
	case WEFT_CU_CONTEXT_DESTROYED:
		return -ENODEV;
	case WEFT_CU_NOT_READY:
		return -EINPROGRESS;
	case WEFT_CU_NOT_PERMITTED:
		return -EPERM;
	case WEFT_CU_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

const char *weft_cuda_error_name(int err)
{
	const char *name = NULL;

	if (!table.error_name || table.error_name(err, &name) || !name)
		return "an unknown error";
	return name;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver that is loaded, or why not, and the scopes of its calls. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/caught.h"
#include "tests/lib/cuda/fake_cuda.h"
#include "util/drivers/cuda.h"

static struct {
#define X(type, name, args) type(*name) args;
	FAKE_CUDA_CONTROL(X)
#undef X
} fake;
static void setup(void)
{
	catch_log();
	weft_cuda_reset();
}

static const char *fake_path(void)
{
	static char path[4096];

	cr_assert_not_null(getenv("WEFT_BUILD"), "run it by make check");
	snprintf(path, sizeof(path), "%s/tests/lib/.libs/libfake_cuda.so",
		 getenv("WEFT_BUILD"));
	return path;
}

static void load(void)
{
	void *lib = dlopen(fake_path(), RTLD_NOW | RTLD_LOCAL);

	setenv("WEFT_LIBCUDA", fake_path(), 1);
	cr_assert_not_null(lib, "%s", dlerror());
#define X(type, name, args) *(void **)&fake.name = dlsym(lib, #name);
	FAKE_CUDA_CONTROL(X)
#undef X
	cr_assert_eq(weft_cuda_init(), 0);
}

TestSuite(cuda, .init = setup, .timeout = 10);

/* Told once; afterwards all memory is ordinary. */
static void is_refused(const char *library, int err, const char *why)
{
	struct weft_cuda_scope scope;
	struct weft_cuda_ptr info;

	setenv("WEFT_LIBCUDA", library, 1);
	cr_expect_eq(weft_cuda_init(), err);
	cr_expect_eq(weft_cuda_init(), err);
	cr_expect_eq(caught.count, 1, "%d messages, the last: %s", caught.count,
		     caught.text);
	expect_caught(why);
	cr_expect_null(weft_cuda());
	cr_expect_eq(weft_cuda_enter(&scope, NULL), -ENODEV);
	cr_expect_eq(weft_cuda_query(&scope, &info), 0);
	cr_expect_eq(info.where, WEFT_CUDA_PAGEABLE);
}

Test(cuda, missing_driver_is_enoent)
{
	is_refused("/nonexistent/libcuda.so.1", -ENOENT,
		   "cannot load the CUDA driver '/nonexistent/libcuda.so.1'");
}

Test(cuda, library_without_its_calls_is_elibbad)
{
	is_refused("libm.so.6", -ELIBBAD, "the CUDA driver has no 'cu");
}

Test(cuda, driver_without_gpu_is_enodev)
{
	setenv(FAKE_CUDA_NODES, "", 1);
	is_refused(fake_path(), -ENODEV, "cuInit says");
}

/* cuInit() is not called before there is GPU memory. */
Test(cuda, initialised_once_and_only_on_demand)
{
	struct weft_cuda_ptr info;

	cr_expect_eq(weft_cuda_query(&caught, &info), 0);
	cr_expect_null(weft_cuda());
	load();
	cr_expect_eq(fake.fake_cuda_inits(), 1);
	cr_expect_eq(weft_cuda_init(), 0);
	cr_expect_eq(fake.fake_cuda_inits(), 1);
	cr_expect_eq(caught.count, 0, "%s", caught.text);
}

/* Who only asks neither loads a driver nor initialises one. */
Test(cuda, program_gpus_counts_without_loading)
{
	int (*init)(unsigned int);
	void *lib;

	setenv("WEFT_LIBCUDA", fake_path(), 1);
	cr_expect_eq(weft_cuda_program_gpus(), -ENOENT);
	lib = dlopen(fake_path(), RTLD_NOW | RTLD_LOCAL);
	cr_assert_not_null(lib, "%s", dlerror());
	cr_expect_eq(weft_cuda_program_gpus(), -ENODEV);
	*(void **)&init = dlsym(lib, "cuInit");
	cr_assert_eq(init(0), 0);
	cr_expect_eq(weft_cuda_program_gpus(), 2);
	cr_expect_null(weft_cuda());
	cr_expect_eq(caught.count, 0, "%s", caught.text);
}

/* One GPU is enough; who cannot be asked lacks nothing. */
Test(cuda, program_lacks_finds_missing_attribute)
{
	setenv("WEFT_LIBCUDA", fake_path(), 1);
	setenv(FAKE_CUDA_NO_VMM, "1", 1);
	cr_expect(!weft_cuda_program_lacks(WEFT_CU_DEVICE_VMM), "none loaded");
	cr_assert_not_null(dlopen(fake_path(), RTLD_NOW | RTLD_LOCAL));
	cr_expect(!weft_cuda_program_lacks(WEFT_CU_DEVICE_VMM),
		  "none initialised");
	load();
	cr_expect(weft_cuda_program_lacks(WEFT_CU_DEVICE_VMM));
	cr_expect(!weft_cuda_program_lacks(WEFT_CU_DEVICE_POSIX_FD));
	fake.fake_cuda_refuse("cuDeviceGetAttribute", WEFT_CU_INVALID_VALUE);
	cr_expect(!weft_cuda_program_lacks(WEFT_CU_DEVICE_VMM), "no word");
	fake.fake_cuda_refuse("cuDeviceGetAttribute", 0);
	setenv(FAKE_CUDA_NO_VMM, "", 1);
	cr_expect(!weft_cuda_program_lacks(WEFT_CU_DEVICE_VMM));
	cr_expect_eq(caught.count, 0, "%s", caught.text);
}

Test(cuda, scope_restores_the_threads_context)
{
	struct weft_cuda_scope outer, inner;
	void *zero, *one, *current;
	int mode;

	load();
	zero = fake.fake_cuda_context(0);
	one = fake.fake_cuda_context(1);
	cr_assert_eq(weft_cuda_enter(&outer, zero), 0);
	cr_expect_eq(weft_cuda()->ctx_current(&current), 0);
	cr_expect_eq(current, zero);
	cr_assert_eq(weft_cuda_enter(&inner, one), 0);
	weft_cuda()->ctx_current(&current);
	cr_expect_eq(current, one);
	weft_cuda_leave(&inner);
	weft_cuda()->ctx_current(&current);
	cr_expect_eq(current, zero);
	weft_cuda_leave(&outer);
	weft_cuda()->ctx_current(&current);
	cr_expect_null(current);
	mode = WEFT_CU_CAPTURE_GLOBAL;
	cr_expect_eq(weft_cuda()->capture_mode(&mode), 0);
	cr_expect_eq(mode, WEFT_CU_CAPTURE_GLOBAL, "the mode stayed relaxed");
}

/* While any thread captures, a query outside of a scope would break that. */
Test(cuda, scope_keeps_capture_valid)
{
	struct weft_cuda_scope scope;
	struct weft_cuda_ptr info;
	void *p, *stream = NULL;

	load();
	p = fake.fake_cuda_malloc(0, 4096);
	cr_assert_eq(weft_cuda_enter(&scope, fake.fake_cuda_context(0)), 0);
	cr_assert_eq(weft_cuda()->stream_create(&stream,
						WEFT_CU_STREAM_NON_BLOCKING),
		     0);
	weft_cuda_leave(&scope);
	fake.fake_cuda_capture(true);
	cr_expect_eq(weft_cuda_query(p, &info), 0);
	cr_assert_eq(weft_cuda_enter(&scope, NULL), 0);
	weft_cuda()->stream_query(stream);
	weft_cuda_leave(&scope);
	cr_expect(!fake.fake_cuda_capture_broken());
	weft_cuda()->stream_query(stream);
	cr_expect(fake.fake_cuda_capture_broken(), "the fake lets it pass");
	fake.fake_cuda_capture(false);
	weft_cuda()->stream_destroy(stream);
	fake.fake_cuda_free(p);
}

/* A context that is gone: nothing is left behind, least of all the mode. */
Test(cuda, entering_dead_context_fails)
{
	struct weft_cuda_scope scope;
	void *ctx, *current;
	int mode = WEFT_CU_CAPTURE_GLOBAL;

	load();
	ctx = fake.fake_cuda_context(0);
	fake.fake_cuda_fail("cuCtxPushCurrent_v2", 1, WEFT_CU_INVALID_CONTEXT);
	cr_expect_eq(weft_cuda_enter(&scope, ctx), -ENODEV);
	weft_cuda()->ctx_current(&current);
	cr_expect_null(current);
	cr_expect_eq(weft_cuda()->capture_mode(&mode), 0);
	cr_expect_eq(mode, WEFT_CU_CAPTURE_GLOBAL);
}

/* After cudaDeviceReset(), say: the address alone is the same. */
Test(cuda, entering_what_took_a_contexts_place_fails)
{
	struct weft_cuda_scope scope;
	struct weft_cuda_ptr was, now;
	void *current;

	load();
	fake.fake_cuda_context(0);
	cr_assert_eq(weft_cuda_query(fake.fake_cuda_malloc(0, 4096), &was), 0);
	cr_assert_eq(weft_cuda_enter_kept(&scope, &was.ctx), 0);
	weft_cuda_leave(&scope);
	fake.fake_cuda_reset(0);
	fake.fake_cuda_context(0);
	cr_expect_eq(weft_cuda_enter_kept(&scope, &was.ctx), -ENODEV);
	cr_assert_eq(weft_cuda_query(fake.fake_cuda_malloc(0, 4096), &now), 0);
	cr_expect_eq(now.ctx.ptr, was.ctx.ptr);
	cr_expect(!weft_cuda_is_same_ctx(&now.ctx, &was.ctx));
	cr_expect_eq(weft_cuda_enter_kept(&scope, &was.ctx), -ENODEV);
	weft_cuda()->ctx_current(&current);
	cr_expect_null(current);
	cr_assert_eq(weft_cuda_enter_kept(&scope, &now.ctx), 0);
	weft_cuda_leave(&scope);
}

Test(cuda, query_tells_kinds_of_memory_apart)
{
	struct weft_cuda_ptr info;
	uint64_t id;
	char *p;

	load();
	cr_expect_eq(weft_cuda_query(&info, &info), 0);
	cr_expect_eq(info.where, WEFT_CUDA_PAGEABLE);

	p = fake.fake_cuda_malloc(1, 4096);
	cr_expect_eq(weft_cuda_query(p + 4095, &info), 0);
	cr_expect_eq(info.where, WEFT_CUDA_DEVICE);
	cr_expect_eq(info.ordinal, 1);
	cr_expect_eq(info.ctx.ptr, fake.fake_cuda_context(1));
	cr_expect(!info.managed);
	id = info.buffer_id;
	fake.fake_cuda_free(p);
	p = fake.fake_cuda_malloc(1, 4096);
	cr_expect_eq(weft_cuda_query(p, &info), 0);
	cr_expect_neq(info.buffer_id, id, "an allocation's id comes back");
	fake.fake_cuda_free(p);

	/* memory of no context: the active one of its device */
	p = fake.fake_cuda_vmm(0, 2 << 20);
	fake.fake_cuda_context(0);
	cr_expect_eq(weft_cuda_query(p, &info), 0);
	cr_expect_eq(info.where, WEFT_CUDA_DEVICE);
	cr_expect_eq(info.ordinal, 0);
	cr_expect_eq(info.ctx.ptr, fake.fake_cuda_context(0));
	fake.fake_cuda_free(p);

	p = fake.fake_cuda_managed(0, 4096);
	cr_expect_eq(weft_cuda_query(p, &info), 0);
	cr_expect(info.managed);
	fake.fake_cuda_free(p);
}

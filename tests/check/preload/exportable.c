/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that allocates GPU memory on the fake driver, which stands as
 * libcuda.so.1, and prints what it got: exportable TEST.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fake_cuda.h"
#include "util/cuda.h"
#include "util/util.h"

#define MIB (1ul << 20)

static void *lib;
static void *ctx;

#define X(type, name, args) static type(*c_##name) args;
FAKE_CUDA_CONTROL(X)
#undef X

/* As the CUDA runtime does: all but the first by cuGetProcAddress(). */
static struct {
	int (*get)(const char *name, void **fn, int version, uint64_t flags,
		   int *found);
	int (*alloc)(uint64_t *p, size_t size);
	int (*free)(uint64_t p);
	int (*free_async)(uint64_t p, void *st);
	int (*ipc)(void *handle, uint64_t p);
	int (*range)(uint64_t *base, size_t *size, uint64_t p);
	int (*reset)(int dev);
	int (*destroy)(void *ctx);
	int (*sync)(void);
} drv;

static void fail(const char *what)
{
	printf("%s failed\n", what);
	exit(1);
}

static void *proc(const char *name, int version)
{
	void *fn = NULL;

	if (drv.get(name, &fn, version, 0, NULL) || !fn)
		fail(name);
	return fn;
}

static void resolve(void)
{
	lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		fail(dlerror());
#define X(type, name, args) *(void **)&c_##name = dlsym(lib, #name);
	FAKE_CUDA_CONTROL(X)
#undef X
	*(void **)&drv.get = dlsym(lib, "cuGetProcAddress_v2");
	*(void **)&drv.get = proc("cuGetProcAddress", 12000);
	*(void **)&drv.alloc = proc("cuMemAlloc", 3020);
	*(void **)&drv.free = proc("cuMemFree", 3020);
	*(void **)&drv.free_async = proc("cuMemFreeAsync", 11020);
	*(void **)&drv.ipc = proc("cuIpcGetMemHandle", 4010);
	*(void **)&drv.range = proc("cuMemGetAddressRange", 3020);
	*(void **)&drv.reset = proc("cuDevicePrimaryCtxReset", 7000);
	*(void **)&drv.destroy = proc("cuCtxDestroy", 4000);
	*(void **)&drv.sync = proc("cuCtxSynchronize", 2000);
}

static void start(void)
{
	resolve();
	if (weft_cuda_init())
		fail("cuInit");
	ctx = c_fake_cuda_context(0);
	if (weft_cuda()->ctx_push(ctx))
		fail("cuCtxPushCurrent");
}

static unsigned int maps(void)
{
	struct fake_cuda_live live;

	c_fake_cuda_live(&live);
	if (live.maps != live.reservations || live.maps != live.handles)
		fail("one handle and one reservation for each mapping");
	return live.maps;
}

static uint64_t alloc(size_t size)
{
	uint64_t p = 0;

	if (drv.alloc(&p, size))
		fail("cuMemAlloc");
	memset((void *)(uintptr_t)p, 0x5a, size);
	return p;
}

/* Its size, and whose it is. */
static void show(const char *what, uint64_t p)
{
	struct weft_cu_alloc_prop prop;
	unsigned long long handle;
	uint64_t base;
	size_t size;
	int fd = -1;

	if (drv.range(&base, &size, p))
		fail("cuMemGetAddressRange");
	printf("%s: %zu B", what, size);
	if (weft_cuda()->mem_retain(&handle, (void *)(uintptr_t)p)) {
		puts(" of the driver's");
		return;
	}
	if (weft_cuda()->mem_props(&prop, handle) ||
	    weft_cuda()->mem_export(&fd, handle, WEFT_CU_HANDLE_POSIX_FD, 0))
		fail("cuMemExportToShareableHandle");
	printf(" of GPU %d, exported%s\n", prop.location.id,
	       prop.flags.rdma ? ", for adapters" : "");
	close(fd);
	weft_cuda()->mem_release(handle);
}

static void test_sizes(void)
{
	static const size_t sizes[] = { 1,	     2 * MIB - 1, 2 * MIB,
					2 * MIB + 1, 5 * MIB,	  64 * MIB };
	uint64_t p[ARRAY_SIZE(sizes)];
	unsigned int i;
	char name[32];

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		p[i] = alloc(sizes[i]);
		snprintf(name, sizeof(name), "%zu", sizes[i]);
		show(name, p[i]);
	}
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		if (drv.free(p[i]))
			fail("cuMemFree");
	printf("%u mappings left\n", maps());
}

static void print(const char *what, int result)
{
	printf("%s %d, ", what, result);
}

static void test_errors(void)
{
	uint64_t p = alloc(8 * MIB), q = 7;

	print("interior", drv.free(p + 4096));
	c_fake_cuda_fail("cuMemFree_v2", 1, WEFT_CU_NOT_SUPPORTED);
	print("refused", drv.free(p));
	print("free", drv.free(p));
	print("twice", drv.free(p));
	print("foreign", drv.free(64));
	print("no bytes", drv.alloc(&q, 0));
	print("no pointer", drv.alloc(NULL, 8 * MIB));
	print("all", drv.alloc(&q, SIZE_MAX));
	c_fake_cuda_refuse("cuMemCreate", WEFT_CU_OUT_OF_MEMORY);
	print("full", drv.alloc(&q, 8 * MIB));
	print("free", drv.free(q));
	c_fake_cuda_refuse("cuMemAlloc_v2", WEFT_CU_OUT_OF_MEMORY);
	print("no memory", drv.alloc(&q, 8 * MIB));
	printf("%u mappings left\n", maps());
}

/* Whatever fails, the driver's memory takes its place, and nothing is left. */
static void test_fallback(void)
{
	static const char *const names[] = {
		"cuMemCreate",	  "cuMemAddressReserve",    "cuMemMap",
		"cuMemSetAccess", "cuPointerGetAttributes",
	};
	unsigned int i;
	uint64_t p;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		c_fake_cuda_fail(names[i], 1, WEFT_CU_NOT_SUPPORTED);
		p = alloc(8 * MIB);
		show(names[i], p);
		if (maps() || drv.free(p) ||
		    c_fake_cuda_called("cuMemAlloc_v2") !=
			    c_fake_cuda_called("cuMemFree_v2"))
			fail(names[i]);
	}
}

static atomic_bool freed;

static void *free_it(void *p)
{
	if (weft_cuda()->ctx_push(ctx) || drv.free((uintptr_t)p))
		fail("cuMemFree");
	atomic_store(&freed, true);
	return NULL;
}

/* The stream stops before its copy, and memory stays as long as it does. */
static void test_waits(void)
{
	uint64_t p = alloc(8 * MIB), q = alloc(8 * MIB);
	pthread_t thread;
	void *st;

	if (weft_cuda()->stream_create(&st, WEFT_CU_STREAM_NON_BLOCKING))
		fail("cuStreamCreate");
	c_fake_cuda_hold(true);
	if (weft_cuda()->memcpy_async(q, p, 8 * MIB, st) ||
	    pthread_create(&thread, NULL, free_it, (void *)(uintptr_t)q))
		fail("a copy");
	usleep(100000);
	printf("freed %d, %u mappings, ", atomic_load(&freed), maps());
	c_fake_cuda_hold(false);
	pthread_join(thread, NULL);
	printf("then freed %d, %u mappings, ", atomic_load(&freed), maps());
	print("asynchronously", drv.free_async(p, NULL));
	printf("%u mappings\n", maps());
	weft_cuda()->stream_destroy(st);
}

/* Another thread captures; what breaks that does so with the driver's, too. */
static void test_capture(void)
{
	int mode = WEFT_CU_CAPTURE_RELAXED;
	uint64_t p = alloc(8 * MIB), q = 0;

	c_fake_cuda_capture(true);
	print("alloc", drv.alloc(&q, 8 * MIB));
	print("free", drv.free(p));
	print("broken", c_fake_cuda_capture_broken());
	c_fake_cuda_capture(true);
	weft_cuda()->capture_mode(&mode);
	print("relaxed alloc", drv.alloc(&q, 8 * MIB));
	print("free", drv.free(p));
	print("free", drv.free(q));
	print("broken", c_fake_cuda_capture_broken());
	printf("%u mappings left\n", maps());
}

static void *churn(void *seed)
{
	unsigned int s = (unsigned int)(uintptr_t)seed, i;
	uint64_t p[8] = { 0 }, *v;

	if (weft_cuda()->ctx_push(ctx))
		fail("cuCtxPushCurrent");
	for (i = 0; i < 200; i++) {
		const unsigned int at = rand_r(&s) % ARRAY_SIZE(p);

		v = (void *)(uintptr_t)p[at];
		if (v && (*v != p[at] || drv.free(p[at])))
			fail("a value");
		if (drv.alloc(&p[at], (rand_r(&s) % 16 + 1) * MIB / 2))
			fail("cuMemAlloc");
		*(uint64_t *)(uintptr_t)p[at] = p[at];
	}
	for (i = 0; i < ARRAY_SIZE(p); i++)
		if (p[i] && drv.free(p[i]))
			fail("cuMemFree");
	return NULL;
}

static void test_threads(void)
{
	pthread_t threads[4];
	uintptr_t i;

	c_fake_cuda_delay(0);
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		if (pthread_create(&threads[i], NULL, churn, (void *)(i + 1)))
			fail("a thread");
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	printf("%u mappings left, %s\n", maps(),
	       c_fake_cuda_called("cuMemMap") > 300 ? "many made" : "few made");
}

/* Memory ends with its context. */
static void test_contexts(void)
{
	uint64_t p = alloc(8 * MIB), q;
	void *made;

	if (weft_cuda()->ctx_create(&made, 0, 0))
		fail("cuCtxCreate");
	q = alloc(4 * MIB);
	printf("%u mappings, ", maps());
	if (drv.destroy(made))
		fail("cuCtxDestroy");
	weft_cuda()->ctx_pop(&made);
	printf("one context destroyed %u, ", maps());
	print("free", drv.free(q));
	if (drv.reset(0))
		fail("cuDevicePrimaryCtxReset");
	printf("the other one reset %u, ", maps());
	print("free", drv.free(p));
	ctx = c_fake_cuda_context(0);
	weft_cuda()->ctx_push(ctx);
	alloc(8 * MIB);
	weft_cuda()->primary_retain(&made, 0);
	weft_cuda()->primary_release(0);
	printf("used by another %u, ", maps());
	weft_cuda()->primary_release(0);
	printf("released %u\n", maps());
}

/* What is allocated in a green one is its primary one's. */
static void test_green(void)
{
	void *made, *green = c_fake_cuda_green(0);
	uint64_t p;

	if (weft_cuda()->ctx_push(green))
		fail("cuCtxPushCurrent");
	p = alloc(8 * MIB);
	weft_cuda()->ctx_pop(&green);
	if (weft_cuda()->ctx_create(&made, 0, 0) || drv.destroy(made))
		fail("a context");
	printf("another destroyed %u, ", maps());
	if (drv.reset(0))
		fail("cuDevicePrimaryCtxReset");
	printf("its primary one reset %u, ", maps());
	print("free", drv.free(p));
	puts("");
}

static void *destroy_it(void *ended)
{
	if (drv.destroy(ended))
		fail("cuCtxDestroy");
	return NULL;
}

/* Before cuCtxDestroy() returns, another thread gets a context in its place. */
static void test_reused(void)
{
	pthread_t thread;
	void *old, *made;
	uint64_t p, q;

	if (weft_cuda()->ctx_create(&old, 0, 0))
		fail("cuCtxCreate");
	p = alloc(8 * MIB);
	weft_cuda()->ctx_pop(&made);
	c_fake_cuda_stall("cuCtxDestroy_v2, at its end");
	if (pthread_create(&thread, NULL, destroy_it, old))
		fail("a thread");
	while (!c_fake_cuda_stalled())
		usleep(1000);
	if (weft_cuda()->ctx_create(&made, 0, 0) || made != old)
		fail("a context in its place");
	q = alloc(4 * MIB);
	c_fake_cuda_stall(NULL);
	pthread_join(thread, NULL);
	printf("%u mappings, ", maps());
	print("free", drv.free(p));
	print("free", drv.free(q));
	printf("%u left\n", maps());
}

static void test_ipc(void)
{
	uint64_t p = alloc(8 * MIB), small = alloc(4096);
	char handle[64];

	print("large", drv.ipc(handle, p));
	print("inside", drv.ipc(handle, p + 5));
	print("small", drv.ipc(handle, small));
	puts("");
}

/* A child looks at nothing of its parent's: the driver answers. */
static void test_fork(void)
{
	uint64_t p = alloc(8 * MIB);
	int status = -1;

	fflush(stdout);
	if (!fork())
		_exit(drv.free(p));
	wait(&status);
	print("child", WEXITSTATUS(status));
	print("parent", drv.free(p));
	puts("");
}

/* Every GPU that the program sees has access. */
static void test_peers(void)
{
	uint64_t p = alloc(8 * MIB), q;
	void *other = c_fake_cuda_context(1), *st;

	q = (uintptr_t)c_fake_cuda_malloc(1, 8 * MIB);
	if (weft_cuda()->ctx_push(other) ||
	    weft_cuda()->stream_create(&st, WEFT_CU_STREAM_NON_BLOCKING))
		fail("a stream");
	print("GPU 1 copies from it",
	      weft_cuda()->memcpy_async(q, p, 8 * MIB, st));
	drv.sync();
	weft_cuda()->stream_destroy(st);
	show("GPU 1's own", alloc(2 * MIB));
}

static void test_unreachable(void)
{
	c_fake_cuda_refuse("cuDeviceCanAccessPeer", WEFT_CU_NOT_SUPPORTED);
	show("beside a GPU without access", alloc(8 * MIB));
}

static void test_nothing(void)
{
	uint64_t p = 0;
	void *popped;

	weft_cuda()->ctx_pop(&popped);
	print("without a context", drv.alloc(&p, 8 * MIB));
	puts("");
}

/* Which are not the driver's. */
static void test_redirected(void)
{
	static const char *const names[] = {
		"cuMemAlloc_v2",
		"cuMemFree_v2",
		"cuMemFreeAsync",
		"cuMemGetAddressRange_v2",
		"cuIpcGetMemHandle",
		"cuDevicePrimaryCtxReset",
		"cuDevicePrimaryCtxRelease_v2",
		"cuCtxDestroy_v2",
		"cuGetProcAddress",
		"cuGetProcAddress_v2",
		"cuInit",
	};
	const char *before = "";
	Dl_info driver, info;
	unsigned int i;

	dladdr(dlsym(lib, "fake_cuda_inits"), &driver);
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		dladdr(dlsym(lib, names[i]), &info);
		if (info.dli_fbase == driver.dli_fbase)
			continue;
		printf("%s%s", before, names[i]);
		before = " ";
	}
	dladdr((void *)drv.alloc, &info);
	if ((info.dli_fbase == driver.dli_fbase) != !*before)
		fail("cuGetProcAddress");
	puts(*before ? "" : "none");
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "sizes", test_sizes },
	{ "errors", test_errors },
	{ "fallback", test_fallback },
	{ "waits", test_waits },
	{ "capture", test_capture },
	{ "threads", test_threads },
	{ "contexts", test_contexts },
	{ "green", test_green },
	{ "reused", test_reused },
	{ "ipc", test_ipc },
	{ "fork", test_fork },
	{ "peers", test_peers },
	{ "unreachable", test_unreachable },
	{ "nothing", test_nothing },
	{ "redirected", test_redirected },
};

int main(int argc, char **argv)
{
	unsigned int i;

	start();
	for (i = 0; argc > 1 && i < ARRAY_SIZE(tests); i++)
		if (!strcmp(tests[i].name, argv[1]))
			tests[i].run();
	return 0;
}

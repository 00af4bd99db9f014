/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/gpu/nvlink/gpumem.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/drivers/cuda.h"

#define VMM_PAGE (2ul << 20)

/* Calls that only a program makes; not part of util/drivers/cuda.h for that
 * reason. */
static struct {
	int (*alloc)(uint64_t *p, size_t size);
	int (*free)(uint64_t p);
	int (*alloc_async)(uint64_t *p, size_t size, void *stream);
	int (*free_async)(uint64_t p, void *stream);
	int (*dtoh)(void *dst, uint64_t src, size_t n);
	int (*memset8)(uint64_t dst, unsigned char c, size_t n);
	int (*sync)(void);
	int (*load)(void **module, const void *image);
	int (*function)(void **fn, void *module, const char *name);
	int (*launch)(void *fn, unsigned int gx, unsigned int gy,
		      unsigned int gz, unsigned int bx, unsigned int by,
		      unsigned int bz, unsigned int shared, void *stream,
		      void **args, void **extra);
	int (*name)(char *buf, int len, int dev);
	int (*version)(int *v);
	/* the fake driver's alone */
	unsigned long (*copies)(void);
} drv;
static int gpu;
static void *fill_fn, *check_fn;
static uint64_t bad_dev;

#define must(call)                                                         \
	do {                                                               \
		int r_ = (call);                                           \
		if (r_) {                                                  \
			fprintf(stderr, "%s:%d: %s: CUDA error %d (%s)\n", \
				__FILE__, __LINE__, #call, r_,             \
				weft_cuda_error_name(r_));                 \
			_exit(1);                                          \
		}                                                          \
	} while (0)

static void resolve(void *lib)
{
	*(void **)&drv.alloc = dlsym(lib, "cuMemAlloc_v2");
	*(void **)&drv.free = dlsym(lib, "cuMemFree_v2");
	*(void **)&drv.alloc_async = dlsym(lib, "cuMemAllocAsync");
	*(void **)&drv.free_async = dlsym(lib, "cuMemFreeAsync");
	*(void **)&drv.dtoh = dlsym(lib, "cuMemcpyDtoH_v2");
	*(void **)&drv.memset8 = dlsym(lib, "cuMemsetD8_v2");
	*(void **)&drv.sync = dlsym(lib, "cuCtxSynchronize");
	*(void **)&drv.load = dlsym(lib, "cuModuleLoadData");
	*(void **)&drv.function = dlsym(lib, "cuModuleGetFunction");
	*(void **)&drv.launch = dlsym(lib, "cuLaunchKernel");
	*(void **)&drv.name = dlsym(lib, "cuDeviceGetName");
	*(void **)&drv.version = dlsym(lib, "cuDriverGetVersion");
	*(void **)&drv.copies = dlsym(lib, "fake_cuda_copies");
}

bool gpumem_is_fake(void)
{
	return drv.copies;
}

unsigned long gpumem_copies(void)
{
	return drv.copies();
}

void gpumem_open(int ordinal)
{
	const char *name = getenv("WEFT_LIBCUDA");
	void *lib, *ctx, *module;

	lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "no CUDA driver: %s\n", dlerror());
		_exit(1);
	}
	resolve(lib);
	if (weft_cuda_init())
		_exit(1);
	gpu = ordinal;
	must(weft_cuda()->primary_retain(&ctx, ordinal));
	must(weft_cuda()->ctx_push(ctx));
	if (gpumem_is_fake())
		return;
	must(drv.load(&module, gpumem_pattern_ptx));
	must(drv.function(&fill_fn, module, "fill"));
	must(drv.function(&check_fn, module, "check"));
	must(drv.alloc(&bad_dev, 8));
	must(drv.memset8(bad_dev, 0, 8));
}

void gpumem_name(char *buf, size_t len)
{
	int v = 0, dev = 0;

	snprintf(buf, len, "the fake driver");
	if (gpumem_is_fake())
		return;
	must(weft_cuda()->device_get(&dev, gpu));
	must(drv.name(buf, len, dev));
	must(drv.version(&v));
	snprintf(buf + strlen(buf), len - strlen(buf), ", CUDA driver %d.%d",
		 v / 1000, v % 1000 / 10);
}

static size_t vmm_size(size_t size)
{
	return (size + VMM_PAGE - 1) & ~(VMM_PAGE - 1);
}

/* @size bytes at @p, which is reserved. */
static void map_vmm(uint64_t p, size_t size)
{
	const struct weft_cuda *cu = weft_cuda();
	struct weft_cu_alloc_prop prop = {
		.type = WEFT_CU_ALLOCATION_PINNED,
		.handle_types = WEFT_CU_HANDLE_POSIX_FD,
		.location = { WEFT_CU_LOCATION_DEVICE, gpu },
	};
	struct weft_cu_access access = { prop.location,
					 WEFT_CU_ACCESS_READWRITE };
	unsigned long long h;

	must(cu->mem_create(&h, size, &prop, 0));
	must(cu->mem_map(p, size, 0, h, 0));
	must(cu->mem_access(p, size, &access, 1));
	must(cu->mem_release(h));
}

/* How much of [@at, @end) is one allocation. */
static size_t part_len(enum gpumem_kind kind, uint64_t at, uint64_t end)
{
	/* torch has 20 MiB for what is large */
	const size_t part = gpumem_is_fake() ? VMM_PAGE : 10 * VMM_PAGE;

	return kind == GPUMEM_PARTS && end - at > part ? part : end - at;
}

static uint64_t alloc_vmm(enum gpumem_kind kind, size_t size)
{
	uint64_t p, at, len;

	must(weft_cuda()->address_reserve(&p, size, 0, 0, 0));
	for (at = p; at < p + size; at += len) {
		len = part_len(kind, at, p + size);
		map_vmm(at, len);
	}
	return p;
}

static void free_vmm(enum gpumem_kind kind, uint64_t p, size_t size)
{
	uint64_t at, len;

	must(drv.sync());
	for (at = p; at < p + size; at += len) {
		len = part_len(kind, at, p + size);
		must(weft_cuda()->mem_unmap(at, len));
	}
	must(weft_cuda()->address_free(p, size));
}

void *gpumem_alloc(enum gpumem_kind kind, size_t size)
{
	uint64_t p = 0;

	switch (kind) {
	case GPUMEM_MALLOC:
		must(drv.alloc(&p, size));
		break;
	case GPUMEM_VMM:
	case GPUMEM_PARTS:
		p = alloc_vmm(kind, vmm_size(size));
		break;
	case GPUMEM_POOL:
		must(drv.alloc_async(&p, size, NULL));
		must(drv.sync());
		break;
	}
	return (void *)(uintptr_t)p;
}

void gpumem_free(enum gpumem_kind kind, void *p, size_t size)
{
	uint64_t d = (uintptr_t)p;

	switch (kind) {
	case GPUMEM_MALLOC:
		must(drv.free(d));
		break;
	case GPUMEM_VMM:
	case GPUMEM_PARTS:
		free_vmm(kind, d, vmm_size(size));
		break;
	case GPUMEM_POOL:
		must(drv.free_async(d, NULL));
		must(drv.sync());
		break;
	}
}

static uint64_t word_at(uint64_t at, uint64_t seed)
{
	uint64_t x = at / 8 * 0x9e3779b97f4a7c15ull + seed;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return x ^ (x >> 32);
}

/* How many bytes at @at are compared or written at once. */
static uint64_t piece_at(uint64_t at, uint64_t end)
{
	return at % 8 || end - at < 8 ? 1 : 8;
}

void gpumem_host_fill(uint8_t *p, uint64_t start, uint64_t len, uint64_t seed)
{
	uint64_t i, n, x;

	for (i = start; i < start + len; i += n) {
		n = piece_at(i, start + len);
		x = word_at(i, seed) >> (8 * (i % 8));
		memcpy(p + i, &x, n == 8 ? 8 : 1);
	}
}

uint64_t gpumem_host_check(const uint8_t *p, uint64_t start, uint64_t len,
			   uint64_t seed)
{
	uint64_t i, n, x, bad = 0;

	for (i = start; i < start + len; i += n) {
		n = piece_at(i, start + len);
		x = word_at(i, seed) >> (8 * (i % 8));
		bad += n == 8 ? memcmp(p + i, &x, 8) != 0 : p[i] != (uint8_t)x;
	}
	return bad;
}

static unsigned int blocks_for(uint64_t len)
{
	uint64_t n = len / 8 / 256 / 4 + 1;

	return n < 1024 ? n : 1024;
}

void gpumem_fill(void *base, uint64_t start, uint64_t len, uint64_t seed)
{
	void *args[] = { &base, &start, &len, &seed };

	if (gpumem_is_fake()) {
		gpumem_host_fill(base, start, len, seed);
		return;
	}
	must(drv.launch(fill_fn, blocks_for(len), 1, 1, 256, 1, 1, 0, NULL,
			args, NULL));
	must(drv.sync());
}

uint64_t gpumem_check(const void *base, uint64_t start, uint64_t len,
		      uint64_t seed)
{
	void *args[] = { &base, &start, &len, &seed, &bad_dev };
	uint64_t bad = 0;

	if (gpumem_is_fake())
		return gpumem_host_check(base, start, len, seed);
	/* the kernel first: nothing may come between completion and look */
	must(drv.launch(check_fn, blocks_for(len), 1, 1, 256, 1, 1, 0, NULL,
			args, NULL));
	must(drv.dtoh(&bad, bad_dev, sizeof(bad)));
	if (bad)
		must(drv.memset8(bad_dev, 0, sizeof(bad)));
	return bad;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory in the adapter's own hands, on a fake adapter and a fake driver.
 * The memory is one that the processor cannot touch: who reads or writes it
 * through its address dies.
 */
#ifndef WEFT_TESTS_UNIT_IB_GPU_H
#define WEFT_TESTS_UNIT_IB_GPU_H

#include <dlfcn.h>
#include <stdio.h>

#include "devices/ib.h"
#include "tests/lib/fake_cuda.h"
#include "util/cuda.h"
#include "util/util.h"
/* last: it has a and b, which util.h's functions call something else */
#include "tests/unit/devices/ib_pair.h"

#define GUARD	0x5a
#define AT	4100		/* in a page, and not at its begin */
#define SIZE	(LEN + 3 * 4096)

static struct {
#define X(type, name, args) type (*name) args;
	FAKE_CUDA_CONTROL(X)
#undef X
} cuda;
static uint8_t *gpu_a, *gpu_b;

static inline void load(void)
{
	char path[4096];
	void *lib;

	snprintf(path, sizeof(path), "%s/tests/lib/.libs/libfake_cuda.so",
		 getenv("WEFT_BUILD"));
	begin();
	setenv("WEFT_LIBCUDA", path, 1);
	setenv("WEFT_IB_GPU_DIRECT", "auto", 1);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	cr_assert(lib != NULL, "%s", dlerror());
#define X(type, name, args) *(void **)&cuda.name = dlsym(lib, #name);
	FAKE_CUDA_CONTROL(X)
#undef X
	cr_assert(zero(int, weft_cuda_init()));
	cr_assert(cuda.fake_cuda_context(0) != NULL);
	cuda.fake_cuda_dmabuf(true);
	gpu_a = cuda.fake_cuda_guarded(0, SIZE);
	gpu_b = cuda.fake_cuda_guarded(0, SIZE);
}

static inline uint8_t *inside(uint8_t *gpu)
{
	return cuda.fake_cuda_inside(gpu);
}

static inline unsigned int lines(void)
{
	const char *p = logged;
	unsigned int n = 0;

	while ((p = strchr(p, '\n'))) {
		n++;
		p++;
	}
	return n;
}

static struct wait_op flushes[100];

static inline int flush(unsigned int i, struct weft_mem *mem, size_t at)
{
	flushes[i] = (struct wait_op){ .op.done = op_done };
	return weft_ib_flush_gpu(b.iface, mem, (uintptr_t)gpu_b + AT + at,
				 &flushes[i].op);
}

#endif

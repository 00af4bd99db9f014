/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA driver without a GPU, loaded as a program would have it. */
#ifndef WEFT_TESTS_NCCL_NET_CUDA_H
#define WEFT_TESTS_NCCL_NET_CUDA_H

#include <dlfcn.h>
#include <stdio.h>
#include "tests/lib/fake_cuda.h"
#include "tests/unit/nccl_net/pair.h"
#include "util/cuda.h"

static struct {
#define X(type, name, args) type(*name) args;
	FAKE_CUDA_CONTROL(X)
#undef X
} cuda;

static inline void cuda_load_with(const char *nvlink)
{
	char path[4096];
	void *lib;

	cr_assert(getenv("WEFT_BUILD") != NULL, "run it by make check");
	snprintf(path, sizeof(path), "%s/tests/lib/.libs/libfake_cuda.so",
		 getenv("WEFT_BUILD"));
	setenv("WEFT_LIBCUDA", path, 1);
	setenv("WEFT_NCCL_NVLINK", nvlink, 1);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	cr_assert(lib != NULL, "%s", dlerror());
#define X(type, name, args) *(void **)&cuda.name = dlsym(lib, #name);
	FAKE_CUDA_CONTROL(X)
#undef X
	cr_assert(eq(int, weft_cuda_init(), 0));
	cr_assert(cuda.fake_cuda_context(0) != NULL);
}

/* NVLink is offered from now on. */
static inline void cuda_load(void)
{
	cuda_load_with("on");
}

#endif

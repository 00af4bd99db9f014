/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory over TCP: a CUDA driver without a GPU, a device without a wire. */
#include <dlfcn.h>
#include <stdio.h>
#include "nccl_net/abi/net.h"
#include "tests/lib/fake_cuda.h"
#include "tests/unit/nccl_net/pair.h"

static struct {
#define X(type, name, args) type (*name) args;
	FAKE_CUDA_CONTROL(X)
#undef X
} cuda;
static char *gpu;

static void load(void)
{
	char path[4096];
	void *lib;

	cr_assert(getenv("WEFT_BUILD") != NULL, "run it by make check");
	snprintf(path, sizeof(path), "%s/tests/lib/.libs/libfake_cuda.so",
		 getenv("WEFT_BUILD"));
	setenv("WEFT_LIBCUDA", path, 1);
	setenv("WEFT_NCCL_NVLINK", "on", 1);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	cr_assert(lib != NULL, "%s", dlerror());
#define X(type, name, args) *(void **)&cuda.name = dlsym(lib, #name);
	FAKE_CUDA_CONTROL(X)
#undef X
	cr_assert(eq(int, weft_cuda_init(), 0));
	cr_assert(cuda.fake_cuda_context(0) != NULL);
	gpu = cuda.fake_cuda_malloc(0, 4 * BIG);
	cr_assert(gpu != NULL);
	init();
	join(a, b, &tx, &rx);
}

static unsigned int pinned(void)
{
	struct fake_cuda_live live;

	cuda.fake_cuda_live(&live);
	return live.pinned;
}

TestSuite(stage, .init = load, .timeout = 60);

Test(stage, a_region_has_one_double_however_often_it_is_registered)
{
	struct weft_net_comm *tx2, *rx2;
	struct weft_net_mr *mr[8], *other;
	unsigned int i;

	join(a, b, &tx2, &rx2);
	for (i = 0; i < 8; i++)
		cr_assert(eq(int, weft_net_register(i % 2 ? tx2 : tx, gpu, BIG,
						    NCCL_PTR_CUDA, &mr[i]), 0));
	cr_expect(eq(uint, pinned(), 1));
	cr_assert(eq(int, weft_net_register(tx, gpu, 2 * BIG, NCCL_PTR_CUDA,
					    &other), 0));
	cr_expect(eq(uint, pinned(), 2));
	for (i = 0; i < 7; i++)
		weft_net_deregister(mr[i]);
	cr_expect(eq(uint, pinned(), 2));
	weft_net_deregister(mr[7]);
	cr_expect(eq(uint, pinned(), 1));
	weft_net_deregister(other);
	cr_expect(eq(uint, pinned(), 0));
}

/* NCCL's own first three are taken, whatever their size; a user's are bounded. */
Test(stage, what_users_register_is_bounded)
{
	const size_t large = 300ul << 20;
	struct weft_net_mr *mr[4];
	char *mem[4];
	unsigned int i;

	for (i = 0; i < 4; i++) {
		mem[i] = cuda.fake_cuda_malloc(0, large);
		cr_assert(mem[i] != NULL);
	}
	for (i = 0; i < 3; i++)
		cr_assert(eq(int, weft_net_register(tx, mem[i], large,
						    NCCL_PTR_CUDA, &mr[i]), 0));
	cr_expect(eq(int, weft_net_register(tx, mem[3], large, NCCL_PTR_CUDA,
					    &mr[3]), -ENOMEM));
	cr_expect(eq(uint, errors, 0), "%s", last_error);
	cr_expect(eq(uint, pinned(), 3));
	/* what has its double already costs nothing */
	cr_expect(eq(int, weft_net_register(tx, mem[0], large, NCCL_PTR_CUDA,
					    &mr[3]), 0));
	weft_net_deregister(mr[3]);
	cr_expect(eq(int, weft_net_register(tx, gpu, BIG, NCCL_PTR_CUDA,
					    &mr[3]), 0));
	for (i = 0; i < 4; i++)
		weft_net_deregister(mr[i]);
	cr_expect(eq(uint, pinned(), 0));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs under MIG, on the fake driver: their memory is not mapped, and said. */

#include "tests/unit/devices/nvlink/nvl_mapped.h"

static const char the_line[] = "its memory is not mapped by other processes";

TestSuite(nvl_share, .init = begin_ipc_pair, .fini = end_pair, .timeout = 60);

/* Memory of both kinds: how it may be mapped. */
static void offer(enum nvl_key_kind kinds[2])
{
	unsigned int i;

	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	for (i = 0; i < 2; i++) {
		to = i ? fake.fake_cuda_vmm(1, LEN)
		       : fake.fake_cuda_malloc(1, LEN);
		register_all();
		kinds[i] = unpack(key).kind;
		cr_expect(eq(int, nvl->mem_reaches(&key),
			     kinds[i] == NVL_KEY_NONE ? -EHOSTUNREACH : 0));
		nvl->mem_release(mem);
	}
}

Test(nvl_share, gpu_without_mig_is_shared)
{
	enum nvl_key_kind kinds[2];

	offer(kinds);
	cr_expect(eq(uint, kinds[0], NVL_KEY_HANDLE));
	cr_expect(eq(uint, kinds[1], NVL_KEY_PARTS));
	cr_expect(eq(uint, log_lines(""), 0));
}

Test(nvl_share, mig_gpu_is_not_shared)
{
	enum nvl_key_kind kinds[2];

	setenv(FAKE_CUDA_MIG, "1", 1);
	offer(kinds);
	cr_expect(eq(uint, kinds[0], NVL_KEY_NONE));
	cr_expect(eq(uint, kinds[1], NVL_KEY_NONE));
	cr_expect(eq(uint, log_lines(the_line), 1));
	cr_expect(eq(uint, log_lines(""), 1));
}

/* Nor is another GPU's memory mapped for it. */
Test(nvl_share, mig_gpu_maps_nothing)
{
	struct weft_engine engine = { .ordinal = 0 };
	struct nvl_mapping m;
	struct weft_cu_ipc h = { { 0 } };

	setenv(FAKE_CUDA_MIG, "1", 1);
	load_fake();
	cr_assert(eq(int, weft_cuda_init(), 0));
	engine.ctx.ptr = fake.fake_cuda_context(0);
	cr_expect(eq(int, nvl_map_reserve(&m, &engine, LEN), -EACCES));
	cr_expect(eq(int, nvl_map_handle(&m, &engine, &h, LEN),
		     WEFT_CU_NOT_SUPPORTED));
}

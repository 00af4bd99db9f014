/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs under MIG, on the fake driver: through host memory, and said. */
#include "tests/unit/devices/nvl_pair.h"

#define LEN (5u << 20)

static const char the_line[] = "its memory is not shared with other processes";

/* Moves bytes both ways; @during: what was shared meanwhile. */
static void transfer(struct fake_cuda_live *during)
{
	struct weft_mem *mem, *own, *buf;
	uint8_t *src, *dst, *back;
	uint8_t key[WEFT_RKEY_MAX], virt[WEFT_RKEY_MAX];

	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	src = fake.fake_cuda_malloc(0, LEN);
	back = fake.fake_cuda_malloc(0, LEN);
	dst = fake.fake_cuda_malloc(1, LEN);
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, &mem), 0));
	cr_assert(eq(int, nvl->mem_register(src, LEN, WEFT_MEM_CUDA, &own), 0));
	nvl->mem_pack(mem, &key);
	cr_assert(eq(int, side_dial(&a, &b), 0));
	cr_assert(eq(int, side_dial(&b, &a), 0));
	wait_for(nvl->ready(a.ep) && nvl->ready(b.ep));
	cr_assert(eq(int, put_checked(&a, src, dst, LEN, &key), 0));
	cr_assert(eq(int, get_checked(&a, back, dst, LEN, &key), 0));

	/* what could be shared otherwise */
	dst = fake.fake_cuda_vmm(1, LEN + (1u << 20));
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, &buf), 0));
	nvl->mem_pack(buf, &virt);
	cr_assert(eq(int, put_checked(&a, src, dst, LEN, &virt), 0));
	cr_assert(eq(int, get_checked(&a, back, dst, LEN, &virt), 0));
	fake.fake_cuda_live(during);

	nvl->mem_release(mem);
	nvl->mem_release(own);
	nvl->mem_release(buf);
	side_close(&a);
	side_close(&b);
	cr_assert(eq(uint, a.errors + b.errors, 0));
}

/* One allocation is the program's own; all else would be ours. */
static void not_shared(void)
{
	struct fake_cuda_live during;

	transfer(&during);
	cr_assert(eq(uint, during.handles, 1));
	cr_assert(eq(uint, during.maps, 1));
	cr_assert(eq(uint, log_lines(the_line), 1));
	cr_assert(eq(uint, log_lines(""), 1));
}

static void shared(void)
{
	struct fake_cuda_live during;

	transfer(&during);
	cr_assert(gt(uint, during.maps, 1));
	cr_assert(eq(uint, log_lines(""), 0));
}

Test(nvl_share, gpu_without_mig_is_shared)
{
	setenv(FAKE_NVML, "1", 1);
	shared();
}

Test(nvl_share, mig_gpu_is_not_shared)
{
	setenv(FAKE_NVML, "1", 1);
	setenv(FAKE_CUDA_MIG, "1", 1);
	not_shared();
}

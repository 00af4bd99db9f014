/* SPDX-License-Identifier: BSD-3-Clause */
/* Several GPUs in one process, and memory for rings that is used up. */
#include <pthread.h>
#include <unistd.h>

#include "devices/nvlink/nvl.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN (3u << 20)

/* A budget of its own: other tests run beside this one. */
static void begin(void)
{
	begin_folder();
	setenv(FAKE_NVML, "1", 1);
	/* rings are what is looked at */
	setenv("WEFT_NVL_DIRECT", "off", 1);
	load_fake();
}

static void finish(void)
{
	side_close(&a);
	side_close(&b);
	side_close(&c);
	end_folder();
}

TestSuite(nvl_gpus, .init = begin, .fini = finish, .timeout = 120);

/* ---- two sides, memory of two GPUs -------------------------------------- */

static uint8_t *dst, *from0, *from1;
static struct weft_mem *mem;
static uint8_t key[WEFT_RKEY_MAX];

static void pair_up(void)
{
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	cr_assert(eq(int, side_dial(&a, &b), 0));
	cr_assert(eq(int, side_dial(&b, &a), 0));
	wait_for(nvl->ready(a.ep) && nvl->ready(b.ep));
	from0 = fake.fake_cuda_malloc(0, LEN);
	from1 = fake.fake_cuda_malloc(1, LEN);
	dst = fake.fake_cuda_vmm(1, LEN);
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, &mem), 0));
	nvl->mem_pack(mem, &key);
}

static int put_from(uint8_t *src)
{
	cr_assert(eq(int, put_checked(&a, src, dst, LEN, &key), 0));
	return staged(a.ep);
}

/* What it still copies from is not freed before it is back (seen by ASan). */
Test(nvl_gpus, copy_that_ends_after_the_watchdog_is_harmless)
{
	struct wait_op w = WAIT_OP;
	struct weft_iov iov = { NULL, LEN, NULL };
	struct nvl_conn *conn;

	pair_up();
	iov.addr = from0;
	/* rings are made */
	cr_assert(eq(int, put_checked(&a, from0, dst, LEN, &key), 0));
	conn = weft_list_first(&((struct nvl_iface *)a.iface)->conns,
			       struct nvl_conn, link);
	fake.fake_cuda_hold(true);
	cr_assert(eq(int,
		     nvl->put(a.ep, &iov, 1, (uintptr_t)dst, &key, NULL, &w.op),
		     -EINPROGRESS));
	wait_for(conn->copies);
	nvl_conn_break(conn, -ECONNRESET);
	conn->watchdog_ms = 0;
	wait_for(a.errors && w.done);
	cr_expect(eq(int, w.status, -ECONNRESET));
	cr_expect(gt(uint, conn->copies, 0));
	fake.fake_cuda_hold(false);
	wait_for(!conn->copies);
	nvl->mem_release(mem);
}

/* ---- memory for rings --------------------------------------------------- */

Test(nvl_gpus, used_up_budget_falls_back_to_host_memory)
{
	unsigned int before, asked, most;
	uint64_t start, ms;

	setenv("WEFT_NVL_BUDGET", "4m", 1);
	nvl_tune.retry_ms = 4;
	pair_up();
	cr_assert(eq(int, open_side(&c), 0));
	meet(&c, &b);
	cr_assert(eq(int, put_from(from0), WEFT_STAGING_GPU));

	before = fake.fake_cuda_called("cuDeviceGetUuid_v2");
	start = now_ms();
	do {
		cr_assert(eq(int, put_checked(&c, from0, dst, 4096, &key), 0));
		ms = now_ms() - start;
	} while (ms < 1000);
	cr_expect(eq(int, staged(c.ep), WEFT_STAGING_HOST));
	/* the budget's owner looks for its name each time that it is asked */
	asked = fake.fake_cuda_called("cuDeviceGetUuid_v2") - before;
	most = 8 + ms / (4 << 6);
	cr_expect(gt(uint, asked, 1));
	cr_expect(le(uint, asked, most), "asked %u times in %u ms", asked,
		  (unsigned int)ms);
	cr_expect(eq(uint, log_lines("WEFT_NVL_BUDGET"), 1));
	cr_expect(eq(uint, log_lines(""), 1));

	/* the other one's ring goes back, and is had */
	side_close(&a);
	start = now_ms();
	while (staged(c.ep) != WEFT_STAGING_GPU && now_ms() - start < WAIT_MS)
		cr_assert(eq(int, put_checked(&c, from0, dst, 4096, &key), 0));
	cr_expect(eq(int, staged(c.ep), WEFT_STAGING_GPU));
	nvl->mem_release(mem);
}

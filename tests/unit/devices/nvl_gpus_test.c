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

/* ---- what kernels wait for ---------------------------------------------- */

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

/* As NCCL's adaptor has them. */
static void pair_for_kernels(void)
{
	side_flags = WEFT_IFACE_KERNELS_WAIT;
	pair_up();
}

static void make_ready(const void *from)
{
	wait_for(prepare(a.ep, from) == 0 && prepare(b.ep, dst) == 0);
}

static int put_from(uint8_t *src)
{
	cr_assert(eq(int, put_checked(&a, src, dst, LEN, &key), 0));
	return staged(a.ep);
}

/* Handed over together. */
static void put_two(uint8_t *one, uint8_t *two, size_t len)
{
	struct wait_op w[2] = { WAIT_OP, WAIT_OP };
	struct weft_iov iov[2] = { { one, len, NULL }, { two, len, NULL } };

	memset(one, 0x11, len);
	memset(two, 0x22, len);
	memset(dst, 0xa5, 2 * len);
	cr_assert(eq(int,
		     nvl->put(a.ep, &iov[0], 1, (uintptr_t)dst, &key, NULL,
			      &w[0].op),
		     -EINPROGRESS));
	cr_assert(eq(int,
		     nvl->put(a.ep, &iov[1], 1, (uintptr_t)dst + len, &key,
			      NULL, &w[1].op),
		     -EINPROGRESS));
	wait_for(w[0].done && w[1].done);
	cr_expect(eq(int, memcmp(dst, one, len), 0));
	cr_expect(eq(int, memcmp(dst + len, two, len), 0));
}

/*
 * What NCCL's small protocols need: their source is pinned host memory, and the
 * program's kernels behind NCCL's fill the queues of the compute engine.
 */
Test(nvl_gpus, small_host_copies_do_not_queue_behind_kernels)
{
	static const size_t sizes[] = { 2,     3,     16,    4097,
					24576, 65535, 65536, 300000 };
	uint8_t *host = aligned_alloc(4096, LEN), *from;
	struct weft_cuda_scope s;
	unsigned int i;

	pair_for_kernels();
	from = fake.fake_cuda_vmm(0, LEN);
	make_ready(from);
	cr_assert(eq(int, weft_cuda_enter(&s, fake.fake_cuda_context(0)), 0));
	cr_assert(eq(
		int,
		s.cu->host_register(host, LEN, WEFT_CU_HOSTREGISTER_PORTABLE),
		0));
	fake.fake_cuda_kernels(true);
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		cr_expect(
			eq(int, put_checked(&a, host, dst, sizes[i], &key), 0));
	put_two(host, host + 64, 48);
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		cr_expect(
			eq(int, put_checked(&a, from, dst, sizes[i], &key), 0));
	cr_expect(eq(int, staged(a.ep), WEFT_STAGING_HOST));
	fake.fake_cuda_kernels(false);
	s.cu->host_unregister(host);
	weft_cuda_leave(&s);
	nvl->mem_release(mem);
	free(host);
}

/* The peer's: the driver is not asked where each chunk belongs. */
static unsigned int questions(void)
{
	return fake.fake_cuda_called("cuPointerGetAttributes") +
	       fake.fake_cuda_called("cuDevicePrimaryCtxRetain");
}

static int put_known(struct weft_mem *source, uint8_t *src, size_t len)
{
	struct wait_op w = WAIT_OP;
	struct weft_iov iov = { src, len, source };

	memset(src, 0x3c, len);
	memset(dst, 0xa5, len);
	cr_assert(eq(int,
		     nvl->put(a.ep, &iov, 1, (uintptr_t)dst, &key, NULL, &w.op),
		     -EINPROGRESS));
	wait_for(w.done);
	return w.status ? w.status : memcmp(src, dst, len);
}

/* No ring on a GPU, and nothing left to be made or found out. */
Test(nvl_gpus, puts_that_kernels_wait_for_do_not_queue_behind_kernels)
{
	struct weft_mem *source;
	unsigned int asked;
	uint8_t *from;

	pair_for_kernels();
	from = fake.fake_cuda_vmm(0, LEN);
	make_ready(from);
	cr_assert(eq(int, nvl->mem_register(from, LEN, WEFT_MEM_CUDA, &source),
		     0));
	fake.fake_cuda_kernels(true);
	asked = questions();
	cr_expect(eq(int, put_known(source, from, LEN), 0));
	cr_expect(eq(int, put_known(source, from, 17), 0));
	cr_expect(eq(uint, questions(), asked));
	cr_expect(eq(int, staged(a.ep), WEFT_STAGING_HOST));
	fake.fake_cuda_kernels(false);
	cr_expect(eq(uint, log_lines(""), 0));
	nvl->mem_release(source);
	nvl->mem_release(mem);
}

/* One for both interfaces, and for as long as one of them is open. */
Test(nvl_gpus, one_own_context_per_process_and_gpu)
{
	struct fake_cuda_live live;

	pair_for_kernels();
	fake.fake_cuda_refuse("cuCtxCreate_v2", WEFT_CU_OUT_OF_MEMORY);
	cr_expect(eq(int, prepare(a.ep, from0), -ENOMEM));
	cr_expect(eq(uint, log_lines("cannot create a CUDA context"), 1));
	fake.fake_cuda_refuse("cuCtxCreate_v2", 0);
	wait_for(prepare(a.ep, from0) == 0);
	wait_for(prepare(b.ep, from0) == 0);
	fake.fake_cuda_live(&live);
	cr_expect(eq(uint, live.contexts, 1));
	nvl->mem_release(mem);
	side_close(&a);
	fake.fake_cuda_live(&live);
	cr_expect(eq(uint, live.contexts, 1));
	side_close(&b);
	fake.fake_cuda_live(&live);
	cr_expect(eq(uint, live.contexts, 0));
}

static void *let_unmap(void *arg)
{
	const uint64_t end = now_ms() + WAIT_MS;

	while (!fake.fake_cuda_stalled() && now_ms() < end)
		usleep(1000);
	usleep(20000);
	fake.fake_cuda_stall(NULL);
	return arg;
}

/* What a thread still unmaps is unmapped before the interface is gone. */
Test(nvl_gpus, close_waits_for_the_unmap_thread)
{
	struct fake_cuda_live before, after;
	pthread_t thread;

	pair_for_kernels();
	fake.fake_cuda_live(&before);
	wait_for(prepare(a.ep, from0) == 0);
	fake.fake_cuda_stall("cuMemHostUnregister");
	cr_assert(eq(int, pthread_create(&thread, NULL, let_unmap, NULL), 0));
	side_close(&a);
	fake.fake_cuda_live(&after);
	pthread_join(thread, NULL);
	cr_expect(eq(uint, after.pinned, before.pinned));
	cr_expect(eq(uint, after.contexts, 0));
	nvl->mem_release(mem);
}

/* Its ring is unpinned when the kernels that run have ended. */
Test(nvl_gpus, peers_end_does_not_wait_for_kernels)
{
	struct fake_cuda_live before, now;

	cr_assert(eq(int, open_side(&a), 0));
	fake.fake_cuda_live(&before);
	side_close(&a);
	pair_for_kernels();
	make_ready(from0);
	cr_expect(eq(int, put_from(from0), WEFT_STAGING_HOST));
	nvl->ep_destroy(b.ep);
	b.ep = NULL;
	nvl->mem_release(mem);
	nvl->iface_close(b.iface);
	b.iface = NULL;
	fake.fake_cuda_stall("cuMemHostUnregister");
	wait_for(a.errors == 1);
	wait_for(fake.fake_cuda_stalled() == 1);
	fake.fake_cuda_stall(NULL);
	side_close(&a);
	fake.fake_cuda_free(dst);
	fake.fake_cuda_live(&now);
	cr_expect(eq(uint, now.pinned, before.pinned));
	cr_expect(eq(uint, now.maps, before.maps));
	cr_expect(eq(uint, now.reservations, before.reservations));
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

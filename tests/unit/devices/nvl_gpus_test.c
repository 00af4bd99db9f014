/* SPDX-License-Identifier: BSD-3-Clause */
/* Several GPUs in one process, and memory for rings that is used up. */
#include <sys/stat.h>
#include <unistd.h>

#include "devices/nvlink/nvl.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN	(3u << 20)

static char folder[] = "/tmp/weft-gpus-test-XXXXXX";

/* A budget of its own: other tests run beside this one. */
static void begin(void)
{
	cr_assert(mkdtemp(folder) != NULL);
	setenv("WEFT_RUN_DIR", folder, 1);
	setenv(FAKE_NVML, "1", 1);
	load_fake();
}

static void finish(void)
{
	char cmd[64];

	close_side(&a);
	close_side(&b);
	close_side(&c);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", folder);
	cr_expect(eq(int, system(cmd), 0));
}

TestSuite(nvl_gpus, .init = begin, .fini = finish, .timeout = 120);

/* ---- what is mapped directly ---------------------------------------------- */

static uint8_t *dst, *from0, *from1;
static struct weft_mem *mem;
static struct weft_rkey key;

static void pair_up(void)
{
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	cr_assert(eq(int, connect_side(&a, &b), 0));
	cr_assert(eq(int, connect_side(&b, &a), 0));
	wait_for(nvl->ready(a.ep) && nvl->ready(b.ep));
	from0 = fake.fake_cuda_malloc(0, LEN);
	from1 = fake.fake_cuda_malloc(1, LEN);
	dst = fake.fake_cuda_vmm(1, LEN);
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, &mem), 0));
}

static void expose(void)
{
	cr_assert(eq(int, expose_to_peer(&b, mem, &key), 0));
	wait_for(weft_nvl_prepare(a.ep, NULL) == 0 &&
		 weft_nvl_prepare(b.ep, NULL) == 0);
}

/* Both are used at once, so that no answer is lost: 0 when it went directly. */
static int put_from(uint8_t *src)
{
	cr_assert(eq(int, put_checked(&a, src, dst, LEN, &key), 0));
	return weft_nvl_ring(a.ep, true);
}

/* NCCL: its kernels run by then, and the driver would wait for them. */
Test(nvl_gpus, a_second_one_is_let_in_before_it_puts)
{
	pair_up();
	wait_for(weft_nvl_prepare(a.ep, from0) == 0);
	expose();
	cr_expect(eq(int, put_from(from0), WEFT_NVL_RING_NONE));
	cr_assert(eq(int, weft_nvl_prepare(a.ep, from1), 0));
	fake.fake_cuda_refuse("cuMemSetAccess", WEFT_CU_NOT_PERMITTED);
	cr_expect(eq(int, put_from(from1), WEFT_NVL_RING_NONE));
	cr_expect(eq(int, put_from(from0), WEFT_NVL_RING_NONE));
	fake.fake_cuda_refuse("cuMemSetAccess", 0);
	cr_expect(eq(uint, said(""), 0));
	nvl->mem_release(mem);
}

/* The first cannot reach the peer's GPU; the second can, and does not suffer. */
Test(nvl_gpus, one_that_cannot_is_no_hindrance)
{
	unsigned int grants;

	pair_up();
	wait_for(weft_nvl_prepare(a.ep, from0) == 0);
	wait_for(weft_nvl_prepare(a.ep, from1) == 0);
	fake.fake_cuda_fail("cuMemSetAccess", 1, WEFT_CU_NOT_SUPPORTED);
	expose();
	cr_expect(eq(int, put_from(from1), WEFT_NVL_RING_NONE));
	cr_expect(eq(uint, said(""), 0));
	grants = fake.fake_cuda_called("cuMemSetAccess");
	cr_expect(eq(int, put_from(from0), WEFT_NVL_RING_HOST));
	cr_expect(eq(int, put_from(from0), WEFT_NVL_RING_HOST));
	cr_expect(eq(uint, fake.fake_cuda_called("cuMemSetAccess"), grants));
	cr_expect(eq(uint, said("GPU 0 cannot reach"), 1));
	cr_expect(eq(uint, said(""), 1));
	nvl->mem_release(mem);
}

/* The first is known only after the peer has exposed: a put maps nothing. */
Test(nvl_gpus, the_first_one_may_come_with_a_put)
{
	unsigned int maps;

	pair_up();
	expose();
	maps = fake.fake_cuda_called("cuMemMap");
	cr_expect(ne(int, put_from(from1), WEFT_NVL_RING_NONE));
	cr_expect(ne(int, put_from(from0), WEFT_NVL_RING_NONE));
	cr_expect(eq(uint, fake.fake_cuda_called("cuMemMap"), maps));
	/* the peer's ring was of no use without one */
	cr_assert(eq(int, weft_nvl_prepare(a.ep, from1), 0));
	cr_expect(eq(uint, fake.fake_cuda_called("cuMemMap"), maps + 1));
	nvl->mem_release(mem);
}

/* What waited for it is mapped once it is made ready, for all there are. */
Test(nvl_gpus, the_first_one_may_come_late)
{
	pair_up();
	expose();
	wait_for(weft_nvl_prepare(a.ep, from1) == 0);
	cr_expect(eq(int, put_from(from1), WEFT_NVL_RING_NONE));
	wait_for(weft_nvl_prepare(a.ep, from0) == 0);
	cr_expect(eq(int, put_from(from0), WEFT_NVL_RING_NONE));
	cr_expect(eq(uint, said(""), 0));
	nvl->mem_release(mem);
}

static unsigned int open_fds(void)
{
	unsigned int n = 0;
	struct stat st;
	int fd;

	for (fd = 0; fd < 1024; fd++)
		n += !fstat(fd, &st);
	return n;
}

/* Neither its memory nor its descriptor outlives the peer's. */
Test(nvl_gpus, no_first_one_ever_comes)
{
	unsigned int before;

	pair_up();
	wait_for(weft_nvl_prepare(a.ep, NULL) == 0 &&
		 weft_nvl_prepare(b.ep, NULL) == 0);
	before = open_fds();
	expose();
	cr_expect(eq(uint, open_fds(), before + 1));
	weft_nvl_unexpose(b.ep, mem);
	wait_for(open_fds() == before);
	expose();
	cr_expect(eq(uint, open_fds(), before + 1));
	nvl->ep_destroy(b.ep);
	b.ep = NULL;
	nvl->iface_close(b.iface);
	b.iface = NULL;
	wait_for(a.errors == 1);
	close_side(&a);
	cr_expect(lt(uint, open_fds(), before));
	nvl->mem_release(mem);
}

/* What it had mapped is unmapped when the kernels that run have ended. */
Test(nvl_gpus, the_end_of_a_peer_waits_for_no_kernel)
{
	struct fake_cuda_live before, now;

	cr_assert(eq(int, open_side(&a), 0));
	fake.fake_cuda_live(&before);
	close_side(&a);
	pair_up();
	cr_assert(eq(int, weft_nvl_unmap_apart(a.iface), 0));
	wait_for(weft_nvl_prepare(a.ep, from0) == 0);
	expose();
	cr_expect(eq(int, put_from(from0), WEFT_NVL_RING_NONE));
	fake.fake_cuda_stall("cuMemUnmap");
	nvl->ep_destroy(b.ep);
	b.ep = NULL;
	nvl->mem_release(mem);
	nvl->iface_close(b.iface);
	b.iface = NULL;
	wait_for(a.errors == 1);
	wait_for(fake.fake_cuda_stalled() == 1);
	fake.fake_cuda_stall(NULL);
	close_side(&a);
	fake.fake_cuda_free(dst);
	fake.fake_cuda_live(&now);
	cr_expect(eq(uint, now.maps, before.maps));
	cr_expect(eq(uint, now.reservations, before.reservations));
}

/* ---- memory for rings ----------------------------------------------------- */

Test(nvl_gpus, a_budget_that_is_used_up)
{
	unsigned int before, asked, most;
	uint64_t start, ms;

	setenv("WEFT_NVL_BUDGET", "4m", 1);
	nvl_tune.retry_ms = 4;
	pair_up();
	cr_assert(eq(int, open_side(&c), 0));
	meet(&c, &b);
	nvl->mem_pack(mem, &key);
	cr_assert(eq(int, put_from(from0), WEFT_NVL_RING_GPU));

	before = fake.fake_cuda_called("cuDeviceGetUuid_v2");
	start = weft_now_ms();
	do {
		cr_assert(eq(int, put_checked(&c, from0, dst, 4096, &key), 0));
		ms = weft_now_ms() - start;
	} while (ms < 1000);
	cr_expect(eq(int, weft_nvl_ring(c.ep, true), WEFT_NVL_RING_HOST));
	/* the budget's owner looks for its name each time that it is asked */
	asked = fake.fake_cuda_called("cuDeviceGetUuid_v2") - before;
	most = 8 + ms / (4 << 6);
	cr_expect(gt(uint, asked, 1));
	cr_expect(le(uint, asked, most), "asked %u times in %u ms", asked,
		  (unsigned int)ms);
	cr_expect(eq(uint, said("WEFT_NVL_BUDGET"), 1));
	cr_expect(eq(uint, said(""), 1));

	/* the other one's ring goes back, and is had */
	close_side(&a);
	start = weft_now_ms();
	while (weft_nvl_ring(c.ep, true) != WEFT_NVL_RING_GPU &&
	       weft_now_ms() - start < WAIT_MS)
		cr_assert(eq(int, put_checked(&c, from0, dst, 4096, &key), 0));
	cr_expect(eq(int, weft_nvl_ring(c.ep, true), WEFT_NVL_RING_GPU));
	nvl->mem_release(mem);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of GPUs: registered, moved, refused, and each step failing in turn. */
#include <unistd.h>

#include "tests/lib/fds.h"
#include "tests/unit/devices/ib_gpu.h"
#include "util/verbs.h"

TestSuite(ib_gpu, .init = load, .fini = end, .timeout = 300);

static unsigned int mem_kinds(const struct side *s)
{
	struct weft_iface_attr attr;

	ib->iface_query(s->iface, &attr);
	return attr.mem_kinds;
}

static uint8_t pattern(size_t i, unsigned int round)
{
	return (uint8_t)(i * 7 + (i >> 8) + 13 * round + 1);
}

static void fill(uint8_t *p, size_t len, unsigned int round)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = pattern(i, round);
}

/* Of @p, which lies at AT of poisoned memory. */
static bool holds(const uint8_t *p, size_t len, unsigned int round)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != pattern(i, round))
			return false;
	return p[-1] == GUARD && p[len] == GUARD;
}

static int move(bool get, uint8_t *local, uint8_t *remote, size_t len,
		struct weft_mem *mem)
{
	struct wait_op w = { .op.done = op_done };
	struct weft_iov iov = { local, len, NULL };
	uint8_t key[WEFT_RKEY_MAX];
	int ret;

	ib->mem_pack(mem, &key);
	if (!until(ib->ready(a.ep)))
		return -ETIME;
	ret = get ? ib->get(a.ep, &iov, 1, (uintptr_t)remote, &key, &w.op) :
		    ib->put(a.ep, &iov, 1, (uintptr_t)remote, &key, NULL,
			    &w.op);
	if (ret != -EINPROGRESS)
		return ret;
	return until(w.done) ? w.status : -ETIME;
}

/* From a's GPU memory to b's and back to another place, in all sizes. */
static void moves_all(struct weft_mem *mem)
{
	static const size_t sizes[] = { 1, 8, 64, 65, 4096, 100000, LEN };
	unsigned int i;
	uint8_t *there = gpu_b + AT, *here = gpu_a + AT;

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		memset(inside(gpu_a), GUARD, SIZE);
		memset(inside(gpu_b), GUARD, SIZE);
		fill(inside(here), sizes[i], i);
		cr_assert(zero(int, move(false, here, there, sizes[i], mem)),
			  "%s", logged);
		cr_expect(holds(inside(there), sizes[i], i), "put of %zu",
			  sizes[i]);
		memset(inside(gpu_a), GUARD, SIZE);
		cr_assert(zero(int, move(true, here, there, sizes[i], mem)),
			  "%s", logged);
		cr_expect(holds(inside(here), sizes[i], i), "get of %zu",
			  sizes[i]);
	}
}

static void moves_registered(void)
{
	struct weft_mem *mine, *theirs;

	cr_assert(zero(int, ib->mem_register(gpu_a + AT, LEN, WEFT_MEM_CUDA,
					     &mine)), "%s", logged);
	cr_assert(zero(int, ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					     &theirs)), "%s", logged);
	moves_all(theirs);
	ib->mem_release(mine);
	ib->mem_release(theirs);
}

Test(ib_gpu, goes_by_dmabuf)
{
	unsigned int fds;

	pair_up();
	cr_expect(eq(uint, mem_kinds(&a), BIT(WEFT_MEM_HOST) |
					  BIT(WEFT_MEM_CUDA)));
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"), WEFT_IB_DMABUF));
	fds = count_fds();
	moves_registered();
	cr_expect(eq(uint, count_fds(), fds));
	cr_expect(zero(uint, lines()), "%s", logged);
	pair_down();
}

/* The module, where the driver has no dma-bufs: NVIDIA's closed one. */
Test(ib_gpu, goes_by_the_module)
{
	cuda.fake_cuda_dmabuf(false);
	fake_verbs_peermem();
	pair_up();
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"),
		     WEFT_IB_DMABUF | WEFT_IB_PEERMEM));
	moves_registered();
	cr_expect(zero(uint, lines()), "%s", logged);
	pair_down();
}

/* A library, or a kernel, that is too old. */
static void old_parts(int err)
{
	struct weft_mem *mem;

	fake_verbs_dmabuf(err);
	pair_up();
	cr_expect(eq(uint, mem_kinds(&a), BIT(WEFT_MEM_HOST)));
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"), 0));
	cr_expect(eq(int, ib->mem_register(gpu_a, LEN, WEFT_MEM_CUDA, &mem),
		     -EOPNOTSUPP));
	cr_expect(zero(uint, lines()), "%s", logged);
	pair_down();
	fake_verbs_peermem();
	pair_up();
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"), WEFT_IB_PEERMEM));
	moves_registered();
	cr_expect(zero(uint, lines()), "%s", logged);
	pair_down();
}

Test(ib_gpu, an_old_library_has_the_module_at_most)
{
	old_parts(-1);
}

Test(ib_gpu, an_old_kernel_has_the_module_at_most)
{
	old_parts(EOPNOTSUPP);
}

/* A driver without them is no cause for a word: callers have another way. */
Test(ib_gpu, a_driver_without_dmabufs_is_no_error)
{
	struct weft_mem *mem;

	cuda.fake_cuda_dmabuf(false);
	pair_up();
	cr_expect(eq(int, ib->mem_register(gpu_a, LEN, WEFT_MEM_CUDA, &mem),
		     -EOPNOTSUPP));
	cr_expect(zero(uint, lines()), "%s", logged);
	pair_down();
}

static void set(const char *name, const char *value)
{
	setenv(name, value, 1);
	weft_settings_reset();
}

Test(ib_gpu, settings_are_heeded)
{
	fake_verbs_peermem();
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"),
		     WEFT_IB_DMABUF | WEFT_IB_PEERMEM));
	unsetenv("WEFT_IB_GPU_DIRECT");
	weft_settings_reset();
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"), 0));
	set("WEFT_IB_GPU_DIRECT", "auto");
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"),
		     WEFT_IB_DMABUF | WEFT_IB_PEERMEM));
	set("WEFT_IB_GPU_DIRECT", "off");
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"), 0));
	set("WEFT_IB_GPU_DIRECT", "on");
	weft_settings_set_runtime("NCCL_");
	set("NCCL_DMABUF_ENABLE", "0");
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"), WEFT_IB_PEERMEM));
	set("NCCL_DMABUF_ENABLE", "1");
	cr_expect(eq(uint, weft_ib_gpu_ways("fake0"),
		     WEFT_IB_DMABUF | WEFT_IB_PEERMEM));
	cr_expect(zero(uint, lines()), "%s", logged);
	nothing_lives("asking");
}

/* What should work and does not is told once, and leaves nothing behind. */
Test(ib_gpu, a_refusal_is_told_once)
{
	static const int errs[] = { EOPNOTSUPP, EINVAL, ENOMEM };
	struct fake_verbs_live before, after;
	struct weft_mem *mem;
	unsigned int i, fds;

	pair_up();
	fake_verbs_live(&before);
	fds = count_fds();
	for (i = 0; i < 6; i++) {
		fake_verbs_dmabuf(errs[i % 3]);
		cr_expect(eq(int, ib->mem_register(gpu_a, LEN, WEFT_MEM_CUDA,
						   &mem), -errs[i % 3]));
	}
	cr_expect(eq(uint, lines(), 1), "%s", logged);
	cr_expect(yes(strstr(logged, "'fake") && strstr(logged, "dma-buf") &&
		      strstr(logged, "WEFT_IB_GPU_DIRECT=off")), "%s", logged);
	fake_verbs_live(&after);
	cr_expect(eq(uint, after.mrs, before.mrs));
	cr_expect(eq(uint, count_fds(), fds));
	fake_verbs_dmabuf(0);
	moves_registered();
	pair_down();
}

/* Whoever's adapter takes it has it; with the other's, a transfer fails. */
static void one_refuses(int err, int status)
{
	uint8_t *host = buffer(1);
	struct weft_mem *mine, *theirs, *hosts;

	logged[0] = '\0';
	pair_up();
	fake_verbs_dmabuf_of(1, err);
	cr_assert(zero(int, ib->mem_register(gpu_a + AT, LEN, WEFT_MEM_CUDA,
					     &mine)), "%s", logged);
	cr_assert(zero(int, ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					     &theirs)), "%s", logged);
	cr_assert(zero(int, ib->mem_register(host, LEN, WEFT_MEM_HOST,
					     &hosts)));
	cr_expect(yes(weft_ib_takes(a.iface, mine)));
	cr_expect(yes(!weft_ib_takes(b.iface, mine)));
	cr_expect(yes(weft_ib_takes(b.iface, hosts)));
	fill(inside(gpu_a + AT), LEN, 5);
	cr_expect(zero(int, move(false, gpu_a + AT, host, LEN, hosts)), "%s",
		  logged);
	cr_expect(zero(int, memcmp(host, inside(gpu_a + AT), LEN)));
	cr_expect(eq(int, move(false, gpu_a + AT, gpu_b + AT, LEN, theirs),
		     status));
	cr_expect(zero(uint, a.errors + b.errors));
	/* by its owner and by who wants it, once each */
	cr_expect(eq(uint, lines(), 2), "%s", logged);
	fake_verbs_dmabuf_of(1, 0);
	cr_expect(zero(int, move(false, gpu_a + AT, gpu_b + AT, LEN, theirs)),
		  "%s", logged);
	ib->mem_release(mine);
	ib->mem_release(theirs);
	ib->mem_release(hosts);
	pair_down();
	free(host);
}

Test(ib_gpu, one_adapter_may_refuse)
{
	one_refuses(EINVAL, -EIO);
}

Test(ib_gpu, one_adapter_may_have_no_way)
{
	one_refuses(EOPNOTSUPP, -EOPNOTSUPP);
	cr_expect(yes(strstr(logged, "a peer wants GPU memory by 'fake1'")),
		  "%s", logged);
}

Test(ib_gpu, the_module_is_there_where_dmabuf_fails)
{
	fake_verbs_peermem();
	pair_up();
	fake_verbs_dmabuf(EINVAL);
	moves_registered();
	cr_expect(zero(uint, lines()), "%s", logged);
	pair_down();
}

Test(ib_gpu, host_memory_is_none_of_a_gpus)
{
	uint8_t *host = buffer(1);
	struct weft_mem *mem;

	pair_up();
	cr_expect(eq(int, ib->mem_register(host, LEN, WEFT_MEM_CUDA, &mem),
		     -EOPNOTSUPP));
	pair_down();
	free(host);
}

/* By a descriptor of the caller's, which stays open and his. */
Test(ib_gpu, a_callers_dmabuf_is_taken)
{
	struct weft_mem *mine, *theirs;
	uint64_t at_a, at_b;
	int a_fd = weft_cuda_dmabuf(gpu_a + AT, LEN, &at_a);
	int b_fd = weft_cuda_dmabuf(gpu_b + AT, LEN, &at_b);
	unsigned int fds = count_fds();

	cr_assert(ge(int, a_fd, 0));
	cr_assert(ge(int, b_fd, 0));
	cr_expect(eq(u64, at_a, AT % 4096));
	pair_up();
	/* the driver is not asked for another one */
	cuda.fake_cuda_dmabuf(false);
	cr_assert(zero(int, weft_ib_register_dmabuf(gpu_a + AT, LEN, a_fd,
						    at_a, &mine)));
	cr_assert(zero(int, weft_ib_register_dmabuf(gpu_b + AT, LEN, b_fd,
						    at_b, &theirs)));
	moves_all(theirs);
	ib->mem_release(mine);
	ib->mem_release(theirs);
	/* another place in the page than the address has */
	cr_expect(eq(int, weft_ib_register_dmabuf(gpu_a + AT, LEN, a_fd,
						  at_a + 1, &mine), -EINVAL));
	pair_down();
	cr_expect(eq(uint, count_fds(), fds));
	close(a_fd);
	close(b_fd);
}

Test(ib_gpu, may_be_registered_before_any_device)
{
	struct weft_mem *mine, *theirs;

	cr_assert(zero(int, ib->mem_register(gpu_a + AT, LEN, WEFT_MEM_CUDA,
					     &mine)));
	cr_assert(zero(int, ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					     &theirs)));
	pair_up();
	moves_all(theirs);
	close_side(&a);
	close_side(&b);
	nothing_lives("closing");
	pair_up();
	moves_all(theirs);
	ib->mem_release(mine);
	ib->mem_release(theirs);
	pair_down();
}

/* Released under a transfer: it is registered for that one, as GPU memory. */
Test(ib_gpu, a_transfer_has_a_registration_of_its_own)
{
	struct weft_mem *mine, *theirs;
	struct fake_verbs_live before, after;

	pair_up();
	cr_assert(zero(int, ib->mem_register(gpu_a + AT, LEN, WEFT_MEM_CUDA,
					     &mine)));
	cr_assert(zero(int, ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					     &theirs)));
	fake_verbs_live(&before);
	memset(inside(gpu_b), GUARD, SIZE);
	fill(inside(gpu_a + AT), LEN, 3);
	fake_verbs_next_status(IBV_WC_LOC_PROT_ERR);
	cr_expect(zero(int, move(false, gpu_a + AT, gpu_b + AT, LEN, theirs)),
		  "%s", logged);
	cr_expect(holds(inside(gpu_b + AT), LEN, 3));
	fake_verbs_live(&after);
	cr_expect(eq(uint, after.mrs, before.mrs));
	ib->mem_release(mine);
	ib->mem_release(theirs);
	pair_down();
}

/* ---- each step failing in turn --------------------------------------------- */

/* What a rank does; the number of errors it was told. */
static unsigned int life(void)
{
	struct weft_mem *mine = NULL, *theirs = NULL;
	unsigned int errors = 0;

	a.iface = b.iface = NULL;
	a.ep = b.ep = NULL;
	memset(inside(gpu_b), GUARD, SIZE);
	fill(inside(gpu_a + AT), LEN, 1);
	if (open_side(&a, "fake0:1") || open_side(&b, "fake1:1") ||
	    connect_side(&a, &b) || connect_side(&b, &a))
		errors++;
	if (!errors && !until((ib->ready(a.ep) && ib->ready(b.ep)) ||
			      a.errors || b.errors))
		cr_expect(false, "neither connected nor failed");
	errors += a.errors + b.errors;
	if (!errors && ib->mem_register(gpu_a + AT, LEN, WEFT_MEM_CUDA, &mine))
		errors++;
	if (!errors && ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					&theirs))
		errors++;
	if (!errors && weft_ib_flush_prepare(b.iface))
		errors++;
	if (!errors) {
		if (move(false, gpu_a + AT, gpu_b + AT, LEN, theirs))
			errors++;
		else
			cr_expect(holds(inside(gpu_b + AT), LEN, 1));
	}
	if (!errors && flush(0, theirs, 0) != -EINPROGRESS)
		errors++;
	if (!errors) {
		cr_expect(until(flushes[0].done), "no end of a flush");
		errors += flushes[0].status != 0;
	}
	if (mine)
		ib->mem_release(mine);
	if (theirs)
		ib->mem_release(theirs);
	errors += a.errors + b.errors;
	close_side(&a);
	close_side(&b);
	return errors;
}

Test(ib_gpu, every_failing_call_is_told_and_leaks_nothing)
{
	unsigned int n, errors, before, calls;
	char when[64];

	life();
	before = count_fds();
	fake_verbs_fail(0);
	cr_assert(zero(uint, life()), "%s", logged);
	calls = fake_verbs_calls();
	cr_assert(gt(uint, calls, 40));
	for (n = 1; n <= calls; n++) {
		fake_verbs_fail(n);
		errors = life();
		if (!fake_verbs_failed())
			continue;	/* one call less than last time */
		snprintf(when, sizeof(when), "call %u, %s", n,
			 fake_verbs_failed());
		cr_expect(yes(errors || survived(fake_verbs_failed())),
			  "%s failed and nobody was told", when);
		nothing_lives(when);
		cr_expect(eq(uint, count_fds(), before), "%s", when);
	}
}

/*
 * The driver's calls, too; which it is asked for each adapter, and again when a
 * transfer wants memory that an adapter did not take: failing once is no end.
 */
Test(ib_gpu, every_failing_call_of_the_driver_leaks_nothing)
{
	unsigned int n, before, errors = 0;
	int calls;

	life();
	before = count_fds();
	cuda.fake_cuda_fail_at(0, 0);
	cr_assert(zero(uint, life()), "%s", logged);
	calls = cuda.fake_cuda_calls();
	cr_assert(gt(int, calls, 5));
	for (n = 1; n <= (unsigned int)calls; n++) {
		cuda.fake_cuda_fail_at((int)n, 999);
		errors += life() > 0;
		nothing_lives(cuda.fake_cuda_failed() ?
			      cuda.fake_cuda_failed() : "none");
		cr_expect(eq(uint, count_fds(), before));
	}
	cuda.fake_cuda_fail_at(0, 0);
	cr_expect(zero(uint, errors));
}

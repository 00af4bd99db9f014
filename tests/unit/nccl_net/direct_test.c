/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory of NCCL's that the adapter reads and writes itself: on a fake
 * adapter, in memory of a fake GPU that the processor cannot touch.
 */
#include <unistd.h>
#include "nccl_net/abi/net.h"
#include "nccl_net/offer.h"
#include "tests/unit/nccl_net/cuda.h"
#include "tests/unit/nccl_net/ib.h"
#include "util/verbs.h"

#define GUARD	0x5a
#define ROOM	(BIG + 8192)
#define AT	4096

static char *from, *to;			/* GPU memory */

static void load(void)
{
	begin();
	setenv("WEFT_IB_GPU_DIRECT", "auto", 1);
	cuda_load_with("off");
	weft_settings_reset();
	cuda.fake_cuda_dmabuf(true);
	from = cuda.fake_cuda_guarded(0, ROOM);
	to = cuda.fake_cuda_guarded(0, ROOM);
}

TestSuite(direct, .init = load, .fini = done, .timeout = 120);

/* ---- what NCCL is told ---------------------------------------------------- */

static int support(void)
{
	struct weft_net_props p;

	cr_assert(eq(int, weft_net_devices(), 2));
	cr_assert(eq(int, weft_net_properties(1, &p), 0));
	cr_expect(eq(int, p.reg_is_global, 0));
	return p.ptr_support;
}

#define ALL	(NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF)

Test(direct, dmabufs_are_told)
{
	struct fake_verbs_live live;

	cr_expect(eq(int, support(), ALL));
	fake_verbs_live(&live);
	cr_expect(eq(uint, live.contexts, 0), "asking leaves a device open");
}

Test(direct, the_module_is_told)
{
	fake_verbs_peermem();
	cuda.fake_cuda_dmabuf(false);
	cr_expect(eq(int, support(), NCCL_PTR_HOST | NCCL_PTR_CUDA));
}

Test(direct, of_both_dmabufs_are_told)
{
	fake_verbs_peermem();
	cr_expect(eq(int, support(), ALL));
}

Test(direct, nccls_word_against_dmabufs_is_heeded)
{
	fake_verbs_peermem();
	weft_settings_set_runtime("NCCL_");
	setenv("NCCL_DMABUF_ENABLE", "0", 1);
	weft_settings_reset();
	cr_expect(eq(int, support(), NCCL_PTR_HOST | NCCL_PTR_CUDA));
}

Test(direct, a_driver_without_either)
{
	cuda.fake_cuda_dmabuf(false);
	cr_expect(eq(int, support(), NCCL_PTR_HOST));
}

Test(direct, an_adapter_without_either)
{
	fake_verbs_dmabuf_of(1, EOPNOTSUPP);
	cr_expect(eq(int, support(), NCCL_PTR_HOST));
}

Test(direct, off_is_off)
{
	setenv("WEFT_IB_GPU_DIRECT", "off", 1);
	weft_settings_reset();
	cr_expect(eq(int, support(), NCCL_PTR_HOST));
}

Test(direct, nobody_asked)
{
	unsetenv("WEFT_IB_GPU_DIRECT");
	weft_settings_reset();
	cr_expect(eq(int, support(), NCCL_PTR_HOST));
}

Test(direct, an_old_nccl_has_to_ask)
{
	weft_nccl_nvlink_untried();
	cr_expect(eq(int, support(), NCCL_PTR_HOST));
}

Test(direct, an_old_nccl_may_ask)
{
	setenv("WEFT_IB_GPU_DIRECT", "on", 1);
	weft_settings_reset();
	weft_nccl_nvlink_untried();
	cr_expect(eq(int, support(), ALL));
}

/* There NCCL hands it over however far the GPU is from the port. */
static void beside_nvlink(const char *value, bool offered)
{
	setenv("WEFT_NCCL_NVLINK", "on", 1);
	setenv("WEFT_IB_GPU_DIRECT", value, 1);
	weft_settings_reset();
	cr_assert(weft_nccl_nvlink_offered());
	cr_expect(eq(int, weft_nccl_direct_offered(), offered));
}

Test(direct, beside_nvlink_it_has_to_be_asked_for)
{
	beside_nvlink("auto", false);
}

Test(direct, beside_nvlink_it_may_be)
{
	beside_nvlink("on", true);
}

/* ---- transfers -------------------------------------------------------------- */

static struct weft_net_mr *smr;

static char *inside(char *p)
{
	void *there = cuda.fake_cuda_inside(p);

	return there ? there : p;
}

static void fill(char *p, size_t size, unsigned int round)
{
	size_t i;

	for (i = 0; i < size; i++)
		p[i] = (char)(i * 7 + (i >> 8) + 13 * round + 1);
}

static bool holds(const char *p, size_t size, unsigned int round)
{
	size_t i;

	for (i = 0; i < size; i++)
		if (p[i] != (char)(i * 7 + (i >> 8) + 13 * round + 1))
			return false;
	return p[-1] == GUARD && p[size] == GUARD;
}

static struct weft_net_request *send_and_receive(char *s, char *r, size_t size)
{
	const uint64_t end = weft_now_ms() + DEADLINE_MS;
	struct weft_net_request *sent = NULL, *got = NULL;

	cr_assert(eq(int, weft_net_recv(rx, r, BIG - 8, rmr, &got), 0));
	cr_assert(got != NULL);
	while (!sent && weft_now_ms() < end) {
		cr_assert(eq(int, weft_net_send(tx, s, size, smr, &sent), 0));
		step();
	}
	cr_assert(sent != NULL, "the send was never taken");
	wait_for(got, size);
	return sent;
}

static const size_t sizes[] = { 0, 1, 64, 65, 128, 8000, 65536, BIG - 16 };

/* From @s to @r, each of a GPU's or not; @flushed: the last was not on its own. */
static void moves(char *s, char *r, bool flushed)
{
	struct weft_net_request *sent, *req;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		memset(inside(s), GUARD, ROOM - AT);
		memset(inside(r) - 1, GUARD, ROOM - AT);
		fill(inside(s), sizes[i], i);
		sent = send_and_receive(s, r, sizes[i]);
		cr_assert(eq(int, weft_net_flush(rx, r, sizes[i], rmr, &req),
			     0));
		cr_expect(eq(int, req != NULL, flushed && sizes[i]),
			  "%zu bytes", sizes[i]);
		if (req)
			wait_for(req, 0);
		cr_expect(holds(inside(r), sizes[i], i), "%zu bytes differ",
			  sizes[i]);
		wait_for(sent, sizes[i]);
	}
}

static unsigned int pinned(void)
{
	struct fake_cuda_live live;

	cuda.fake_cuda_live(&live);
	return live.pinned;
}

static void reg(struct weft_net_comm *comm, char *p, int type,
		struct weft_net_mr **mr)
{
	cr_assert(eq(int, weft_net_register(comm, p, BIG, type, mr), 0));
}

static void unreg(void)
{
	weft_net_deregister(smr);
	part();
}

Test(direct, gpu_to_gpu_without_a_copy)
{
	const unsigned long copies = cuda.fake_cuda_copies();

	meet(0, 1);
	cr_assert(by_ib());
	reg(tx, from + AT, NCCL_PTR_CUDA, &smr);
	reg(rx, to + AT, NCCL_PTR_CUDA, &rmr);
	moves(from + AT, to + AT, true);
	cr_expect(eq(uint, pinned(), 0));
	cr_expect(eq(ulong, cuda.fake_cuda_copies(), copies));
	cr_expect(eq(uint, errors, 0), "%s", last_error);
	unreg();
}

Test(direct, by_the_module)
{
	fake_verbs_peermem();
	cuda.fake_cuda_dmabuf(false);
	meet(0, 1);
	reg(tx, from + AT, NCCL_PTR_CUDA, &smr);
	reg(rx, to + AT, NCCL_PTR_CUDA, &rmr);
	moves(from + AT, to + AT, true);
	cr_expect(eq(uint, pinned(), 0));
	unreg();
}

/* LL's buffers: the sender's are the host's, and small sends run ahead. */
Test(direct, host_to_gpu_and_back)
{
	char *host = malloc(ROOM);

	meet(0, 1);
	cr_assert(by_ib());
	reg(tx, host + AT, NCCL_PTR_HOST, &smr);
	reg(rx, to + AT, NCCL_PTR_CUDA, &rmr);
	moves(host + AT, to + AT, true);
	unreg();
	meet(1, 0);
	reg(tx, from + AT, NCCL_PTR_CUDA, &smr);
	reg(rx, host + AT, NCCL_PTR_HOST, &rmr);
	moves(from + AT, host + AT, false);
	unreg();
	free(host);
	cr_expect(eq(uint, errors, 0), "%s", last_error);
}

/* A send that is there before its receive waits for it. */
Test(direct, nothing_small_comes_before_its_receive)
{
	struct weft_net_request *s = NULL, *r = NULL;
	unsigned int i;

	meet(0, 1);
	reg(rx, to + AT, NCCL_PTR_CUDA, &rmr);
	for (i = 0; i < 1000; i++) {
		cr_assert(eq(int, weft_net_send(tx, src, 64, NULL, &s), 0));
		cr_assert(s == NULL);
		step();
	}
	cr_assert(eq(int, weft_net_recv(rx, to + AT, 64, rmr, &r), 0));
	while (!s) {
		cr_assert(eq(int, weft_net_send(tx, src, 64, NULL, &s), 0));
		step();
	}
	wait_for(r, 64);
	wait_for(s, 64);
	cr_expect(zero(int, memcmp(inside(to + AT), src, 64)));
	part();
}

/* As NCCL does: @fd is closed as soon as the memory is registered. */
Test(direct, by_nccls_own_dmabufs)
{
	uint64_t at_s, at_r;
	int fds[2] = { weft_cuda_dmabuf(from + AT, BIG, &at_s),
		       weft_cuda_dmabuf(to + AT, BIG, &at_r) };

	meet(0, 1);
	cr_assert(by_ib());
	cuda.fake_cuda_refuse("cuMemGetHandleForAddressRange", 1);
	cr_assert(eq(int, weft_net_register_dmabuf(tx, from + AT, BIG,
						   NCCL_PTR_CUDA, at_s, fds[0],
						   &smr), 0));
	cr_assert(eq(int, weft_net_register_dmabuf(rx, to + AT, BIG,
						   NCCL_PTR_CUDA, at_r, fds[1],
						   &rmr), 0));
	cr_expect(zero(int, close(fds[0]) | close(fds[1])), "not ours");
	moves(from + AT, to + AT, true);
	cr_expect(eq(uint, pinned(), 0));
	unreg();
	cr_expect(eq(uint, errors, 0), "%s", last_error);
}

/* ---- where not both sides can ------------------------------------------------ */

/* Where the fake's copies are made, which are the processor's. */
static char *open_memory(void)
{
	return cuda.fake_cuda_vmm(0, 2 * ROOM);
}

static void with_doubles(char *s, char *r, bool flushed, unsigned int doubles,
			 unsigned int lines)
{
	reg(tx, s + AT, NCCL_PTR_CUDA, &smr);
	reg(rx, r + AT, NCCL_PTR_CUDA, &rmr);
	cr_expect(eq(uint, pinned(), doubles));
	moves(s + AT, r + AT, flushed);
	unreg();
	cr_expect(eq(uint, pinned(), 0));
	cr_expect(eq(uint, errors, lines), "%s", last_error);
}

Test(direct, a_sender_whose_adapter_cannot)
{
	fake_verbs_dmabuf_of(0, EOPNOTSUPP);
	meet(0, 1);
	cr_assert(by_ib());
	with_doubles(open_memory(), to, true, 1, 0);
}

Test(direct, a_receiver_whose_adapter_cannot)
{
	fake_verbs_dmabuf_of(1, EOPNOTSUPP);
	meet(0, 1);
	cr_assert(by_ib());
	with_doubles(from, open_memory(), false, 1, 0);
}

Test(direct, what_cannot_be_registered_has_a_double)
{
	meet(0, 1);
	cr_assert(by_ib());
	cuda.fake_cuda_refuse("cuMemGetHandleForAddressRange",
			      WEFT_CU_NOT_SUPPORTED);
	with_doubles(open_memory(), open_memory(), false, 2, 1);
}

/* Though the sender's adapter, which is open here, too, takes it. */
Test(direct, so_has_what_its_own_adapter_refuses)
{
	meet(0, 1);
	cr_assert(by_ib());
	fake_verbs_dmabuf_of(1, EINVAL);
	with_doubles(from, open_memory(), false, 1, 2);
}

Test(direct, so_has_what_cannot_be_flushed)
{
	meet(0, 1);
	fake_verbs_fail_call("create_cq");
	cr_assert(by_ib());
	reg(rx, cuda.fake_cuda_vmm(0, ROOM), NCCL_PTR_CUDA, &rmr);
	cr_expect(eq(uint, pinned(), 1));
	cr_expect(eq(uint, errors, 1), "%s", last_error);
	part();
}

Test(direct, a_pair_that_falls_to_tcp)
{
	fake_verbs_gid(1, false, "fe80:0000:0000:0000:0002:c903:0000:0002");
	cr_expect(eq(int, support(), ALL));
	meet(0, 1);
	cr_assert(by_tcp());
	errors = 0;
	with_doubles(open_memory(), open_memory(), false, 2, 0);
}

static unsigned int calls_2d(void)
{
	return cuda.fake_cuda_called("cuMemcpy2DAsync_v2");
}

/* With its flags behind its data, where a copy engine writes it. */
Test(direct, a_double_of_ll128s_is_copied_in_two_steps)
{
	static const size_t lens[] = { 128, 256, 8192, 61440, 8192 + 120, 600 };
	struct weft_net_request *sent;
	struct weft_net_mr *mr[3];
	unsigned int i, k, before;
	char *r[3];

	fake_verbs_gid(1, false, "fe80:0000:0000:0000:0002:c903:0000:0002");
	meet(0, 1);
	cr_assert(by_tcp());
	smr = NULL;
	for (i = 0; i < 3; i++) {
		r[i] = cuda.fake_cuda_vmm(0, ROOM);
		reg(rx, r[i] + AT, NCCL_PTR_CUDA, &mr[i]);
	}
	for (k = 0; k < 3; k++) {
		rmr = mr[k];
		for (i = 0; i < ARRAY_SIZE(lens); i++) {
			memset(r[k], GUARD, ROOM);
			fill(src, lens[i], i);
			before = calls_2d();
			sent = send_and_receive(src, r[k] + AT, lens[i]);
			wait_for(sent, lens[i]);
			cr_expect(holds(r[k] + AT, lens[i], i), "%zu", lens[i]);
			/* lines, flags, and what is behind the last line */
			if (k == 1 && lens[i] % 128 == 0)
				cr_expect(eq(uint, calls_2d(), before + 2));
			else if (k != 1)
				cr_expect(le(uint, calls_2d(), before + 1));
		}
	}
	weft_net_deregister(mr[0]);
	weft_net_deregister(mr[1]);
	part();
}

/* ---- flushes ------------------------------------------------------------------ */

static int end_of(struct weft_net_request *req)
{
	const uint64_t end = weft_now_ms() + DEADLINE_MS;
	bool is_done = false;
	size_t size;
	int ret = 0;

	while (!is_done && !ret && weft_now_ms() < end) {
		ret = weft_net_test(req, &is_done, &size);
		step();
	}
	return is_done || ret ? ret : -ETIME;
}

Test(direct, a_flush_that_fails_is_told)
{
	struct weft_net_request *req;

	meet(0, 1);
	reg(rx, to + AT, NCCL_PTR_CUDA, &rmr);
	fake_verbs_next_status(IBV_WC_REM_OP_ERR);
	cr_assert(eq(int, weft_net_flush(rx, to + AT, 8, rmr, &req), 0));
	cr_expect(eq(int, end_of(req), -EIO));
	cr_expect(eq(uint, errors, 1));
	cr_expect(strstr(last_error, "fake1:1") != NULL, "%s", last_error);
	/* and the next one is done */
	cr_assert(eq(int, weft_net_flush(rx, to + AT, 8, rmr, &req), 0));
	cr_expect(eq(int, end_of(req), 0));
	part();
}

Test(direct, as_many_as_nccl_has_are_taken)
{
	struct weft_net_request *req[WEFT_NET_REQUESTS + 1];
	unsigned int i;

	meet(0, 1);
	reg(rx, to + AT, NCCL_PTR_CUDA, &rmr);
	for (i = 0; i < WEFT_NET_REQUESTS; i++) {
		cr_assert(eq(int, weft_net_flush(rx, to + AT, 8, rmr, &req[i]),
			     0));
		cr_assert(req[i] != NULL);
	}
	cr_expect(eq(int, weft_net_flush(rx, to + AT, 8, rmr, &req[i]),
		     -EBUSY));
	for (i = 0; i < WEFT_NET_REQUESTS; i++)
		cr_expect(eq(int, end_of(req[i]), 0));
	part();
}

/* NCCL's abort: memory and connection go under it. */
Test(direct, an_end_under_flushes_leaves_nothing)
{
	struct fake_verbs_live live;
	struct weft_net_request *req;
	unsigned int i;

	meet(0, 1);
	reg(rx, to + AT, NCCL_PTR_CUDA, &rmr);
	for (i = 0; i < 8; i++)
		cr_assert(eq(int, weft_net_flush(rx, to + AT, 8, rmr, &req),
			     0));
	part();
	while (nlisteners)
		weft_net_close_listener(listeners[--nlisteners]);
	fake_verbs_live(&live);
	cr_expect(eq(uint, live.mrs + live.qps + live.cqs, 0));
	cr_expect(eq(uint, errors, 0), "%s", last_error);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory over TCP: a CUDA driver without a GPU, a device without a wire. */
#include "nccl_net/abi/net.h"
#include "tests/unit/nccl_net/cuda.h"
#include "util/clock.h"

static char *gpu;

static void load(void)
{
	cuda_load();
	gpu = cuda.fake_cuda_vmm(0, 4 * BIG);
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

Test(stage, memory_registered_twice_has_one_bounce_buffer)
{
	struct weft_net_comm *tx2, *rx2;
	struct weft_net_mr *mr[8], *other;
	unsigned int i;

	join(a, b, &tx2, &rx2);
	for (i = 0; i < 8; i++)
		cr_assert(eq(int,
			     weft_net_register(i % 2 ? tx2 : tx, gpu, BIG,
					       NCCL_PTR_CUDA, &mr[i]),
			     0));
	cr_expect(eq(uint, pinned(), 1));
	cr_assert(eq(int,
		     weft_net_register(tx, gpu, 2 * BIG, NCCL_PTR_CUDA, &other),
		     0));
	cr_expect(eq(uint, pinned(), 2));
	for (i = 0; i < 7; i++)
		weft_net_deregister(mr[i]);
	cr_expect(eq(uint, pinned(), 2));
	weft_net_deregister(mr[7]);
	cr_expect(eq(uint, pinned(), 1));
	weft_net_deregister(other);
	cr_expect(eq(uint, pinned(), 0));
}

/*
 * NCCL's own first three are taken, whatever their size; a user's are bounded.
 */
Test(stage, bounce_buffers_of_users_are_bounded)
{
	const size_t large = 300ul << 20;
	struct weft_net_mr *mr[4];
	char *mem[4];
	unsigned int i;

	for (i = 0; i < 4; i++) {
		mem[i] = cuda.fake_cuda_vmm(0, large);
		cr_assert(mem[i] != NULL);
	}
	for (i = 0; i < 3; i++)
		cr_assert(eq(int,
			     weft_net_register(tx, mem[i], large, NCCL_PTR_CUDA,
					       &mr[i]),
			     0));
	cr_expect(
		eq(int,
		   weft_net_register(tx, mem[3], large, NCCL_PTR_CUDA, &mr[3]),
		   -ENOMEM));
	cr_expect(eq(uint, errors, 0), "%s", last_error);
	cr_expect(eq(uint, pinned(), 3));
	/* what has its double already costs nothing */
	cr_expect(
		eq(int,
		   weft_net_register(tx, mem[0], large, NCCL_PTR_CUDA, &mr[3]),
		   0));
	weft_net_deregister(mr[3]);
	cr_expect(eq(int,
		     weft_net_register(tx, gpu, BIG, NCCL_PTR_CUDA, &mr[3]),
		     0));
	for (i = 0; i < 4; i++)
		weft_net_deregister(mr[i]);
	cr_expect(eq(uint, pinned(), 0));
}

/* Its copies would be held up by what the program does in its context. */
Test(stage, memory_of_cuMemAlloc_is_not_a_users)
{
	char *old = cuda.fake_cuda_malloc(0, BIG);
	struct weft_net_mr *mr[4];
	unsigned int i;

	for (i = 0; i < 3; i++)
		cr_assert(eq(
			int,
			weft_net_register(tx, old, BIG, NCCL_PTR_CUDA, &mr[i]),
			0));
	cr_expect(eq(uint, errors, 1));
	cr_expect(strstr(last_error, "NCCL_CUMEM_ENABLE") != NULL, "%s",
		  last_error);
	cr_expect(eq(int,
		     weft_net_register(tx, old, BIG, NCCL_PTR_CUDA, &mr[3]),
		     -EOPNOTSUPP));
	cr_expect(eq(uint, errors, 1));
	for (i = 0; i < 3; i++)
		weft_net_deregister(mr[i]);
	cr_expect(eq(uint, pinned(), 0));
}

static int finish_late(struct weft_net_request *req, size_t *got)
{
	const uint64_t end = weft_now_ms() + 20000;
	int ret;

	do
		ret = finish(req, got);
	while (ret == -EAGAIN && weft_now_ms() < end);
	return ret;
}

/* The program's kernels, which wait for NCCL's, do not hold it up. */
Test(stage, small_receive_does_not_queue_behind_kernels)
{
	const size_t sizes[] = { 2, 17, 4096, 24576, 65535, 65536 };
	struct weft_net_request *r, *s;
	struct weft_net_mr *mr;
	unsigned int i;
	size_t got;

	cr_assert(eq(int, weft_net_register(rx, gpu, BIG, NCCL_PTR_CUDA, &mr),
		     0));
	cuda.fake_cuda_kernels(true);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		memset(gpu, 0x5a, BIG);
		cr_assert(eq(int, weft_net_recv(rx, gpu, BIG, mr, &r), 0));
		s = send_now(src, sizes[i]);
		cr_assert(eq(int, finish_late(r, &got), 0));
		cr_expect(eq(sz, got, sizes[i]));
		cr_expect(eq(int, memcmp(gpu, src, sizes[i]), 0));
		cr_expect(eq(int, gpu[sizes[i]], 0x5a));
		cr_assert(eq(int, finish_late(s, &got), 0));
	}
	cuda.fake_cuda_kernels(false);
	weft_net_deregister(mr);
}

/* Its copies are awaited, and nothing stays pinned. */
Test(stage, failed_send_frees_its_bounce_buffer)
{
	struct weft_net_request *s = NULL;
	struct weft_net_mr *mr;
	int i;

	cr_assert(eq(int, weft_net_register(tx, gpu, BIG, NCCL_PTR_CUDA, &mr),
		     0));
	cr_assert(eq(int, weft_net_register(rx, dst, BIG, 1, &rmr), 0));
	recv_now(dst, BIG);
	cuda.fake_cuda_delay(20000);
	for (i = 0; i < 50 && !s; i++) {
		cr_assert(eq(int, weft_net_send(tx, gpu, BIG, mr, &s), 0));
		weft_net_progress(b);
	}
	cr_assert(s != NULL, "the send was never taken");
	cr_assert(eq(uint, tx->active, 1));
	weft_net_comm_fail(tx, -EIO);
	weft_net_deregister(mr);
	weft_net_close_comm(tx);
	cr_expect(eq(uint, pinned(), 0));
}

/* A put outlives the comm's failure, but not the comm. */
Test(stage, failed_send_waits_for_its_puts)
{
	struct weft_net_listener *stay;
	char handle[WEFT_NET_HANDLE];
	struct weft_net_request *s;

	/* its port stays open */
	cr_assert(eq(int, weft_net_listen(a, 0, handle, &stay), 0));
	cr_assert(eq(int, weft_net_register(rx, dst, BIG, 1, &rmr), 0));
	fake.hold_puts = true;
	recv_now(dst, BIG);
	s = send_now(src, BIG);
	weft_net_comm_fail(tx, -EMSGSIZE);
	cr_assert(eq(uint, tx->active, 1));
	weft_net_close_comm(tx);
	fake.hold_puts = false;
	weft_net_progress(a);
	weft_net_progress(b);
	weft_net_close_listener(stay);
	(void)s;
}

/* The other side would wait for ever, or go on beside it. */
Test(stage, failing_copy_fails_on_both_sides)
{
	struct weft_net_request *r, *s = NULL;
	struct weft_net_mr *mr;
	size_t got;
	int ret = 0, i;

	cr_assert(eq(int, weft_net_register(tx, gpu, BIG, NCCL_PTR_CUDA, &mr),
		     0));
	cr_assert(eq(int, weft_net_register(rx, dst, BIG, 1, &rmr), 0));
	r = recv_now(dst, BIG);
	cuda.fake_cuda_refuse("cuMemcpyAsync", 700);
	for (i = 0; i < 50 && !s && !ret; i++) {
		ret = weft_net_send(tx, gpu, BIG, mr, &s);
		weft_net_progress(b);
	}
	cr_assert(s != NULL, "the send was never taken");
	cr_expect(lt(int, finish_late(s, &got), 0));
	cuda.fake_cuda_refuse("cuMemcpyAsync", 0);
	cr_expect(eq(int, finish_late(r, &got), -ECONNRESET));
	cr_expect(lt(int, weft_net_send(tx, gpu, BIG, mr, &s), 0));
	weft_net_deregister(rmr);
	weft_net_deregister(mr);
	weft_net_close_comm(tx);
	weft_net_close_comm(rx);
	weft_net_close_listener(listener);
}

Test(stage, failing_copy_of_a_receive_ends_its_sender)
{
	struct weft_net_request *r = NULL, *s;
	struct weft_net_mr *mr;
	size_t got;

	cr_assert(eq(int, weft_net_register(rx, gpu, BIG, NCCL_PTR_CUDA, &mr),
		     0));
	cr_assert(eq(int, weft_net_recv(rx, gpu, BIG, mr, &r), 0));
	cuda.fake_cuda_refuse("cuMemcpyAsync", 700);
	s = send_now(src, BIG);
	cr_expect(lt(int, finish_late(r, &got), 0));
	cuda.fake_cuda_refuse("cuMemcpyAsync", 0);
	finish_late(s, &got);
	step();
	cr_expect(eq(int, weft_net_send(tx, src, 1, NULL, &s), -ECONNRESET));
	cr_expect(lt(int, weft_net_recv(rx, gpu, BIG, mr, &r), 0));
	weft_net_deregister(mr);
	weft_net_close_comm(tx);
	weft_net_close_comm(rx);
	weft_net_close_listener(listener);
}

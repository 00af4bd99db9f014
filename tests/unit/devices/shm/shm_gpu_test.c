/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory over weft_shm: values, order, failures, windows. */
#include "devices/shm/shm_rx.h"
#include "tests/unit/devices/shm/shm_gpu.h"

TestSuite(shm_gpu, .init = shm_gpu_begin, .fini = shm_gpu_end, .timeout = 120);

/* ---- values -------------------------------------------------------------- */

Test(shm_gpu, bytes_arrive_between_memory_of_every_kind)
{
	static const size_t sizes[] = { 1,	  255,	 256,
					4097,	  65536, (1u << 20) + 1,
					3u << 20, LEN };
	unsigned int seed = 1;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		put_all(from, to, sizes[i], key, seed++);
		put_all(host, to, sizes[i], key, seed++);
		put_all(from, host_to, sizes[i], host_key, seed++);
		put_all(host, host_to, sizes[i], host_key, seed++);
		get_all(from, to, sizes[i], key, seed++);
		get_all(host, to, sizes[i], key, seed++);
		get_all(from, host_to, sizes[i], host_key, seed++);
		get_all(host, host_to, sizes[i], host_key, seed++);
	}
	cr_expect(zero(uint, log_lines("")));
}

/* Puts of both kinds in turn, all under way at once. */
Test(shm_gpu, many_puts_at_once_are_placed_and_end_in_order)
{
	enum { N = 60, PIECE = 100000 };
	static struct wait_op w[N];
	unsigned int i, done;

	pattern_fill(from, N * PIECE, 1);
	pattern_fill(host, N * PIECE, 1);
	for (i = 0; i < N; i++) {
		uint8_t *src = i % 3 ? from : host;
		uint8_t *dst = i % 2 ? to : host_to;

		wait_op_init(&w[i]);
		cr_assert(until(dev->ready(a.ep)));
		cr_assert(eq(int,
			     start_put(src + i * PIECE, dst + i * PIECE, PIECE,
				       i % 2 ? key : host_key, &w[i]),
			     -EINPROGRESS));
	}
	do {
		progress_all();
		for (done = 0; done < N && w[done].done; done++)
			;
		for (i = done; i < N; i++)
			cr_assert(zero(uint, w[i].done), "%u before %u", i,
				  done);
	} while (done < N);
	for (i = 0; i < N; i++)
		cr_expect(zero(int, memcmp((i % 2 ? to : host_to) + i * PIECE,
					   host + i * PIECE, PIECE)),
			  "put %u", i);
}

/* ---- order --------------------------------------------------------------- */

static unsigned int seen;

static void check_at_delivery(struct side *s, uint8_t id, void *data,
			      size_t len)
{
	cr_expect(eq(uint, id, ++seen));
	/* 1: before the fence, 2 and 3: behind it */
	if (id > 1)
		pattern_check("put", to, 65536, 7);
}

static void say_hello(uint8_t id)
{
	const struct iovec iov = { &id, 1 };

	cr_assert(zero(int, dev->message(a.ep, id, &iov, 1)));
}

Test(shm_gpu, message_behind_a_fence_waits_for_engines_and_others_do_not)
{
	struct wait_op w = WAIT_OP, next = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	pattern_fill(from, 65536, 7);
	b.hook = check_at_delivery;
	fake.fake_cuda_hold(true);
	cr_assert(eq(int, start_put(from, to, 65536, key, &w), -EINPROGRESS));
	say_hello(1);
	dev->fence(a.ep);
	say_hello(2);
	say_hello(3);
	/* the next put is not held up by them */
	cr_assert(eq(int, start_put(from, to + 65536, 65536, key, &next),
		     -EINPROGRESS));
	cr_expect(until(seen == 1));
	for (int i = 0; i < 1000; i++)
		progress_all();
	cr_expect(eq(uint, seen, 1));
	cr_expect(gt(uint, conn_of(&b)->held_bytes, 0));
	cr_expect(eq(uint, conn_of(&a)->nstaging, 0));
	fake.fake_cuda_hold(false);
	cr_expect(until(seen == 3 && w.done && next.done));
	cr_expect(zero(sz, conn_of(&b)->held_bytes));
	cr_expect(zero(sz, conn_of(&a)->fenced));
}

/* What waits at the peer is bounded: then the sender does. */
Test(shm_gpu, messages_that_wait_are_bounded)
{
	const unsigned int most = SHM_HELD / SHM_MAX_MESSAGE;
	static uint8_t big[SHM_MAX_MESSAGE];
	const struct iovec iov = { big, sizeof(big) };
	struct wait_op w = WAIT_OP;
	unsigned int n = 0;

	put_all(from, to, 65536, key, 6);
	fake.fake_cuda_hold(true);
	cr_assert(eq(int, start_put(from, to, 65536, key, &w), -EINPROGRESS));
	dev->fence(a.ep);
	for (int i = 0; i < 10000; i++) {
		if (dev->ready(a.ep))
			n += !dev->message(a.ep, 1, &iov, 1);
		progress_all();
	}
	cr_expect(all(ge(uint, n, most - 2), lt(uint, n, most)), "%u", n);
	fake.fake_cuda_hold(false);
	cr_expect(until(w.done && b.messages == n && dev->ready(a.ep)));
	cr_expect(zero(uint, a.errors));
}

/*
 * By engines and by the ring: those that the second one has held up are
 * delivered before more are read.
 */
Test(shm_gpu, messages_behind_puts_of_both_kinds_are_bounded)
{
	static uint8_t big[SHM_MAX_MESSAGE];
	const struct iovec iov = { big, sizeof(big) };
	struct wait_op w = WAIT_OP, by_ring = WAIT_OP;
	unsigned int n = 0;

	put_all(from, to, 65536, key, 6);
	cr_assert(eq(int, start_put(from, to, 65536, key, &w), -EINPROGRESS));
	cr_assert(eq(int, start_put(host, host_to, LEN, host_key, &by_ring),
		     -EINPROGRESS));
	dev->fence(a.ep);
	for (; dev->ready(a.ep); n++)
		cr_assert(zero(int, dev->message(a.ep, 1, &iov, 1)));
	for (;;) {
		side_progress(&a);
		if (conn_of(&a)->puts_sent == conn_of(&a)->fence)
			break;
		side_progress(&b);
	}
	cr_expect(yes(w.done));
	cr_expect(zero(uint, b.messages));
	for (; dev->ready(a.ep); n++)
		cr_assert(zero(int, dev->message(a.ep, 1, &iov, 1)));
	cr_expect(gt(uint, n, SHM_HELD / SHM_MAX_MESSAGE));
	cr_expect(until(by_ring.done && b.messages == n));
	cr_expect(zero(uint, b.errors));
}

/* A put that is cut is never placed, and a message behind it never comes. */
Test(shm_gpu, message_behind_a_put_that_was_cut_is_not_delivered)
{
	struct wait_op w = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	fake.fake_cuda_delay(2000);
	memset(from, 0x77, LEN);
	memset(to, 0xa5, LEN);
	cr_assert(eq(int, start_put(from, to, LEN, key, &w), -EINPROGRESS));
	dev->fence(a.ep);
	say_hello(9);
	cr_expect(until(conn_of(&b)->held_bytes));
	dev->cancel(a.ep);
	cr_expect(eq(int, w.status, -ECANCELED));
	/* no engine reads any more */
	cr_expect(zero(uint, weft_list_first(&shm_iface(a.iface)->conns,
					     struct shm_conn, link)
				     ->copies));
	/* the program's memory is its own again */
	memset(from, 0xee, LEN);
	dev->ep_destroy(b.ep);
	b.ep = NULL;
	dev->ep_destroy(a.ep);
	a.ep = NULL;
	cr_expect(until(weft_list_empty(&shm_iface(b.iface)->conns)));
	cr_expect(zero(uint, b.messages));
	for (size_t i = 0; i < LEN; i++)
		cr_assert(ne(u8, to[i], 0xee), "byte %zu", i);
}

/* ---- failures ------------------------------------------------------------ */

static void both_fail(struct wait_op *w, int err)
{
	cr_expect(until(a.errors && b.errors && w->done));
	cr_expect(eq(int, w->status, err));
	cr_expect(eq(int, a.error, -EIO));
	cr_expect(eq(int, b.error, -EIO));
	cr_expect(zero(uint, b.messages));
	cr_expect(zero(uint, a.messages));
}

Test(shm_gpu, put_whose_key_is_revoked_ends_both_endpoints)
{
	struct wait_op w = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	dev->mem_release(mem);
	mem = NULL;
	memset(to, 0xa5, 65536);
	cr_assert(eq(int, start_put(from, to, 65536, key, &w), -EINPROGRESS));
	dev->fence(a.ep);
	say_hello(9);
	both_fail(&w, -EACCES);
	for (size_t i = 0; i < 65536; i++)
		cr_assert(eq(u8, to[i], 0xa5), "byte %zu", i);
}

Test(shm_gpu, get_whose_key_is_revoked_ends_both_endpoints)
{
	const struct weft_iov iov = { from, 65536, NULL };
	struct wait_op w = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	dev->mem_release(mem);
	mem = NULL;
	cr_assert(eq(int, dev->get(a.ep, &iov, 1, (uintptr_t)to, key, &w.op),
		     -EINPROGRESS));
	both_fail(&w, -EACCES);
}

/* At the source, then at the target: who copies first, and the other. */
static void engine_fails(int nth)
{
	struct wait_op w = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	fake.fake_cuda_fail("cuMemcpyAsync", nth, WEFT_CU_OPERATING_SYSTEM);
	cr_assert(eq(int, start_put(from, to, 65536, key, &w), -EINPROGRESS));
	dev->fence(a.ep);
	say_hello(9);
	cr_expect(until(a.errors && b.errors && w.done));
	cr_expect(ne(int, w.status, 0));
	cr_expect(zero(uint, b.messages));
}

Test(shm_gpu, source_whose_engine_fails_ends_both_endpoints)
{
	engine_fails(1);
}

Test(shm_gpu, target_whose_engine_fails_ends_both_endpoints)
{
	engine_fails(2);
}

/* With copies in the engines, which are waited for. */
Test(shm_gpu, nothing_lands_once_a_key_is_revoked)
{
	struct wait_op w = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	fake.fake_cuda_delay(5000);
	memset(to, 0xa5, LEN);
	pattern_fill(from, LEN, 8);
	cr_assert(eq(int, start_put(from, to, LEN, key, &w), -EINPROGRESS));
	cr_expect(until(conn_of(&b)->copies));
	dev->mem_release(mem);
	mem = NULL;
	memset(to, 0x5a, LEN);
	cr_expect(until(a.errors && b.errors && w.done));
	for (size_t i = 0; i < LEN; i++)
		cr_assert(eq(u8, to[i], 0x5a), "byte %zu", i);
}

/* Registered as host memory, whose release does not wait for engines. */
Test(shm_gpu, nothing_lands_in_managed_memory_once_its_key_is_revoked)
{
	uint8_t *managed = fake.fake_cuda_managed(1, 65536);
	struct weft_mem *managed_mem;
	uint8_t managed_key[WEFT_RKEY_MAX];
	struct wait_op w = WAIT_OP;

	cr_assert(zero(int, dev->mem_register(managed, 65536, WEFT_MEM_HOST,
					      &managed_mem)));
	dev->mem_pack(managed_mem, managed_key);
	put_all(from, managed, 65536, managed_key, 6);
	get_all(from, managed, 65536, managed_key, 7);
	fake.fake_cuda_delay(50000);
	memset(from, 0xa5, 65536);
	cr_assert(eq(int, start_put(from, managed, 65536, managed_key, &w),
		     -EINPROGRESS));
	cr_assert(until(w.done || conn_of(&b)->copies));
	dev->mem_release(managed_mem);
	memset(managed, 0x5a, 65536);
	cr_expect(until(w.done));
	for (size_t i = 0; i < 65536; i++)
		cr_assert(eq(u8, managed[i], 0x5a), "byte %zu", i);
}

/* It has failed at the target; what it names is read all the same. */
Test(shm_gpu, put_that_fails_keeps_its_memory_until_no_engine_reads_it)
{
	struct wait_op w = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	dev->mem_release(mem);
	mem = NULL;
	fake.fake_cuda_hold(true);
	cr_assert(eq(int, start_put(from, to, LEN, key, &w), -EINPROGRESS));
	cr_assert(yes(step_until((fake.fake_cuda_step(), side_progress(&a)),
				 conn_of(&a)->out->sent > 1)));
	fake.fake_cuda_hold(true);
	cr_assert(gt(uint, conn_of(&a)->copies, 0));
	for (int i = 0; i < 2000; i++)
		progress_all();
	cr_expect(eq(int, b.error, -EIO));
	cr_expect(zero(uint, w.done));
	fake.fake_cuda_hold(false);
	both_fail(&w, -EACCES);
}

/* As another thread may, before what was read is with an engine. */
Test(shm_gpu, key_is_looked_at_when_a_copy_goes_to_the_engine)
{
	struct wait_op w = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	cr_assert(eq(int, start_put(from, to, 65536, key, &w), -EINPROGRESS));
	cr_assert(yes(
		step_until(side_progress(&a), conn_of(&a)->puts_sent == 2)));
	cr_expect(gt(uint, shm_rx_run(conn_of(&b)), 0));
	cr_expect(eq(uint, conn_of(&b)->copies, 1));
	dev->mem_release(mem);
	mem = NULL;
	memset(to, 0x5a, 65536);
	both_fail(&w, -EACCES);
	for (size_t i = 0; i < 65536; i++)
		cr_assert(eq(u8, to[i], 0x5a), "byte %zu", i);
}

/* A cancelled put that fails is no failure: its target reads on. */
Test(shm_gpu, put_that_was_cut_and_then_fails_spares_its_target)
{
	const struct weft_iov iov = { host, 64, NULL };
	struct shm_conn *conn = conn_of(&b);
	struct wait_op w = WAIT_OP, own = WAIT_OP;
	uint64_t sent;

	put_all(from, to, 65536, key, 6);
	sent = conn_of(&a)->out->sent;
	cr_assert(eq(int, start_put(from, to, LEN, key, &w), -EINPROGRESS));
	cr_assert(yes(
		step_until(side_progress(&a), conn_of(&a)->out->sent > sent)));
	cr_expect(gt(uint, shm_rx_run(conn), 0));
	dev->cancel(a.ep);
	cr_assert(yes(step_until((side_progress(&a), shm_rx_run(conn)),
				 conn->landings[1].status == -ECANCELED)));
	cr_assert(gt(uint, conn->copies, 0));
	dev->mem_release(mem);
	mem = NULL;
	cr_expect(until(!conn->copies));
	cr_assert(eq(int,
		     dev->put(b.ep, &iov, 1, (uintptr_t)host_to, host_key, NULL,
			      &own.op),
		     -EINPROGRESS));
	cr_expect(until(own.done && !own.status));
}

/* ---- windows ------------------------------------------------------------- */

Test(shm_gpu, window_is_given_back_while_both_sleep_and_had_again)
{
	struct fake_cuda_live live;

	shm_tune.idle_ms = 20;
	for (int round = 0; round < 2; round++) {
		put_all(from, to, 65536, key, 6 + round);
		cr_expect(ne(ptr, conn_of(&a)->out, NULL));
		cr_expect(ne(ptr, conn_of(&b)->in, NULL));
		while (conn_of(&a)->out) {
			while (dev->arm(a.iface))
				side_progress(&a);
			cr_assert(yes(side_is_woken(&a, WAIT_MS)));
			side_progress(&a);
		}
		cr_expect(until(!conn_of(&b)->in));
		cr_expect(zero(uint, shm_iface(b.iface)->nwindows));
		fake.fake_cuda_live(&live);
		/* the marks of both stay */
		cr_expect(eq(uint, live.pinned, 2));
	}
}

Test(shm_gpu, few_windows_of_an_interface_are_large)
{
	struct weft_ep *eps[SHM_WINDOWS + 3];
	unsigned int i, large = 0;
	struct shm_conn *conn;

	eps[0] = a.ep;
	for (i = 1; i < ARRAY_SIZE(eps); i++) {
		cr_assert(zero(int, side_dial(&a, &b)));
		cr_assert(until(dev->ready(a.ep)));
		eps[i] = a.ep;
	}
	for (i = 0; i < ARRAY_SIZE(eps); i++) {
		a.ep = eps[i];
		put_all(from, to, 5u << 20, key, i);
	}
	for (i = 0; i < ARRAY_SIZE(eps); i++) {
		conn = shm_conn(weft_ep_conn(eps[i]));
		large += conn->out->size == SHM_WINDOW;
		if (i)
			dev->ep_destroy(eps[i]);
	}
	cr_expect(eq(uint, large, SHM_WINDOWS));
	cr_expect(eq(uint, shm_iface(b.iface)->nwindows, SHM_WINDOWS));
	a.ep = eps[0];
}

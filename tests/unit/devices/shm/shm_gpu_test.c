/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory over weft_shm: its windows, and peers that lie about them. */
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/local/frame.h"
#include "devices/local/memfd.h"
#include "devices/shm/shm_ring.h"
#include "devices/shm/shm_rx.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN (20u << 20) /* more than fits a window at a time */

static const struct weft_dev_ops *const dev = &weft_shm_ops;
static uint8_t *from, *to, *host, *host_to;
static struct weft_mem *mem, *host_mem;
static uint8_t key[WEFT_RKEY_MAX], host_key[WEFT_RKEY_MAX];

static void open_sides(void)
{
	cr_assert(zero(int, side_init(&a, dev, "shm", AF_UNSPEC)));
	cr_assert(zero(int, side_init(&b, dev, "shm", AF_UNSPEC)));
	cr_assert(zero(int, side_dial(&a, &b)));
	cr_assert(zero(int, side_dial(&b, &a)));
	wait_for(dev->ready(a.ep) && dev->ready(b.ep));
}

static void begin(void)
{
	begin_pair();
	load_fake();
	open_sides();
	from = fake.fake_cuda_malloc(0, LEN);
	to = fake.fake_cuda_malloc(1, LEN);
	host = malloc(LEN);
	host_to = malloc(LEN);
	cr_assert(zero(int, dev->mem_register(to, LEN, WEFT_MEM_CUDA, &mem)));
	cr_assert(zero(int, dev->mem_register(host_to, LEN, WEFT_MEM_HOST,
					      &host_mem)));
	dev->mem_pack(mem, key);
	dev->mem_pack(host_mem, host_key);
}

static void finish(void)
{
	fake.fake_cuda_hold(false);
	if (mem)
		dev->mem_release(mem);
	dev->mem_release(host_mem);
	end_pair();
	free(host);
	free(host_to);
}

TestSuite(shm_gpu, .init = begin, .fini = finish, .timeout = 120);

static struct shm_conn *conn_of(struct side *s)
{
	return shm_conn(weft_ep_conn(s->ep));
}

static int start_put(uint8_t *src, uint8_t *dst, size_t len, const void *k,
		     struct wait_op *w)
{
	const struct weft_iov iov = { src, len, NULL };

	return dev->put(a.ep, &iov, 1, (uintptr_t)dst, k, NULL, &w->op);
}

static void put_all(uint8_t *src, uint8_t *dst, size_t len, const void *k,
		    unsigned int seed)
{
	struct wait_op w = WAIT_OP;

	pattern_fill(src, len, seed);
	memset(dst, 0xa5, len);
	cr_assert(until(dev->ready(a.ep)));
	cr_assert(eq(int, start_put(src, dst, len, k, &w), -EINPROGRESS));
	cr_assert(until(w.done));
	cr_assert(zero(int, w.status));
	pattern_check("put", dst, len, seed);
}

static void get_all(uint8_t *dst, uint8_t *src, size_t len, const void *k,
		    unsigned int seed)
{
	const struct weft_iov iov[] = {
		{ dst, len / 3, NULL }, { dst + len / 3, len - len / 3, NULL }
	};
	struct wait_op w = WAIT_OP;

	pattern_fill(src, len, seed);
	memset(dst, 0xa5, len);
	cr_assert(until(dev->ready(a.ep)));
	cr_assert(eq(int, dev->get(a.ep, iov, 2, (uintptr_t)src, k, &w.op),
		     -EINPROGRESS));
	cr_assert(until(w.done));
	cr_assert(zero(int, w.status));
	pattern_check("get", dst, len, seed);
}

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

	cr_assert(zero(int, dev->message(a.ep, id, &iov, 1, NULL)));
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
			n += !dev->message(a.ep, 1, &iov, 1, NULL);
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
		cr_assert(zero(int, dev->message(a.ep, 1, &iov, 1, NULL)));
	for (;;) {
		side_progress(&a);
		if (conn_of(&a)->puts_sent == conn_of(&a)->fence)
			break;
		side_progress(&b);
	}
	cr_expect(yes(w.done));
	cr_expect(zero(uint, b.messages));
	for (; dev->ready(a.ep); n++)
		cr_assert(zero(int, dev->message(a.ep, 1, &iov, 1, NULL)));
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

/* At the source, then at the target: the one that copies first, and the other.
 */
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

/* ---- windows ------------------------------------------------------------- */

Test(shm_gpu, window_is_given_back_while_both_sleep_and_had_again)
{
	struct fake_cuda_live live;
	struct pollfd fd = { .events = POLLIN };

	shm_tune.idle_ms = 20;
	for (int round = 0; round < 2; round++) {
		put_all(from, to, 65536, key, 6 + round);
		cr_expect(ne(ptr, conn_of(&a)->out, NULL));
		cr_expect(ne(ptr, conn_of(&b)->in, NULL));
		fd.fd = dev->event_fd(a.iface);
		while (conn_of(&a)->out) {
			while (dev->arm(a.iface))
				side_progress(&a);
			cr_assert(eq(int, poll(&fd, 1, WAIT_MS), 1));
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

/* ---- lies ---------------------------------------------------------------- */

static void say(enum shm_kind kind, const void *data, size_t len)
{
	struct shm_conn *conn = conn_of(&a);

	memcpy(shm_ring_begin(conn, len), data, len);
	shm_ring_end(conn, (struct shm_record){ .kind = kind, .len = len });
	shm_ring_wake(conn);
}

static void say_place(uint64_t pos, uint64_t len)
{
	const struct shm_place place = { pos, len };

	say(SHM_DATA_AT, &place, sizeof(place));
}

static void say_put(void)
{
	struct weft_rkey k;
	struct shm_op op;

	weft_rkey_unpack(key, &k);
	op = (struct shm_op){ .slot = k.slot,
			      .generation = k.generation,
			      .token = k.token,
			      .addr = (uintptr_t)to,
			      .len = LEN };
	say(SHM_PUT, &op, sizeof(op));
}

/* A put of the whole target, of which the liar says where bytes are. */
static void begin_lies(void)
{
	put_all(from, to, 65536, key, 6); /* position 65536 is the next */
	say_put();
}

static void is_caught(void)
{
	cr_expect(until(b.errors));
	cr_expect(eq(int, b.error, -EPROTO));
	cr_expect(eq(uint, log_lines("has damaged the ring"), 1));
}

static void place_is_caught(uint64_t pos, uint64_t len)
{
	begin_lies();
	say_place(pos, len);
	is_caught();
}

#define AT 65536u
#define PLACE(name, pos, len)                     \
	Test(shm_gpu, lie_##name##_ends_the_peer) \
	{                                         \
		place_is_caught(pos, len);        \
	}
PLACE(place_that_is_odd, AT + 1, 64)
PLACE(place_that_is_free, 0, 64)
PLACE(place_beyond_the_window, AT + SHM_WINDOW, 64)
PLACE(bytes_over_the_end, SHM_WINDOW - 256, 257)
PLACE(more_than_a_window, AT, (uint64_t)SHM_WINDOW + 1)
PLACE(length_that_wraps, AT, (uint64_t)-1)
PLACE(no_bytes, AT, 0)

Test(shm_gpu, lie_more_bytes_than_the_put_end_the_peer)
{
	const struct shm_op op = { .len = 64 };

	put_all(from, to, 65536, key, 6);
	say(SHM_PUT, &op, sizeof(op));
	say_place(AT, 65);
	is_caught();
}

/* Whose end is the begin of all positions. */
Test(shm_gpu, lie_place_far_beyond_ends_the_peer)
{
	conn_of(&a)->wanted = true;
	say(SHM_WANT, "", 0);
	say_put();
	say_place(-(uint64_t)SHM_CHUNK_ALIGN, SHM_CHUNK_ALIGN);
	is_caught();
}

Test(shm_gpu, lie_place_that_is_being_read_ends_the_peer)
{
	begin_lies();
	fake.fake_cuda_hold(true);
	say_place(AT, 512);
	say_place(AT + 256, 256);
	cr_expect(until(conn_of(&b)->base.state == WEFT_CONN_BROKEN));
	fake.fake_cuda_hold(false);
	is_caught();
}

Test(shm_gpu, lie_bytes_without_a_put_end_the_peer)
{
	put_all(from, to, 65536, key, 6);
	say_place(AT, 64);
	is_caught();
}

Test(shm_gpu, lie_bytes_without_a_window_end_the_peer)
{
	const struct shm_op op = { .len = 64 };

	say(SHM_PUT, &op, sizeof(op));
	say_place(0, 64);
	is_caught();
}

/* Which would be a signal. */
Test(shm_gpu, lie_reply_for_gpu_memory_by_the_ring_ends_the_peer)
{
	const struct weft_iov iov = { to, 64, NULL };
	struct wait_op w = WAIT_OP;

	memset(to, 0xa5, 64);
	memset(host, 0x5a, 64);
	cr_assert(
		eq(int,
		   dev->get(b.ep, &iov, 1, (uintptr_t)host_to, host_key, &w.op),
		   -EINPROGRESS));
	say(SHM_REPLY, host, 64);
	cr_expect(yes(step_until(side_progress(&b), b.errors)));
	is_caught();
	cr_expect(yes(w.done && w.status));
	cr_expect(eq(u8, to[0], 0xa5));
}

Test(shm_gpu, lie_second_window_wanted_ends_the_peer)
{
	put_all(from, to, 65536, key, 6);
	say(SHM_WANT, "", 0);
	is_caught();
}

Test(shm_gpu, lie_window_left_that_was_not_made_ends_the_peer)
{
	say(SHM_LEAVE, "", 0);
	is_caught();
}

Test(shm_gpu, lie_window_left_in_use_ends_the_peer)
{
	begin_lies();
	fake.fake_cuda_hold(true);
	say_place(AT, 65536);
	cr_expect(until(conn_of(&b)->copies));
	say(SHM_LEAVE, "", 0);
	for (int i = 0; i < 1000; i++)
		progress_all();
	/* the engine has it: the end waits for that */
	cr_expect(zero(uint, b.errors));
	fake.fake_cuda_hold(false);
	is_caught();
}

Test(shm_gpu, lie_bytes_read_that_were_not_sent_end_the_peer)
{
	struct wait_op w = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	atomic_store(&conn_of(&b)->rx.shared->window, 1u << 30);
	cr_assert(eq(int, start_put(from, to, LEN, key, &w), -EINPROGRESS));
	cr_expect(until(a.errors));
	cr_expect(eq(int, a.error, -EPROTO));
	cr_expect(eq(uint, log_lines("bytes of its window read than were sent"),
		     1));
}

/* Messages that no put will release are not kept without end. */
Test(shm_gpu, lie_messages_that_wait_for_no_put_end_the_peer)
{
	struct shm_conn *conn = conn_of(&a);
	static const uint8_t big[SHM_MAX_MESSAGE];

	for (unsigned int i = 0; i <= SHM_HELD / SHM_MAX_MESSAGE; i++) {
		cr_assert(until(b.errors ||
				shm_ring_has_room(conn, sizeof(big))));
		if (b.errors)
			break;
		memcpy(shm_ring_begin(conn, sizeof(big)), big, sizeof(big));
		shm_ring_end(conn, (struct shm_record){ .kind = SHM_MESSAGE,
							.len = sizeof(big),
							.fenced = 1,
							.fence = 1000 });
		shm_ring_wake(conn);
	}
	is_caught();
	cr_expect(zero(uint, b.messages));
}

/* b reads no window: it wants one, and gets what a liar sends. */
static void frame_is_caught(size_t size, int fd, bool wanted)
{
	const struct shm_frame f = { SHM_FRAME_MAGIC, SHM_FRAME_WINDOW, size };

	conn_of(&b)->wanted = wanted;
	cr_assert(
		zero(int, weft_frame_send(conn_of(&a)->fd, &f, sizeof(f), fd)));
	if (fd >= 0)
		close(fd);
	cr_expect(until(b.errors));
	cr_expect(yes(b.error == -EPROTO || b.error == -EINVAL), "%d", b.error);
}

static int sealed(size_t size)
{
	void *p;

	return weft_memfd_make("liar", size, &p);
}

Test(shm_gpu, lie_window_that_was_not_wanted_ends_the_peer)
{
	frame_is_caught(SHM_WINDOW, sealed(SHM_WINDOW), false);
}

Test(shm_gpu, lie_window_of_another_size_ends_the_peer)
{
	frame_is_caught(4096, sealed(4096), true);
}

Test(shm_gpu, lie_window_that_is_smaller_than_it_says_ends_the_peer)
{
	frame_is_caught(SHM_WINDOW, sealed(SHM_WINDOW_SMALL), true);
}

Test(shm_gpu, lie_window_without_memory_ends_the_peer)
{
	frame_is_caught(SHM_WINDOW, -1, true);
}

Test(shm_gpu, lie_window_that_may_shrink_ends_the_peer)
{
	const int fd = memfd_create("liar", MFD_CLOEXEC);

	cr_assert(zero(int, ftruncate(fd, SHM_WINDOW)));
	frame_is_caught(SHM_WINDOW, fd, true);
}

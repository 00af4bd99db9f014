/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives over a device that does what the test says. */
#include "nccl_net/net/xfer.h"
#include "tests/unit/nccl_net/pair.h"

TestSuite(net, .timeout = 20);

Test(net, moves_every_size, .init = connected)
{
	static const size_t sizes[] = {
		0, 1, 7, 8, 4087, 4088, 4089, 4096, 65536, 300001,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		transfer(sizes[i], sizes[i]);
		transfer(sizes[i], BIG - 8);
	}
}

Test(net, small_sends_wait_for_no_receive, .init = connected)
{
	struct weft_net_request *s[8], *r;
	size_t got;
	int i;

	for (i = 0; i < 8; i++) {
		s[i] = NULL;
		cr_assert(eq(int, weft_net_send(tx, src + i, 100, NULL, &s[i]),
			     0));
		cr_assert(s[i] != NULL, "send %d waits", i);
		cr_expect(eq(int, finish(s[i], &got), 0));
	}
	for (i = 0; i < 8; i++) {
		r = recv_now(dst, 200);
		cr_expect(eq(int, finish(r, &got), 0));
		cr_expect(eq(sz, got, 100));
		cr_expect(memcmp(dst, src + i, 100) == 0, "order of %d", i);
	}
}

Test(net, small_sends_stop_when_far_ahead, .init = connected)
{
	struct weft_net_request *s;
	size_t got;
	unsigned int n = 0;

	for (;; n++) {
		cr_assert(n < 1000, "nothing bounds what the receiver keeps");
		s = NULL;
		cr_assert(eq(int, weft_net_send(tx, src, 10, NULL, &s), 0));
		if (!s)
			break;
		finish(s, &got);
	}
	cr_expect(eq(uint, n, WEFT_NET_AHEAD));
	for (; n; n--)
		cr_expect(eq(int, finish(recv_now(dst, 10), &got), 0));
	cr_expect(eq(int, finish(send_now(src, 10), &got), 0));
}

Test(net, a_large_send_waits_for_its_receive, .init = connected)
{
	struct weft_net_request *s = NULL, *r;
	size_t got;

	cr_assert(eq(int, weft_net_send(tx, src, BIG, NULL, &s), 0));
	cr_expect(s == NULL);
	r = recv_now(dst, BIG);
	s = send_now(src, BIG);
	cr_expect(eq(int, finish(s, &got), 0));
	cr_expect(eq(int, finish(r, &got), 0));
	cr_expect(memcmp(src, dst, BIG) == 0);
}

Test(net, no_post_is_sent_while_all_sends_are_small, .init = connected)
{
	unsigned int i, before;

	for (i = 0; i < 40; i++)
		transfer(64, 1000);
	before = fake.by_id[WEFT_MSG_POST];
	for (i = 0; i < 40; i++)
		transfer(64, 1000);
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_POST], before));
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_QUIET], 1));
	for (i = 0; i < 3; i++)
		transfer(100000, BIG - 8);
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_NEED], 1));
	for (i = 0; i < 40; i++)
		transfer(64, 1000);
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_QUIET], 2));
}

#define PIECE 100000u /* no message */

/* More than one message holds, so that two go: a full one and the rest. */
Test(net, posts_are_gathered_into_messages, .init = connected)
{
	enum { FULL = WEFT_NET_POSTS / WEFT_MSG_POST_LEN(8 /* the fake's */) };
	struct weft_net_request *r[FULL - 1], *other[2];
	const unsigned int before = fake.by_id[WEFT_MSG_POST];
	struct weft_net_comm *tx2, *rx2;
	struct weft_net_mr *mr;
	size_t got, i;

	join(a, b, &tx2, &rx2);
	cr_assert(eq(int, weft_net_register(rx2, dst, BIG, 1, &mr), 0));
	for (i = 0; i < 2; i++) {
		other[i] = NULL;
		cr_assert(eq(int,
			     weft_net_recv(rx2, dst + i * 8, 8, mr, &other[i]),
			     0));
	}
	for (i = 0; i < ARRAY_SIZE(r); i++)
		r[i] = recv_now(dst + i * 8, PIECE);
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_POST], before + 1),
		  "a full one");
	step();
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_POST], before + 2));
	step();
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_POST], before + 2));
	for (i = 0; i < ARRAY_SIZE(r); i++) {
		struct weft_net_request *s = send_now(src + i, PIECE);

		cr_expect(eq(int, finish(s, &got), 0));
		cr_expect(eq(int, finish(r[i], &got), 0));
		cr_expect(memcmp(src + i, dst + i * 8, PIECE) == 0, "%zu", i);
	}
}

/* A closed comm's message may not overtake what it owes. */
Test(net, posts_are_sent_before_close, .init = connected)
{
	struct weft_net_request *r = recv_now(dst, PIECE);
	const unsigned int before = fake.by_id[WEFT_MSG_POST];

	cr_assert(r != NULL);
	weft_net_close_comm(rx);
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_POST], before + 1));
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_BYE], 1));
}

Test(net, testing_requests_in_turn_progresses_once, .init = connected)
{
	struct weft_net_request *r[8];
	bool done;
	size_t got, i, round;

	for (i = 0; i < ARRAY_SIZE(r); i++)
		r[i] = recv_now(dst, PIECE);
	for (round = 0; round < 4; round++) {
		const uint64_t calls = b->calls;

		for (i = 0; i < ARRAY_SIZE(r); i++) {
			cr_assert(eq(int, weft_net_test(r[i], &done, &got), 0));
			cr_expect(done == false);
		}
		cr_expect(eq(u64, b->calls, calls + 1));
	}
	/* and alone each time */
	for (round = 0; round < 4; round++) {
		const uint64_t calls = b->calls;

		weft_net_test(r[3], &done, &got);
		weft_net_test(r[3], &done, &got);
		cr_expect(ge(u64, b->calls, calls + 1));
	}
}

Test(net, at_most_32_requests_are_in_flight, .init = connected)
{
	struct weft_net_request *r[WEFT_NET_REQUESTS + 1],
		*s[WEFT_NET_REQUESTS];
	size_t got;
	int i;

	for (i = 0; i < WEFT_NET_REQUESTS; i++)
		r[i] = recv_now(dst + i * 8192, 8192);
	cr_assert(eq(int, weft_net_recv(rx, dst, 8, rmr, &r[WEFT_NET_REQUESTS]),
		     0));
	cr_expect(r[WEFT_NET_REQUESTS] == NULL);
	for (i = 0; i < WEFT_NET_REQUESTS; i++)
		s[i] = send_now(src + i * 8192, 8192 - i);
	/* Tested in another order than posted. */
	for (i = WEFT_NET_REQUESTS - 1; i >= 0; i--) {
		cr_expect(eq(int, finish(r[i], &got), 0));
		cr_expect(eq(sz, got, 8192 - i));
		cr_expect(eq(int, finish(s[i], &got), 0));
		cr_expect(memcmp(dst + i * 8192, src + i * 8192, 8192 - i) ==
			  0);
	}
}

Test(net, full_wire_delays_requests_without_error, .init = connected)
{
	int i;

	for (i = 0; i < 100; i++) {
		fake.busy = i % 4;
		transfer(i % 2 ? 100 : 100000, BIG - 8);
	}
}

static void larger_fails(size_t size, size_t room, bool posted_first)
{
	struct weft_net_request *r = NULL, *s = NULL;
	size_t got;
	int ret = 0, i;

	if (posted_first)
		r = recv_now(dst, room);
	weft_net_progress(a);
	for (i = 0; i < 50 && !s && !ret; i++) {
		ret = weft_net_send(tx, src, size, NULL, &s);
		weft_net_progress(b);
		if (!r)
			r = recv_now(dst, room);
	}
	cr_expect(eq(int, finish(r, &got), -EMSGSIZE));
	weft_net_progress(a);
	if (s)
		ret = weft_net_send(tx, src, 1, NULL, &s);
	cr_expect(eq(int, ret, -EMSGSIZE));
	cr_expect(ge(uint, errors, 2));
	cr_expect(strstr(last_error, "met a receive of") != NULL, "%s",
		  last_error);
	cr_expect(dst[room] == 0x5a, "bytes behind the receive were written");
}

Test(net, a_larger_send_fails_on_both_sides, .init = connected)
{
	larger_fails(BIG, 1000, true);
}

Test(net, a_larger_small_send_fails_on_both_sides, .init = connected)
{
	larger_fails(101, 100, false);
}

Test(net, a_larger_small_send_fails_when_posted, .init = connected)
{
	larger_fails(101, 100, true);
}

/* regIsGlobal, which is set where all comms are TCP's. */
Test(net, registration_is_valid_for_all_comms, .init = connected)
{
	struct weft_net_comm *tx2, *rx2, *first_tx = tx, *first_rx = rx;
	struct weft_net_request *r, *s = NULL;
	struct weft_net_props p;
	struct weft_net_mr *smr;
	size_t got;
	int i;

	cr_assert(eq(int, weft_net_properties(0, &p), 0));
	cr_assert(eq(int, p.reg_is_global, 1));
	join(a, b, &tx2, &rx2);
	cr_assert(eq(int, weft_net_register(first_tx, src, BIG, 1, &smr), 0));
	weft_net_close_comm(first_tx);
	weft_net_close_comm(first_rx);
	tx = tx2;
	rx = rx2;
	r = recv_now(dst, BIG);
	for (i = 0; i < 50 && !s; i++) {
		cr_assert(eq(int, weft_net_send(tx, src, BIG, smr, &s), 0));
		step();
	}
	cr_assert(s != NULL, "the send was never taken");
	cr_expect(eq(int, finish(s, &got), 0));
	cr_expect(eq(int, finish(r, &got), 0));
	cr_expect(memcmp(src, dst, BIG) == 0);
	weft_net_deregister(smr);
	weft_net_deregister(rmr);
}

Test(net, memory_outside_its_registration_is_refused, .init = connected)
{
	struct weft_net_request *r = NULL;
	struct weft_net_mr *mr;

	cr_assert(eq(int, weft_net_register(rx, dst + 4096, 4096, 1, &mr), 0));
	cr_expect(eq(int, weft_net_recv(rx, dst + 4095, 10, mr, &r), -EINVAL));
	cr_expect(eq(int, weft_net_recv(rx, dst + 8190, 10, mr, &r), -EINVAL));
	cr_expect(eq(int, weft_net_recv(rx, dst + 4096, SIZE_MAX, mr, &r),
		     -EINVAL));
	cr_expect(r == NULL);
	cr_expect(eq(int, weft_net_register(rx, dst, 4096, 2, &mr), -EINVAL));
}

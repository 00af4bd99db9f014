/* SPDX-License-Identifier: BSD-3-Clause */
/* What peers have written to GPU memory, read back to have it there. */
#include <poll.h>

#include "tests/unit/devices/ib_gpu.h"
#include "util/verbs.h"

TestSuite(ib_flush, .init = load, .fini = end, .timeout = 300);

static bool all_done(unsigned int n)
{
	while (n--)
		if (!flushes[n].done)
			return false;
	return true;
}

Test(ib_flush, flushes_are_told_of)
{
	struct weft_mem *mem;
	unsigned int i;

	pair_up();
	cr_assert(zero(int, ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					     &mem)));
	cr_expect(eq(int, flush(0, mem, 0), -EINVAL));
	cr_assert(zero(int, weft_ib_flush_prepare(b.iface)));
	cr_assert(zero(int, weft_ib_flush_prepare(b.iface)));
	/* more than the queue pair has room for */
	for (i = 0; i < 100; i++)
		cr_assert(eq(int, flush(i, mem, i % 2 ? LEN - 1 : 0),
			     -EINPROGRESS));
	cr_expect(until(all_done(100)));
	for (i = 0; i < 100; i++)
		cr_expect(zero(int, flushes[i].status));
	cr_expect(zero(uint, lines()), "%s", logged);
	ib->mem_release(mem);
	pair_down();
}

/* Whose memory is not there fails; nobody else. */
Test(ib_flush, a_flush_that_fails_is_alone)
{
	struct weft_mem *mem;
	unsigned int i, round;

	pair_up();
	cr_assert(zero(int, ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					     &mem)));
	cr_assert(zero(int, weft_ib_flush_prepare(b.iface)));
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 80; i++)
			cr_assert(eq(int, flush(i, mem, i == 7 ? LEN : 0),
				     -EINPROGRESS));
		cr_expect(until(all_done(80)));
		for (i = 0; i < 80; i++)
			cr_expect(eq(int, flushes[i].status,
				     i == 7 ? -EIO : 0), "%u", i);
		cr_expect(eq(uint, lines(), round + 1), "%s", logged);
	}
	cr_expect(yes(strstr(logged, "fake1:1")), "%s", logged);
	ib->mem_release(mem);
	pair_down();
}

/*
 * Nobody waits for what can no longer be learnt.  Without @call the adapter
 * tells of it, which it may do behind a completion: here there is none.
 */
static void queue_fails(const char *call)
{
	struct weft_mem *mem;

	cr_assert(zero(int, open_side(&b, "fake1:1")));
	cr_assert(zero(int, ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					     &mem)));
	cr_assert(zero(int, weft_ib_flush_prepare(b.iface)));
	fake_verbs_cut(!call);
	cr_assert(eq(int, flush(0, mem, 0), -EINPROGRESS));
	if (call)
		fake_verbs_fail_call(call);
	else
		fake_verbs_event(1, IBV_EVENT_CQ_ERR);
	while (!flushes[0].done) {
		ib->arm(b.iface);
		ib->progress(b.iface);
	}
	fake_verbs_fail_call(NULL);
	fake_verbs_cut(false);
	cr_expect(eq(int, flushes[0].status, -EIO));
	cr_expect(eq(int, flush(1, mem, 0), -EIO));
	cr_expect(yes(strstr(logged, "fake1:1")), "%s", logged);
	ib->mem_release(mem);
	close_side(&b);
	nothing_lives("closing");
}

Test(ib_flush, a_queue_that_cannot_be_polled)
{
	queue_fails("poll_cq");
}

Test(ib_flush, a_queue_that_cannot_be_asked_for_events)
{
	queue_fails("req_notify_cq");
}

Test(ib_flush, a_queue_that_the_adapter_gives_up)
{
	queue_fails(NULL);
}

Test(ib_flush, forgotten_flushes_are_not_told)
{
	struct weft_mem *mem;

	pair_up();
	cr_assert(zero(int, ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					     &mem)));
	cr_assert(zero(int, weft_ib_flush_prepare(b.iface)));
	cr_assert(eq(int, flush(0, mem, 0), -EINPROGRESS));
	cr_assert(eq(int, flush(1, mem, 0), -EINPROGRESS));
	weft_ib_flush_forget(b.iface, &flushes[0].op);
	cr_expect(until(flushes[1].done));
	cr_expect(yes(!flushes[0].done));
	/* nor at the interface's end */
	cr_assert(eq(int, flush(0, mem, 0), -EINPROGRESS));
	weft_ib_flush_forget(b.iface, &flushes[0].op);
	ib->mem_release(mem);
	pair_down();
	cr_expect(yes(!flushes[0].done));
}

/* Sleeps on the descriptor between looks; false: nobody rang. */
static bool woken(void)
{
	struct pollfd fd = { .fd = ib->event_fd(b.iface), .events = POLLIN };

	while (!flushes[0].done) {
		if (!ib->arm(b.iface) && poll(&fd, 1, WAIT_MS) <= 0)
			return false;
		ib->progress(b.iface);
	}
	return true;
}

/* Without peers, whose watchdog would ring, too. */
Test(ib_flush, who_sleeps_is_woken_by_a_flush)
{
	struct weft_mem *mem;

	cr_assert(zero(int, open_side(&b, "fake1:1")));
	cr_assert(zero(int, ib->mem_register(gpu_b + AT, LEN, WEFT_MEM_CUDA,
					     &mem)));
	cr_assert(zero(int, weft_ib_flush_prepare(b.iface)));
	cr_assert(eq(int, flush(0, mem, 0), -EINPROGRESS));
	cr_expect(yes(woken()));
	ib->mem_release(mem);
	close_side(&b);
	nothing_lives("closing");
}

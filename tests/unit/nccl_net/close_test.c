/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection that takes its time to close, beside others of its context. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>
#include "tests/unit/nccl_net/pair.h"
#include "util/clock.h"

/*
 * Both ends in one context, as with a process of its own (net API v6 to v10).
 */
static struct weft_net_comm *busy_tx, *busy_rx;
static struct weft_net_mr *busy_mr;
static char *busy_dst;
static atomic_bool closed;

/* A clock that stalls: no deadline is ever met. */
static uint64_t standing_clock(void)
{
	return 1000000000;
}

static void two_pairs(void)
{
	init();
	weft_net_close(b);
	b = a;
	join(a, a, &busy_tx, &busy_rx);
	weft_net_close_listener(listener);
	join(a, a, &tx, &rx);
	busy_dst = malloc(BIG);
	cr_assert(eq(int,
		     weft_net_register(busy_rx, busy_dst, BIG, 1, &busy_mr),
		     0));
	cr_assert(eq(int, weft_net_register(rx, dst, BIG, 1, &rmr), 0));
	weft_clock_set(standing_clock);
}

TestSuite(close, .init = two_pairs, .timeout = 30);

static void *close_it(void *comm)
{
	weft_net_close_comm(comm);
	atomic_store(&closed, true);
	return NULL;
}

static unsigned int progressed(void)
{
	unsigned int n;

	pthread_mutex_lock(&a->lock);
	n = fake.progressed;
	pthread_mutex_unlock(&a->lock);
	return n;
}

/* Returns when the closing is under way. */
static pthread_t close_beside(struct weft_net_comm *comm)
{
	const unsigned int before = progressed();
	pthread_t t;

	cr_assert(eq(int, pthread_create(&t, NULL, close_it, comm), 0));
	while (progressed() == before && !atomic_load(&closed))
		sched_yield();
	return t;
}

/* The fake is protected by the context's lock. */
static void set_fake(bool hold_puts, unsigned int busy)
{
	pthread_mutex_lock(&a->lock);
	fake.hold_puts = hold_puts;
	fake.busy = busy;
	pthread_mutex_unlock(&a->lock);
}

static void begin_large_send(void)
{
	struct weft_net_request *r = NULL, *s = NULL;

	cr_assert(
		eq(int, weft_net_recv(busy_rx, busy_dst, BIG, busy_mr, &r), 0));
	while (!s)
		cr_assert(
			eq(int, weft_net_send(busy_tx, src, BIG, NULL, &s), 0));
	cr_assert(r != NULL);
}

Test(close, closing_with_sends_pending_blocks_no_other_connection)
{
	char handle[WEFT_NET_HANDLE];
	struct weft_net_listener *second;
	struct weft_net_comm *c = NULL;
	unsigned int i;
	pthread_t t;

	set_fake(true, 0);
	begin_large_send();
	t = close_beside(busy_tx);
	for (i = 0; i < 20; i++)
		transfer(100, 100);
	cr_assert(eq(int, weft_net_listen(a, 0, handle, &second), 0));
	cr_assert(eq(int, weft_net_accept(second, &c), 0));
	weft_net_close_listener(second);
	cr_expect(not(closed), "nothing was under way");
	set_fake(false, 0);
	pthread_join(t, NULL);
	/* and it was waited for */
	cr_expect(eq(uint, errors, 0), "%s", last_error);
	cr_expect(memcmp(busy_dst, src, BIG) == 0);
	transfer(100, 100);
}

Test(close, closing_on_a_full_wire_blocks_no_other_connection)
{
	struct weft_net_request *r = recv_now(dst, 100);
	bool done = true;
	unsigned int i;
	size_t got;
	pthread_t t;

	set_fake(false, -1u);
	t = close_beside(busy_tx);
	for (i = 0; i < 20; i++) {
		cr_expect(eq(int, weft_net_test(r, &done, &got), 0));
		cr_expect(not(done));
	}
	cr_expect(not(closed), "nothing was under way");
	set_fake(false, 0);
	pthread_join(t, NULL);
	cr_expect(eq(uint, fake.by_id[WEFT_MSG_BYE], 1));
	cr_expect(eq(uint, errors, 0), "%s", last_error);
}

/* As when NCCL unloads the plugin: nothing may be left when close returns. */
Test(close, context_may_close_while_a_comm_is_closing)
{
	pthread_t t;

	set_fake(true, 0);
	begin_large_send();
	t = close_beside(busy_tx);
	weft_net_close(a);
	cr_expect(eq(uint, a->closing, 0)); /* no thread is inside */
	pthread_join(t, NULL);
	cr_expect(eq(uint, fake.ifaces, 0));
	cr_expect(eq(uint, fake.eps, 0));
	weft_net_close_comm(tx);
}

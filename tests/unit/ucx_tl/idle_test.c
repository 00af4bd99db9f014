/* SPDX-License-Identifier: BSD-3-Clause */
/* Who rests when there is nothing to do, and who never does. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include "bootstrap/settings.h"
#include "tests/unit/ucx_tl/fake.h"
#include "ucx_tl/load.h"
#include "ucx_tl/uct.h"

#define FRUITLESS 100 /* calls per interface before the first rest */

static struct weft_uct uct;
static struct weft_uct_iface ifaces[3];
static unsigned int rests;
static nfds_t watched;
static long limit_ns;

/* In the C library's stead: no rest is taken, each is counted. */
int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *limit,
	  const sigset_t *mask)
{
	rests++;
	watched = n;
	limit_ns = limit->tv_nsec;
	return 0;
}

static struct weft_uct_iface *join(unsigned int i, const void *worker)
{
	struct weft_uct_iface *iface = &ifaces[i];

	iface->uct = &uct;
	iface->dev = &weft_tcp_ops;
	iface->iface = &fake.iface;
	weft_list_init(&iface->eps);
	weft_list_init(&iface->waiting);
	weft_list_init(&iface->ended);
	cr_assert_eq(weft_uct_idle_join(iface, worker), 0);
	return iface;
}

static void leave(unsigned int n)
{
	while (n--)
		weft_uct_idle_leave(&ifaces[n]);
}

static void fruitless(struct weft_uct_iface *iface, unsigned int calls)
{
	while (calls--)
		weft_uct_idle_rest(iface, 0);
}

static void setup(void)
{
	fake_reset();
	clearenv();
	weft_settings_reset();
}

TestSuite(idle, .init = setup, .timeout = 5);

Test(idle, who_polls_on_purpose_never_rests)
{
	struct weft_uct_iface *iface = join(0, "worker");

	fruitless(iface, 100 * FRUITLESS);
	cr_expect_eq(rests, 0);
	leave(1);
}

Test(idle, who_spins_in_vain_rests)
{
	struct weft_uct_iface *iface = join(0, "worker");

	weft_uct_event_driven();
	fruitless(iface, FRUITLESS - 1);
	cr_expect_eq(rests, 0);
	fruitless(iface, 1);
	cr_expect_eq(rests, 1);
	cr_expect_eq(watched, 1);
	cr_expect_eq(limit_ns, 200000, "WEFT_UCX_IDLE_WAIT is 200 us");
	fruitless(iface, 10);
	cr_expect_eq(rests, 11, "each further call is fruitless, too");

	/* something came, or the program sleeps by itself */
	weft_uct_idle_rest(iface, 1);
	fruitless(iface, FRUITLESS - 1);
	cr_expect_eq(rests, 11);
	weft_uct_idle_armed(iface);
	fruitless(iface, FRUITLESS - 1);
	cr_expect_eq(rests, 11);
	leave(1);
}

Test(idle, nobody_rests_on_what_waits_to_be_delivered)
{
	struct weft_uct_iface *iface = join(0, "worker");

	weft_uct_event_driven();
	fake.arm = -EBUSY;
	fruitless(iface, 2 * FRUITLESS);
	cr_expect_eq(rests, 0);
	fake.arm = 0;
	fruitless(iface, 1);
	cr_expect_eq(rests, 1);
	leave(1);
}

/* A worker with several interfaces, and one that is none of its business. */
Test(idle, once_per_round_over_a_workers_interfaces)
{
	struct weft_uct_iface *a = join(0, "worker"), *b = join(1, "worker");
	struct weft_uct_iface *other = join(2, "other");

	weft_uct_event_driven();
	for (int i = 0; i < FRUITLESS; i++) {
		fruitless(a, 1);
		cr_expect_eq(rests, 0);
		fruitless(b, 1);
	}
	cr_expect_eq(rests, 1);
	cr_expect_eq(watched, 2);
	fruitless(a, 1);
	cr_expect_eq(rests, 1);
	fruitless(b, 1);
	cr_expect_eq(rests, 2);
	fruitless(other, FRUITLESS - 1);
	cr_expect_eq(rests, 2);
	fruitless(other, 1);
	cr_expect_eq(rests, 3);
	cr_expect_eq(watched, 1);

	/* what has left is watched no longer */
	weft_uct_idle_leave(b);
	fruitless(a, 2 * FRUITLESS);
	cr_expect_gt(rests, 3);
	cr_expect_eq(watched, 1);
	weft_uct_idle_leave(other);
	weft_uct_idle_leave(a);
}

Test(idle, zero_turns_it_off)
{
	struct weft_uct_iface *iface;

	setenv("WEFT_UCX_IDLE_WAIT", "0", 1);
	weft_settings_reset();
	iface = join(0, "worker");
	weft_uct_event_driven();
	fruitless(iface, 10 * FRUITLESS);
	cr_expect_eq(rests, 0);
	leave(1);
}

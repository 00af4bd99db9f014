/* SPDX-License-Identifier: BSD-3-Clause */
/* How comms come to be: listeners, connects, and those that are given up. */
#include "nccl_net/net/accept.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "tests/unit/nccl_net/pair.h"
#include "util/clock.h"

static uint64_t fake_ns = 1000000000;

static uint64_t fake_clock(void)
{
	return fake_ns;
}

TestSuite(connect, .timeout = 20);

Test(connect, many_comms_share_one_endpoint, .init = init)
{
	struct weft_net_comm *s[64], *r[64];
	int i;

	for (i = 0; i < 64; i++) {
		join(a, b, &s[i], &r[i]);
		weft_net_close_listener(listener);
	}
	cr_expect(eq(uint, fake.eps, 2));
	for (i = 0; i < 64; i++) {
		tx = s[i];
		rx = r[63 - i];
		weft_net_close_comm(s[i]);
		weft_net_close_comm(r[63 - i]);
	}
	cr_expect(eq(uint, fake.eps, 0));
	cr_expect(eq(uint, fake.ifaces, 0));
}

Test(connect, process_connects_to_itself, .init = init)
{
	b = a;
	join(a, a, &tx, &rx);
	cr_assert(eq(int, weft_net_register(rx, dst, BIG, 1, &rmr), 0));
	transfer(100, 100);
	transfer(100000, 100000);
}

Test(connect, one_listener_accepts_many, .init = init)
{
	struct weft_net_comm *s[5] = { 0 }, *r[5] = { 0 };
	char handle[5][WEFT_NET_HANDLE];
	int i, k;

	cr_assert(eq(int, weft_net_listen(b, 0, handle[0], &listener), 0));
	for (i = 1; i < 5; i++)
		memcpy(handle[i], handle[0], WEFT_NET_HANDLE);
	for (k = 0; k < 20; k++)
		for (i = 0; i < 5; i++) {
			if (!s[i])
				weft_net_connect(a, 0, handle[i], &s[i]);
			if (!r[i])
				weft_net_accept(listener, &r[i]);
		}
	for (i = 0; i < 5; i++)
		cr_expect(s[i] && r[i], "connection %d", i);
}

static int connect_ends(char *handle)
{
	struct weft_net_comm *c = NULL;
	int ret = 0, i;

	for (i = 0; i < 10000 && !c && !ret; i++) {
		ret = weft_net_connect(a, 0, handle, &c);
		fake_ns += 50 * 1000000;
	}
	return ret;
}

Test(connect, connecting_ends_in_bounded_time, .init = init)
{
	char handle[WEFT_NET_HANDLE];

	cr_assert(eq(int, weft_net_listen(b, 0, handle, &listener), 0));
	weft_clock_set(fake_clock);
	/* b makes no progress: no answer comes. */
	cr_expect(eq(int, connect_ends(handle), -ETIMEDOUT));
	cr_expect(strstr(last_error, "no answer") != NULL, "%s", last_error);
	fake.refuse_eps = true;
	cr_expect(eq(int, connect_ends(handle), -ECONNREFUSED));
	cr_expect(strstr(last_error, "refused") != NULL, "%s", last_error);
	fake.unreachable = true;
	cr_expect(eq(int, connect_ends(handle), -EHOSTUNREACH));
	cr_expect(strstr(last_error, "NCCL_SOCKET_IFNAME") != NULL, "%s",
		  last_error);
}

/* An aborted NCCL stops asking, and was given nothing that it could close. */
Test(connect, connection_that_is_no_longer_polled_ends, .init = init)
{
	char handle[WEFT_NET_HANDLE], own[WEFT_NET_HANDLE];
	struct weft_net_listener *second;
	struct weft_net_comm *c = NULL;

	cr_assert(eq(int, weft_net_listen(b, 0, handle, &listener), 0));
	weft_clock_set(fake_clock);
	cr_assert(eq(int, weft_net_connect(a, 0, handle, &c), 0));
	cr_assert(c == NULL);
	cr_expect(ne(uint, fake.eps, 0));
	fake_ns += 59 * 1000000000ull;
	cr_assert(eq(int, weft_net_listen(a, 0, own, &second), 0));
	cr_expect(ne(uint, fake.eps, 0), "it may still be asked for");
	fake_ns += 2 * 1000000000ull;
	weft_net_close_listener(second);
	weft_net_close_listener(listener);
	cr_expect(eq(uint, fake.eps, 0));
	cr_expect(eq(uint, fake.ifaces, 0));
}

/* The same, where the other side has taken the connection meanwhile. */
Test(connect, abandoned_connection_fails_its_accepted_comm, .init = connected)
{
	char handle[WEFT_NET_HANDLE], own[WEFT_NET_HANDLE];
	struct weft_net_listener *second, *third;
	struct weft_net_comm *c = NULL, *half = NULL;
	struct weft_net_request *req;
	size_t got;
	int i;

	cr_assert(eq(int, weft_net_listen(b, 0, handle, &second), 0));
	weft_clock_set(fake_clock);
	cr_assert(eq(int, weft_net_connect(a, 0, handle, &c), 0));
	for (i = 0; i < 100 && !half; i++)
		cr_assert(eq(int, weft_net_accept(second, &half), 0));
	cr_assert(half != NULL);
	cr_assert(eq(int, weft_net_recv(half, dst, 100, rmr, &req), 0));
	fake_ns += 61 * 1000000000ull;
	cr_assert(eq(int, weft_net_listen(a, 0, own, &third), 0));
	cr_expect(eq(int, finish(req, &got), -ECONNRESET));
	cr_expect(strstr(last_error, "gave up its connection") != NULL, "%s",
		  last_error);
	/* the other one keeps working */
	transfer(100, 100);
	weft_net_close_comm(half);
	weft_net_close_listener(third);
	weft_net_close_listener(second);
}

/* Nor does a listener hand out what was given up while it waited. */
Test(connect, abandoned_connection_is_not_accepted, .init = connected)
{
	char handle[WEFT_NET_HANDLE], own[WEFT_NET_HANDLE];
	struct weft_net_listener *second, *third;
	struct weft_net_comm *c = NULL, *half = NULL;
	int i;

	cr_assert(eq(int, weft_net_listen(b, 0, handle, &second), 0));
	weft_clock_set(fake_clock);
	cr_assert(eq(int, weft_net_connect(a, 0, handle, &c), 0));
	for (i = 0; i < 50 && !second->queued; i++)
		weft_net_progress(b);
	cr_assert(eq(uint, second->queued, 1));
	fake_ns += 61 * 1000000000ull;
	cr_assert(eq(int, weft_net_listen(a, 0, own, &third), 0));
	weft_net_progress(b);
	for (i = 0; i < 20 && !half; i++)
		cr_assert(eq(int, weft_net_accept(second, &half), 0));
	cr_expect(half == NULL);
	cr_expect(eq(uint, errors, 0), "%s", last_error);
	transfer(100, 100);
	weft_net_close_listener(third);
	weft_net_close_listener(second);
}

Test(connect, closed_listener_refuses_connections, .init = init)
{
	char handle[WEFT_NET_HANDLE], other[WEFT_NET_HANDLE];
	struct weft_net_listener *second;
	struct weft_net_comm *c = NULL;
	int ret = 0, i;

	cr_assert(eq(int, weft_net_listen(b, 0, handle, &listener), 0));
	cr_assert(eq(int, weft_net_listen(b, 0, other, &second), 0));
	weft_net_close_listener(listener);
	for (i = 0; i < 10 && !c && !ret; i++) {
		ret = weft_net_connect(a, 0, handle, &c);
		weft_net_accept(second, &c);
	}
	cr_expect(eq(int, ret, -ECONNREFUSED));
	cr_expect(c == NULL);
}

Test(connect, foreign_handle_is_explained, .init = init)
{
	char handle[WEFT_NET_HANDLE] = { 2, 0, 0x15 };
	struct weft_net_comm *c;

	cr_expect(eq(int, weft_net_connect(a, 0, handle, &c), -EPROTO));
	cr_expect(strstr(last_error, "NCCL_NET_PLUGIN=weft") != NULL, "%s",
		  last_error);
	cr_assert(eq(int, weft_net_listen(b, 0, handle, &listener), 0));
	handle[4] = 99;
	cr_expect(eq(int, weft_net_connect(a, 0, handle, &c), -EPROTO));
	cr_expect(strstr(last_error, "version 99") != NULL, "%s", last_error);
	handle[4] = WEFT_HANDLE_VERSION;
	handle[5] = 200;
	cr_expect(eq(int, weft_net_connect(a, 0, handle, &c), -EPROTO));
	cr_expect(strstr(last_error, "damaged") != NULL, "%s", last_error);
}

/* Fails, and says @why, where the other rank has @there channels. */
static void other_channels(const char *here, int there, const char *why)
{
	char handle[WEFT_NET_HANDLE];
	struct weft_net_comm *c;

	unsetenv("NCCL_MIN_NCHANNELS");
	if (here)
		setenv("NCCL_MIN_NCHANNELS", here, 1);
	cr_assert(eq(int, weft_net_listen(b, 0, handle, &listener), 0));
	handle[6] = (char)there;
	cr_expect(eq(int, weft_net_connect(a, 0, handle, &c), -EINVAL));
	cr_expect(strstr(last_error, why) != NULL, "%s", last_error);
	weft_net_close_listener(listener);
}

/* As with NCCL of two releases: one has a tuner to ask. */
Test(connect, differing_settings_of_ranks_are_explained, .init = init)
{
	other_channels("4", 0, "here 4, there 0 (0: not set)");
	other_channels("4", 0, "use the same NCCL on every rank");
	other_channels(NULL, 4, "the same NCCL_TUNER_PLUGIN");
	other_channels("4", 8, "MiB; set both the same on every rank");
}

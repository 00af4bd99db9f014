/* SPDX-License-Identifier: BSD-3-Clause */
/* Who has a place before he is proven, and who gives his up. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/common/unproven.h"
#include "settings/settings.h"
#include "util/clock.h"
#include "util/util.h"

#define MANY 200u

static struct weft_unproven_set all;
static struct weft_unproven them[MANY];
static uint64_t now_ns;
static int listener;
static struct sockaddr_in where;

static uint64_t fake_clock(void)
{
	return now_ns;
}

static void pass(unsigned int ms)
{
	now_ns += ms * 1000000ull;
}

static void begin(void)
{
	socklen_t len = sizeof(where);

	now_ns = 1000000000;
	weft_clock_set(fake_clock);
	weft_unproven_init(&all, 8);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	where.sin_family = AF_INET;
	where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	cr_assert(zero(int, bind(listener, (struct sockaddr *)&where, len)));
	cr_assert(zero(int, listen(listener, 8)));
	cr_assert(zero(int,
		       getsockname(listener, (struct sockaddr *)&where, &len)));
}

TestSuite(unproven, .init = begin, .timeout = 60);

/* As accepted from the host @host of 127.0.0.0/8. */
static uint64_t come(struct weft_unproven *st, unsigned int host)
{
	struct sockaddr_in from = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), there;
	uint64_t deadline;

	from.sin_addr.s_addr = htonl(0x7f000000 + host);
	cr_assert(zero(int, bind(fd, (struct sockaddr *)&from, sizeof(from))));
	cr_assert(zero(int,
		       connect(fd, (struct sockaddr *)&where, sizeof(where))));
	there = accept(listener, NULL, NULL);
	cr_assert(ge(int, there, 0));
	deadline = weft_unproven_add(&all, st, there);
	close(fd);
	close(there);
	return deadline;
}

/* A host whose connections are not counted with those of @other. */
static unsigned int another_than(unsigned int other)
{
	unsigned int source, host = other;

	come(&them[MANY - 1], other);
	source = them[MANY - 1].source;
	do {
		weft_unproven_del(&all, &them[MANY - 1]);
		come(&them[MANY - 1], ++host);
	} while (them[MANY - 1].source == source);
	weft_unproven_del(&all, &them[MANY - 1]);
	return host;
}

Test(unproven, longest_silent_connection_is_dropped_first)
{
	unsigned int i;

	for (i = 0; i < 8; i++) {
		cr_expect(not(weft_unproven_full(&all)), "%u", i);
		come(&them[i], 1);
		pass(10);
	}
	cr_expect(weft_unproven_full(&all));
	cr_expect(eq(ptr, weft_unproven_oldest(&all), NULL));
	pass(WEFT_UNPROVEN_SPARED_MS - 80);
	cr_expect(eq(ptr, weft_unproven_oldest(&all), &them[0]));
	weft_unproven_received(&all, &them[0]);
	cr_expect(eq(ptr, weft_unproven_oldest(&all), NULL));
	pass(10);
	cr_expect(eq(ptr, weft_unproven_oldest(&all), &them[1]));
	weft_unproven_del(&all, &them[1]);
	cr_expect(not(weft_unproven_full(&all)));
}

/* However old the one of another host is. */
Test(unproven, source_with_most_connections_loses_one)
{
	unsigned int other = another_than(1), i;

	come(&them[0], other);
	pass(60000);
	for (i = 1; i < 8; i++)
		come(&them[i], 1);
	cr_expect(eq(ptr, weft_unproven_oldest(&all), NULL));
	pass(WEFT_UNPROVEN_SPARED_MS);
	for (i = 1; i < 7; i++) {
		cr_expect(eq(ptr, weft_unproven_oldest(&all), &them[i]));
		weft_unproven_del(&all, &them[i]);
	}
}

/* Other interfaces cannot take an interface's last places. */
Test(unproven, each_interface_has_places_of_its_own)
{
	static struct weft_unproven mine[MANY];
	struct weft_unproven_set flooded;
	struct rlimit lim = { 200, 200 };
	unsigned int i, n;

	cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &lim)));
	weft_unproven_init(&flooded, 4096);
	for (n = 0; !weft_unproven_full(&flooded); n++) {
		cr_assert(lt(uint, n, MANY));
		weft_unproven_add(&flooded, &them[n], -1);
	}
	cr_expect(eq(uint, n, 200 / 4), "a part of the descriptors");
	weft_unproven_init(&all, 4096);
	for (i = 0; !weft_unproven_full(&all); i++) {
		cr_assert(lt(uint, i, MANY));
		weft_unproven_add(&all, &mine[i], -1);
	}
	cr_expect(ge(uint, i, 8));
	while (n--)
		weft_unproven_del(&flooded, &them[n]);
	cr_expect(not(weft_unproven_full(&all)));
}

/* Also who has proven himself: the program needs descriptors of its own. */
Test(unproven, peers_leave_a_quarter_of_the_descriptors)
{
	struct rlimit lim = { 200, 200 };

	cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &lim)));
	cr_expect(weft_peer_has_room(149, "eth0"));
	cr_expect(not(weft_peer_has_room(150, "eth0")));
}

Test(unproven, deadline_is_connect_timeout_at_most_seconds)
{
	uint64_t deadline;

	setenv("WEFT_CONNECT_TIMEOUT", "60s", 1);
	weft_settings_reset();
	deadline = come(&them[0], 1);
	cr_expect(le(u64, deadline, weft_now_ms() + 5000), "seconds");
	deadline = weft_unproven_received(&all, &them[0]);
	cr_expect(eq(u64, deadline, weft_now_ms() + 60000));
	setenv("WEFT_CONNECT_TIMEOUT", "1s", 1);
	weft_settings_reset();
	deadline = come(&them[1], 1);
	cr_expect(eq(u64, deadline, weft_now_ms() + 1000));
}

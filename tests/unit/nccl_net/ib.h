/* SPDX-License-Identifier: BSD-3-Clause */
/* Two contexts of one process, on the InfiniBand device and a fake adapter. */
#ifndef WEFT_TESTS_NCCL_NET_IB_H
#define WEFT_TESTS_NCCL_NET_IB_H

#include <stdio.h>
#include "host/pci.h"
#include "nccl_net/net/connect.h"
#include "nccl_net/net/hcas.h"
#include "settings/settings.h"
#include "tests/lib/verbs/fake_verbs.h"
#include "tests/unit/nccl_net/pair.h"

#define DEADLINE_MS 30000

static struct weft_net_listener *listeners[16];
static unsigned int nlisteners;
static unsigned int fallbacks;

static inline void note(void *arg, enum weft_level level, const char *file,
			int line, const char *text)
{
	sink(arg, level, file, line, text);
	fallbacks += level <= WEFT_LOG_WARN && strstr(text, "does not lead to");
}

static inline void begin(void)
{
	char build[4096];

	snprintf(build, sizeof(build), "%s", getenv("WEFT_BUILD"));
	clearenv();
	setenv("WEFT_BUILD", build, 1);
	setenv("PATH", "/bin:/usr/bin", 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	setenv("WEFT_CONNECT_TIMEOUT", "6s", 1);
	fake_verbs_begin();
	init();
	weft_log_set_sink(note, NULL);
}

static inline void done(void)
{
	unsigned int i;

	if (tx)
		weft_net_close_comm(tx);
	if (rx)
		weft_net_close_comm(rx);
	for (i = 0; i < nlisteners; i++)
		weft_net_close_listener(listeners[i]);
	weft_net_close(a);
	weft_net_close(b);
	weft_net_hcas_forget();
	fake_verbs_end();
	free(src);
	free(dst);
}

static inline void in_sysfs(const char *what)
{
	char command[1024];

	snprintf(command, sizeof(command), "cd %s && %s", weft_sysfs_root,
		 what);
	cr_assert(eq(int, system(command), 0));
}

/* The ways by InfiniBand that a's connection under way has before it. */
static inline unsigned int ways_by_ib(void)
{
	struct weft_net_dial *dial, *tmp;
	unsigned int i, n = 0;

	weft_list_for_each (dial, tmp, &a->dialing, link)
		for (i = 0; i < dial->n; i++)
			n += dial->attempt[i].port->wire == WEFT_WIRE_IB;
	return n;
}

static unsigned int tried_by_ib; /* by the last meet() */

/* By a device of a's to one of b's. */
static inline void meet(int from, int to)
{
	const uint64_t end = weft_now_ms() + DEADLINE_MS;
	char handle[WEFT_NET_HANDLE];
	bool both;

	cr_assert(eq(int, weft_net_listen(b, to, handle, &listener), 0));
	listeners[nlisteners++] = listener;
	tx = rx = NULL;
	while (!(tx && rx) && weft_now_ms() < end) {
		if (!tx)
			cr_assert(eq(int,
				     weft_net_connect(a, from, handle, &tx),
				     0));
		tried_by_ib = tx ? tried_by_ib : ways_by_ib();
		if (!rx)
			cr_assert(eq(int, weft_net_accept(listener, &rx), 0));
	}
	both = tx && rx;
	cr_assert(both, "not connected");
}

/* As the device has a clock of its own; @size bytes have to come. */
static inline void wait_for(struct weft_net_request *req, size_t size)
{
	const uint64_t end = weft_now_ms() + DEADLINE_MS;
	bool is_done = false;
	size_t got = 0;

	while (!is_done && weft_now_ms() < end) {
		cr_assert(eq(int, weft_net_test(req, &is_done, &got), 0));
		step();
	}
	cr_assert(is_done, "a request did not end");
	cr_expect(eq(sz, got, size));
}

static inline bool by_ib(void)
{
	return tx->peer->port->wire == WEFT_WIRE_IB &&
	       rx->peer->port->wire == WEFT_WIRE_IB;
}

static inline bool by_tcp(void)
{
	return tx->peer->port->ops == &weft_tcp_ops &&
	       rx->peer->port->ops == &weft_tcp_ops;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two contexts of one process, a sender and a receiver, over the fake device.
 */
#ifndef WEFT_TESTS_NCCL_NET_PAIR_H
#define WEFT_TESTS_NCCL_NET_PAIR_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nccl_net/net/comm.h"
#include "nccl_net/net/context.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "nccl_net/net/progress.h"
#include "tests/unit/nccl_net/fake.h"
#include "util/clock.h"
#include "util/log.h"

#define BIG (1u << 20)

static struct weft_net *a, *b;
static struct weft_net_listener *listener;
static struct weft_net_comm *tx, *rx;
static struct weft_net_mr *rmr;
static char *src, *dst;
static unsigned int errors;
static char last_error[1024];
static inline void sink(void *arg, enum weft_level level, const char *file,
			int line, const char *text)
{
	if (level > WEFT_LOG_WARN)
		return;
	errors++;
	strncpy(last_error, text, sizeof(last_error) - 1);
}

static inline void init(void)
{
	unsigned int i;

	weft_log_set_sink(sink, NULL);
	cr_assert(eq(int, weft_net_open(&a), 0));
	cr_assert(eq(int, weft_net_open(&b), 0));
	src = malloc(BIG);
	dst = malloc(BIG);
	for (i = 0; i < BIG; i++)
		src[i] = (char)(i * 7 + (i >> 8));
	memset(dst, 0x5a, BIG);
}

static inline void join(struct weft_net *from, struct weft_net *to,
			struct weft_net_comm **send,
			struct weft_net_comm **recv)
{
	char handle[WEFT_NET_HANDLE];
	int i;

	cr_assert(eq(int, weft_net_listen(to, 0, handle, &listener), 0));
	*send = *recv = NULL;
	for (i = 0; i < 100 && !(*send && *recv); i++) {
		if (!*send)
			cr_assert(eq(int,
				     weft_net_connect(from, 0, handle, send),
				     0));
		if (!*recv)
			cr_assert(eq(int, weft_net_accept(listener, recv), 0));
	}
	cr_assert(ne(ptr, *send, NULL), "not connected in %d rounds", i);
	cr_assert(ne(ptr, *recv, NULL), "not accepted in %d rounds", i);
}

static inline void connected(void)
{
	init();
	join(a, b, &tx, &rx);
	cr_assert(eq(int, weft_net_register(rx, dst, BIG, 1, &rmr), 0));
}

static inline void part(void)
{
	weft_net_deregister(rmr);
	weft_net_close_comm(tx);
	weft_net_close_comm(rx);
	tx = rx = NULL;
}

/* As a call of NCCL's would, which may come from another thread. */
static inline void progress(struct weft_net *net)
{
	pthread_mutex_lock(&net->lock);
	weft_net_progress(net);
	pthread_mutex_unlock(&net->lock);
}

static inline void step(void)
{
	progress(a);
	progress(b);
}

/* Until it is done, or for as many rounds as any transfer needs here. */
static inline int finish(struct weft_net_request *req, size_t *size)
{
	bool done = false;
	int i, ret = 0;

	for (i = 0; i < 50 && !done && !ret; i++) {
		ret = weft_net_test(req, &done, size);
		step();
	}
	return ret ? ret : done ? 0 : -EAGAIN;
}

static inline struct weft_net_request *send_now(const void *data, size_t size)
{
	struct weft_net_request *req = NULL;
	int i;

	for (i = 0; i < 50 && !req; i++) {
		cr_assert(
			eq(int, weft_net_send(tx, data, size, NULL, &req), 0));
		progress(b);
	}
	cr_assert(req != NULL, "the send was never taken");
	return req;
}

static inline struct weft_net_request *recv_now(void *data, size_t size)
{
	struct weft_net_request *req = NULL;

	cr_assert(eq(int, weft_net_recv(rx, data, size, rmr, &req), 0));
	cr_assert(req != NULL);
	return req;
}

static inline void transfer(size_t size, size_t room)
{
	struct weft_net_request *r = recv_now(dst + 1, room), *s;
	size_t got = 0;

	memset(dst, 0x5a, size + 2);
	s = send_now(src + 3, size);
	cr_expect(eq(int, finish(r, &got), 0));
	cr_expect(eq(sz, got, size));
	cr_expect(eq(int, finish(s, &got), 0));
	cr_expect(eq(sz, got, size));
	cr_expect(memcmp(dst + 1, src + 3, size) == 0, "%zu bytes differ",
		  size);
	cr_expect(dst[0] == 0x5a && dst[1 + size] == 0x5a,
		  "bytes beside %zu were written", size);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: every byte, in order, under back-pressure. */
#include "tests/conformance/pair.h"

#include <errno.h>

static void sizes(void)
{
	static const size_t fixed[] = { 0,    1,    7,	   8,	  9,
					63,   511,  512,   513,	  1000,
					4096, 8192, 65535, 65536, 65537 };
	struct side a, b;
	unsigned int i, n = sizeof(fixed) / sizeof(*fixed);
	size_t len;

	sides_open(&a, &b);
	for (i = 0; i <= n; i++) {
		len = i < n ? fixed[i] : a.attr.max_message;
		if (len > a.attr.max_message)
			continue;
		send_pattern(&a, &b, a.ep, i % WEFT_MSG_IDS, len, i);
		wait_for(&a, &b, b.first);
		check_message(&b, i % WEFT_MSG_IDS, len, i);
		send_pattern(&b, &a, b.ep, 31, len, i + 100);
		wait_for(&a, &b, a.first);
		check_message(&a, 31, len, i + 100);
	}
	sides_close(&a, &b);
}

static void too_long(void)
{
	struct side a, b;
	struct iovec iov;

	sides_open(&a, &b);
	iov.iov_len = a.attr.max_message + 1;
	iov.iov_base = calloc(1, iov.iov_len);
	check_int(a.ops->message(a.ep, 1, &iov, 1), -EMSGSIZE);
	send_pattern(&a, &b, a.ep, 1, 10, 1);
	wait_for(&a, &b, b.first);
	check_message(&b, 1, 10, 1);
	free(iov.iov_base);
	sides_close(&a, &b);
}

static void in_order(void)
{
	struct side a, b;
	unsigned int i, n = rounds(20000), got = 0;

	sides_open(&a, &b);
	for (i = 0; i < n; i++) {
		send_pattern(&a, &b, a.ep, i % 32, i % 700, i);
		while (b.first) {
			check_message(&b, got % 32, got % 700, got);
			got++;
		}
	}
	while (got < n) {
		wait_for(&a, &b, b.first);
		check_message(&b, got % 32, got % 700, got);
		got++;
	}
	sides_close(&a, &b);
}

/* The receiver does nothing: the sender gets -EAGAIN, and later on_ready(). */
static void back_pressure(void)
{
	struct side a, b;
	static uint8_t buf[60000];
	struct iovec iov[3] = { { buf, 1 },
				{ buf + 1, 999 },
				{ buf + 1000, 59000 } };
	size_t len = sizeof(buf);
	unsigned int sent = 0, got = 0, readies;
	int ret;

	sides_open(&a, &b);
	if (len > a.attr.max_message)
		len = a.attr.max_message;
	iov[2].iov_len = len - 1000;
	pattern_fill(buf, sizeof(buf), 5);
	while (!(ret = a.ops->message(a.ep, 3, iov, 3)))
		check(++sent < 1000, "60 MB were taken without a receiver");
	check_int(ret, -EAGAIN);
	check(!a.ops->ready(a.ep), "-EAGAIN, yet ready() says yes");
	readies = a.readies;
	wait_for(&a, &b, a.readies > readies);
	check(a.ops->ready(a.ep), "on_ready(), yet ready() says no");
	while (got < sent) {
		wait_for(&a, &b, b.first);
		check_message(&b, 3, len, 5);
		got++;
	}
	sides_close(&a, &b);
}

static size_t pack(void *dest, void *arg)
{
	size_t len = *(size_t *)arg;

	pattern_fill(dest, len, 77);
	return len;
}

static void packed(void)
{
	struct side a, b;
	size_t len;

	sides_open(&a, &b);
	for (len = 0; len <= a.attr.max_message; len = len * 3 + 1) {
		wait_for(&a, &b, a.ops->ready(a.ep));
		check_int(a.ops->message_pack(a.ep, 9, pack, &len), len);
		wait_for(&a, &b, b.first);
		check_message(&b, 9, len, 77);
	}
	sides_close(&a, &b);
}

/* A handler that answers from inside itself. */
static void echo(struct side *s, uint8_t id, void *data, size_t len)
{
	struct iovec iov = { data, len };

	check_int(s->ops->message(s->ep, id, &iov, 1), 0);
}

static void answer_in_handler(void)
{
	struct side a, b;
	unsigned int i;

	sides_open(&a, &b);
	b.hook = echo;
	for (i = 0; i < 1000; i++) {
		send_pattern(&a, &b, a.ep, 4, i, i);
		wait_for(&a, &b, a.first);
		check_message(&a, 4, i, i);
	}
	sides_close(&a, &b);
}

/* An interface that talks to itself. */
static void to_itself(void)
{
	struct side a;

	side_open(&a);
	a.ep = side_connect(&a, &a, NULL);
	wait_for(&a, NULL, a.ops->ready(a.ep));
	send_pattern(&a, NULL, a.ep, 2, 3000, 8);
	wait_for(&a, NULL, a.first);
	check_message(&a, 2, 3000, 8);
	check_int(a.errors, 0);
	side_close(&a);
}

const struct conformance_test message_tests[] = {
	{ "messages of every size, both ways", sizes },
	{ "a message that is too long is refused", too_long },
	{ "20000 messages arrive in order", in_order },
	{ "a receiver that makes no progress stops the sender", back_pressure },
	{ "messages packed by the caller", packed },
	{ "a message handler may send", answer_in_handler },
	{ "an interface may send to itself", to_itself },
	{ NULL, NULL },
};

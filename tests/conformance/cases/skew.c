/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sockets of a TCP pair take different times: the end of one says nothing
 * of what the others still bring.
 */
#include "tests/conformance/relay.h"

#include <errno.h>

#define SLOW_MS 30u
#define LEN	300000u

struct skew {
	struct relay relay;
	struct side stays, leaves;
	struct target t; /* of the one that leaves */
	uint8_t *src;
};

/* The one that stays dials; the delays hold from the first byte of bulk on. */
static void skew_open(struct skew *s)
{
	struct weft_address by_relay;

	if (strcmp(row->name, "tcp"))
		skip_test("is no other device, or was seen over IPv4");
	side_open(&s->stays);
	side_open(&s->leaves);
	by_relay = relay_open(&s->relay, &s->leaves);
	check_int(s->stays.ops->ep_create(s->stays.iface, &by_relay, NULL,
					  &s->stays.ep),
		  0);
	wait_for(&s->stays, &s->leaves, s->stays.ops->ready(s->stays.ep));
	send_pattern(&s->stays, &s->leaves, s->stays.ep, 1, 8, 0);
	wait_for(&s->stays, &s->leaves, s->leaves.first);
	check_message(&s->leaves, 1, 8, 0);
	s->leaves.ep = side_connect(&s->leaves, &s->stays, NULL);
	s->src = malloc(LEN);
	pattern_fill(s->src, LEN, 1);
	target_open(&s->t, LEN);
	/* bulk sockets are there before anything is slow */
	check_int(put_wait(&s->stays, &s->leaves, s->src, LEN,
			   (uintptr_t)s->t.buf, &s->t.key, NULL),
		  0);
	check(atomic_load(&s->relay.nlinks) >= 3, "bulk has no sockets");
}

static void skew_close(struct skew *s)
{
	side_close(&s->stays);
	target_close(&s->t);
	free(s->src);
	relay_close(&s->relay);
}

/* All that leave has been with the wire: its flush said so. */
static void leave(struct skew *s, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		send_pattern(&s->leaves, &s->stays, s->leaves.ep, 1, 1000, i);
	wait_for(&s->stays, &s->leaves,
		 !s->leaves.ops->flush(s->leaves.ep, NULL));
	side_close(&s->leaves);
}

static void hear(struct skew *s, unsigned int n, int error)
{
	unsigned int i;

	wait_for(&s->stays, NULL, s->stays.errors);
	for (i = 0; i < n; i++) {
		check(s->stays.first, "%u of %u messages came before the end",
		      i, n);
		check_message(&s->stays, 1, 1000, i);
	}
	check(!s->stays.first, "there are more messages");
	check_int(s->stays.error, error);
	check_int(s->stays.errors, 1);
}

/* Which sockets are slow: message stream and the bulk ones, in turn. */
static void slow(struct skew *s, unsigned int mask)
{
	unsigned int i;

	for (i = 0; i < RELAY_LINKS; i++)
		atomic_store(&s->relay.delay_ms[i],
			     mask & 1u << i ? SLOW_MS : 0);
}

/* It has all it wanted, says so and leaves; the put it got is no loss. */
static void last_words(void)
{
	struct skew s;
	struct weft_notify n = { 7 };
	struct weft_iov iov;
	struct wait_op w;
	unsigned int mask, k;

	for (k = 0; k < 16; k++) {
		mask = k % 8;
		skew_open(&s);
		slow(&s, mask);
		iov = (struct weft_iov){ s.src, LEN, NULL };
		wait_op_init(&w);
		check_int(s.stays.ops->put(s.stays.ep, &iov, 1,
					   (uintptr_t)s.t.buf, &s.t.key, &n,
					   &w.op),
			  -EINPROGRESS);
		wait_for(&s.stays, &s.leaves, s.leaves.notifies);
		leave(&s, 3);
		hear(&s, 3, -ESHUTDOWN);
		check_int(w.done, 1);
		check_int(w.status, 0);
		skew_close(&s);
	}
}

/* The same while the other one goes on talking to it. */
static void last_words_to_a_talker(void)
{
	struct skew s;
	struct iovec iov;
	unsigned int k;
	uint64_t end;

	for (k = 0; k < 8; k++) {
		skew_open(&s);
		slow(&s, k);
		leave(&s, 3);
		iov = (struct iovec){ s.src, 1000 };
		end = now_ms() + WAIT_MS;
		while (!s.stays.errors && now_ms() < end) {
			if (s.stays.ops->ready(s.stays.ep))
				s.stays.ops->message(s.stays.ep, 1, &iov, 1);
			run_for(&s.stays, NULL, 1);
		}
		hear(&s, 3, s.stays.error);
		skew_close(&s);
	}
}

/* A put that really is lost with it fails, and what came before is heard. */
static void last_words_amid_a_put(void)
{
	struct skew s;
	struct wait_op w;
	unsigned int mask, big = 64u << 20;
	uint8_t *src = calloc(1, big);
	struct target t;

	for (mask = 0; mask < 8; mask++) {
		skew_open(&s);
		slow(&s, mask);
		target_open(&t, big);
		put_start(&s.stays, &w, src, big, (uintptr_t)t.buf, &t.key);
		wait_for(&s.stays, &s.leaves, peek(t.buf) != POISON);
		leave(&s, 3);
		hear(&s, 3, -ECONNRESET);
		check_int(w.done, 1);
		check_int(w.status, -ECONNRESET);
		target_close(&t);
		skew_close(&s);
	}
	free(src);
}

/* A bulk socket that dies alone fails its puts, within bounds. */
static void one_is_cut(void)
{
	struct skew s;
	struct wait_op w;

	setenv("WEFT_PEER_TIMEOUT", "1s", 1);
	skew_open(&s);
	slow(&s, 1u << 1);
	put_start(&s.stays, &w, s.src, LEN, (uintptr_t)s.t.buf, &s.t.key);
	atomic_store(&s.relay.cut, 1);
	wait_status(&s.stays, &s.leaves, w, -ECONNRESET);
	wait_for(&s.stays, &s.leaves, s.stays.errors && s.leaves.errors);
	check_int(s.stays.error, -ECONNRESET);
	side_close(&s.leaves);
	skew_close(&s);
}

const struct conformance_test skew_tests[] = {
	{ "data on the slower sockets arrives before a close", last_words },
	{ "data on the slower sockets arrives while the peer sends",
	  last_words_to_a_talker },
	{ "a put cut off by a close fails, earlier data arrives",
	  last_words_amid_a_put },
	{ "a bulk socket that breaks fails its puts", one_is_cut },
	{ NULL, NULL },
};

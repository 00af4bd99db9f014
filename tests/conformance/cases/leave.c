/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Orderly ends: one side closes its interface.  What it said is heard, and the
 * other side learns of it at once, whatever it has under way.
 */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "util/clock.h"

#define BIG (64u << 20)

/* @s ends in order, after @n messages to @other. */
static void say_and_close(struct side *s, struct side *other, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		send_pattern(s, other, s->ep, 1, 1000, i);
	wait_for(s, other, !s->ops->flush(s->ep, NULL));
	s->ops->ep_destroy(s->ep);
	s->ep = NULL;
	side_close(s);
}

/* What @other's peer said, then that it has ended with @error. */
static void hear_the_end(struct side *other, unsigned int n, int error)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		wait_for(other, NULL, other->first);
		check_message(other, 1, 1000, i);
	}
	wait_for(other, NULL, other->errors);
	check_int(other->error, error);
	check_int(other->ops->flush(other->ep, NULL),
		  error == -ESHUTDOWN ? 0 : error);
}

/* The other side closes in order: told apart from a death, and nothing lost. */
static void orderly(void)
{
	struct side a, b;

	sides_open(&a, &b);
	say_and_close(&b, &a, 100);
	hear_the_end(&a, 100, -ESHUTDOWN);
	check_int(a.ops->message(a.ep, 1, NULL, 0), -ESHUTDOWN);
	/* which is not -EAGAIN */
	check_int(a.ops->ready(a.ep), true);
	run_for(&a, NULL, 50);
	check_int(a.errors, 1);
	side_close(&a);
}

/*
 * The same to one who writes before it reads: what fails then is the write, and
 * the reason is still to be read, as is what the kernel here already had.
 */
static void orderly_unread(void)
{
	struct side a, b;
	unsigned int i;

	sides_open(&a, &b);
	if (strcmp(a.ops->name, "tcp")) {
		sides_close(&a, &b);
		skip_test("only a socket fails in a write");
	}
	say_and_close(&b, &a, 10);
	for (i = 0; i < 20; i++) {
		a.ops->message(a.ep, 1, NULL, 0);
		usleep(1000);
	}
	/* what it wrote is lost */
	hear_the_end(&a, 10, -ECONNRESET);
	side_close(&a);
}

/* Talks first, when the other side has begun to close, and listens then. */
static void *talk(void *arg)
{
	struct side *s = arg;
	struct iovec iov = { s, 8 };
	uint64_t end = now_ms() + WAIT_MS;

	usleep(50000);
	while (!s->errors && now_ms() < end) {
		s->ops->message(s->ep, 1, &iov, 1);
		side_progress(s);
	}
	return NULL;
}

/*
 * What a side says before it closes is more than the other side's system has
 * room for, and that one sends it something that it does not read any more.
 */
static void orderly_at_length(void)
{
	struct side a, b;
	struct iovec iov;
	unsigned int i, n = 0;
	pthread_t th;

	sides_open(&a, &b);
	iov = (struct iovec){ malloc(20000), fit(&b, 20000) };
	/* most of it stays with the system of the one that closes */
	while (n < 50 && b.ops->ready(b.ep)) {
		pattern_fill(iov.iov_base, iov.iov_len, n++);
		check_int(b.ops->message(b.ep, 1, &iov, 1), 0);
	}
	wait_for(&a, &b, !b.ops->flush(b.ep, NULL));
	pthread_create(&th, NULL, talk, &a);
	b.ops->ep_destroy(b.ep);
	b.ep = NULL;
	side_close(&b);
	pthread_join(th, NULL);
	for (i = 0; i < n; i++)
		check_message(&a, 1, iov.iov_len, i);
	free(iov.iov_base);
	side_close(&a);
}

static void answer(struct side *s, uint8_t id, void *data, size_t len)
{
	struct iovec iov = { data, len };

	s->ops->message(s->ep, 2, &iov, 1);
}

/* A peer that answers each last message writes to a closed one, loses none. */
static void orderly_answered(void)
{
	enum { N = 10 };
	struct side a, b;
	unsigned int round;

	for (round = 0; round < 20; round++) {
		sides_open(&a, &b);
		a.hook = answer;
		say_and_close(&b, &a, N);
		if (round % 2) /* its system has refused something by now */
			answer(&a, 2, "", 1);
		wait_for(&a, NULL, a.errors);
		check_int(a.messages, N);
		side_close(&a);
	}
}

/* A peer that took more messages than a head can count, and never spoke. */
static void orderly_silent(void)
{
	enum { N = (1 << 16) + 1000 };
	struct inbox_message *m;
	struct side a, b;
	unsigned int i;

	if (row->own_keys)
		skip_test("its adapter acknowledges them, one by one");
	sides_open(&a, &b);
	for (i = 0; i < N; i++) {
		wait_for(&a, &b, a.ops->ready(a.ep));
		check_int(a.ops->message(a.ep, 1, NULL, 0), 0);
		while ((m = side_take(&b)))
			free(m);
	}
	wait_for(&a, &b, b.messages == N);
	side_close(&b);
	wait_for(&a, NULL, a.errors);
	check_int(a.error, -ESHUTDOWN);
	check_int(a.ops->flush(a.ep, NULL), 0);
	side_close(&a);
}

/* @n messages to one that closes; @heard: when it has all of them. */
static void close_on(unsigned int n, bool heard)
{
	const int error = heard ? -ESHUTDOWN : -ECONNRESET;
	struct wait_op asked;
	struct side a, b;
	unsigned int i;

	sides_open(&a, &b);
	for (i = 0; i < n; i++)
		check_int(a.ops->message(a.ep, 1, NULL, 0), 0);
	if (heard)
		wait_for(&a, &b, b.messages == n);
	wait_op_init(&asked);
	if (a.ops->flush(a.ep, &asked.op) != -EINPROGRESS)
		asked.done = 1;
	run_for(&a, NULL, 5);
	check_int(b.messages, heard ? n : 0);
	side_close(&b);
	wait_for(&a, NULL, a.errors);
	check_int(a.error, error);
	check_int(asked.done, 1);
	check_int(asked.status, heard ? 0 : error);
	check_int(a.ops->flush(a.ep, NULL), heard ? 0 : error);
	side_close(&a);
}

/* One that closes says what it had. */
static void orderly_unheard(void)
{
	unsigned int n;

	if (row->in_process || row->ops == &weft_nvlink_ops)
		skip_test("what is in the inbox of the peer has arrived");
	for (n = 1; n <= 8; n++) {
		close_on(n, true);
		close_on(n, false);
	}
}

/*
 * Endpoints end whose messages are more than one progress() hands over, on a
 * side that has none itself.
 */
static void orderly_behind(void)
{
	enum { ENDS = 20 }; /* a connection of an adapter takes few messages */
	struct weft_ep *ep[ENDS];
	struct side a, b;
	struct iovec iov;
	unsigned int sent = 0, i, k;

	if (row->in_process)
		skip_test("a message leaves when it is handed over");
	side_open(&a);
	side_open(&b);
	for (i = 0; i < ENDS; i++) {
		ep[i] = side_connect(&a, &b, NULL);
		wait_for(&a, &b, a.ops->ready(ep[i]));
	}
	iov = (struct iovec){ &a, 8 };
	for (i = 0; i < ENDS; i++)
		for (k = 0; k < 250 && a.ops->ready(ep[i]); k++, sent++)
			check_int(a.ops->message(ep[i], 1, &iov, 1), 0);
	check(sent > 2 * WEFT_PROGRESS_MAX, "only %u messages are taken", sent);
	for (i = 0; i < ENDS; i++) {
		wait_for(&a, NULL, !a.ops->unsent(ep[i]));
		a.ops->ep_destroy(ep[i]);
	}
	run_for(&a, NULL, 20);
	b.ops->arm(b.iface); /* its next progress() looks at everything */
	wait_for(&a, &b, b.messages == sent);
	check_int(a.errors + b.errors, 0);
	side_close(&a);
	side_close(&b);
}

/* An end must not be noticed only at a deadline. */
static void no_deadlines(void)
{
	setenv("WEFT_PEER_TIMEOUT", "300s", 1);
	setenv("WEFT_CONNECT_TIMEOUT", "300s", 1);
}

/* What is under way to a side that closes ends with it. */
static void under_way(void)
{
	struct side a, b;
	struct target t;
	struct wait_op put, get, flush;
	uint8_t *mem = calloc(1, BIG);
	struct iovec small;
	unsigned int round;

	if (row->blocks)
		skip_test(
			"a peer that leaves waits for what engines have begun");
	no_deadlines();
	for (round = 0; round < 4; round++) {
		sides_open(&a, &b);
		small = (struct iovec){ mem, fit(&a, 50000) };
		target_open(&t, BIG);
		wait_op_init(&flush);
		put_start(&a, &put, mem, BIG, (uintptr_t)t.buf, &t.key);
		if (round & 1)
			get_start(&a, &get, mem, BIG, (uintptr_t)t.buf, &t.key);
		else
			get.done = 1;
		check_int(a.ops->flush(a.ep, &flush.op), -EINPROGRESS);
		if (round & 2)
			while (a.ops->ready(a.ep))
				a.ops->message(a.ep, 1, &small, 1);
		run_for(&a, &b, 2);
		side_close(&b);
		wait_for(&a, NULL,
			 a.errors && put.done && get.done && flush.done);
		check_int(a.error, -ECONNRESET);
		check(put.status < 0, "a put to a closed peer succeeded");
		check_int(flush.status, a.error);
		check_int(a.ops->message(a.ep, 1, NULL, 0), a.error);
		check_int(a.ops->flush(a.ep, NULL), a.error);
		run_for(&a, NULL, 20);
		check_int(a.errors, 1);
		check_int(put.done, 1);
		target_close(&t);
		side_close(&a);
	}
	free(mem);
}

static uint64_t ahead_ms;

static uint64_t clock_ahead(void)
{
	return (now_ms() + ahead_ms) * 1000000;
}

/* A dial that was hung up on is repeated 250 ms later, which need not pass. */
static bool has_failed(const struct side *s)
{
	/* an adapter's silence is counted by the same clock */
	ahead_ms += row->one_socket ? 0 : 5;
	return s->errors;
}

/* It closes before, while, or after the two have met. */
static void at_any_time(void)
{
	const unsigned int N = rounds(240);
	unsigned int round, steps;
	struct iovec iov;
	struct side a, b;

	log_keep(); /* an adapter's peer that was never met is lost, perhaps */
	no_deadlines();
	weft_clock_set(clock_ahead);
	iov = (struct iovec){ &a, 8 };
	for (round = 0; round < N; round++) {
		side_open(&a);
		side_open(&b);
		a.ep = side_connect(&a, &b, NULL);
		if (round & 1)
			b.ep = side_connect(&b, &a, NULL);
		for (steps = round / 2; steps; steps--) {
			if (steps % 3)
				side_progress(&a);
			if (steps % 4)
				side_progress(&b);
			if (a.ops->ready(a.ep) && !a.errors)
				a.ops->message(a.ep, 1, &iov, 1);
		}
		side_close(&b);
		wait_for(&a, NULL, has_failed(&a));
		check(a.ops->message(a.ep, 1, &iov, 1) == a.error,
		      "a dead endpoint took a message");
		check_int(a.errors, 1);
		side_close(&a);
	}
}

const struct conformance_test leave_tests[] = {
	{ "an orderly close loses nothing and is -ESHUTDOWN", orderly },
	{ "an orderly close is seen by a peer that writes before it reads",
	  orderly_unread },
	{ "an orderly close is seen by a peer that lags behind and sends",
	  orderly_at_length },
	{ "an orderly close is seen by a peer that replies to each message",
	  orderly_answered },
	{ "an orderly close of one that took many messages loses nothing",
	  orderly_silent },
	{ "an orderly close loses what was not delivered, and says so",
	  orderly_unheard },
	{ "endpoints close in order with messages undelivered",
	  orderly_behind },
	{ "an orderly close ends the peer's pending operations", under_way },
	{ "an orderly close at any moment of connecting loses nothing",
	  at_any_time },
	{ NULL, NULL },
};

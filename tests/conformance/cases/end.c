/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends: nothing is read or written after it was reported. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <unistd.h>

#define BIG (64u << 20)

/* A key is revoked while its put is half way. */
static void revoked_midway(void)
{
	struct side a, b;
	struct target t;
	struct wait_op w;
	uint8_t *src = malloc(BIG);

	sides_open(&a, &b);
	pattern_fill(src, BIG, 1);
	target_open(&t, BIG);
	put_start(&a, &w, src, BIG, (uintptr_t)t.buf, &t.key);
	wait_for(&a, &b, peek(t.buf) != POISON);
	row->ops->mem_release(t.mem);
	t.mem = NULL;
	target_poison(&t);
	target_watch_quiet(&a, &b, &t);
	wait_for(&a, &b, w.done);
	/* what an engine has begun is waited for */
	check_int(w.status, row->blocks ? 0 : -EACCES);
	/* and another pair goes on */
	if (w.status)
		sides_fail(&a, &b);
	send_pattern(&a, &b, a.ep, 1, 100, 4);
	wait_for(&a, &b, b.first);
	check_message(&b, 1, 100, 4);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

/* What a get reads is revoked while it is half way. */
static void get_revoked_midway(void)
{
	struct side a, b;
	struct target t;
	struct wait_op w;
	uint8_t *dst = calloc(1, BIG);

	sides_open(&a, &b);
	target_open(&t, BIG);
	get_start(&a, &w, dst, BIG, (uintptr_t)t.buf, &t.key);
	wait_for(&a, &b, peek(dst) == POISON);
	row->ops->mem_release(t.mem);
	t.mem = NULL;
	wait_for(&a, &b, w.done);
	check_int(w.status, row->blocks ? 0 : -EACCES);
	if (w.status)
		sides_fail(&a, &b);
	a.ops->fence(a.ep);
	b.ops->fence(b.ep);
	send_pattern(&a, &b, a.ep, 1, 100, 4);
	send_pattern(&b, &a, b.ep, 1, 100, 5);
	wait_for(&a, &b, b.first && a.first);
	check_message(&b, 1, 100, 4);
	check_message(&a, 1, 100, 5);
	target_close(&t);
	free(dst);
	sides_close(&a, &b);
}

/* After cancel() the source is the caller's again. */
static void cancelled(void)
{
	struct side a, b;
	struct target t;
	struct wait_op w[2];
	uint8_t *src = malloc(BIG), *dst = malloc(BIG);
	struct iovec small = { src, 50000 };
	size_t i;

	sides_open(&a, &b);
	memset(src, 1, BIG);
	/* the get reads what the put does not write: they do not race */
	target_open(&t, 2 * BIG);
	put_start(&a, &w[0], src, BIG, (uintptr_t)t.buf, &t.key);
	get_start(&a, &w[1], dst, BIG, (uintptr_t)t.buf + BIG, &t.key);
	while (a.ops->message(a.ep, 1, &small, 1) == 0)
		;
	wait_for(&a, &b, peek(t.buf) != POISON);
	a.ops->cancel(a.ep);
	check_int(w[0].done, 1);
	check_int(w[0].status, -ECANCELED);
	check_int(w[1].done, 1);
	memset(src, 2, BIG);
	memset(dst, POISON, BIG);
	run_for(&a, &b, 200);
	for (i = 0; i < BIG; i++)
		check(dst[i] == POISON, "a cancelled get wrote byte %zu", i);
	for (i = 0; i < BIG; i++)
		check(peek(&t.buf[i]) != 2,
		      "a cancelled put was read at byte %zu", i);
	check_int(a.errors, 0);
	check_int(a.ops->flush(a.ep, NULL), 0);
	a.ops->ep_destroy(a.ep);
	a.ep = NULL;
	/* the same two interfaces go on with another endpoint */
	sides_mend(&a, &b);
	while (b.first)
		free(side_take(&b));
	send_pattern(&a, &b, a.ep, 7, 100, 4);
	for (;;) {
		wait_for(&a, &b, b.first);
		if (b.first->id == 7)
			break;
		free(side_take(&b));
	}
	check_message(&b, 7, 100, 4);
	target_close(&t);
	free(src);
	free(dst);
	sides_close(&a, &b);
}

struct late {
	struct side *a;
	struct target *t;
	struct weft_iov *iov;
	struct wait_op put, flush, get;
	int puts, flushes, gets; /* how they ended */
};

/* In the end of a cancelled put: nothing more is taken, or it ends, too. */
static void ask_late(struct wait_op *w)
{
	struct late *l = w->hook_arg;
	const struct weft_dev_ops *ops = l->a->ops;

	l->flushes = ops->flush(l->a->ep, &l->flush.op);
	l->puts = ops->put(l->a->ep, l->iov, 1, (uintptr_t)l->t->buf,
			   &l->t->key, NULL, &l->put.op);
	l->gets = ops->get(l->a->ep, l->iov, 1, (uintptr_t)l->t->buf,
			   &l->t->key, &l->get.op);
}

static void cancelled_asks_again(void)
{
	uint8_t *src = malloc(BIG);
	struct weft_iov iov = { src, BIG, NULL };
	struct side a, b;
	struct target t;
	struct late l = { &a, &t, &iov };
	struct wait_op w, f;

	sides_open(&a, &b);
	target_open(&t, BIG);
	wait_op_init(&f);
	wait_op_init(&l.put);
	wait_op_init(&l.flush);
	wait_op_init(&l.get);
	put_start(&a, &w, src, BIG, (uintptr_t)t.buf, &t.key);
	w.hook = ask_late;
	w.hook_arg = &l;
	check_int(a.ops->flush(a.ep, &f.op), -EINPROGRESS);
	a.ops->cancel(a.ep);
	check_int(w.done, 1);
	check_int(f.done, 1);
	check_int(f.status, -ECANCELED);
	check_int(l.flush.done, l.flushes == -EINPROGRESS);
	check_int(l.puts, -ECANCELED);
	check_int(l.gets, -ECANCELED);
	a.ops->ep_destroy(a.ep);
	a.ep = NULL;
	check_int(l.flush.done, l.flushes == -EINPROGRESS);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

/*
 * Destroying an endpoint ends what is pending, and what the peer sends lives.
 */
static void destroyed(void)
{
	struct side a, b;
	struct target t;
	struct wait_op w;
	uint8_t *src = malloc(BIG);

	memset(src, 1, BIG);
	sides_open(&a, &b);
	target_open(&t, BIG);
	put_start(&a, &w, src, BIG, (uintptr_t)t.buf, &t.key);
	wait_for(&a, &b, peek(t.buf) != POISON);
	a.ops->ep_destroy(a.ep);
	a.ep = NULL;
	check_int(w.done, 1);
	free(src);
	if (a.attr.cancel_ends_ep)
		sides_mend(&a, &b);
	send_pattern(&b, &a, b.ep, 1, fit(&b, 100000), 4);
	wait_for(&a, &b, a.first);
	check_message(&a, 1, fit(&b, 100000), 4);
	target_close(&t);
	sides_close(&a, &b);
}

/* What may be delivered of a round: @before always, the rest if all is here. */
struct cut {
	const struct target *t;
	unsigned int round, before;
};

enum { CUT_PUTS = 48, CUT_LEN = 1 << 19, CUT_BEFORE = 1, CUT_BEHIND = 2 };

static void on_cut_message(struct side *s, uint8_t id, void *data, size_t len)
{
	struct cut *c = s->hook_arg;
	unsigned int round;

	check_int(len, sizeof(round));
	memcpy(&round, data, sizeof(round));
	check_int(round, c->round);
	if (id == CUT_BEFORE)
		c->before++;
	else
		pattern_check("put before a delivered message", c->t->buf,
			      c->t->len, round);
}

/* As many puts as there is room for in one go; how many. */
static unsigned int put_many(struct side *a, const struct target *t,
			     uint8_t *src, struct wait_op *w)
{
	unsigned int n;

	for (n = 0; n < CUT_PUTS; n++) {
		if (!a->ops->ready(a->ep))
			break;
		put_start(a, &w[n], src + n * CUT_LEN, CUT_LEN,
			  (uintptr_t)t->buf + n * CUT_LEN, &t->key);
	}
	return n;
}

/*
 * Puts, and a message behind them, are cut at any moment: the message is
 * delivered if all of them are placed, and the one before them in any case.
 */
static void cut_before_message(void)
{
	static struct wait_op w[CUT_PUTS];
	uint8_t *src = malloc(CUT_PUTS * CUT_LEN);
	unsigned int round, step, n, i, placed;
	struct iovec number = { &round, sizeof(round) };
	struct cut c = { 0 };
	struct side a, b;
	struct target t;

	sides_open(&a, &b);
	target_open(&t, CUT_PUTS * CUT_LEN);
	c.t = &t;
	for (round = 0; round < rounds(16); round++) {
		/* what is mapped is when they begin */
		check_int(put_wait(&a, &b, src, CUT_LEN, (uintptr_t)t.buf,
				   &t.key, NULL),
			  0);
		pattern_fill(src, CUT_PUTS * CUT_LEN, round);
		target_poison(&t);
		c.round = round;
		c.before = 0;
		b.hook = on_cut_message;
		b.hook_arg = &c;
		check_int(a.ops->message(a.ep, CUT_BEFORE, &number, 1), 0);
		wait_for(&a, &b, a.ops->flush(a.ep, NULL) == 0);
		n = put_many(&a, &t, src, w);
		a.ops->fence(a.ep);
		if (n == CUT_PUTS)
			a.ops->message(a.ep, CUT_BEHIND, &number, 1);
		for (step = 0; step < 2 * round; step++)
			both_progress(&a, &b);
		if (round % 2)
			a.ops->cancel(a.ep);
		a.ops->ep_destroy(a.ep);
		a.ep = NULL;
		for (i = placed = 0; i < n; i++) {
			check_int(w[i].done, 1);
			placed += !w[i].status;
		}
		run_for(&a, &b, 5);
		wait_for(&a, &b, c.before == 1);
		/* nothing was cut: to the other side it may be no error */
		if (a.attr.cancel_ends_ep && placed == n && !b.errors) {
			b.ops->ep_destroy(b.ep);
			b.ep = NULL;
		}
		sides_mend(&a, &b);
		b.hook = NULL;
	}
	target_check_guards(&t);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

/*
 * The same where a thread has seen a put's end and progress() has not told it:
 * a window that was full has room again while its source does nothing.
 */
static void destroyed_when_settled(void)
{
	enum { N = 1000, LEN = 70000 };
	static struct wait_op w[N];
	struct side a, b;
	struct target t;
	uint8_t *src = malloc(LEN);
	uint64_t end;
	unsigned int round, n, i;

	if (!row->sockets)
		skip_test("nothing ends outside progress()");
	setenv("WEFT_TCP_THREADS", "1", 1);
	sides_open(&a, &b);
	target_open(&t, LEN);
	pattern_fill(src, LEN, 1);
	for (round = 0; round < 4; round++) {
		/* the streams come with progress() */
		check_int(put_wait(&a, &b, src, LEN, (uintptr_t)t.buf, &t.key,
				   NULL),
			  0);
		for (n = 0; n < N && a.ops->ready(a.ep); n++) {
			put_start(&a, &w[n], src, LEN, (uintptr_t)t.buf,
				  &t.key);
		}
		end = now_ms() + WAIT_MS;
		while (n < N && !a.ops->ready(a.ep))
			check(now_ms() < end, "no thread moves the puts");
		for (i = 0; i < n; i++)
			check_int(w[i].done, 0);
		if (round % 2)
			a.ops->cancel(a.ep);
		a.ops->ep_destroy(a.ep);
		for (i = 0; i < n; i++) {
			check_int(w[i].done, 1);
			check_int(w[i].status, -ECANCELED);
		}
		run_for(&a, &b, 10);
		for (i = 0; i < n; i++)
			check_int(w[i].done, 1);
		a.ep = side_connect(&a, &b, NULL);
		wait_for(&a, &b, a.ops->ready(a.ep));
	}
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

const struct conformance_test end_tests[] = {
	{ "a put stops when its key is revoked", revoked_midway },
	{ "a get stops when its key is revoked", get_revoked_midway },
	{ "after cancel no memory is accessed", cancelled },
	{ "a cancelled operation may start others from done()",
	  cancelled_asks_again },
	{ "destroy ends pending operations, the peer's messages arrive",
	  destroyed },
	{ "no message is delivered behind puts that were cut",
	  cut_before_message },
	{ "destroy ends operations that a thread completed",
	  destroyed_when_settled },
	{ NULL, NULL },
};

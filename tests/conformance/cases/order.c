/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Order: a message never overtakes the puts before its fence, whatever carried
 * them; flush means placed.
 */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * recvmsg() of this program: bulk is read by it.  When throttled, sockets with
 * an odd descriptor are read late and in small pieces, so that the streams of
 * one pair differ a thousandfold in speed.  After bulk_reads of them, large
 * reads find nothing.
 */
static atomic_bool throttled;
atomic_int bulk_reads = -1;

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct timespec late = { 0, 2000000 };
	int left = atomic_load(&bulk_reads);

	if (left >= 0 && msg->msg_iov[0].iov_len > 20000) {
		if (!left) {
			errno = EAGAIN;
			return -1;
		}
		atomic_store(&bulk_reads, left - 1);
	}
	if (atomic_load(&throttled) && (fd & 1) &&
	    msg->msg_iov[0].iov_len > 20000) {
		nanosleep(&late, NULL);
		return recvfrom(fd, msg->msg_iov[0].iov_base, 20000, flags,
				NULL, NULL);
	}
	if (msg->msg_iovlen == 1 && !msg->msg_control)
		return recvfrom(fd, msg->msg_iov[0].iov_base,
				msg->msg_iov[0].iov_len, flags, NULL, NULL);
	return syscall(SYS_recvmsg, fd, msg, flags);
}

struct expect {
	struct target *t;
	unsigned int got;
	size_t *len;
};

/*
 * The message names a round; all bytes of its put must be here by now, and
 * every second put must have been notified.
 */
static void on_done_message(struct side *s, uint8_t id, void *data, size_t len)
{
	struct expect *e = s->hook_arg;
	unsigned int round;

	check_int(id, 1);
	check_int(len, sizeof(round));
	memcpy(&round, data, sizeof(round));
	check_int(round, e->got);
	pattern_check("fenced put", e->t[round % 4].buf, e->len[round % 4],
		      round);
	e->got++;
	check(s->notifies >= e->got / 2, "%u of %u were notified", s->notifies,
	      e->got / 2);
}

static void fenced_rounds(unsigned int n, size_t unit)
{
	size_t len[4] = { 3 * unit, 100, 40000, unit + 1 };
	struct target t[4];
	struct side a, b;
	struct expect e = { t, 0, len };
	struct weft_notify notify;
	struct wait_op w[4];
	uint8_t *src[4];
	struct weft_iov iov;
	unsigned int i, k;
	struct iovec number = { &i, sizeof(i) };

	sides_open(&a, &b);
	b.hook = on_done_message;
	b.hook_arg = &e;
	for (i = 0; i < 4; i++) {
		src[i] = malloc(len[i]);
		target_open(&t[i], len[i]);
		wait_op_init(&w[i]);
		w[i].done = 1;
	}
	for (i = 0; i < n; i++) {
		k = i % 4;
		/* the buffers of four rounds ago are free again */
		wait_for(&a, &b, w[k].done && e.got + 4 > i);
		wait_op_init(&w[k]);
		pattern_fill(src[k], len[k], i);
		target_poison(&t[k]);
		iov = (struct weft_iov){ src[k], len[k], NULL };
		wait_for(&a, &b, a.ops->ready(a.ep));
		notify.tag = i;
		check_int(a.ops->put(a.ep, &iov, 1, (uintptr_t)t[k].buf,
				     &t[k].key, i % 2 ? &notify : NULL,
				     &w[k].op),
			  -EINPROGRESS);
		a.ops->fence(a.ep);
		wait_for(&a, &b, a.ops->ready(a.ep));
		check_int(a.ops->message(a.ep, 1, &number, 1), 0);
	}
	wait_for(&a, &b, e.got == n);
	for (i = 0; i < 4; i++) {
		wait_for(&a, &b, w[i].done);
		target_check_guards(&t[i]);
		target_close(&t[i]);
		free(src[i]);
	}
	sides_close(&a, &b);
}

static void fenced(void)
{
	fenced_rounds(rounds(400), 700000);
}

static void fenced_with_threads(void)
{
	setenv("WEFT_TCP_THREADS", "3", 1);
	setenv("WEFT_TCP_STREAMS", "3", 1);
	fenced_rounds(rounds(400), 700000);
}

static void fenced_throttled(void)
{
	if (!strncmp(row->name, "ib", 2))
		skip_test("no test can hold a queue pair up");
	setenv("WEFT_TCP_THREADS", "2", 1);
	setenv("WEFT_TCP_STREAMS", "4", 1);
	setenv("WEFT_TCP_CHUNK", "64k", 1);
	atomic_store(&throttled, true);
	fenced_rounds(24, 700000);
}

/* Flush completes after everything before it, and every put was placed. */
static void flushed(void)
{
	struct side a, b;
	struct target t;
	struct wait_op w[3], f;
	uint8_t *src = malloc(2000000);
	unsigned int i, round;

	sides_open(&a, &b);
	target_open(&t, 6000000);
	check_int(a.ops->flush(a.ep, NULL), 0);
	for (round = 0; round < 20; round++) {
		pattern_fill(src, 2000000, round);
		target_poison(&t);
		for (i = 0; i < 3; i++) {
			wait_for(&a, &b, a.ops->ready(a.ep));
			put_start(&a, &w[i], src, 2000000,
				  (uintptr_t)t.buf + i * 2000000, &t.key);
		}
		wait_op_init(&f);
		if (a.ops->flush(a.ep, &f.op) == -EINPROGRESS) {
			check_int(a.ops->flush(a.ep, NULL), -EINPROGRESS);
			wait_status(&a, &b, f, 0);
		}
		for (i = 0; i < 3; i++) {
			check_int(w[i].done, 1);
			pattern_check("flushed put", t.buf + i * 2000000,
				      2000000, round);
		}
	}
	check_int(a.ops->flush(a.ep, NULL), 0);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

struct chain {
	struct side *a;
	struct target *t;
	struct weft_iov iov;
	struct wait_op put, flush, second;
	int flushed; /* what the second flush() returned */
};

/* In the first flush's end: one more put, and a flush for it. */
static void go_on(struct wait_op *w)
{
	struct chain *c = w->hook_arg;

	wait_op_init(&c->put);
	wait_op_init(&c->second);
	check_int(c->a->ops->put(c->a->ep, &c->iov, 1, (uintptr_t)c->t->buf,
				 &c->t->key, NULL, &c->put.op),
		  -EINPROGRESS);
	c->flushed = c->a->ops->flush(c->a->ep, &c->second.op);
}

static void second_placed(struct wait_op *w)
{
	struct chain *c = w->hook_arg;

	check_int(c->put.done, 1);
	pattern_check("flushed put", c->t->buf, c->t->len, 77);
}

/* Each flush waits for what was there when it was asked for, and no less. */
static void flushed_again(void)
{
	uint8_t *src = malloc(2000000);
	struct side a, b;
	struct target t;
	struct chain c = { &a, &t, { src + 1000000, 1000000, NULL } };
	struct wait_op first;

	sides_open(&a, &b);
	target_open(&t, 1000000);
	pattern_fill(src, 1000000, 76);
	pattern_fill(src + 1000000, 1000000, 77);
	wait_op_init(&c.flush);
	c.flush.hook = go_on;
	c.flush.hook_arg = &c;
	put_start(&a, &first, src, 1000000, (uintptr_t)t.buf, &t.key);
	check_int(a.ops->flush(a.ep, &c.flush.op), -EINPROGRESS);
	wait_for(&a, &b, first.done && c.flush.done);
	check_int(c.flushed, -EINPROGRESS);
	check_int(c.second.done, 0);
	c.second.hook = second_placed;
	c.second.hook_arg = &c;
	wait_status(&a, &b, c.second, 0);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

/* The peer's program, which may learn of our end by another way. */
static void flushed_messages(void)
{
	enum { FEW = 8 }; /* for which there is room */
	struct wait_op f;
	struct side a, b;
	unsigned int round, i, sent = 0;

	if (row->in_process || row->ops == &weft_nvlink_ops)
		skip_test("what is in the inbox of the peer has arrived");
	sides_open(&a, &b);
	for (round = 1; round <= FEW; round++) {
		for (i = 0; i < round; i++)
			send_pattern(&a, NULL, a.ep, 1, 100, sent++);
		wait_op_init(&f);
		check_int(a.ops->flush(a.ep, &f.op), -EINPROGRESS);
		run_for(&a, NULL, 20);
		check_int(f.done, 0);
		check_int(a.ops->flush(a.ep, NULL), -EINPROGRESS);
		wait_status(&a, &b, f, 0);
		check_int(b.messages, sent);
		check_int(a.ops->flush(a.ep, NULL), 0);
	}
	for (i = 0; i < sent; i++)
		check_message(&b, 1, 100, i);
	sides_close(&a, &b);
}

const struct conformance_test order_tests[] = {
	{ "a message never overtakes the puts before its fence", fenced },
	{ "a message never overtakes its puts (own threads)",
	  fenced_with_threads },
	{ "a message never overtakes its puts (throttled streams)",
	  fenced_throttled },
	{ "flush waits for every put", flushed },
	{ "a flush from a flush's done() waits for every put", flushed_again },
	{ "flush waits until the peer's program has every message",
	  flushed_messages },
	{ NULL, NULL },
};

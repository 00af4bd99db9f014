/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One of several streams becomes a thousand times slower than its siblings, as
 * by a bad link of a bond: what it holds goes by the others, once, and in
 * order.
 */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK	((size_t)700000)
#define BLOCKS	4u
#define FLOWS	2u
#define RUN_UP	(24ull << 20) /* bytes sent before one stalls */
#define TRICKLE 2000u	      /* bytes/s from then on */

/*
 * sendmsg() of this program: bulk is sent by it.  Of each flow, known by where
 * its source lies, the socket that takes the chunk after RUN_UP is slowed down
 * by the kernel.
 */
static struct {
	pthread_mutex_t lock;
	bool on;
	struct {
		const uint8_t *from;
		size_t len;
		uint64_t sent;
		unsigned int victims;
	} flow[FLOWS];
	/* the caller's again: what is sent from it is counted */
	const uint8_t *returned;
	size_t returned_len;
	unsigned int late;
} stall = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void look(int fd, const uint8_t *p, size_t len)
{
	unsigned int rate = TRICKLE, i;

	pthread_mutex_lock(&stall.lock);
	if (p >= stall.returned && p < stall.returned + stall.returned_len)
		stall.late++;
	for (i = 0; stall.on && i < FLOWS; i++) {
		if (p < stall.flow[i].from ||
		    p >= stall.flow[i].from + stall.flow[i].len)
			continue;
		stall.flow[i].sent += len;
		if (stall.flow[i].sent > RUN_UP && !stall.flow[i].victims++ &&
		    setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate,
			       sizeof(rate))) {
			check_int(errno, ENOPROTOOPT);
			skip_test(
				"no SO_MAX_PACING_RATE here, as in qemu-user");
		}
	}
	pthread_mutex_unlock(&stall.lock);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	const struct iovec *last;

	if (msg->msg_iovlen) {
		last = &msg->msg_iov[msg->msg_iovlen - 1];
		look(fd, last->iov_base, last->iov_len);
	}
	return syscall(SYS_sendmsg, fd, msg, flags);
}

/* One direction: blocks go round and round, each announced by a message. */
struct flow {
	struct side *from, *to;
	uint8_t *src; /* BLOCKS of them */
	struct target t[BLOCKS];
	struct wait_op w[BLOCKS];
	unsigned int sent, got;
};

static void on_told(struct side *s, uint8_t id, void *data, size_t len)
{
	struct flow *f = s->hook_arg;
	unsigned int round;

	check_int(id, 1);
	check_int(len, sizeof(round));
	memcpy(&round, data, sizeof(round));
	check_int(round, f->got);
	pattern_check("block", f->t[round % BLOCKS].buf, BLOCK, round);
	f->got++;
}

static void flow_open(struct flow *f, struct side *from, struct side *to,
		      unsigned int number)
{
	unsigned int i;

	f->from = from;
	f->to = to;
	f->src = malloc(BLOCKS * BLOCK);
	for (i = 0; i < BLOCKS; i++) {
		target_open(&f->t[i], BLOCK);
		wait_op_init(&f->w[i]);
		f->w[i].done = 1;
	}
	to->hook = on_told;
	to->hook_arg = f;
	pthread_mutex_lock(&stall.lock);
	stall.flow[number].from = f->src;
	stall.flow[number].len = BLOCKS * BLOCK;
	stall.on = true;
	pthread_mutex_unlock(&stall.lock);
}

static void flow_close(struct flow *f)
{
	unsigned int i;

	for (i = 0; i < BLOCKS; i++) {
		wait_status(f->from, f->to, f->w[i], 0);
		target_check_guards(&f->t[i]);
		target_close(&f->t[i]);
	}
	free(f->src);
}

/* Sends one block if it may; true: it did. */
static bool flow_step(struct flow *f)
{
	unsigned int i = f->sent, k = i % BLOCKS;
	struct side *s = f->from;
	uint8_t *src = f->src + k * BLOCK;
	struct iovec number = { &i, sizeof(i) };

	if (!f->w[k].done || f->got + BLOCKS <= i || !s->ops->ready(s->ep))
		return false;
	check_int(f->w[k].status, 0);
	pattern_fill(src, BLOCK, i);
	target_poison(&f->t[k]);
	put_start(s, &f->w[k], src, BLOCK, (uintptr_t)f->t[k].buf,
		  &f->t[k].key);
	s->ops->fence(s->ep);
	wait_for(f->from, f->to, s->ops->ready(s->ep));
	check_int(s->ops->message(s->ep, 1, &number, 1), 0);
	f->sent++;
	return true;
}

static void only_tcp(void)
{
	if (!row->sockets)
		skip_test("no sockets carry bulk");
	if (strcmp(row->name, "tcp"))
		skip_test("the same as over IPv4");
}

static void settings(const char *threads)
{
	setenv("WEFT_TCP_STREAMS", "3", 1);
	setenv("WEFT_TCP_THREADS", threads, 1);
	setenv("WEFT_TCP_CHUNK", "128k", 1);
}

/* Both ways at once: the dialer's streams and those that it was asked for. */
static void both_ways(const char *threads)
{
	unsigned int n = 120, i;
	struct flow f[FLOWS] = { { 0 } };
	struct side a, b;

	only_tcp();
	settings(threads);
	sides_open(&a, &b);
	flow_open(&f[0], &a, &b, 0);
	flow_open(&f[1], &b, &a, 1);
	while (f[0].sent < n || f[1].sent < n) {
		for (i = 0; i < FLOWS; i++)
			wait_for(&a, &b, f[i].sent == n || flow_step(&f[i]));
	}
	wait_for(&a, &b, f[0].got == n && f[1].got == n);
	check_int(stall.flow[0].victims > 0, 1);
	check_int(stall.flow[1].victims > 0, 1);
	flow_close(&f[0]);
	flow_close(&f[1]);
	sides_close(&a, &b);
}

static void caller_moves(void)
{
	both_ways("0");
}

static void threads_move(void)
{
	both_ways("2");
}

/*
 * Meanwhile more messages wait for the stalled put than a side keeps: what ends
 * the wait comes behind them on the same stream.
 */
enum { EXTRA = 48, EXTRA_LEN = 32 << 10 };

struct crowd {
	struct flow f;
	unsigned int extra; /* of them, those that arrived */
};

static void on_crowd(struct side *s, uint8_t id, void *data, size_t len)
{
	struct crowd *c = s->hook_arg;

	if (id == 1) {
		on_told(&(struct side){ .hook_arg = &c->f }, id, data, len);
		return;
	}
	check_int(len, EXTRA_LEN);
	check_int(c->extra / EXTRA, c->f.got - 1);
	pattern_check("message", data, len, c->extra);
	c->extra++;
}

static void messages_wait(void)
{
	unsigned int n = 60, k, sent = 0;
	uint8_t *data = malloc(EXTRA_LEN);
	struct iovec iov = { data, EXTRA_LEN };
	struct crowd c = { { 0 } };
	struct side a, b;

	only_tcp();
	settings("0");
	sides_open(&a, &b);
	flow_open(&c.f, &a, &b, 0);
	b.hook = on_crowd;
	b.hook_arg = &c;
	while (c.f.sent < n) {
		wait_for(&a, &b, flow_step(&c.f));
		for (k = 0; k < EXTRA; k++) {
			pattern_fill(data, EXTRA_LEN, sent++);
			wait_for(&a, &b, a.ops->ready(a.ep));
			check_int(a.ops->message(a.ep, 2, &iov, 1), 0);
		}
	}
	wait_for(&a, &b, c.extra == n * EXTRA);
	check_int(stall.flow[0].victims > 0, 1);
	flow_close(&c.f);
	sides_close(&a, &b);
	free(data);
}

/* What a get asked for goes by the others as well. */
static void replies(void)
{
	size_t len = 8 * BLOCK;
	struct target source;
	struct side a, b;
	uint8_t *dst = malloc(len);
	unsigned int i;

	only_tcp();
	settings("0");
	sides_open(&a, &b);
	target_open(&source, len);
	pthread_mutex_lock(&stall.lock);
	stall.flow[0].from = source.buf;
	stall.flow[0].len = len;
	stall.on = true;
	pthread_mutex_unlock(&stall.lock);
	for (i = 0; i < 12; i++) {
		pattern_fill(source.buf, len, i);
		memset(dst, POISON, len);
		check_int(get_wait(&a, &b, dst, len, (uintptr_t)source.buf,
				   &source.key),
			  0);
		pattern_check("got", dst, len, i);
	}
	check_int(stall.flow[0].victims > 0, 1);
	target_close(&source);
	free(dst);
	sides_close(&a, &b);
}

/* Cancelled in between, a put is sent no more: its source is the caller's. */
static void cancelled(unsigned int after_ms)
{
	struct flow f = { 0 };
	struct side a, b;
	unsigned int i, k;

	only_tcp();
	settings("0");
	sides_open(&a, &b);
	flow_open(&f, &a, &b, 0);
	while (!stall.flow[0].victims)
		wait_for(&a, &b, flow_step(&f) || stall.flow[0].victims);
	run_for(&a, &b, after_ms);
	a.ops->cancel(a.ep);
	for (i = 0; i < BLOCKS; i++)
		check_int(f.w[i].done, 1);
	memset(f.src, 0xee, BLOCKS * BLOCK);
	b.hook = NULL;
	run_for(&a, &b, 2500);
	for (k = 0; k < BLOCKS; k++) {
		for (i = 8; i < BLOCK; i += 997)
			check(memcmp(f.t[k].buf + i - 8,
				     "\xee\xee\xee\xee\xee\xee\xee\xee", 8),
			      "byte %u of block %u was sent after cancel()", i,
			      k);
		target_check_guards(&f.t[k]);
		target_close(&f.t[k]);
	}
	free(f.src);
	sides_close(&a, &b);
}

static void cancelled_before(void)
{
	cancelled(300);
}

static void cancelled_after(void)
{
	cancelled(1500);
}

/* In the end of the first of many cancelled puts, another endpoint puts. */
struct other {
	struct side *a;
	struct weft_ep *ep;
	struct weft_iov iov;
	struct target *t;
	struct wait_op w;
	bool asked;
};

static void put_elsewhere(struct wait_op *w)
{
	struct other *o = w->hook_arg;

	if (o->asked)
		return;
	o->asked = true;
	check_int(o->a->ops->put(o->ep, &o->iov, 1, (uintptr_t)o->t->buf,
				 &o->t->key, NULL, &o->w.op),
		  -EINPROGRESS);
}

/* No stream takes a chunk of one put while another is being cancelled. */
static void many_cancelled(void)
{
	enum { PUTS = 32 };
	size_t len = 1 << 20, i;
	uint8_t *src = malloc(PUTS * len);
	struct wait_op w[PUTS];
	struct target t, t2;
	struct other o = { 0 };
	struct side a, b;

	only_tcp();
	setenv("WEFT_TCP_STREAMS", "4", 1);
	setenv("WEFT_TCP_THREADS", "0", 1);
	setenv("WEFT_TCP_CHUNK", "150k", 1);
	setenv("WEFT_TCP_SNDBUF", "128k", 1);
	setenv("WEFT_TCP_RCVBUF", "64k", 1);
	sides_open(&a, &b);
	target_open(&t, PUTS * len);
	target_open(&t2, len);
	memset(src, 1, PUTS * len);
	o.a = &a;
	o.t = &t2;
	o.iov = (struct weft_iov){ malloc(len), len, NULL };
	pattern_fill(o.iov.addr, len, 3);
	wait_op_init(&o.w);
	o.ep = side_connect(&a, &b, NULL);
	wait_for(&a, &b, a.ops->ready(o.ep));
	for (i = 0; i < PUTS; i++) {
		put_start(&a, &w[i], src + i * len, len,
			  (uintptr_t)t.buf + i * len, &t.key);
		w[i].hook = put_elsewhere;
		w[i].hook_arg = &o;
	}
	/* not in the end of one that was sent */
	o.asked = true;
	wait_for(&a, &b, t.buf[4 * len] == 1);
	o.asked = false;
	for (i = 0; i < 6; i++) /* room for the stream that takes a chunk now */
		side_progress(&b);
	side_progress(&a); /* some streams are between two chunks now */
	a.ops->cancel(a.ep);
	pthread_mutex_lock(&stall.lock);
	stall.returned = src;
	stall.returned_len = PUTS * len;
	pthread_mutex_unlock(&stall.lock);
	for (i = 0; i < PUTS; i++)
		check_int(w[i].done, 1);
	run_for(&a, &b, 200);
	check_int(stall.late, 0);
	wait_status(&a, &b, o.w, 0);
	pattern_check("other", t2.buf, len, 3);
	target_check_guards(&t);
	target_close(&t);
	target_close(&t2);
	a.ops->ep_destroy(o.ep);
	free((void *)o.iov.addr);
	free(src);
	sides_close(&a, &b);
}

const struct conformance_test stall_tests[] = {
	{ "a stalled stream is abandoned and its chunks resent", caller_moves },
	{ "a stalled stream is abandoned by own threads", threads_move },
	{ "a stalled stream is abandoned while messages wait", messages_wait },
	{ "a stalled stream's get replies are resent", replies },
	{ "cancel before a stream is abandoned", cancelled_before },
	{ "cancel after a stream was abandoned", cancelled_after },
	{ "no source is read after its put was cancelled", many_cancelled },
	{ NULL, NULL },
};

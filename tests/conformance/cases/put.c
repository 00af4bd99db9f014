/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets: every byte, the keys, notifications. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"

static const size_t sizes[] = {
	0,     1,      8,      4095,   4096,	65536,
	65537, 131072, 131073, 524288, 1048577, 16777217
};
#define NSIZES (sizeof(sizes) / sizeof(*sizes))

static void put_sizes(void)
{
	struct side a, b;
	struct target t;
	uint8_t *src;
	unsigned int i;

	sides_open(&a, &b);
	for (i = 0; i < NSIZES; i++) {
		src = malloc(sizes[i] + 1);
		pattern_fill(src, sizes[i], i);
		target_open(&t, sizes[i] + 10);
		check_int(put_wait(&a, &b, src, sizes[i], (uintptr_t)t.buf + 5,
				   &t.key, NULL),
			  0);
		/* placed and visible when the completion says so */
		pattern_check("put", t.buf + 5, sizes[i], i);
		target_check_poison(&t, 0, 5);
		target_check_poison(&t, 5 + sizes[i], t.len);
		target_check_guards(&t);
		target_close(&t);
		free(src);
	}
	check_int(b.notifies, 0);
	sides_close(&a, &b);
}

static void get_sizes(void)
{
	struct side a, b;
	struct target t;
	uint8_t *dst;
	unsigned int i, n;

	sides_open(&a, &b);
	for (i = 0; i < NSIZES; i++) {
		dst = malloc(sizes[i] + 2);
		memset(dst, POISON, sizes[i] + 2);
		target_open(&t, sizes[i]);
		pattern_fill(t.buf, sizes[i], i + 50);
		/* more of one size than the peer may leave unacknowledged */
		for (n = sizes[i] == 65537 ? 300 : 1; n--;)
			check_int(get_wait(&a, &b, dst + 1, sizes[i],
					   (uintptr_t)t.buf, &t.key),
				  0);
		pattern_check("get", dst + 1, sizes[i], i + 50);
		check_int(dst[0], POISON);
		check_int(dst[sizes[i] + 1], POISON);
		target_close(&t);
		free(dst);
	}
	sides_close(&a, &b);
}

static void scattered(void)
{
	struct side a, b;
	struct target t;
	struct weft_iov iov[4];
	struct wait_op w;
	uint8_t *src;
	size_t len = 3000001, cut[4] = { 100, 1000001, 0, 1999900 };
	unsigned int i;
	size_t off = 0;

	sides_open(&a, &b);
	src = malloc(len);
	pattern_fill(src, len, 3);
	target_open(&t, len);
	for (i = 0; i < 4; off += cut[i++])
		iov[i] = (struct weft_iov){ src + off, cut[i], NULL };
	wait_op_init(&w);
	check_int(
		a.ops->put(a.ep, iov, 4, (uintptr_t)t.buf, &t.key, NULL, &w.op),
		-EINPROGRESS);
	wait_status(&a, &b, w, 0);
	pattern_check("gathered put", t.buf, len, 3);
	memset(src, 0, len);
	wait_op_init(&w);
	check_int(a.ops->get(a.ep, iov, 4, (uintptr_t)t.buf, &t.key, &w.op),
		  -EINPROGRESS);
	wait_status(&a, &b, w, 0);
	pattern_check("scattered get", src, len, 3);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

/* Adaptors drop empty pieces, and may have none left. */
static void no_pieces(void)
{
	struct side a, b;
	struct target t;
	struct wait_op w;
	struct weft_iov iov = { NULL, 0, NULL };
	unsigned int get;

	sides_open(&a, &b);
	target_open(&t, 100);
	for (get = 0; get < 2; get++) {
		wait_op_init(&w);
		if (get)
			check_int(a.ops->get(a.ep, &iov, 0, (uintptr_t)t.buf,
					     &t.key, &w.op),
				  -EINPROGRESS);
		else
			check_int(a.ops->put(a.ep, &iov, 0, (uintptr_t)t.buf,
					     &t.key, NULL, &w.op),
				  -EINPROGRESS);
		wait_status(&a, &b, w, 0);
	}
	check_int(a.ops->flush(a.ep, NULL), 0);
	target_check_poison(&t, 0, t.len);
	target_check_guards(&t);
	target_close(&t);
	sides_close(&a, &b);
}

static void notified(void)
{
	struct side a, b;
	struct target t;
	struct weft_notify n;
	uint8_t *src = malloc(sizes[NSIZES - 1]);
	unsigned int i;

	sides_open(&a, &b);
	for (i = 0; i < NSIZES; i++) {
		pattern_fill(src, sizes[i], i);
		target_open(&t, sizes[i]);
		n.tag = 0x1122334455660000ull + i;
		check_int(put_wait(&a, &b, src, sizes[i], (uintptr_t)t.buf,
				   &t.key, &n),
			  0);
		wait_for(&a, &b, b.notifies == i + 1);
		check(b.notify_tag == n.tag, "the tag is another");
		check_int(b.notify_size, sizes[i]);
		pattern_check("notified put", t.buf, sizes[i], i);
		target_close(&t);
	}
	run_for(&a, &b, 10);
	check_int(b.notifies, NSIZES);
	free(src);
	sides_close(&a, &b);
}

#define NOTIFIED 6000u

static unsigned int placed;
static bool told[NOTIFIED];

static void count_notified(uint64_t tag, uint64_t size)
{
	check(tag < NOTIFIED && !told[tag], "the tag is another");
	check_int(size, 8);
	told[tag] = true;
}

static void count_placed(struct weft_op *op, int status)
{
	check_int(status, 0);
	placed++;
}

static void check_idle(void)
{
	struct timespec a, b;
	double s;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	usleep(100000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	s = b.tv_sec - a.tv_sec + 1e-9 * (b.tv_nsec - a.tv_nsec);
	check(s < 0.05, "a thread ran for %g of 0.1 s", s);
}

/*
 * A put is complete when it is placed, and its target learns of it with a later
 * progress(): memory for these must not grow with the puts.  The target makes
 * none until nothing was placed for @pause_ms, and no thread spins until then.
 */
static void notify_slow_peer(unsigned int pause_ms)
{
	enum { MAX_KEPT = 2048 };
	uint8_t src[8] = "8 bytes";
	struct weft_iov iov = { src, sizeof(src), NULL };
	struct weft_notify n = { 0 };
	struct weft_op *ops = calloc(NOTIFIED, sizeof(*ops));
	unsigned int i = 0, j, before;
	uint64_t since;
	struct side a, b;
	struct target t;
	int ret;

	sides_open(&a, &b);
	target_open(&t, sizeof(src));
	check_int(put_wait(&a, &b, src, sizeof(src), (uintptr_t)t.buf, &t.key,
			   NULL),
		  0);
	b.notify_hook = count_notified;
	while (placed < NOTIFIED || b.notifies < NOTIFIED) {
		since = weft_now_ms();
		do {
			for (; i < NOTIFIED; i++) {
				ops[i].done = count_placed;
				n.tag = i;
				ret = a.ops->put(a.ep, &iov, 1,
						 (uintptr_t)t.buf, &t.key, &n,
						 &ops[i]);
				if (ret == -EAGAIN)
					break;
				check_int(ret, -EINPROGRESS);
			}
			before = placed;
			for (j = 0; j < 50; j++)
				a.ops->progress(a.iface);
			if (placed != before)
				since = weft_now_ms();
		} while (!b.notifies && weft_now_ms() < since + pause_ms);
		if (pause_ms && !b.notifies)
			check_idle();
		b.ops->progress(b.iface);
		check(placed <= b.notifies + MAX_KEPT,
		      "%u puts are placed, of %u the target knows", placed,
		      b.notifies);
	}
	check_int(b.notifies, NOTIFIED);
	target_close(&t);
	free(ops);
	sides_close(&a, &b);
}

static void notify_in_progress(void)
{
	notify_slow_peer(0);
}

/* The same where streams carry them, read by progress() or by a thread. */
static void notify_by_stream(const char *threads, unsigned int pause_ms)
{
	if (!row->sockets)
		skip_test("it has no bulk streams");
	setenv("WEFT_TCP_BULK_MIN", "1", 1);
	setenv("WEFT_TCP_THREADS", threads, 1);
	notify_slow_peer(pause_ms);
}

static void notify_by_caller(void)
{
	notify_by_stream("0", 0);
}

static void notify_by_thread(void)
{
	notify_by_stream("1", 50);
}

/* The source's registration may go while the put is under way. */
static void released_source(void)
{
	enum { LEN = 3000000, OFF = 5 };
	struct weft_mem *mem;
	struct weft_iov iov;
	struct side a, b;
	struct target t;
	struct wait_op w;
	uint8_t *src;

	sides_open(&a, &b);
	target_open(&t, LEN);
	src = malloc(LEN);
	check_int(a.ops->mem_register(src, LEN, mem_kind(), &mem), 0);
	iov = (struct weft_iov){ src + OFF, LEN - OFF, mem };
	pattern_fill(iov.addr, LEN - OFF, 2);
	target_poison(&t);
	wait_op_init(&w);
	check_int(
		a.ops->put(a.ep, &iov, 1, (uintptr_t)t.buf, t.key, NULL, &w.op),
		-EINPROGRESS);
	a.ops->mem_release(mem);
	wait_for(&a, &b, w.done);
	if (w.status)
		sides_fail(&a, &b);
	else
		pattern_check("put of what was released", t.buf, LEN - OFF, 2);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

/* More than any window at once, both directions, then all checked. */
static void many(void)
{
	enum { LEN = 70000 };
	const unsigned int N = rounds(600);
	struct side a, b;
	struct target ta, tb;
	static struct wait_op w[2][600];
	uint8_t *src = malloc((size_t)N * LEN);
	unsigned int i;

	sides_open(&a, &b);
	target_open(&ta, (size_t)N * LEN);
	target_open(&tb, (size_t)N * LEN);
	pattern_fill(src, (size_t)N * LEN, 11);
	for (i = 0; i < N; i++) {
		wait_for(&a, &b, a.ops->ready(a.ep));
		put_start(&a, &w[0][i], src + (size_t)i * LEN, LEN,
			  (uintptr_t)tb.buf + (size_t)i * LEN, &tb.key);
		wait_for(&a, &b, b.ops->ready(b.ep));
		put_start(&b, &w[1][i], src + (size_t)i * LEN, LEN,
			  (uintptr_t)ta.buf + (size_t)i * LEN, &ta.key);
	}
	for (i = 0; i < N; i++) {
		wait_for(&a, &b, w[0][i].done && w[1][i].done);
		check_int(w[0][i].status, 0);
		check_int(w[1][i].status, 0);
	}
	pattern_check("many puts", ta.buf, (size_t)N * LEN, 11);
	pattern_check("many puts", tb.buf, (size_t)N * LEN, 11);
	target_close(&ta);
	target_close(&tb);
	free(src);
	sides_close(&a, &b);
}

/*
 * What no peer may access: 0 to 3 by its place, 4 to 6 by its key, 7 to 9 by
 * one field of the key alone.
 */
#define SPOILT 10
static uint64_t spoil(const struct target *t, size_t len, unsigned int how,
		      uint8_t key[WEFT_RKEY_MAX])
{
	const uint64_t at = (uintptr_t)t->buf;
	size_t i;

	memcpy(key, t->key, WEFT_RKEY_MAX);
	for (i = 0; i < row->ops->rkey_len && how >= 4 && how < 7; i++)
		key[i] = how == 4 ? key[i] ^ 1 : how == 5 ? key[i] + 1 : 0xff;
	switch (how) {
	case 0:
		return at - 1;
	case 1:
		return at + t->len - len + 1;
	case 2:
		return UINT64_MAX - len;
	case 3:
		return 0;
	case 7:		     /* weft_rkey_pack() */
		key[8] ^= 1; /* token */
		break;
	case 8:
		key[4]++; /* generation */
		break;
	case 9:
		memset(key, 0xff, 4); /* slot */
		break;
	}
	return at;
}

/*
 * What a key does not cover is refused, byte for byte, and another endpoint
 * works.
 */
static void bad_keys(void)
{
	struct side a, b;
	struct target t;
	uint8_t bad[WEFT_RKEY_MAX];
	uint8_t *src = malloc(300000);
	uint64_t at;
	size_t len;
	unsigned int i, round;

	sides_open(&a, &b);
	pattern_fill(src, 300000, 1);
	target_open(&t, 200000);
	for (round = 0; round < 2; round++) {
		len = round ? 150000 : 1000;
		for (i = 0; i < (row->own_keys ? 7 : SPOILT); i++) {
			at = spoil(&t, len, i, bad);
			check_int(put_wait(&a, &b, src, len, at, &bad, NULL),
				  -EACCES);
			sides_fail(&a, &b);
			check_int(get_wait(&a, &b, src, len, at, &bad),
				  -EACCES);
			sides_fail(&a, &b);
			target_check_poison(&t, 0, t.len);
			target_check_guards(&t);
		}
	}
	pattern_check("refused get", src, 300000, 1);
	check_int(put_wait(&a, &b, src, 1000, (uintptr_t)t.buf, &t.key, NULL),
		  0);
	pattern_check("put after refusals", t.buf, 1000, 1);
	/* a released key is as bad as a guessed one */
	row->ops->mem_release(t.mem);
	t.mem = NULL;
	target_poison(&t);
	check_int(put_wait(&a, &b, src, 1000, (uintptr_t)t.buf, &t.key, NULL),
		  -EACCES);
	sides_fail(&a, &b);
	check_int(put_wait(&a, &b, src, 150000, (uintptr_t)t.buf, &t.key, NULL),
		  -EACCES);
	sides_fail(&a, &b);
	target_check_poison(&t, 0, t.len);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

/* What lies in a registration of the caller's goes by that. */
static void registered(void)
{
	struct side a, b;
	struct target local, t;
	struct weft_iov iov;
	struct wait_op w;
	unsigned int i;

	sides_open(&a, &b);
	for (i = 0; i < NSIZES; i++) {
		target_open(&local, sizes[i] + 2);
		target_open(&t, sizes[i]);
		iov = (struct weft_iov){ local.buf + 1, sizes[i], local.mem };
		pattern_fill(iov.addr, sizes[i], i);
		wait_op_init(&w);
		check_int(a.ops->put(a.ep, &iov, 1, (uintptr_t)t.buf, &t.key,
				     NULL, &w.op),
			  -EINPROGRESS);
		wait_status(&a, &b, w, 0);
		pattern_check("put", t.buf, sizes[i], i);
		target_poison(&local);
		wait_op_init(&w);
		check_int(a.ops->get(a.ep, &iov, 1, (uintptr_t)t.buf, &t.key,
				     &w.op),
			  -EINPROGRESS);
		wait_status(&a, &b, w, 0);
		pattern_check("get", iov.addr, sizes[i], i);
		target_check_poison(&local, 0, 1);
		target_check_poison(&local, 1 + sizes[i], local.len);
		target_check_guards(&local);
		target_check_guards(&t);
		target_close(&local);
		target_close(&t);
	}
	sides_close(&a, &b);
}

/* A peer without an endpoint of its own is put to, and read from. */
static void passive(void)
{
	struct side a, b;
	struct target t;
	uint8_t *src = malloc(1000000);

	side_open(&a);
	side_open(&b);
	a.ep = side_connect(&a, &b, NULL);
	wait_for(&a, &b, a.ops->ready(a.ep));
	pattern_fill(src, 1000000, 9);
	target_open(&t, 1000000);
	check_int(
		put_wait(&a, &b, src, 1000000, (uintptr_t)t.buf, &t.key, NULL),
		0);
	pattern_check("put to a passive peer", t.buf, 1000000, 9);
	memset(src, 0, 1000000);
	check_int(get_wait(&a, &b, src, 1000000, (uintptr_t)t.buf, &t.key), 0);
	pattern_check("get from a passive peer", src, 1000000, 9);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

const struct conformance_test put_tests[] = {
	{ "puts of every size", put_sizes },
	{ "gets of every size", get_sizes },
	{ "gathered puts and scattered gets", scattered },
	{ "puts and gets of no pieces complete", no_pieces },
	{ "notifications come after every byte, with the true size", notified },
	{ "notifications that wait for progress() are bounded",
	  notify_in_progress },
	{ "so are those from bulk streams", notify_by_caller },
	{ "so are those from a thread", notify_by_thread },
	{ "600 puts at once, both ways", many },
	{ "puts and gets use the caller's registration", registered },
	{ "a put survives the release of its source's registration",
	  released_source },
	{ "bad keys are refused and break nothing", bad_keys },
	{ "puts and gets reach a peer without an endpoint", passive },
	{ NULL, NULL },
};

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVLink device between two pods of one host: every byte as the receiving
 * kernel sees it.
 *   nvlink_pods [-m MIB] [-q] [-n]
 * -m: largest transfer (1024); -q: fewer rounds; -n: one network namespace, so
 * that the abstract socket is used.  Needs root (namespaces) and two GPUs; on
 * one, both pods use it.  With WEFT_LIBCUDA naming the fake driver it checks
 * itself.  bench/gpu/ucx_pods.sh measures.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/nvlink/pods.h"
#include "tests/gpu/nvlink/side.h"
#include "util/drivers/cuda.h"

#define WINDOW 16
#define POISON 0x77

static int me;
static size_t largest = 1024 * MIB;
static bool quick;

/* ---- every byte ---------------------------------------------------------- */

/* Rank @from puts; the other compares once the put has completed. */
static void one_put(struct buf *src, struct buf *dst, int from, size_t off,
		    size_t len, uint64_t seed)
{
	if (me == from)
		gpumem_fill(src->p, off, len, seed);
	else
		gpumem_fill(dst->p, 0, dst->size, POISON);
	pods_barrier(progress);
	if (me == from)
		move(false, src, dst, off, len);
	pods_barrier(progress);
	if (me != from) {
		verify(dst, off, len, seed, "put");
		if (off)
			verify(dst, 0, off, POISON, "before a put");
		if (off + len < dst->size)
			verify(dst, off + len, dst->size - off - len, POISON,
			       "behind a put");
	}
	pods_barrier(progress);
}

static void one_get(struct buf *src, struct buf *dst, int to, size_t off,
		    size_t len, uint64_t seed)
{
	if (me == to)
		gpumem_fill(dst->p, off, len, POISON);
	else
		gpumem_fill(src->p, off, len, seed);
	pods_barrier(progress);
	if (me == to) {
		move(true, dst, src, off, len);
		verify(dst, off, len, seed, "get");
	}
	pods_barrier(progress);
}

static void every_size(struct buf *src, struct buf *dst, const char *name)
{
	static const size_t sizes[] = {
		1,
		2,
		7,
		8,
		9,
		255,
		256,
		257,
		4095,
		4096,
		65535,
		65537,
		MIB - 1,
		MIB,
		MIB + 1,
		4 * MIB,
		4 * MIB + 1,
		32 * MIB,
		32 * MIB + 3,
		64 * MIB,
		256 * MIB,
		1024 * MIB,
	};
	unsigned int i, n = 0;
	size_t len, off;
	int way;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		len = sizes[i];
		if (len > src->size)
			break;
		for (way = 0; way < 2; way++) {
			off = len + 13 <= src->size && way ? 13 : 0;
			pods_step("%s: %zu bytes at %zu", name, len, off);
			one_put(src, dst, n % 2, off, len, 1000 + n);
			n++;
		}
		one_get(src, dst, n % 2, len < src->size ? 1 : 0,
			len < src->size ? len : len - 1, 5000 + n);
	}
	if (!me)
		pods_result(0, "sizes", i, "%s: every byte right", name);
}

static uint32_t rnd(uint32_t *s)
{
	*s = *s * 1664525u + 1013904223u;
	return *s >> 8;
}

/* Many at once, both ways. */
static void many_rounds(struct buf *src, struct buf *dst, unsigned int rounds,
			const char *name)
{
	size_t part = weft_min(4 * MIB, src->size / WINDOW), len[WINDOW];
	struct wait_op w[WINDOW];
	unsigned int r, i;
	uint32_t s = 42;

	for (r = 0; r < rounds; r++) {
		pods_step("%s: round %u", name, r);
		for (i = 0; i < WINDOW; i++) {
			len[i] = 1 + rnd(&s) % (rnd(&s) % 4 ? 70000 : part);
			len[i] = weft_min(len[i], part);
		}
		if (r % 8 == 0)
			gpumem_fill(dst->p, 0, part * WINDOW, POISON);
		for (i = 0; i < WINDOW; i++)
			gpumem_fill(src->p + i * part, 0, len[i],
				    r * WINDOW + i + me * 7777777ull);
		pods_barrier(progress);
		for (i = 0; i < WINDOW; i++)
			start(&w[i], false, src->p + i * part, len[i],
			      dst->theirs.addr + i * part, &dst->theirs.key);
		for (i = 0; i < WINDOW; i++)
			wait_until(w[i].done);
		pods_barrier(progress);
		for (i = 0; i < WINDOW; i++)
			verify((struct buf[]){ { .p = dst->p + i * part } }, 0,
			       len[i], r * WINDOW + i + !me * 7777777ull,
			       "round");
		pods_barrier(progress);
	}
	if (!me)
		pods_result(0, "puts", 2.0 * rounds * WINDOW,
			    "%s: at once, every byte right", name);
}

/* Who waits for its put sleeps on its event descriptor. */
static void asleep(struct buf *src, struct buf *dst, unsigned int rounds)
{
	struct pollfd pfd = { .fd = ops->event_fd(side.iface),
			      .events = POLLIN };
	unsigned int i, sleeps = 0;
	struct wait_op w;
	double t;

	pods_barrier(progress);
	t = pods_now();
	for (i = 0; i < rounds; i++) {
		pods_step("asleep: round %u", i);
		start(&w, false, src->p, 1 + i * 997 % MIB, dst->theirs.addr,
		      &dst->theirs.key);
		while (!w.done) {
			if (ops->progress(side.iface) || ops->arm(side.iface))
				continue;
			if (poll(&pfd, 1, 10000) == 0)
				pods_fail("a wakeup was lost");
			sleeps++;
		}
	}
	t = pods_now() - t;
	pods_barrier(progress);
	if (!me) {
		pods_result(0, "us", t / rounds * 1e6,
			    "both asleep: a put, up to 1 MiB");
		pods_result(0, "", sleeps, "both asleep: times slept");
	}
}

/* ---- memory that the peer maps ------------------------------------------- */

#define AHEAD 8
/* of each of AHEAD operations */
static size_t block;

/* As start(), but what the peer has taken back may fail. */
static void start_block(struct wait_op *w, bool get, struct buf *local,
			struct buf *remote, unsigned int i)
{
	const size_t off = i * block;
	struct weft_iov iov = { local->p + off, block, NULL };
	int r;

	wait_op_init(w);
	do {
		progress();
		r = get ? ops->get(side.ep, &iov, 1, remote->theirs.addr + off,
				   &remote->theirs.key, &w->op)
			: ops->put(side.ep, &iov, 1, remote->theirs.addr + off,
				   &remote->theirs.key, NULL, &w->op);
	} while (r == -EAGAIN);
	if (r == -EINPROGRESS)
		return;
	if (!may_fail || !side.errors)
		pods_fail("put or get: %s", strerror(-r));
	wait_op_done(&w->op, r);
}

/*
 * Goes on until the owner, which learns of the first ones, takes the memory
 * back; @lazy: makes no progress meanwhile.
 */
static void put_until_refused(struct buf *src, struct buf *dst, bool lazy)
{
	struct wait_op w[AHEAD];
	unsigned int i, good = 0, refused = 0;

	for (i = 0; i < AHEAD; i++)
		start_block(&w[i], false, src, dst, i);
	for (i = 0; !refused; i = (i + 1) % AHEAD) {
		wait_until(w[i].done);
		good += !w[i].status;
		refused += !!w[i].status;
		/* the first one that is refused ends the others */
		if (w[i].status && w[i].status != -EACCES &&
		    w[i].status != -EIO)
			pods_fail("a put of revoked memory: %s",
				  strerror(-w[i].status));
		if (!refused)
			start_block(&w[i], false, src, dst, i);
		if (good == AHEAD)
			pods_raise();
		if (good == AHEAD && lazy)
			usleep(100000);
	}
	for (i = 0; i < AHEAD; i++)
		wait_until(w[i].done);
}

static void must_stay(struct buf *b, const char *what)
{
	gpumem_fill(b->p, 0, AHEAD * block, POISON);
	usleep(100000);
	verify(b, 0, AHEAD * block, POISON, what);
}

/* Nothing lands once mem_release() has returned. */
static void releases(struct buf *src, struct buf *dst, unsigned int rounds)
{
	double t, longest = 0;
	unsigned int i, k;
	int err;

	for (i = 0; i < rounds; i++) {
		pods_step("release, round %u", i);
		k = pods_raised();
		/* maps it */
		if (!me)
			move(false, src, dst, 0, block);
		pods_barrier(progress);
		may_fail = true;
		if (!me) {
			put_until_refused(src, dst, i % 2);
		} else {
			wait_until(pods_raised() != k);
			usleep(i * 200);
			t = pods_now();
			ops->mem_release(dst->mem);
			t = pods_now() - t;
			longest = t > longest ? t : longest;
			must_stay(dst, "after release");
			err = ops->mem_register(dst->p, dst->size,
						WEFT_MEM_CUDA, &dst->mem);
			if (err)
				pods_fail("mem_register: %s", strerror(-err));
			ops->mem_pack(dst->mem, &dst->mine.key);
		}
		pods_exchange(&dst->mine, &dst->theirs, sizeof(dst->mine),
			      progress);
		device_connect_again();
	}
	if (me)
		pods_result(0, "ms", longest * 1e3,
			    "the longest of %u releases, nothing landed after",
			    rounds);
}

/* Nothing lands once cancel() has returned, at either end. */
static void cancels(bool get)
{
	struct wait_op w[AHEAD];
	unsigned int i, canceled = 0;
	struct buf src, dst;

	device_open();
	buf_open(&src, GPUMEM_MALLOC, AHEAD * block);
	buf_open(&dst, GPUMEM_PARTS, AHEAD * block);
	pods_step("cancel of %s", get ? "gets" : "puts");
	if (!me) {
		move(false, &src, &dst, 0, block);
		for (i = 0; i < AHEAD; i++)
			start_block(&w[i], get, &src, &dst, i);
		ops->cancel(side.ep);
		for (i = 0; i < AHEAD; i++) {
			if (!w[i].done)
				pods_fail("operation %u is not done", i);
			canceled += w[i].status == -ECANCELED;
		}
		if (get)
			must_stay(&src, "after cancel, here");
	}
	pods_barrier(me ? progress : NULL);
	if (me)
		must_stay(&dst, "after cancel");
	pods_barrier(NULL);
	if (!me)
		pods_result(0, "", canceled,
			    "%s cancelled, nothing landed after",
			    get ? "gets" : "puts");
	ops->mem_release(src.mem);
	ops->mem_release(dst.mem);
	side_close(&side);
	gpumem_free(src.kind, src.p, src.size);
	gpumem_free(dst.kind, dst.p, dst.size);
}

static int mapped_run(int rank)
{
	struct buf src, dst;
	size_t size;

	me = rank;
	gpu_open();
	block = gpumem_is_fake() ? MIB / 2 : 32 * MIB;
	size = weft_max(largest, AHEAD * block);
	device_open();
	buf_open(&src, GPUMEM_VMM, size);
	buf_open(&dst, GPUMEM_PARTS, size);
	every_size(&src, &dst, "mapped");
	many_rounds(&src, &dst, quick ? 20 : 300, "mapped");
	asleep(&src, &dst, quick ? 200 : 4000);
	releases(&src, &dst, quick ? 8 : 30);
	buf_close(&dst);
	buf_close(&src);
	device_close();
	cancels(false);
	cancels(true);
	return 0;
}

int main(int argc, char **argv)
{
	struct pods_options opt = { .limit_s = 200 };
	char dir[] = "/tmp/weft-pods-XXXXXX";
	int c;

	while ((c = getopt(argc, argv, "m:qn")) != -1) {
		if (c == 'm')
			largest = strtoul(optarg, NULL, 0) * MIB;
		else if (c == 'q')
			quick = true;
		else if (c == 'n')
			opt.share_net = true;
		else
			return 2;
	}
	/* the one folder that both pods see */
	if (!mkdtemp(dir) || setenv("WEFT_RUN_DIR", dir, 1))
		return 2;
	if (pods_run(&opt, mapped_run))
		return 1;
	printf("every value right\n");
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVLink device between two pods of one host: every byte as the receiving
 * kernel sees it.
 *   nvlink_pods [-m MIB] [-q] [-n]
 * -m: largest transfer (1024); -q: fewer rounds; -n: one network namespace, so
 * that the abstract socket is used.  Needs root (namespaces) and two GPUs; on
 * one, both pods use it.  With WEFT_LIBCUDA naming the fake driver it checks
 * itself.  bench/gpu/nvlink_speed.c measures.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/pods.h"
#include "tests/gpu/side.h"
#include "util/cuda.h"

#define WINDOW 16
#define POISON 0x77

static int me;
static size_t largest = 1024 * MIB;
static bool quick;

/* ---- every byte ---------------------------------------------------------- */

/* Rank @from puts; the other compares when notified, as @way says. */
static void one_put(struct buf *src, struct buf *dst, int from, size_t off,
		    size_t len, uint64_t seed, int way)
{
	struct weft_notify n = { seed };
	unsigned int m = side.messages, k = side.notifies;
	struct wait_op w;

	if (me == from)
		gpumem_fill(src->p, off, len, seed);
	else
		gpumem_fill(dst->p, 0, dst->size, POISON);
	pods_barrier(progress);
	if (me == from) {
		start(&w, false, src->p + off, len, dst->theirs.addr + off,
		      &dst->theirs.key, way == 0 ? &n : NULL);
		ops->fence(side.ep);
		if (way == 1)
			message(1);
		wait_until(w.done);
		if (way == 2)
			message(2);
	} else {
		wait_until(way == 0 ? side.notifies != k : side.messages != m);
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
		move(true, dst, src, off, len, NULL);
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
		for (way = 0; way < 3; way++) {
			off = len + 13 <= src->size && way ? 13 : 0;
			pods_step("%s: %zu bytes at %zu, way %d", name, len,
				  off, way);
			one_put(src, dst, n % 2, off, len, 1000 + n, way);
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

/* Many at once, both ways; each is looked at the moment it is announced. */
static void many_rounds(struct buf *src, struct buf *dst, unsigned int rounds,
			const char *name)
{
	size_t part = weft_min(4 * MIB, src->size / WINDOW), len[WINDOW];
	struct wait_op w[WINDOW];
	struct weft_notify n;
	unsigned int r, i, k, seen;
	uint32_t s = 42;
	uint64_t tag;

	for (r = 0; r < rounds; r++) {
		pods_step("%s: round %u", name, r);
		seen = side.notifies;
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
		for (i = 0; i < WINDOW; i++) {
			n.tag = i;
			start(&w[i], false, src->p + i * part, len[i],
			      dst->theirs.addr + i * part, &dst->theirs.key,
			      &n);
		}
		for (k = 0; k < WINDOW; k++) {
			wait_until(side.notifies - seen > k);
			tag = tags[(seen + k) % TAGS];
			verify((struct buf[]){ { .p = dst->p + tag * part } },
			       0, len[tag], r * WINDOW + tag + !me * 7777777ull,
			       "round");
		}
		for (i = 0; i < WINDOW; i++)
			wait_until(w[i].done);
		pods_barrier(progress);
	}
	if (!me)
		pods_result(0, "puts", 2.0 * rounds * WINDOW,
			    "%s: at once, every byte right", name);
}

/* Both sleep on their event descriptor between all steps. */
static void asleep(struct buf *src, struct buf *dst, unsigned int rounds)
{
	struct pollfd pfd = { .fd = ops->event_fd(side.iface),
			      .events = POLLIN };
	struct weft_notify n = { 1 };
	unsigned int i, k, sleeps = 0;
	struct wait_op w[2] = { 0 };
	double t;

	pods_step("asleep");
	w[0].done = w[1].done = true;
	pods_barrier(progress);
	t = pods_now();
	for (i = 0; i < rounds; i++) {
		pods_step("asleep: round %u", i);
		k = side.notifies;
		if (i % 2 == (unsigned int)me)
			start(&w[i / 2 % 2], false, src->p, 1 + i * 997 % MIB,
			      dst->theirs.addr, &dst->theirs.key, &n);
		while (i % 2 == (unsigned int)me ? !w[i / 2 % 2].done
						 : side.notifies == k) {
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

static int gpu_run(int rank)
{
	struct buf src, dst;

	me = rank;
	gpu_open(false);
	device_open();
	buf_open(&src, GPUMEM_MALLOC, largest);
	buf_open(&dst, GPUMEM_MALLOC, largest);
	every_size(&src, &dst, "ring");
	many_rounds(&src, &dst, quick ? 20 : 300, "ring");
	asleep(&src, &dst, quick ? 200 : 4000);
	buf_close(&dst);
	buf_close(&src);
	device_close();
	return 0;
}

/* Each pod has the device node of its own GPU alone. */
static int hidden_run(int rank)
{
	struct buf src, dst;

	me = rank;
	gpu_open(true);
	device_open();
	buf_open(&src, GPUMEM_MALLOC, weft_min(largest, 256 * MIB));
	buf_open(&dst, GPUMEM_MALLOC, weft_min(largest, 256 * MIB));
	every_size(&src, &dst, "no device node");
	many_rounds(&src, &dst, quick ? 20 : 100, "no device node");
	buf_close(&dst);
	buf_close(&src);
	device_close();
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
	if (pods_run(&opt, gpu_run))
		return 1;
	opt.hide_gpus = true;
	opt.limit_s = 100;
	if (pods_run(&opt, hidden_run))
		return 1;
	printf("every value right\n");
	return 0;
}

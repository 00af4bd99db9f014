/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVLink device between two pods of one host, on real GPUs: every byte as
 * the receiving kernel sees it, then speed.
 *   nvlink_pods [-m MIB] [-j FILE] [-q] [-n]
 * -m: largest transfer (1024); -q: fewer rounds; -n: one network namespace, so
 * that the abstract socket is used.  Needs root (namespaces) and two GPUs; on
 * one, both pods use it.  With WEFT_LIBCUDA naming the fake driver it checks
 * itself.
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
static bool quick, same_net;
static const char *json;

/* ---- every byte ---------------------------------------------------------- */

static void verify(struct buf *b, size_t off, size_t len, uint64_t seed,
		   const char *what)
{
	uint64_t bad = gpumem_check(b->p, off, len, seed);

	if (bad)
		pods_fail("%s of %zu bytes at %zu: %llu places are wrong", what,
			  len, off, (unsigned long long)bad);
}

/* Rank @from puts; the other looks when it is told, by the way that @way is. */
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

/* ---- speed --------------------------------------------------------------- */

static double stream(bool get, struct buf *src, struct buf *dst, size_t len,
		     size_t total)
{
	struct wait_op w[WINDOW] = { 0 };
	unsigned int i, n = weft_max(total / len, 1);
	unsigned int slots = weft_min(WINDOW, weft_max(src->size / len, 1));
	double t = pods_now();
	size_t off;

	for (i = 0; i < n; i++) {
		if (i >= WINDOW)
			wait_until(w[i % WINDOW].done);
		off = i % slots * len;
		start(&w[i % WINDOW], get, src->p + off, len,
		      dst->theirs.addr + off, &dst->theirs.key, NULL);
	}
	for (i = 0; i < weft_min(n, WINDOW); i++)
		wait_until(w[i].done);
	return (double)n * len / (pods_now() - t) / 1e9;
}

/* One way; both pods take part, rank 0 is timed.  The best of three. */
static double speed(bool get, struct buf *src, struct buf *dst, size_t len,
		    size_t total)
{
	double best = 0, v;
	int i;

	for (i = 0; i < 3; i++) {
		pods_barrier(progress);
		if (!me) {
			v = stream(get, src, dst, len, total);
			best = v > best ? v : best;
		}
		pods_barrier(progress);
	}
	return best;
}

static double speed_both(struct buf *src, struct buf *dst, size_t len,
			 size_t total)
{
	double v;

	pods_barrier(progress);
	v = stream(false, src, dst, len, total);
	pods_barrier(progress);
	return v;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Half the round trip of notifying puts, or of messages (@src NULL); median. */
static double latency(struct buf *src, struct buf *dst, size_t len,
		      unsigned int rounds)
{
	double *t = calloc(rounds, sizeof(*t)), t0, v;
	unsigned int i, k, m;
	struct weft_notify n = { 1 };
	char data[8192] = { 0 };
	struct iovec iov = { data, len };
	struct wait_op w[2] = { 0 };

	w[0].done = w[1].done = true;
	pods_barrier(progress);
	for (i = 0; i < rounds; i++) {
		k = side.notifies;
		m = side.messages;
		t0 = pods_now();
		if (me)
			wait_until(src ? side.notifies != k
				       : side.messages != m);
		if (src) {
			wait_until(w[i % 2].done);
			start(&w[i % 2], false, src->p, len, dst->theirs.addr,
			      &dst->theirs.key, &n);
		} else {
			while (ops->message(side.ep, 1, &iov, 1, NULL))
				progress();
		}
		if (!me)
			wait_until(src ? side.notifies != k
				       : side.messages != m);
		t[i] = pods_now() - t0;
	}
	wait_until(w[0].done && w[1].done);
	pods_barrier(progress);
	qsort(t, rounds, sizeof(*t), by_value);
	v = t[rounds / 2] / 2 * 1e6;
	free(t);
	return v;
}

static void speeds(struct buf *src, struct buf *dst, const char *name,
		   double target, bool both_kinds)
{
	static const size_t sizes[] = { 64ul << 10, MIB,       8 * MIB,
					64 * MIB,   256 * MIB, 1024 * MIB };
	size_t total = gpumem_is_fake() ? 32 * MIB : 16 * 1024 * MIB;
	unsigned int i;
	double v;

	for (i = 0; i < ARRAY_SIZE(sizes) && sizes[i] <= src->size; i++) {
		pods_step("%s: speed of %zu KiB", name, sizes[i] >> 10);
		v = speed(false, src, dst, sizes[i],
			  weft_min(total, sizes[i] * 4000));
		if (!me)
			pods_result(sizes[i] >= 64 * MIB ? target
				    : sizes[i] == MIB	 ? target / 3
							 : 0,
				    "GB/s", v, "%s: put of %zu KiB", name,
				    sizes[i] >> 10);
	}
	if (!both_kinds)
		return;
	for (i = 1; i < ARRAY_SIZE(sizes) && sizes[i] <= src->size; i += 2) {
		pods_step("%s: gets and both ways, %zu KiB", name,
			  sizes[i] >> 10);
		v = speed(true, src, dst, sizes[i],
			  weft_min(total / 2, sizes[i] * 2000));
		if (!me)
			pods_result(0, "GB/s", v, "%s: get of %zu KiB", name,
				    sizes[i] >> 10);
		v = speed_both(src, dst, sizes[i],
			       weft_min(total, sizes[i] * 4000));
		if (!me)
			pods_result(0, "GB/s", v,
				    "%s: put of %zu KiB, both ways, each", name,
				    sizes[i] >> 10);
	}
}

static void latencies(struct buf *src, struct buf *dst, const char *name)
{
	unsigned int n = gpumem_is_fake() ? 50 : 5000;
	double v;

	pods_step("%s: latency", name);
	v = latency(src, dst, 8, n);
	if (!me)
		pods_result(9.1, "us", v, "%s: latency of a put of 8 B", name);
	v = latency(src, dst, 8192, n);
	if (!me)
		pods_result(9.1, "us", v, "%s: latency of a put of 8 KiB",
			    name);
	v = latency(src, dst, MIB, n / 5);
	if (!me)
		pods_result(0, "us", v, "%s: latency of a put of 1 MiB", name);
}

static double put_time(struct buf *src, struct buf *dst)
{
	double t = pods_now();

	move(false, src, dst, 0, MIB, NULL);
	return pods_now() - t;
}

/* The first transfer makes the ring: against one over the ring. */
static void first_ring(struct buf *src, struct buf *dst)
{
	double cold, warm, t;
	int i, turn;

	pods_step("first ring");
	for (turn = 0; turn < 2; turn++) {
		pods_barrier(progress);
		if (me != turn)
			continue;
		cold = put_time(src, dst);
		for (i = 0, warm = cold; i < 5; i++) {
			t = put_time(src, dst);
			warm = t < warm ? t : warm;
		}
		/* on the way back the streams are there: the ring alone */
		pods_result(turn ? 5 : 0, "ms", (cold - warm) * 1e3,
			    turn ? "ring set-up (way back, streams there)"
				 : "ring set-up, streams included");
	}
	pods_barrier(progress);
}

/* Fresh buffers over the ring that is there. */
static void fresh(size_t len)
{
	static const char *const names[] = { "cudaMalloc", "VMM",
					     "cudaMallocAsync" };
	struct buf src, dst;
	int kind;
	double t;

	for (kind = 0; kind < 3; kind++) {
		pods_step("fresh buffers of %s", names[kind]);
		buf_open(&src, kind, len);
		buf_open(&dst, kind, len);
		gpumem_fill(src.p, 0, len, 99);
		pods_barrier(progress);
		if (!me) {
			t = pods_now();
			move(false, &src, &dst, 0, len, NULL);
			pods_result(len >= 1024 * MIB ? 250 : 0, "GB/s",
				    len / (pods_now() - t) / 1e9,
				    "first %zu MiB between fresh buffers (%s)",
				    len / MIB, names[kind]);
		}
		pods_barrier(progress);
		if (me)
			verify(&dst, 0, len, 99, "fresh");
		buf_close(&dst);
		buf_close(&src);
	}
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

/* What chunk and ring sizes are worth; for nvl_tune. */
static void sweep(struct buf *src, struct buf *dst)
{
	static const size_t max[] = { MIB, 2 * MIB, 4 * MIB, 8 * MIB };
	static const size_t min[] = { 128ul << 10, 256ul << 10, 512ul << 10,
				      MIB };
	struct nvl_tune saved = nvl_tune;
	size_t total = 8 * 1024 * MIB;
	unsigned int i;
	double v;

	for (i = 0; i < ARRAY_SIZE(max); i++) {
		pods_step("sweep of chunk_max");
		nvl_tune.chunk_max = max[i];
		v = speed(false, src, dst, largest, total);
		if (!me)
			pods_result(0, "GB/s", v,
				    "chunks up to %zu KiB, put of "
				    "%zu MiB",
				    max[i] >> 10, largest / MIB);
	}
	nvl_tune = saved;
	for (i = 0; i < ARRAY_SIZE(min); i++) {
		pods_step("sweep of chunk_min");
		nvl_tune.chunk_min = min[i];
		v = latency(src, dst, MIB, 500);
		if (!me)
			pods_result(0, "us", v,
				    "chunks from %zu KiB, latency "
				    "of 1 MiB",
				    min[i] >> 10);
	}
	nvl_tune = saved;
}

static int gpus(void)
{
	int n = 1;

	weft_cuda()->device_count(&n);
	return n;
}

static void open_gpu(bool hidden)
{
	char name[120];

	pods_step("open the GPU");
	if (weft_cuda_init())
		pods_fail("no CUDA driver");
	gpumem_open(hidden ? 0 : me % gpus());
	gpumem_name(name, sizeof(name));
	if (!me)
		printf("%s, %d GPU%s here\n", name, gpus(),
		       gpus() > 1 ? "s" : "");
}

static int gpu_run(int rank)
{
	struct buf src, dst;
	double v;

	me = rank;
	open_gpu(false);
	device_open();
	pods_step("message latency");
	v = latency(NULL, NULL, 8, gpumem_is_fake() ? 500 : 20000);
	if (!me)
		pods_result(0, "us", v, "latency of a message of 8 B");
	v = latency(NULL, NULL, 8192, gpumem_is_fake() ? 500 : 20000);
	if (!me)
		pods_result(0, "us", v, "latency of a message of 8 KiB");

	buf_open(&src, GPUMEM_MALLOC, largest);
	buf_open(&dst, GPUMEM_MALLOC, largest);
	first_ring(&src, &dst);
	every_size(&src, &dst, "ring");
	many_rounds(&src, &dst, quick ? 20 : 300, "ring");
	speeds(&src, &dst, "ring", 300, true);
	latencies(&src, &dst, "ring");
	asleep(&src, &dst, quick ? 200 : 4000);
	if (!gpumem_is_fake() && !quick)
		sweep(&src, &dst);
	buf_close(&dst);
	buf_close(&src);
	fresh(largest);
	device_close();
	return 0;
}

/* Each pod has the device node of its own GPU alone. */
static int hidden_run(int rank)
{
	struct buf src, dst;

	me = rank;
	setenv("WEFT_TEST_CUDA_NODES", rank ? "1" : "0", 1);
	open_gpu(true);
	device_open();
	buf_open(&src, GPUMEM_MALLOC, weft_min(largest, 256 * MIB));
	buf_open(&dst, GPUMEM_MALLOC, weft_min(largest, 256 * MIB));
	every_size(&src, &dst, "no device node");
	many_rounds(&src, &dst, quick ? 20 : 100, "no device node");
	speeds(&src, &dst, "no device node", 20, false);
	latencies(&src, &dst, "no device node");
	buf_close(&dst);
	buf_close(&src);
	device_close();
	return 0;
}

int main(int argc, char **argv)
{
	struct pods_options opt = { .limit_s = 200 };
	char dir[] = "/tmp/weft-pods-XXXXXX";
	int c, err, bad = 0;

	while ((c = getopt(argc, argv, "m:j:qn")) != -1) {
		if (c == 'm')
			largest = strtoul(optarg, NULL, 0) * MIB;
		else if (c == 'j')
			json = optarg;
		else if (c == 'q')
			quick = true;
		else if (c == 'n')
			same_net = true;
		else
			return 2;
	}
	/* the one folder that both pods see */
	if (!mkdtemp(dir) || setenv("WEFT_RUN_DIR", dir, 1))
		return 2;
	opt.share_net = same_net;
	err = pods_run(&opt, gpu_run);
	bad |= pods_report("two pods, all device nodes", json);
	if (err)
		return 1;
	opt.hide_gpus = true;
	opt.limit_s = 100;
	err = pods_run(&opt, hidden_run);
	bad |= pods_report("two pods, one device node each", json);
	if (err)
		return 1;
	printf("%s\n", bad ? "every value right; some targets missed"
			   : "every value right, every target met");
	return 0;
}

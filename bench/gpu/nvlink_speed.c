/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVLink device between two pods of one host: latency and bandwidth, each
 * beside its target.
 *   nvlink_speed [-m MIB] [-j FILE] [-q] [-n]
 * -m: largest transfer (1024); -j: results as JSON, too; -q: without the sweep
 * of chunk sizes; -n: one network namespace, so that the abstract socket is
 * used.  Needs root (namespaces) and two GPUs; on one, both pods use it.
 * tests/gpu/nvlink_pods.c compares every byte.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/pods.h"
#include "tests/gpu/side.h"

#define WINDOW 16

static int me;
static size_t largest = 1024 * MIB;
static bool quick;

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

static int gpu_run(int rank)
{
	struct buf src, dst;
	double v;

	me = rank;
	gpu_open(false);
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
	speeds(&src, &dst, "ring", 300, true);
	latencies(&src, &dst, "ring");
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
	gpu_open(true);
	device_open();
	buf_open(&src, GPUMEM_MALLOC, weft_min(largest, 256 * MIB));
	buf_open(&dst, GPUMEM_MALLOC, weft_min(largest, 256 * MIB));
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
	const char *json = NULL;
	int c, err, bad;

	while ((c = getopt(argc, argv, "m:j:qn")) != -1) {
		if (c == 'm')
			largest = strtoul(optarg, NULL, 0) * MIB;
		else if (c == 'j')
			json = optarg;
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
	err = pods_run(&opt, gpu_run);
	bad = pods_report("two pods, all device nodes", json);
	if (err)
		return 1;
	opt.hide_gpus = true;
	opt.limit_s = 100;
	err = pods_run(&opt, hidden_run);
	bad |= pods_report("two pods, one device node each", json);
	if (err)
		return 1;
	printf("%s\n", bad ? "some targets missed" : "every target met");
	return 0;
}

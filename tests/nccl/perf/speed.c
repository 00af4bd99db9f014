/* SPDX-License-Identifier: BSD-3-Clause */
/* Latency (half a round trip) and bandwidth (one way, several comms). */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "tests/nccl/perf/perf.h"

#define WINDOW 8 /* out at a time and comm: NCCL's steps */
#define SHOTS  9 /* of which the median counts */

static double cpu_now(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_utime.tv_sec + u.ru_utime.tv_usec * 1e-6 +
	       u.ru_stime.tv_sec + u.ru_stime.tv_usec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void one_way(struct perf *p, struct perf_link *l, struct perf_buf *b,
		    size_t size, bool send)
{
	struct perf_op op = {
		.send = send,
		.comm = send ? l->send : l->recv,
		.data = b[!send].data,
		.size = size,
		.mr = b[!send].mr,
	};

	perf_finish(p, &op, 1, 1);
}

/* us, the median of some rounds; each answer is the question itself. */
static double latency(struct perf *p, struct perf_link *l, struct perf_buf *b,
		      size_t size)
{
	const int rounds = size <= 65536 ? 200 : 20;
	double shot[SHOTS], start;
	int i, k;

	perf_fill(b[0].data, size, size);
	perf_poison(p, &b[1]);
	for (k = 0; k < SHOTS; k++) {
		perf_meet(p);
		start = perf_now();
		for (i = 0; i < rounds; i++) {
			one_way(p, l, b, size, !p->rank);
			one_way(p, l, b, size, p->rank);
		}
		shot[k] = (perf_now() - start) / rounds / 2 * 1e6;
	}
	perf_look(p, &b[1], 0, size, b[1].size, size, "latency");
	qsort(shot, SHOTS, sizeof(*shot), by_value);
	return shot[SHOTS / 2];
}

struct rate {
	double bytes; /* per s */
	double cpu;   /* s per GB, both sides */
};

static struct rate bandwidth(struct perf *p, struct perf_buf *b,
			     unsigned int comms, size_t size)
{
	const size_t per_comm =
		b[0].size / size < WINDOW ? b[0].size / size : WINDOW;
	size_t total = size * 3000 < ((size_t)256 << 20) ? size * 3000
							 : (size_t)256 << 20;
	unsigned int n, i;
	struct perf_op *op;
	double start, cpu, other, t;
	struct rate r;

	if (total < size * comms * WINDOW)
		total = size * comms * WINDOW;
	n = (unsigned int)(total / size);
	op = calloc(n, sizeof(*op));
	for (i = 0; i < n; i++) {
		unsigned int c = i % comms;
		struct perf_buf *buf = &b[2 * c + p->rank];

		op[i] = perf_part(!p->rank, buf, i / comms % per_comm * size,
				  size);
		if (i / comms < per_comm && p->rank)
			memset(op[i].data, 0xa5, size);
		else if (i / comms < per_comm)
			perf_fill(op[i].data, size, i / comms);
	}
	perf_meet(p);
	start = perf_now();
	cpu = cpu_now();
	for (i = 0; i < n;) {
		/* A sliding window over the list keeps each round short. */
		unsigned int len =
			n - i < comms * WINDOW ? n - i : comms * WINDOW;

		perf_step(p, op + i, len, comms * WINDOW);
		if (!op[i].done)
			sched_yield();
		while (len && op[i].done) {
			perf_check(p, op[i].result, "test");
			i++;
			len--;
		}
		if (len)
			perf_check(p, op[i].result, "isend, irecv or test");
	}
	perf_meet(p);
	t = perf_now() - start;
	cpu = cpu_now() - cpu;
	perf_tell(p, !p->rank, &cpu, sizeof(cpu));
	perf_hear(p, !p->rank, &other, sizeof(other));
	r.bytes = (double)n * size / t;
	r.cpu = (cpu + other) / ((double)n * size) * 1e9;
	for (i = 0; i < comms && p->rank; i++)
		perf_look(p, &b[2 * i + 1], 0, size, size, 0, "bandwidth");
	free(op);
	return r;
}

static void run(struct perf *p)
{
	const unsigned int comms = p->opt->comms;
	const size_t room = p->opt->max_size > (WINDOW << 20) ? p->opt->max_size
							      : WINDOW << 20;
	struct perf_link *l = calloc(comms, sizeof(*l));
	struct perf_buf *b = calloc(2 * comms, sizeof(*b));
	struct rate r;
	unsigned int i;
	size_t size;
	double us;

	for (i = 0; i < comms; i++) {
		perf_join(p, !p->rank, &l[i]);
		perf_buf_new(p, &b[2 * i], l[i].send, room, 0);
		perf_buf_new(p, &b[2 * i + 1], l[i].recv, room, 0);
	}
	if (!p->rank && !p->opt->json)
		perf_say(p, "%12s %12s %12s %12s", "bytes", "latency us",
			 "GB/s", "CPU s/GB");
	for (size = 8; size <= p->opt->max_size; size *= 4) {
		us = latency(p, l, b, size);
		r = bandwidth(p, b, comms, size);
		if (p->rank)
			continue;
		if (p->opt->json)
			perf_say(p,
				 "{\"bytes\": %zu, \"latency_us\": %.2f, "
				 "\"gb_per_s\": %.4f, \"cpu_s_per_gb\": %.3f}",
				 size, us, r.bytes / 1e9, r.cpu);
		else
			perf_say(p, "%12zu %12.2f %12.3f %12.3f", size, us,
				 r.bytes / 1e9, r.cpu);
	}
	perf_meet(p);
	for (i = 0; i < comms; i++) {
		perf_buf_free(p, &b[2 * i]);
		perf_buf_free(p, &b[2 * i + 1]);
		perf_leave(p, &l[i]);
	}
	free(b);
	free(l);
}

const struct perf_case perf_speed = {
	.name = "speed",
	.what = "latency and bandwidth",
	.ranks = 2,
	.run = run,
	.slow = 5,
};

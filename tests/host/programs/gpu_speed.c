/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of tagged messages between GPUs; side 0 tells. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/host/programs/gpu.h"

#define WINDOW 16

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void tell(struct host *h, const char *what, size_t size, double value,
		 const char *unit)
{
	if (!h->side)
		printf("{\"what\":\"%s\",\"bytes\":%zu,\"value\":%.3f,\"unit\":\"%s\"}\n",
		       what, size, value, unit);
}

static ucs_status_ptr_t tag_send(struct host *h, const void *p, size_t len)
{
	ucp_request_param_t param = { 0 };

	return ucp_tag_send_nbx(h->eps[0], p, len, 1, &param);
}

static ucs_status_ptr_t tag_recv(struct host *h, void *p, size_t len)
{
	ucp_request_param_t param = { 0 };

	return ucp_tag_recv_nbx(h->worker, p, len, 1, UINT64_MAX, &param);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median half round trip, us. */
static double latency(struct host *h, struct buf *b, size_t len,
		      unsigned int rounds)
{
	double *t = calloc(rounds, sizeof(*t)), start, v;

	barrier(h);
	for (unsigned int i = 0; i < rounds; i++) {
		start = now();
		for (int turn = 0; turn < 2; turn++)
			check(host_wait(h, turn == h->side
						   ? tag_send(h, b->p, len)
						   : tag_recv(h, b->p, len)),
			      "ping-pong");
		t[i] = now() - start;
	}
	qsort(t, rounds, sizeof(*t), by_value);
	v = t[rounds / 2] / 2 * 1e6;
	free(t);
	return v;
}

/* One way, side 0 sends, WINDOW at a time; GB/s. */
static double stream(struct host *h, struct buf *b, size_t len, unsigned int n)
{
	ucs_status_ptr_t req[WINDOW] = { 0 };
	size_t slots = b->size / len < WINDOW ? b->size / len : WINDOW;
	double start;
	char c = 'd';

	barrier(h);
	start = now();
	for (unsigned int i = 0; i < n + slots; i++) {
		if (i >= slots)
			check(host_wait(h, req[i % slots]), "stream");
		if (i < n)
			req[i % slots] =
				h->side ? tag_recv(h, b->p + i % slots * len,
						   len)
					: tag_send(h, b->p + i % slots * len,
						   len);
	}
	/* until the receiver has it all */
	if (h->side)
		oob_send(h, &c, 1);
	else
		oob_recv(h, &c, 1);
	return (double)n * (double)len / (now() - start) / 1e9;
}

static double best_stream(struct host *h, struct buf *b, size_t len,
			  size_t total)
{
	unsigned int n = (unsigned int)(total / len > 4 ? total / len : 4);
	double best = 0, v;

	for (int i = 0; i < 3; i++) {
		v = stream(h, b, len, n);
		best = v > best ? v : best;
	}
	return best;
}

/* The first transfer of two buffers never used before; then checked. */
static double fresh(struct host *h, size_t len)
{
	struct buf out, in;
	double start, v = 0;

	buf_open(&out, gpu_kind, len);
	buf_open(&in, gpu_kind, len);
	buf_fill(&out, 0, len, 41 + (uint64_t)h->side);
	buf_fill(&in, 0, len, 7);
	for (int from = 0; from < 2; from++) {
		barrier(h);
		start = now();
		check(host_wait(h, from == h->side ? tag_send(h, out.p, len)
						   : tag_recv(h, in.p, len)),
		      "fresh");
		if (!from)
			v = (double)len / (now() - start) / 1e9;
		barrier(h);
	}
	buf_verify(&in, 0, len, 41 + (uint64_t)!h->side, "fresh buffer");
	barrier(h);
	buf_close(&in);
	buf_close(&out);
	return v;
}

/* Every byte of a window of messages, both ways, as the figures move them. */
static void checked(struct host *h, struct buf *out, struct buf *in, size_t len,
		    uint64_t round)
{
	size_t slots = out->size / len < WINDOW ? out->size / len : WINDOW;
	ucs_status_ptr_t sent[WINDOW], got[WINDOW];

	buf_fill(out, 0, slots * len, 1000 * round + (uint64_t)h->side);
	buf_fill(in, 0, slots * len, 5);
	barrier(h);
	for (size_t i = 0; i < slots; i++) {
		got[i] = tag_recv(h, in->p + i * len, len);
		sent[i] = tag_send(h, out->p + i * len, len);
	}
	for (size_t i = 0; i < slots; i++) {
		check(host_wait(h, got[i]), "checked receive");
		check(host_wait(h, sent[i]), "checked send");
	}
	buf_verify(in, 0, slots * len, 1000 * round + (uint64_t)!h->side,
		   "a window of messages");
	barrier(h);
}

void gpu_speed(struct host *h, size_t largest, size_t total)
{
	static const size_t sizes[] = { 8,	 8 * KIB,  64 * KIB,  MIB,
					8 * MIB, 64 * MIB, 1024 * MIB };
	size_t room = largest > WINDOW * MIB ? largest : WINDOW * MIB;
	unsigned int rounds = gpumem_is_fake() ? 20 : 2000;
	struct buf out, in;
	double v;

	if (!total)
		total = gpumem_is_fake() ? 16 * MIB : 4096 * MIB;
	buf_open(&out, gpu_kind, room);
	buf_open(&in, gpu_kind, room);
	/* makes the rings and the caches of what follows */
	checked(h, &out, &in, MIB, 1);
	for (size_t i = 0; i < 6 && sizes[i] <= largest; i++) {
		latency(h, &out, sizes[i], i < 4 ? rounds / 10 : 5);
		v = latency(h, &out, sizes[i],
			    i < 2   ? rounds
			    : i < 4 ? rounds / 4
				    : 20);
		tell(h, "latency", sizes[i], v, "us");
	}
	for (size_t i = 2; i < sizeof(sizes) / sizeof(*sizes); i++) {
		if (sizes[i] > largest)
			break;
		checked(h, &out, &in, sizes[i], i + 2);
		v = best_stream(h, &out, sizes[i],
				sizes[i] < MIB ? total / 16 : total);
		tell(h, "bandwidth", sizes[i], v, "GB/s");
	}
	buf_close(&in);
	buf_close(&out);
	for (int i = 0; i < 2; i++) {
		v = fresh(h, largest);
		tell(h, "first transfer of fresh buffers", largest, v, "GB/s");
	}
}

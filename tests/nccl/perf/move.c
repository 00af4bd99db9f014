/* SPDX-License-Identifier: BSD-3-Clause */
/* Links and checked transfers, as NCCL's proxy thread makes them. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tests/nccl/perf/perf.h"

#define GUARD	    64
#define POISON	    0xa5
#define LOOK_BEYOND 4096 /* bytes behind a message */
#define BUSY_S	    0.1

/*
 * As NCCL's proxy does when a round brought nothing; but a check that waits for
 * long does it asleep.
 */
static void leave_cpu(double since)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	if (perf_now() - since < BUSY_S)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

void perf_establish(struct perf *p, void *listener, char *handle,
		    struct perf_link *l)
{
	const double since = perf_now();

	while ((listener && !l->recv) || (handle && !l->send)) {
		if (handle && !l->send)
			perf_check(p,
				   perf_connect(&p->plugin, handle, &l->send),
				   "connect");
		if (listener && !l->recv)
			perf_check(p,
				   perf_accept(&p->plugin, listener, &l->recv),
				   "accept");
		leave_cpu(since);
	}
}

void perf_join(struct perf *p, int rank, struct perf_link *l)
{
	char mine[NCCL_HANDLE_SIZE] = { 0 }, other[NCCL_HANDLE_SIZE];
	void *listener = NULL;

	memset(l, 0, sizeof(*l));
	perf_check(p, perf_listen(&p->plugin, mine, &listener), "listen");
	perf_tell(p, rank, mine, sizeof(mine));
	perf_hear(p, rank, other, sizeof(other));
	perf_establish(p, listener, other, l);
	perf_check(p, perf_close_listen(&p->plugin, listener), "closeListen");
}

void *perf_join_one(struct perf *p, int from, int to, struct perf_link *l)
{
	char handle[NCCL_HANDLE_SIZE] = { 0 };
	void *listener = NULL;

	memset(l, 0, sizeof(*l));
	if (p->rank == from) {
		perf_hear(p, to, handle, sizeof(handle));
		perf_establish(p, NULL, handle, l);
		return l->send;
	}
	perf_check(p, perf_listen(&p->plugin, handle, &listener), "listen");
	perf_tell(p, from, handle, sizeof(handle));
	perf_establish(p, listener, NULL, l);
	perf_check(p, perf_close_listen(&p->plugin, listener), "closeListen");
	return l->recv;
}

void perf_leave(struct perf *p, struct perf_link *l)
{
	if (l->send)
		perf_check(p, perf_close_send(&p->plugin, l->send),
			   "closeSend");
	if (l->recv)
		perf_check(p, perf_close_recv(&p->plugin, l->recv),
			   "closeRecv");
	memset(l, 0, sizeof(*l));
}

void perf_leave_all(struct perf *p, struct perf_link *l, unsigned int n)
{
	perf_meet(p);
	for (; n--; l++)
		perf_leave(p, l);
}

void perf_buf_new(struct perf *p, struct perf_buf *b, void *comm, size_t size,
		  size_t shift)
{
	size_t whole = (size + shift + 2 * GUARD + 4095) & ~(size_t)4095;

	memset(b, 0, sizeof(*b));
	if (posix_memalign((void **)&b->base, 4096, whole))
		perf_fail(p, "cannot allocate %zu bytes", whole);
	memset(b->base, POISON, whole);
	b->data = b->base + GUARD + shift;
	b->size = size;
	b->comm = comm;
	b->whole = whole;
	if (comm)
		perf_check(p,
			   perf_reg(&p->plugin, comm, b->data, size ? size : 1,
				    NCCL_PTR_HOST, &b->mr),
			   "regMr");
}

void perf_buf_drop(struct perf_buf *b)
{
	free(b->base);
}

void perf_buf_free(struct perf *p, struct perf_buf *b)
{
	if (b->comm)
		perf_check(p, perf_dereg(&p->plugin, b->comm, b->mr),
			   "deregMr");
	perf_buf_drop(b);
}

/* Every 8 bytes differ from their neighbours and from other messages'. */
static uint64_t word(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed << 40) + i + 1;

	x *= 0x9e3779b97f4a7c15u;
	return x ^ x >> 29;
}

void perf_fill(void *data, size_t size, uint64_t seed)
{
	char *d = data;
	uint64_t w;
	size_t i;

	for (i = 0; i + 8 <= size; i += 8) {
		w = word(seed, i / 8);
		memcpy(d + i, &w, 8);
	}
	w = word(seed, i / 8);
	memcpy(d + i, &w, size - i);
}

void perf_poison(struct perf *p, struct perf_buf *b)
{
	memset(b->data, POISON, b->size);
}

void perf_look(struct perf *p, struct perf_buf *b, size_t at, size_t size,
	       size_t room, uint64_t seed, const char *what)
{
	const char *d = b->data + at;
	size_t i, n, end = at + room;
	uint64_t w;

	for (i = 0; i < size; i += 8) {
		n = size - i < 8 ? size - i : 8;
		w = word(seed, i / 8);
		if (memcmp(d + i, &w, n))
			perf_fail(p, "%s: wrong bytes at %zu of %zu", what, i,
				  size);
	}
	if (end >= b->size)
		end = b->size + GUARD;
	if (end > at + size + LOOK_BEYOND)
		end = at + size + LOOK_BEYOND;
	for (i = at + size; i < end; i++)
		if ((unsigned char)b->data[i] != POISON)
			perf_fail(p,
				  "%s: byte %zu beyond the %zu sent was "
				  "written",
				  what, i - at - size, size);
	for (i = 1; i <= GUARD && at == 0; i++)
		if ((unsigned char)b->data[-(ptrdiff_t)i] != POISON)
			perf_fail(p,
				  "%s: byte %zu before the buffer was "
				  "written",
				  what, i);
}

struct perf_op perf_part(bool send, const struct perf_buf *b, size_t at,
			 size_t size)
{
	return (struct perf_op){
		.send = send,
		.comm = b->comm,
		.data = b->data + at,
		.size = size,
		.mr = b->mr,
	};
}

static void post(struct perf *p, struct perf_op *op)
{
	if (op->send) {
		op->result = perf_isend(&p->plugin, op->comm, op->data,
					op->size, op->tag, op->mr, &op->req);
	} else {
		op->req = op->early ? (void *)1 : NULL;
		op->result = perf_irecv(&p->plugin, op->comm, 1, &op->data,
					&op->size, &op->tag, &op->mr, &op->req);
		if (op->req == (void *)1)
			op->req = NULL;
	}
	op->posted = op->req != NULL;
}

unsigned int perf_step(struct perf *p, struct perf_op *op, unsigned int n,
		       unsigned int window)
{
	void *blocked[16];
	unsigned int i, j, out[2] = { 0 }, nblocked = 0, left = 0;
	int done;

	for (i = 0; i < n; i++)
		out[op[i].send] += op[i].posted && !op[i].done;
	for (i = 0; i < n; i++) {
		if (op[i].done || op[i].result)
			continue;
		left++;
		if (op[i].posted) {
			done = 0;
			op[i].got = -1;
			op[i].result = perf_test(&p->plugin, op[i].req, &done,
						 &op[i].got);
			op[i].done = done;
			continue;
		}
		for (j = 0; j < nblocked && blocked[j] != op[i].comm; j++)
			;
		if (j < nblocked || out[op[i].send] >= window)
			continue;
		post(p, &op[i]);
		out[op[i].send] += op[i].posted;
		if (!op[i].posted && nblocked < 16)
			blocked[nblocked++] = op[i].comm;
	}
	return left;
}

void perf_finish(struct perf *p, struct perf_op *op, unsigned int n,
		 unsigned int window)
{
	unsigned int left, last = 0, i;
	double since = 0;

	while ((left = perf_step(p, op, n, window))) {
		if (left != last)
			since = perf_now();
		last = left;
		leave_cpu(since);
		for (i = 0; i < n; i++)
			if (op[i].result)
				perf_check(p, op[i].result,
					   op[i].posted ? "test"
					   : op[i].send ? "isend"
							: "irecv");
	}
}

void perf_end_all(struct perf *p, struct perf_op *op, unsigned int n,
		  unsigned int limit)
{
	const double end = perf_now() + limit;
	unsigned int i, open;

	do {
		perf_step(p, op, n, n);
		for (i = open = 0; i < n; i++)
			open += !op[i].result && !op[i].done;
		usleep(100);
	} while (open && perf_now() < end);
	if (open)
		perf_fail(p, "after %u s %u of the %s's %u transfers wait",
			  limit, open, p->rank ? "receiver" : "sender", n);
}

unsigned int perf_window(const struct perf *p)
{
	return p->plugin.api == 6 ? 8 : NCCL_MAX_REQUESTS;
}

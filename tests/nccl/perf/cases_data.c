/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes in on one side comes out on the other, and nothing else. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/nccl/perf/cases.h"

#define MIB ((size_t)1 << 20)

void case_properties(struct perf *p)
{
	const struct nccl_props_v12 *props = &p->plugin.props;

	if (!props->name || !*props->name)
		perf_fail(p, "the device has no name");
	if (!(props->ptr_support & NCCL_PTR_HOST))
		perf_fail(p, "no host memory: ptrSupport is %#x",
			  props->ptr_support);
	if (props->speed <= 0)
		perf_fail(p, "speed is %d Mbit/s, which NCCL takes for 10000",
			  props->speed);
	if (props->max_comms < 1 || props->max_recvs < 1)
		perf_fail(p, "maxComms is %d, maxRecvs is %d", props->max_comms,
			  props->max_recvs);
	if (p->plugin.api == 12 &&
	    (props->vprops.ndevs != 1 || !props->max_p2p_bytes ||
	     props->max_p2p_bytes > NCCL_MAX_SIZE))
		perf_fail(p, "vProps.ndevs is %d, maxP2pBytes is %zu",
			  props->vprops.ndevs, props->max_p2p_bytes);
	if (p->rank == 0)
		perf_say(p, "%d device%s, '%s', %d Mbit/s, maxRecvs %d",
			 p->plugin.devices, p->plugin.devices > 1 ? "s" : "",
			 props->name, props->speed, props->max_recvs);
}

/* Rank 0 sends @size bytes into a receive of @room; both check. */
static void one(struct perf *p, struct perf_buf *b, size_t size, size_t room,
		uint64_t seed)
{
	struct perf_op op =
		perf_part(p->rank == 0, b, 0, p->rank == 0 ? size : room);
	char what[64];

	op.tag = 7;
	snprintf(what, sizeof(what), "%zu bytes into a receive of %zu", size,
		 room);
	if (p->rank == 0)
		perf_fill(b->data, size, seed);
	else
		perf_poison(p, b);
	perf_finish(p, &op, 1, 1);
	if (p->rank == 0)
		return;
	if (op.got != (int)size)
		perf_fail(p, "%s: the receiver got a size of %d bytes", what,
			  op.got);
	perf_look(p, b, 0, size, b->size, seed, what);
}

void case_sizes(struct perf *p)
{
	struct perf_link l;
	void *comm = perf_join_one(p, 0, 1, &l);
	struct perf_buf b;
	size_t size;
	uint64_t seed = 0;

	perf_buf_new(p, &b, comm, 64 * MIB + 1, 0);
	one(p, &b, 0, 0, seed++);
	one(p, &b, 0, 4096, seed++);
	for (size = 1; size <= 64 * MIB; size *= 2) {
		one(p, &b, size, size, seed++);
		if (size > 4 * MIB)
			continue;
		one(p, &b, size - 1, size, seed++);
		one(p, &b, size + 1, 2 * size + 3, seed++);
		one(p, &b, 0, size, seed++);
	}
	perf_buf_free(p, &b);
	perf_leave_all(p, &l, 1);
}

void case_unaligned(struct perf *p)
{
	struct perf_link l;
	void *comm = perf_join_one(p, 0, 1, &l);
	struct perf_buf b;
	size_t shift;
	uint64_t seed = 100;

	for (shift = 1; shift < 8; shift++) {
		/* Other offsets on each side. */
		perf_buf_new(p, &b, comm, MIB + 64,
			     p->rank ? 8 - shift : shift);
		one(p, &b, 13, 13, seed++);
		one(p, &b, 4099, 5001, seed++);
		one(p, &b, MIB - 5, MIB, seed++);
		perf_buf_free(p, &b);
	}
	perf_leave_all(p, &l, 1);
}

/* @n messages of changing size, @window out at once, in slots of one buffer. */
static void stream(struct perf *p, void *comm, unsigned int n, size_t slot,
		   unsigned int window, uint64_t seed)
{
	struct perf_op *op = calloc(n, sizeof(*op));
	struct perf_buf b;
	unsigned int i;
	size_t size;
	char what[64];

	perf_buf_new(p, &b, comm, n * slot, 0);
	for (i = 0; i < n; i++) {
		size = i * 7919 % slot;
		op[i] = perf_part(p->rank == 0, &b, i * slot,
				  p->rank == 0 ? size : slot);
		op[i].tag = i;
		if (p->rank == 0)
			perf_fill(b.data + i * slot, size, seed + i);
	}
	perf_finish(p, op, n, window);
	for (i = 0; i < n && p->rank; i++) {
		size = i * 7919 % slot;
		snprintf(what, sizeof(what), "message %u of %u", i, n);
		if (op[i].got != (int)size)
			perf_fail(p, "%s: %d bytes instead of %zu", what,
				  op[i].got, size);
		perf_look(p, &b, i * slot, size, slot, seed + i, what);
	}
	perf_buf_free(p, &b);
	free(op);
}

void case_in_flight(struct perf *p)
{
	struct perf_link l;
	void *comm = perf_join_one(p, 0, 1, &l);

	stream(p, comm, 400, 3000, perf_window(p), 1000);
	stream(p, comm, 200, 200000, perf_window(p), 2000);
	/* Small and large in turn, as LL and Simple share a connection. */
	stream(p, comm, 100, 20000, perf_window(p), 3000);
	stream(p, comm, 100, 64, perf_window(p), 4000);
	stream(p, comm, 20, MIB, 4, 5000);
	perf_leave_all(p, &l, 1);
}

void case_both_ways(struct perf *p)
{
	struct perf_link l;
	struct perf_buf out, in;
	struct perf_op op[64];
	unsigned int i, round;
	const size_t slot = 100000;

	perf_join(p, !p->rank, &l);
	perf_buf_new(p, &out, l.send, 32 * slot, 0);
	perf_buf_new(p, &in, l.recv, 32 * slot, 3);
	for (round = 0; round < 4; round++) {
		perf_poison(p, &in);
		for (i = 0; i < 64; i++) {
			op[i] = perf_part(i % 2, i % 2 ? &out : &in,
					  i / 2 * slot, slot - i / 2);
			if (i % 2)
				perf_fill(op[i].data, op[i].size,
					  round * 100 + i + p->rank);
		}
		perf_finish(p, op, 64, perf_window(p));
		for (i = 0; i < 64; i += 2) {
			if (op[i].got != (int)op[i].size)
				perf_fail(p, "%d bytes instead of %zu",
					  op[i].got, op[i].size);
			perf_look(p, &in, i / 2 * slot, op[i].size, slot,
				  round * 100 + i + 1 + !p->rank,
				  "both ways at once");
		}
		perf_meet(p);
	}
	perf_buf_free(p, &out);
	perf_buf_free(p, &in);
	perf_leave_all(p, &l, 1);
}

/* One side comes to the transfer when the other has long been waiting. */
static void with_delay(struct perf *p, int late, uint64_t seed)
{
	static const size_t sizes[] = { 0, 1, 1000, 30000, 3 << 20 };
	struct perf_link l;
	void *comm = perf_join_one(p, 0, 1, &l);
	struct perf_buf b;
	struct perf_op op;
	unsigned int i, k;
	char go;

	perf_buf_new(p, &b, comm, 4 * MIB, 0);
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		op = perf_part(p->rank == 0, &b, 0,
			       p->rank ? 4 * MIB : sizes[i]);
		if (p->rank)
			perf_poison(p, &b);
		else
			perf_fill(b.data, sizes[i], seed + i);
		if (p->rank == late) {
			perf_hear(p, !p->rank, &go, 1);
		} else {
			for (k = 0; k < 2000; k++) {
				perf_step(p, &op, 1, 1);
				perf_check(p, op.result, "isend or irecv");
			}
			perf_tell(p, !p->rank, "g", 1);
		}
		perf_finish(p, &op, 1, 1);
		if (!p->rank)
			continue;
		if (op.got != (int)sizes[i])
			perf_fail(p, "%d bytes instead of %zu", op.got,
				  sizes[i]);
		perf_look(p, &b, 0, sizes[i], b.size, seed + i, "after a wait");
	}
	perf_buf_free(p, &b);
	perf_leave_all(p, &l, 1);
}

void case_late_receive(struct perf *p)
{
	with_delay(p, 1, 6000);
}

void case_late_send(struct perf *p)
{
	with_delay(p, 0, 7000);
}

void case_early_completion(struct perf *p)
{
	struct perf_link l;
	void *comm = perf_join_one(p, 0, 1, &l);
	struct perf_buf b;
	struct perf_op op[8];
	unsigned int i;
	size_t at;

	/* The receiver looks into the memory itself, as LL's kernel does. */
	perf_buf_new(p, &b, comm, 8 * 8192, 0);
	for (i = 0; i < 8; i++) {
		op[i] = perf_part(p->rank == 0, &b, i * 8192, 8192);
		op[i].early = true;
		if (p->rank == 0)
			perf_fill(op[i].data, 8192, 8000 + i);
	}
	perf_finish(p, op, 8, 8);
	for (i = 0; i < 8 && p->rank; i++) {
		at = (i + 1) * 8192 - 1;
		while (((volatile unsigned char *)b.data)[at] == 0xa5)
			;
		perf_look(p, &b, i * 8192, 8192, 8192, 8000 + i, "early");
	}
	perf_meet(p);
	perf_buf_free(p, &b);
	perf_leave(p, &l);
}

void case_grouped(struct perf *p)
{
	const int n =
		p->plugin.props.max_recvs < 8 ? p->plugin.props.max_recvs : 8;
	void *data[8], *mrs[8], *comm, *req = NULL;
	struct perf_link l;
	struct perf_buf b;
	struct perf_op op[8];
	size_t sizes[8];
	int tags[8], got[8], i, done = 0;

	if (n < 2)
		perf_skip(p, "maxRecvs is 1");
	comm = perf_join_one(p, 0, 1, &l);
	perf_buf_new(p, &b, comm, n * 65536, 0);
	for (i = 0; i < n; i++) {
		/* The sender goes through the tags backwards. */
		op[i] = perf_part(true, &b, i * 65536, 1000 * (n - i));
		op[i].tag = n - 1 - i;
		if (p->rank == 0)
			perf_fill(op[i].data, op[i].size, n - 1 - i);
		data[i] = b.data + i * 65536;
		sizes[i] = 65536;
		tags[i] = i;
		mrs[i] = b.mr;
	}
	if (p->rank == 0) {
		perf_finish(p, op, n, 8);
	} else {
		while (!req)
			perf_check(p,
				   perf_irecv(&p->plugin, comm, n, data, sizes,
					      tags, mrs, &req),
				   "irecv");
		while (!done)
			perf_check(p, perf_test(&p->plugin, req, &done, got),
				   "test");
		for (i = 0; i < n; i++) {
			if (got[i] != 1000 * (i + 1))
				perf_fail(p, "tag %d: %d bytes instead of %d",
					  i, got[i], 1000 * (i + 1));
			perf_look(p, &b, i * 65536, got[i], 65536, i,
				  "grouped");
		}
	}
	perf_meet(p);
	perf_buf_free(p, &b);
	perf_leave(p, &l);
}

/* Steps until it fails; done without an error is a failure of the case. */
static void must_fail(struct perf *p, struct perf_op *op, const char *side)
{
	while (!op->result && !op->done)
		perf_step(p, op, 1, 1);
	if (op->done && !op->result)
		perf_fail(p, "%s: a send larger than its receive succeeded",
			  side);
	if (!*perf_last_warning())
		perf_fail(p, "%s: failed without a warning", side);
}

void case_too_large(struct perf *p)
{
	struct perf_link l;
	void *comm = perf_join_one(p, 0, 1, &l);
	struct perf_buf b;
	struct perf_op op;

	perf_buf_new(p, &b, comm, 2 * MIB, 0);
	op = perf_part(p->rank == 0, &b, 0, p->rank ? MIB : MIB + 1);
	must_fail(p, &op, p->rank ? "receiver" : "sender");
	perf_meet(p);
	if (p->rank && (unsigned char)b.data[MIB] != 0xa5)
		perf_fail(p, "the byte behind the receive was written");
	perf_buf_free(p, &b);
	perf_leave(p, &l);
}

struct registrar {
	struct perf *p;
	void *comm;
	atomic_bool stop;
	enum nccl_result result;
};

static void *register_on(void *arg)
{
	struct registrar *r = arg;
	char *mem = malloc(1 << 20);
	void *mr;

	while (!atomic_load(&r->stop) && !r->result) {
		r->result = perf_reg(&r->p->plugin, r->comm, mem, 1 << 20,
				     NCCL_PTR_HOST, &mr);
		if (!r->result)
			r->result = perf_dereg(&r->p->plugin, r->comm, mr);
	}
	free(mem);
	return NULL;
}

/* NCCL registers user buffers from one thread while another one sends. */
void case_register_beside(struct perf *p)
{
	struct perf_link l;
	void *comm = perf_join_one(p, 0, 1, &l);
	struct registrar r = { .p = p, .comm = comm };
	pthread_t thread;

	pthread_create(&thread, NULL, register_on, &r);
	stream(p, comm, 200, 100000, perf_window(p), 9000);
	atomic_store(&r.stop, true);
	pthread_join(thread, NULL);
	perf_check(p, r.result, "regMr beside isend");
	perf_leave_all(p, &l, 1);
}

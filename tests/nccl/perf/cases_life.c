/* SPDX-License-Identifier: BSD-3-Clause */
/* Comms and processes come and go. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tests/nccl/perf/cases.h"

/* Both directions of a link carry one checked message. */
static void exchange(struct perf *p, struct perf_link *l, size_t size,
		     uint64_t seed, int me, int other)
{
	struct perf_buf out, in;
	struct perf_op op[2];

	perf_buf_new(p, &out, l->send, size, 0);
	perf_buf_new(p, &in, l->recv, size, 0);
	perf_fill(out.data, size, seed + me);
	op[0] = perf_part(false, &in, 0, size);
	op[1] = perf_part(true, &out, 0, size);
	perf_finish(p, op, 2, 2);
	if (op[0].got != (int)size)
		perf_fail(p, "%d bytes instead of %zu", op[0].got, size);
	perf_look(p, &in, 0, size, size, seed + other, "exchange");
	perf_buf_free(p, &out);
	perf_buf_free(p, &in);
}

void case_listen_reuse(struct perf *p)
{
	char handle[NCCL_HANDLE_SIZE] = { 0 }, copy[NCCL_HANDLE_SIZE];
	struct perf_link l[4] = { { 0 } };
	void *listener = NULL;
	struct perf_buf b;
	struct perf_op op;
	int i;

	if (p->rank) {
		perf_check(p, perf_listen(&p->plugin, handle, &listener),
			   "listen");
		perf_tell(p, 0, handle, sizeof(handle));
	} else {
		perf_hear(p, 1, handle, sizeof(handle));
	}
	for (i = 0; i < 4; i++) {
		memcpy(copy, handle, sizeof(copy));
		perf_establish(p, listener, p->rank ? NULL : copy, &l[i]);
	}
	if (p->rank)
		perf_check(p, perf_close_listen(&p->plugin, listener),
			   "closeListen");
	for (i = 3; i >= 0; i--) {
		perf_buf_new(p, &b, p->rank ? l[i].recv : l[i].send, 50000, 0);
		op = perf_part(!p->rank, &b, 0, 50000);
		if (!p->rank)
			perf_fill(b.data, 50000, i);
		perf_finish(p, &op, 1, 1);
		if (p->rank)
			perf_look(p, &b, 0, 50000, 50000, i, "reused listener");
		perf_buf_free(p, &b);
	}
	perf_leave_all(p, l, 4);
}

#define MANY 32 /* links: 64 comms on each side */

void case_many_comms(struct perf *p)
{
	struct perf_link l[MANY];
	int i, round;

	for (i = 0; i < MANY; i++)
		perf_join(p, !p->rank, &l[i]);
	for (round = 0; round < 3; round++)
		for (i = 0; i < MANY; i++)
			exchange(p, &l[i], round ? 70000 : 100, i * 10 + round,
				 p->rank, !p->rank);
	perf_leave_all(p, l, MANY);
}

void case_two_contexts(struct perf *p)
{
	struct perf_link a, b;
	void *first = p->plugin.ctx, *second;

	perf_join(p, !p->rank, &a);
	perf_check(p, perf_plugin_context(&p->plugin, &second), "second init");
	if (p->plugin.api >= 11)
		p->plugin.ctx = second;
	perf_join(p, !p->rank, &b);
	exchange(p, &a, 100000, 1, p->rank, !p->rank);
	exchange(p, &b, 100000, 3, p->rank, !p->rank);
	perf_leave_all(p, &b, 1);
	if (p->plugin.api >= 11)
		perf_check(p, perf_plugin_finalize(&p->plugin, second),
			   "finalize");
	p->plugin.ctx = first;
	exchange(p, &a, 100000, 5, p->rank, !p->rank);
	perf_leave_all(p, &a, 1);
}

struct worker {
	struct perf *p;
	struct perf_link l;
	int id;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	int i;

	for (i = 0; i < 50; i++)
		exchange(w->p, &w->l, i % 2 ? 1000 : 60000, w->id * 100 + i,
			 w->p->rank, !w->p->rank);
	return NULL;
}

void case_threads(struct perf *p)
{
	struct worker w[4];
	pthread_t t[4];
	int i;

	for (i = 0; i < 4; i++) {
		w[i].p = p;
		w[i].id = i;
		perf_join(p, !p->rank, &w[i].l);
	}
	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, work, &w[i]);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	perf_meet(p);
	for (i = 0; i < 4; i++)
		perf_leave(p, &w[i].l);
}

#define STREAMS 2

struct streamer {
	struct perf *p;
	struct perf_link l[STREAMS];
	atomic_bool enough;
};

/* Both ways on all links, until rank 0 sends one byte instead of all. */
static void *keep_streaming(void *arg)
{
	static const size_t sizes[STREAMS] = { 20000, 300000 };
	struct streamer *s = arg;
	struct perf_buf out[STREAMS], in[STREAMS];
	struct perf_op op[2 * STREAMS];
	struct perf *p = s->p;
	bool last = false;
	uint64_t seed;
	int i, round;

	for (i = 0; i < STREAMS; i++) {
		perf_buf_new(p, &out[i], s->l[i].send, sizes[i], 0);
		perf_buf_new(p, &in[i], s->l[i].recv, sizes[i], 0);
	}
	for (round = 0; !last; round++) {
		seed = 10 * round;
		last = !p->rank && atomic_load(&s->enough);
		for (i = 0; i < STREAMS; i++) {
			perf_poison(p, &in[i]);
			perf_fill(out[i].data, sizes[i],
				  seed + 2 * i + p->rank);
			op[2 * i] = perf_part(false, &in[i], 0, sizes[i]);
			op[2 * i + 1] = perf_part(true, &out[i], 0,
						  last ? 1 : sizes[i]);
		}
		perf_finish(p, op, 2 * STREAMS, 2 * STREAMS);
		if (p->rank)
			last = op[0].got == 1;
		for (i = 0; i < STREAMS; i++)
			perf_look(p, &in[i], 0, p->rank && last ? 1 : sizes[i],
				  sizes[i], seed + 2 * i + !p->rank,
				  "beside other connections");
	}
	for (i = 0; i < STREAMS; i++) {
		perf_buf_free(p, &out[i]);
		perf_buf_free(p, &in[i]);
	}
	return NULL;
}

/*
 * NCCL's proxy has a thread for transfers and one that connects, registers and
 * closes.
 */
void case_connect_beside(struct perf *p)
{
	struct streamer s = { .p = p };
	struct perf_link l;
	pthread_t t;
	int i;

	for (i = 0; i < STREAMS; i++)
		perf_join(p, !p->rank, &s.l[i]);
	pthread_create(&t, NULL, keep_streaming, &s);
	for (i = 0; i < 16; i++) {
		perf_join(p, !p->rank, &l);
		exchange(p, &l, i % 2 ? 100 : 200000, i, p->rank, !p->rank);
		if (i % 4)
			perf_meet(p);
		perf_leave(p, &l);
	}
	perf_meet(p);
	atomic_store(&s.enough, true);
	pthread_join(t, NULL);
	perf_leave_all(p, s.l, STREAMS);
}

/* NCCL registers user buffers over a connection of a rank to itself. */
void case_self(struct perf *p)
{
	char handle[NCCL_HANDLE_SIZE] = { 0 };
	struct perf_link l = { 0 };
	void *listener = NULL;

	perf_check(p, perf_listen(&p->plugin, handle, &listener), "listen");
	perf_establish(p, listener, handle, &l);
	perf_check(p, perf_close_listen(&p->plugin, listener), "closeListen");
	exchange(p, &l, 100, 1, 0, 0);
	exchange(p, &l, 1 << 20, 2, 0, 0);
	perf_leave(p, &l);
}

void case_ring(struct perf *p)
{
	const int right = (p->rank + 1) % p->ranks;
	const int left = (p->rank + p->ranks - 1) % p->ranks;
	char mine[NCCL_HANDLE_SIZE] = { 0 }, other[NCCL_HANDLE_SIZE];
	struct perf_link l = { 0 };
	struct perf_buf out, in;
	struct perf_op op[2];
	const size_t size = 300000;
	void *listener = NULL;
	int step;

	perf_check(p, perf_listen(&p->plugin, mine, &listener), "listen");
	perf_tell(p, left, mine, sizeof(mine));
	perf_hear(p, right, other, sizeof(other));
	perf_establish(p, listener, other, &l);
	perf_check(p, perf_close_listen(&p->plugin, listener), "closeListen");
	perf_buf_new(p, &out, l.send, size, 0);
	perf_buf_new(p, &in, l.recv, size, 0);
	perf_fill(out.data, size, p->rank);
	/* What went all the way round is what was sent. */
	for (step = 0; step < p->ranks; step++) {
		op[0] = perf_part(false, &in, 0, size);
		op[1] = perf_part(true, &out, 0, size);
		perf_finish(p, op, 2, 2);
		perf_look(p, &in, 0, size, size,
			  (p->rank + 2 * p->ranks - step - 1) % p->ranks,
			  "ring");
		memcpy(out.data, in.data, size);
	}
	perf_meet(p);
	perf_buf_free(p, &out);
	perf_buf_free(p, &in);
	perf_leave(p, &l);
}

/* MiB after MiB, received into @in and sent from @out by turns. */
static void by_turns(struct perf_op *op, size_t n, const struct perf_buf *out,
		     const struct perf_buf *in)
{
	size_t i;

	for (i = 0; i < n; i++)
		op[i] = perf_part(i % 2, i % 2 ? out : in, i / 2 << 20,
				  1 << 20);
}

/* The other side may have gone already: errors are fine. */
static void abandon(struct perf *p, const struct perf_buf *out,
		    const struct perf_buf *in)
{
	perf_dereg(&p->plugin, out->comm, out->mr);
	perf_dereg(&p->plugin, in->comm, in->mr);
	perf_close_send(&p->plugin, out->comm);
	perf_close_recv(&p->plugin, in->comm);
}

/* As an abort does: everything is closed with requests still out. */
void case_close_in_flight(struct perf *p)
{
	struct perf_link l;
	struct perf_buf out, in;
	struct perf_op op[16];
	int i, round;

	for (round = 0; round < 3; round++) {
		perf_join(p, !p->rank, &l);
		perf_buf_new(p, &out, l.send, 8 << 20, 0);
		perf_buf_new(p, &in, l.recv, 8 << 20, 0);
		/*
		 * who left before the other is connected would be gone for it
		 */
		perf_meet(p);
		by_turns(op, 16, &out, &in);
		for (i = 0; i < 5 + 200 * round; i++)
			perf_step(p, op, 16, 16);
		abandon(p, &out, &in);
		perf_meet(p);
		perf_buf_drop(&out);
		perf_buf_drop(&in);
	}
	/* And then all is as it was. */
	perf_join(p, !p->rank, &l);
	exchange(p, &l, 100000, 1, p->rank, !p->rank);
	perf_leave_all(p, &l, 1);
}

#define KILL_BOUND 20 /* s until the survivor must know */

void case_peer_killed(struct perf *p)
{
	struct perf_link l;
	struct perf_buf out, in;
	struct perf_op op[8];
	unsigned int bound;
	double end;
	int i;
	char c;

	perf_join(p, !p->rank, &l);
	exchange(p, &l, 100000, 1, p->rank, !p->rank);
	perf_buf_new(p, &out, l.send, 8 << 20, 0);
	perf_buf_new(p, &in, l.recv, 8 << 20, 0);
	by_turns(op, 8, &out, &in);
	if (p->rank) {
		for (i = 0; i < 20; i++)
			perf_step(p, op, 2, 2);
		perf_hear(p, 0, &c, 1);
		kill(getpid(), SIGKILL);
	}
	for (i = 0; i < 20; i++)
		perf_step(p, op, 8, 8);
	perf_tell(p, 1, "k", 1);
	bound = p->opt->time_limit < KILL_BOUND ? p->opt->time_limit
						: KILL_BOUND;
	end = perf_now() + bound;
	/* The last receive can never complete. */
	for (; !op[6].result && perf_now() < end; usleep(100))
		if (!perf_step(p, op, 8, 8) && !op[6].result)
			break;
	if (op[6].done && !op[6].result)
		perf_fail(p, "a receive completed without a send");
	if (!op[6].result)
		perf_fail(p,
			  "%u s after its peer was killed a receive still "
			  "waits",
			  bound);
	abandon(p, &out, &in);
	perf_buf_drop(&out);
	perf_buf_drop(&in);
}

#define BUSY_S 8

/* A rank that computes calls nothing, and is not dead. */
void case_peer_busy(struct perf *p)
{
	struct perf_link l;
	struct perf_buf b;
	struct perf_op op[8];
	struct timespec t = { BUSY_S, 0 };
	int i;

	perf_join(p, !p->rank, &l);
	exchange(p, &l, 100000, 1, p->rank, !p->rank);
	perf_buf_new(p, &b, p->rank ? l.recv : l.send, 8 << 20, 0);
	for (i = 0; i < 8; i++) {
		op[i] = perf_part(!p->rank, &b, (size_t)i << 20, 1 << 20);
		if (!p->rank)
			perf_fill(op[i].data, 1 << 20, i);
	}
	/* Receives are posted, and then their owner is away. */
	if (p->rank) {
		perf_step(p, op, 8, 8);
		nanosleep(&t, NULL);
	}
	perf_finish(p, op, 8, 8);
	for (i = 0; i < 8 && p->rank; i++) {
		perf_look(p, &b, (size_t)i << 20, 1 << 20, 1 << 20, i,
			  "after a pause");
	}
	perf_meet(p);
	perf_buf_free(p, &b);
	perf_leave(p, &l);
}

/*
 * The same of one that is stopped whole, in a debugger or a container that is
 * frozen: its kernel still answers.  Bytes are under way both ways.
 */
void case_peer_stopped(struct perf *p)
{
	struct perf_buf out, in;
	struct perf_op op[16];
	struct perf_link l;
	pid_t pid = getpid();
	double end;
	int i;

	perf_join(p, !p->rank, &l);
	exchange(p, &l, 100000, 1, p->rank, !p->rank);
	perf_buf_new(p, &out, l.send, 8 << 20, 0);
	perf_buf_new(p, &in, l.recv, 8 << 20, 0);
	by_turns(op, 16, &out, &in);
	for (i = 1; i < 16; i += 2)
		perf_fill(op[i].data, 1 << 20, 2 * i + p->rank);
	if (p->rank) {
		perf_step(p, op, 16, 16);
		perf_tell(p, 0, &pid, sizeof(pid));
	} else {
		perf_hear(p, 1, &pid, sizeof(pid));
		if (kill(pid, SIGSTOP) < 0)
			perf_fail(p, "cannot stop a process");
		for (end = perf_now() + BUSY_S; perf_now() < end; usleep(100))
			perf_step(p, op, 16, 16);
		kill(pid, SIGCONT);
	}
	for (i = 0; i < 16; i++)
		perf_check(p, op[i].result, "while the other was stopped");
	perf_finish(p, op, 16, 16);
	for (i = 0; i < 8; i++)
		perf_look(p, &in, (size_t)i << 20, 1 << 20, 1 << 20,
			  2 * (2 * i + 1) + !p->rank, "after a stop");
	perf_meet(p);
	perf_buf_free(p, &out);
	perf_buf_free(p, &in);
	perf_leave(p, &l);
}

void case_reload(struct perf *p)
{
	struct perf_link l;
	char why[256];
	int round;

	for (round = 0; round < 4; round++) {
		perf_join(p, !p->rank, &l);
		exchange(p, &l, 100000, round, p->rank, !p->rank);
		perf_leave_all(p, &l, 1);
		perf_unload(p);
		perf_meet(p);
		if (!perf_plugin_open(&p->plugin, p->opt->plugin,
				      p->opt->api[p->rank % 2], why,
				      sizeof(why)) ||
		    !perf_plugin_init(&p->plugin, why, sizeof(why)))
			perf_fail(p, "loaded again: %s", why);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many streams a pair needs, found by measuring: while bulk flows, one
 * stream more is tried; it stays when it brought more than a few per cent, and
 * is parked when not.  After a failed trial the number rests for a while, since
 * networks change.
 */
#include "devices/tcp/tcp.h"

#include "util/clock.h"

#define SAMPLE_BYTES	(64ull << 20)
#define SAMPLE_NS	4000000ull
#define REST_NS		5000000000ull
#define WORTH		1.06

void tcp_tune_busy(struct tcp_bulk *b)
{
	if (!b->tune.busy_since_ns)
		b->tune.busy_since_ns = weft_now_ns();
}

void tcp_tune_idle(struct tcp_bulk *b)
{
	if (!b->tune.busy_since_ns)
		return;
	b->tune.busy_ns += weft_now_ns() - b->tune.busy_since_ns;
	b->tune.busy_since_ns = 0;
}

static void judge(struct tcp_bulk *b, double rate, uint64_t now,
		  unsigned int max)
{
	struct tcp_tune *t = &b->tune;

	if (t->trying) {
		t->trying = false;
		if (rate < t->base * WORTH) {
			b->out_limit--;
			t->settled_until_ns = now + REST_NS;
			t->base = 0;
			return;
		}
	}
	t->base = rate;
	if (b->out_limit < max && now >= t->settled_until_ns) {
		b->out_limit++;
		t->trying = true;
	}
}

void tcp_tune_lost(struct tcp_bulk *b)
{
	b->tune.trying = false;
	b->tune.base = 0;
	b->tune.settled_until_ns = weft_now_ns() + REST_NS;
}

void tcp_tune_bytes(struct tcp_bulk *b, size_t n, unsigned int max)
{
	struct tcp_tune *t = &b->tune;
	uint64_t now, busy;

	t->bytes += n;
	if (t->bytes < SAMPLE_BYTES)
		return;
	now = weft_now_ns();
	busy = t->busy_ns + (t->busy_since_ns ? now - t->busy_since_ns : 0);
	if (busy < SAMPLE_NS)
		return;
	/* a stream on trial counts from when it is there */
	if (b->out_streams >= b->out_limit || !t->trying)
		judge(b, (double)t->bytes / busy * 1e9, now, max);
	t->bytes = 0;
	t->busy_ns = 0;
	if (t->busy_since_ns)
		t->busy_since_ns = now;
}

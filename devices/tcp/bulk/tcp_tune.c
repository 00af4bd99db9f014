/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many streams a pair needs, found by measuring: while bulk flows, twice as
 * many are tried, at most eight more, as long as that pays, then smaller steps;
 * streams that gain no more than a few per cent are suspended again.  Then the
 * number stays for a while, after which a quarter more is tried, since networks
 * change.
 */
#include "devices/tcp/bulk/tcp_tune.h"

#include "util/clock.h"

/* the shortest sample, and the least bytes in it: less is noise */
#define SAMPLE_BYTES (64ull << 20)
#define SAMPLE_NS    4000000ull
#define REST_NS	     5000000000ull /* between two trials: networks change slowly */
#define MOST_MORE    8u		   /* on trial at a time */
#define WORTH	     1.06	   /* gain for which more streams are kept */
#define WORTH_TWICE  1.10	   /* the same for twice as many */

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

static unsigned int quarter_of_streams(const struct tcp_bulk *b)
{
	return weft_max(b->out_limit / 4, 1);
}

/* Drop the streams on trial; fewer may still pay. */
static void end_trial(struct tcp_bulk *b, uint64_t now)
{
	struct tcp_tune *t = &b->tune;

	b->out_limit -= t->more;
	t->step = t->more / 2;
	t->base = 0;
	if (t->step >= quarter_of_streams(b))
		return;
	t->step = quarter_of_streams(b);
	t->settled_until_ns = now + REST_NS;
}

static void evaluate_trial(struct tcp_bulk *b, double rate, uint64_t now,
			   unsigned int max)
{
	struct tcp_tune *t = &b->tune;
	double worth;

	if (t->trying) {
		t->trying = false;
		worth = 2 * t->more == b->out_limit ? WORTH_TWICE : WORTH;
		if (rate < t->base * worth) {
			end_trial(b, now);
			return;
		}
	}
	t->base = rate;
	if (b->out_limit < max && now >= t->settled_until_ns) {
		t->more = weft_min(t->step ? t->step : b->out_limit,
				   max - b->out_limit);
		t->more = weft_min(t->more, MOST_MORE);
		b->out_limit += t->more;
		t->trying = true;
	}
}

void tcp_tune_stream_lost(struct tcp_bulk *b)
{
	b->tune.trying = false;
	b->tune.base = 0;
	b->tune.step = 1;
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
	/* streams on trial count once they are open */
	if (b->out_streams >= b->out_limit || !t->trying)
		evaluate_trial(b, (double)t->bytes / busy * 1e9, now, max);
	t->bytes = 0;
	t->busy_ns = 0;
	if (t->busy_since_ns)
		t->busy_since_ns = now;
}

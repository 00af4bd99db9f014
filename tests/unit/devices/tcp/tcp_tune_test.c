/* SPDX-License-Identifier: BSD-3-Clause */
/* How many streams measuring finds, on a wire that is made up. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>
#include "devices/tcp/bulk/tcp_tune.h"
#include "util/clock.h"

#define CHUNK (1u << 20)
#define MAX   8u

static uint64_t now_ns;

static uint64_t fake_clock(void)
{
	return now_ns;
}

static struct tcp_bulk b;

static void init(void)
{
	memset(&b, 0, sizeof(b));
	b.out_limit = 2;
	now_ns = 1000000000;
	weft_clock_set(fake_clock);
}

TestSuite(tcp_tune, .init = init);

/* Bytes per second of @n streams. */
typedef double (*wire)(unsigned int n);

static double up_to_four(unsigned int n)
{
	return (n < 4 ? n : 4) * 1e9;
}

/* Seven are in each other's way. */
static double crowded(unsigned int n)
{
	return (n < 7 ? n : 4) * 1e9;
}

static double hardly(unsigned int n)
{
	return 1e9 * (1 + 0.05 * n);
}

static double endless(unsigned int n)
{
	return n * 1e9;
}

/* Moves @mib over as many streams as are wanted; the most there ever were. */
static unsigned int flow(wire rate, unsigned int mib)
{
	unsigned int i, most = 0;

	tcp_tune_busy(&b);
	for (i = 0; i < mib; i++) {
		b.out_streams = b.out_limit;
		most = b.out_limit > most ? b.out_limit : most;
		now_ns += CHUNK / rate(b.out_streams) * 1e9;
		tcp_tune_bytes(&b, CHUNK, MAX);
	}
	tcp_tune_idle(&b);
	return most;
}

Test(tcp_tune, streams_grow_while_throughput_grows)
{
	cr_expect(eq(uint, flow(up_to_four, 1000), 8), "twice as many tried");
	cr_expect(eq(uint, b.out_limit, 4));
}

/* What lies between the last number that paid and its double. */
Test(tcp_tune, fewer_streams_are_tried_if_doubling_gains_nothing)
{
	flow(crowded, 64 + 64);
	cr_expect(eq(uint, b.out_limit, 8), "on trial");
	flow(crowded, 1000);
	cr_expect(eq(uint, b.out_limit, 6));
}

Test(tcp_tune, gain_of_few_percent_adds_no_stream)
{
	flow(hardly, 1000);
	cr_expect(eq(uint, b.out_limit, 2));
}

Test(tcp_tune, streams_stay_within_the_maximum)
{
	cr_expect(eq(uint, flow(endless, 4000), MAX));
	cr_expect(eq(uint, b.out_limit, MAX));
}

/* Nothing is tried for five seconds; then the network may have changed. */
Test(tcp_tune, trials_are_repeated_after_a_pause)
{
	flow(hardly, 1000);
	cr_expect(eq(uint, flow(up_to_four, 1000), 2));
	now_ns += 6000000000ull;
	flow(up_to_four, 1000);
	cr_expect(eq(uint, b.out_limit, 4));
}

/* What a program does between its transfers says nothing of the wire. */
Test(tcp_tune, pauses_do_not_count)
{
	unsigned int i;

	for (i = 0; i < 4000; i++) {
		flow(up_to_four, 1);
		now_ns += i % 2 ? 1000000 : 0; /* as long as the chunk */
	}
	cr_expect(eq(uint, b.out_limit, 4));
}

Test(tcp_tune, few_megabytes_are_no_sample)
{
	flow(endless, 63);
	cr_expect(eq(uint, b.out_limit, 2));
}

/* One on trial that is not there yet is not judged by the others' speed. */
Test(tcp_tune, trial_starts_when_its_stream_is_open)
{
	flow(up_to_four, 64);
	cr_assert(eq(uint, b.out_limit, 4));
	tcp_tune_busy(&b);
	b.out_streams = 2;
	for (unsigned int i = 0; i < 500; i++) {
		now_ns += CHUNK / up_to_four(2) * 1e9;
		tcp_tune_bytes(&b, CHUNK, MAX);
	}
	cr_expect(eq(uint, b.out_limit, 4));
	cr_expect(b.tune.trying);
}

Test(tcp_tune, lost_stream_is_not_requested_at_once)
{
	flow(up_to_four, 64);
	tcp_tune_stream_lost(&b);
	b.out_limit = 2;
	cr_expect(eq(uint, flow(up_to_four, 1000), 2));
	now_ns += 6000000000ull;
	flow(up_to_four, 1000);
	cr_expect(eq(uint, b.out_limit, 4));
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include <time.h>

#include "util/clock.h"

static uint64_t read_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static uint64_t (*now_fn)(void) = read_clock;

uint64_t weft_now_ns(void)
{
	return now_fn();
}

void weft_clock_set(uint64_t (*now)(void))
{
	now_fn = now ? now : read_clock;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_UTIL_CLOCK_H
#define WEFT_UTIL_CLOCK_H

#include <stdint.h>

/* Monotonic time in nanoseconds; tests replace it with weft_clock_set(). */
uint64_t weft_now_ns(void);
void weft_clock_set(uint64_t (*now)(void)); /* NULL: the real clock */

static inline uint64_t weft_now_ms(void)
{
	return weft_now_ns() / 1000000;
}

#endif

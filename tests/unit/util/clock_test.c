/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "util/clock.h"

static uint64_t fixed(void)
{
	return 7 * 1000 * 1000 + 999999;
}

Test(clock, never_goes_back)
{
	uint64_t last = weft_now_ns(), now;
	int i;

	for (i = 0; i < 1000; i++) {
		now = weft_now_ns();
		cr_assert(ge(u64, now, last));
		last = now;
	}
	cr_expect(gt(u64, last, 0));
}

Test(clock, can_be_replaced)
{
	weft_clock_set(fixed);
	cr_expect(eq(u64, weft_now_ns(), 7999999));
	cr_expect(eq(u64, weft_now_ms(), 7), "milliseconds round down");
	weft_clock_set(NULL);
	cr_expect(ne(u64, weft_now_ns(), 7999999));
}

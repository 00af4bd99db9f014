/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "util/util.h"

/* A byte left alone in 64 rounds would be zero in all of them. */
Test(random, fills_every_byte_and_no_more)
{
	unsigned char buf[40], seen[40] = { 0 };
	int round;
	size_t i;

	for (round = 0; round < 64; round++) {
		memset(buf, 0, sizeof(buf));
		cr_assert(eq(int, weft_random(buf + 1, 33), 0));
		for (i = 0; i < sizeof(buf); i++)
			seen[i] |= buf[i];
	}
	cr_expect(eq(int, seen[0], 0));
	for (i = 1; i <= 33; i++)
		cr_expect(ne(int, seen[i], 0), "byte %zu was never set", i);
	for (; i < sizeof(buf); i++)
		cr_expect(eq(int, seen[i], 0));
}

Test(random, differs_between_calls)
{
	uint64_t a[2], b[2];

	cr_assert(eq(int, weft_random(a, sizeof(a)), 0));
	cr_assert(eq(int, weft_random(b, sizeof(b)), 0));
	cr_expect(ne(int, memcmp(a, b, sizeof(a)), 0));
}

Test(wipe, zeroes_exactly_its_range)
{
	unsigned char buf[5] = { 1, 2, 3, 4, 5 };

	weft_wipe(buf + 1, 3);
	cr_expect(eq(int, buf[0], 1));
	cr_expect(eq(int, buf[1] | buf[2] | buf[3], 0));
	cr_expect(eq(int, buf[4], 5));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose number is remembered. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "devices/common/ep_number.h"

static struct weft_ep_numbers all;

static void begin(void)
{
	weft_ep_numbers_init(&all);
}

static void end(void)
{
	weft_ep_numbers_free(&all);
}

TestSuite(ep_number, .init = begin, .fini = end);

/* The number of one more endpoint, which ends at once. */
static uint32_t one(uint64_t peer)
{
	struct weft_ep_number *s = weft_ep_number_get(&all, peer);
	uint32_t sn;

	cr_assert(s != NULL);
	sn = s->next++;
	weft_ep_number_hold(&all, s);
	weft_ep_number_release(&all, s);
	return sn;
}

Test(ep_number, each_key_is_counted_by_itself)
{
	cr_expect(eq(u32, one(5), 0));
	cr_expect(eq(u32, one(5), 1));
	cr_expect(eq(u32, one(6), 0));
	cr_expect(eq(u32, one(5), 2));
}

Test(ep_number, memory_is_bounded_over_many_peers)
{
	unsigned int i;

	for (i = 0; i < 10 * WEFT_EP_NUMBERS_IDLE; i++)
		cr_assert(zero(u32, one(i)));
	cr_expect(eq(sz, all.table.n, WEFT_EP_NUMBERS_IDLE));
	/* the last ones are remembered */
	for (i = 9 * WEFT_EP_NUMBERS_IDLE; i < 10 * WEFT_EP_NUMBERS_IDLE; i++)
		cr_assert(eq(u32, one(i), 1));
}

/* Who has an endpoint is never forgotten, nor who was used lately. */
Test(ep_number, keys_in_use_are_never_forgotten)
{
	struct weft_ep_number *s = weft_ep_number_get(&all, 1);
	unsigned int i;

	s->next = 7;
	weft_ep_number_hold(&all, s);
	weft_ep_number_hold(&all, s);
	weft_ep_number_release(&all, s);
	one(2);
	for (i = 0; i < 3 * WEFT_EP_NUMBERS_IDLE; i++) {
		one(1000 + i);
		if (i % 1000 == 0)
			one(2);
	}
	cr_expect(eq(ptr, weft_ep_number_get(&all, 1), s));
	cr_expect(eq(u32, s->next, 7));
	cr_expect(gt(u32, one(2), 0));
	weft_ep_number_release(&all, s);
	cr_expect(eq(u32, one(1), 7));
}

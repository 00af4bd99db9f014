/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose number is remembered. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "devices/ep_sn.h"

static struct weft_ep_sns sns;

static void begin(void)
{
	weft_ep_sns_init(&sns);
}

static void end(void)
{
	weft_ep_sns_free(&sns);
}

TestSuite(ep_sn, .init = begin, .fini = end);

/* The number of one more endpoint, which ends at once. */
static uint32_t one(uint64_t peer)
{
	struct weft_ep_sn *s = weft_ep_sn_get(&sns, peer);
	uint32_t sn;

	cr_assert(s != NULL);
	sn = s->next++;
	weft_ep_sn_hold(&sns, s);
	weft_ep_sn_release(&sns, s);
	return sn;
}

Test(ep_sn, each_key_is_counted_by_itself)
{
	cr_expect(eq(u32, one(5), 0));
	cr_expect(eq(u32, one(5), 1));
	cr_expect(eq(u32, one(6), 0));
	cr_expect(eq(u32, one(5), 2));
}

Test(ep_sn, memory_is_bounded_over_many_peers)
{
	unsigned int i;

	for (i = 0; i < 10 * WEFT_EP_SNS_IDLE; i++)
		cr_assert(zero(u32, one(i)));
	cr_expect(eq(sz, sns.table.n, WEFT_EP_SNS_IDLE));
	/* the last ones are remembered */
	for (i = 9 * WEFT_EP_SNS_IDLE; i < 10 * WEFT_EP_SNS_IDLE; i++)
		cr_assert(eq(u32, one(i), 1));
}

/* Who has an endpoint is never forgotten, nor who was used lately. */
Test(ep_sn, keys_in_use_are_never_forgotten)
{
	struct weft_ep_sn *s = weft_ep_sn_get(&sns, 1);
	unsigned int i;

	s->next = 7;
	weft_ep_sn_hold(&sns, s);
	weft_ep_sn_hold(&sns, s);
	weft_ep_sn_release(&sns, s);
	one(2);
	for (i = 0; i < 3 * WEFT_EP_SNS_IDLE; i++) {
		one(1000 + i);
		if (i % 1000 == 0)
			one(2);
	}
	cr_expect(eq(ptr, weft_ep_sn_get(&sns, 1), s));
	cr_expect(eq(u32, s->next, 7));
	cr_expect(gt(u32, one(2), 0));
	weft_ep_sn_release(&sns, s);
	cr_expect(eq(u32, one(1), 7));
}

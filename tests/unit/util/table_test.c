/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

#include "util/table.h"
#include "util/util.h"

#define MANY 10000u

static struct weft_table t;
static struct weft_entry e[MANY];

static void end(void)
{
	weft_table_free(&t);
}

TestSuite(table, .fini = end);

Test(table, empty_table_finds_nothing)
{
	cr_expect(eq(ptr, weft_table_find(&t, 7), NULL));
	weft_table_del(&t, &e[0]);
	cr_expect(zero(sz, t.n));
}

Test(table, finds_every_entry)
{
	unsigned int i;

	for (i = 0; i < MANY; i++)
		cr_assert(zero(int, weft_table_add(&t, &e[i], i * 64)));
	cr_expect(eq(sz, t.n, MANY));
	for (i = 0; i < MANY; i++)
		cr_assert(eq(ptr, weft_table_find(&t, i * 64), &e[i]));
	cr_expect(eq(ptr, weft_table_find(&t, 1), NULL));
	for (i = 0; i < MANY; i += 2)
		weft_table_del(&t, &e[i]);
	weft_table_del(&t, &e[0]);
	cr_expect(eq(sz, t.n, MANY / 2));
	for (i = 0; i < MANY; i++)
		cr_assert(eq(ptr, weft_table_find(&t, i * 64),
			     i % 2 ? &e[i] : NULL));
}

Test(table, next_walks_entries_of_equal_key)
{
	unsigned int seen = 0, i;
	struct weft_entry *p;

	for (i = 0; i < 300; i++)
		cr_assert(zero(int, weft_table_add(&t, &e[i], i % 3)));
	for (p = weft_table_find(&t, 1); p; p = weft_table_next(p)) {
		cr_assert(eq(u64, p->key, 1));
		seen++;
	}
	cr_expect(eq(uint, seen, 100));
}

/* Keys of like low or high bits do not end up in one chain. */
Test(table, similar_keys_share_no_chain)
{
	unsigned int i, longest = 0, len;
	struct weft_entry *p;

	for (i = 0; i < MANY; i++)
		weft_table_add(&t, &e[i],
			       i % 2 ? (uint64_t)i << 40 : (uint64_t)i << 12);
	for (i = 0; i < t.nchains; i++) {
		for (len = 0, p = t.chains[i]; p; p = p->next)
			len++;
		longest = weft_max(longest, len);
	}
	cr_expect(lt(uint, longest, 20));
}

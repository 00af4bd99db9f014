/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "util/list.h"

struct item {
	int value;
	struct weft_list link;
};

static struct weft_list head;
static struct item items[] = { { .value = 1 }, { .value = 2 }, { .value = 3 } };

static void fill(void)
{
	int i;

	weft_list_init(&head);
	for (i = 0; i < 3; i++)
		weft_list_add_tail(&head, &items[i].link);
}

static int digits(void)
{
	struct item *pos, *tmp;
	int all = 0;

	weft_list_for_each (pos, tmp, &head, link)
		all = all * 10 + pos->value;
	return all;
}

Test(list, keeps_the_order_of_adding, .init = fill)
{
	cr_expect(eq(int, digits(), 123));
	cr_expect(eq(int, weft_list_first(&head, struct item, link)->value, 1));
}

Test(list, unlinks_anywhere_and_twice, .init = fill)
{
	weft_list_del(&items[1].link);
	cr_expect(eq(int, digits(), 13));
	weft_list_del(&items[1].link);
	cr_expect(eq(int, digits(), 13), "an unlinked node points to itself");
	weft_list_del(&items[0].link);
	weft_list_del(&items[2].link);
	cr_expect(weft_list_empty(&head));
	cr_expect(eq(int, digits(), 0));
}

Test(list, loop_body_may_unlink, .init = fill)
{
	struct item *pos, *tmp;
	int seen = 0;

	weft_list_for_each (pos, tmp, &head, link) {
		seen = seen * 10 + pos->value;
		weft_list_del(&pos->link);
	}
	cr_expect(eq(int, seen, 123));
	cr_expect(weft_list_empty(&head));
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/ep_number.h"

#include <stdlib.h>

void weft_ep_numbers_init(struct weft_ep_numbers *all)
{
	*all = (struct weft_ep_numbers){ .nidle = 0 };
	weft_list_init(&all->idle);
}

static void free_number(struct weft_ep_numbers *all, struct weft_ep_number *s)
{
	weft_table_del(&all->table, &s->entry);
	weft_list_del(&s->link);
	all->nidle--;
	free(s);
}

static void retire_number(struct weft_ep_numbers *all, struct weft_ep_number *s)
{
	if (all->nidle == WEFT_EP_NUMBERS_IDLE)
		free_number(all, weft_list_first(&all->idle,
						 struct weft_ep_number, link));
	weft_list_add_tail(&all->idle, &s->link);
	all->nidle++;
}

struct weft_ep_number *weft_ep_number_get(struct weft_ep_numbers *all,
					  uint64_t peer_id)
{
	struct weft_entry *e = weft_table_find(&all->table, peer_id);
	struct weft_ep_number *s;

	if (e)
		return container_of(e, struct weft_ep_number, entry);
	s = calloc(1, sizeof(*s));
	if (!s || weft_table_add(&all->table, &s->entry, peer_id)) {
		free(s);
		return NULL;
	}
	retire_number(all, s);
	return s;
}

void weft_ep_number_hold(struct weft_ep_numbers *all, struct weft_ep_number *s)
{
	if (s->eps++)
		return;
	weft_list_del(&s->link);
	all->nidle--;
}

void weft_ep_number_release(struct weft_ep_numbers *all,
			    struct weft_ep_number *s)
{
	if (!--s->eps)
		retire_number(all, s);
}

void weft_ep_numbers_free(struct weft_ep_numbers *all)
{
	struct weft_entry *e, *next;
	size_t i;

	for (i = 0; i < all->table.nchains; i++)
		for (e = all->table.chains[i]; e; e = next) {
			next = e->next;
			free(container_of(e, struct weft_ep_number, entry));
		}
	weft_table_free(&all->table);
	weft_ep_numbers_init(all);
}

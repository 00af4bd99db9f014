/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/ep_sn.h"

#include <stdlib.h>

void weft_ep_sns_init(struct weft_ep_sns *sns)
{
	*sns = (struct weft_ep_sns){ .nidle = 0 };
	weft_list_init(&sns->idle);
}

static void forget(struct weft_ep_sns *sns, struct weft_ep_sn *s)
{
	weft_table_del(&sns->table, &s->entry);
	weft_list_del(&s->link);
	sns->nidle--;
	free(s);
}

static void rest(struct weft_ep_sns *sns, struct weft_ep_sn *s)
{
	if (sns->nidle == WEFT_EP_SNS_IDLE)
		forget(sns,
		       weft_list_first(&sns->idle, struct weft_ep_sn, link));
	weft_list_add_tail(&sns->idle, &s->link);
	sns->nidle++;
}

struct weft_ep_sn *weft_ep_sn_get(struct weft_ep_sns *sns, uint64_t peer_id)
{
	struct weft_entry *e = weft_table_find(&sns->table, peer_id);
	struct weft_ep_sn *s;

	if (e)
		return container_of(e, struct weft_ep_sn, entry);
	s = calloc(1, sizeof(*s));
	if (!s || weft_table_add(&sns->table, &s->entry, peer_id)) {
		free(s);
		return NULL;
	}
	rest(sns, s);
	return s;
}

void weft_ep_sn_hold(struct weft_ep_sns *sns, struct weft_ep_sn *s)
{
	if (s->eps++)
		return;
	weft_list_del(&s->link);
	sns->nidle--;
}

void weft_ep_sn_release(struct weft_ep_sns *sns, struct weft_ep_sn *s)
{
	if (!--s->eps)
		rest(sns, s);
}

void weft_ep_sns_free(struct weft_ep_sns *sns)
{
	struct weft_entry *e, *next;
	size_t i;

	for (i = 0; i < sns->table.nchains; i++)
		for (e = sns->table.chains[i]; e; e = next) {
			next = e->next;
			free(container_of(e, struct weft_ep_sn, entry));
		}
	weft_table_free(&sns->table);
	weft_ep_sns_init(sns);
}

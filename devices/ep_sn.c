/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/ep_sn.h"

#include <stdlib.h>

struct weft_ep_sn *weft_ep_sn_get(struct weft_list *sns, uint64_t peer_id)
{
	struct weft_ep_sn *s, *tmp;

	weft_list_for_each(s, tmp, sns, link)
		if (s->peer_id == peer_id)
			return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->peer_id = peer_id;
	weft_list_add_tail(sns, &s->link);
	return s;
}

void weft_ep_sns_free(struct weft_list *sns)
{
	struct weft_ep_sn *s, *tmp;

	weft_list_for_each(s, tmp, sns, link)
		free(s);
	weft_list_init(sns);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* How many endpoints were made to each peer: the n-th pairs with its n-th. */
#ifndef WEFT_DEVICES_EP_SN_H
#define WEFT_DEVICES_EP_SN_H

#include <stdint.h>
#include "util/list.h"

struct weft_ep_sn {
	struct weft_list link;
	uint64_t peer_id;
	uint32_t next;			/* counted up by who has made one */
};

/* The peer's entry in @sns, new where it has none; NULL: no memory. */
struct weft_ep_sn *weft_ep_sn_get(struct weft_list *sns, uint64_t peer_id);
/* Frees all of them; @sns is empty then. */
void weft_ep_sns_free(struct weft_list *sns);

#endif

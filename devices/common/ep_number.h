/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many endpoints were created to each peer: the n-th pairs with its n-th.
 *
 * A peer's number is kept while there is an endpoint to it, and then until
 * WEFT_EP_NUMBERS_IDLE other peers have lost their last endpoint.  If a
 * forgotten peer comes back, the two sides dial separate connections for what
 * would have been one; both work.
 */
#ifndef WEFT_DEVICES_COMMON_EP_NUMBER_H
#define WEFT_DEVICES_COMMON_EP_NUMBER_H

#include <stdbool.h>
#include <stdint.h>
#include "util/list.h"
#include "util/table.h"

#define WEFT_EP_NUMBERS_IDLE 4096u

struct weft_ep_number {
	struct weft_entry entry; /* by the peer's id */
	struct weft_list link;	 /* all->idle, while there is no endpoint */
	unsigned int eps;
	uint32_t next;	     /* number of the next endpoint */
	bool asked, refused; /* nvlink: whether it may be dialled */
};

/* Zero it before weft_ep_numbers_init(). */
struct weft_ep_numbers {
	struct weft_table table;
	struct weft_list idle; /* the longest first */
	unsigned int nidle;
};

void weft_ep_numbers_init(struct weft_ep_numbers *all);
/*
 * The peer's entry, new if it has none; NULL: no memory.  Valid until the next
 * call, unless it is held.
 */
struct weft_ep_number *weft_ep_number_get(struct weft_ep_numbers *all,
					  uint64_t peer_id);
/* An endpoint was created, or destroyed. */
void weft_ep_number_hold(struct weft_ep_numbers *all, struct weft_ep_number *s);
void weft_ep_number_release(struct weft_ep_numbers *all,
			    struct weft_ep_number *s);
/* Frees all entries; there must be no endpoint. */
void weft_ep_numbers_free(struct weft_ep_numbers *all);

#endif

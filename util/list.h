/* SPDX-License-Identifier: BSD-3-Clause */
/* Doubly linked ring with a head; an unlinked node points to itself. */
#ifndef WEFT_UTIL_LIST_H
#define WEFT_UTIL_LIST_H

#include <stdbool.h>
#include "util/util.h"

struct weft_list {
	struct weft_list *prev, *next;
};

static inline void weft_list_init(struct weft_list *l)
{
	l->prev = l->next = l;
}

static inline bool weft_list_empty(const struct weft_list *l)
{
	return l->next == l;
}

static inline void weft_list_add_tail(struct weft_list *head,
				      struct weft_list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

static inline void weft_list_del(struct weft_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	weft_list_init(n);
}

#define weft_list_first(head, type, member) \
	container_of((head)->next, type, member)

/* The body may unlink or free @pos. */
#define weft_list_for_each(pos, tmp, head, member)                          \
	for (pos = container_of((head)->next, __typeof__(*pos), member),    \
	    tmp = container_of(pos->member.next, __typeof__(*pos), member); \
	     &pos->member != (head); pos = tmp,                             \
	    tmp = container_of(pos->member.next, __typeof__(*pos), member))

#endif

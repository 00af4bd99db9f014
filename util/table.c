/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/table.h"

#include <errno.h>
#include <stdlib.h>

#include "util/util.h"

#define CHAINS 64

static struct weft_entry **find_chain(const struct weft_table *t, uint64_t key)
{
	/* the finaliser of splitmix64 */
	key ^= t->salt;
	key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9;
	key = (key ^ key >> 27) * 0x94d049bb133111eb;
	return &t->chains[(key ^ key >> 31) & (t->nchains - 1)];
}

static void link_entry(struct weft_table *t, struct weft_entry *e)
{
	struct weft_entry **at = find_chain(t, e->key);

	e->next = *at;
	*at = e;
}

static int resize_table(struct weft_table *t, size_t nchains)
{
	struct weft_table bigger = { .nchains = nchains, .salt = t->salt };
	struct weft_entry *e, *next;
	size_t i;

	bigger.chains = calloc(nchains, sizeof(struct weft_entry *));
	if (!bigger.chains)
		return -ENOMEM;
	for (i = 0; i < t->nchains; i++)
		for (e = t->chains[i]; e; e = next) {
			next = e->next;
			link_entry(&bigger, e);
		}
	bigger.n = t->n;
	free(t->chains);
	*t = bigger;
	return 0;
}

int weft_table_add(struct weft_table *t, struct weft_entry *e, uint64_t key)
{
	if (!t->nchains) {
		(void)weft_random(&t->salt, sizeof(t->salt));
		if (resize_table(t, CHAINS))
			return -ENOMEM;
	} else if (t->n >= t->nchains) {
		/* without memory lookups are only slower */
		(void)resize_table(t, 2 * t->nchains);
	}
	e->key = key;
	link_entry(t, e);
	t->n++;
	return 0;
}

void weft_table_del(struct weft_table *t, struct weft_entry *e)
{
	struct weft_entry **at;

	if (!t->nchains)
		return;
	for (at = find_chain(t, e->key); *at && *at != e; at = &(*at)->next)
		;
	if (!*at)
		return;
	*at = e->next;
	t->n--;
}

static struct weft_entry *find_key(struct weft_entry *e, uint64_t key)
{
	while (e && e->key != key)
		e = e->next;
	return e;
}

struct weft_entry *weft_table_find(const struct weft_table *t, uint64_t key)
{
	return t->nchains ? find_key(*find_chain(t, key), key) : NULL;
}

struct weft_entry *weft_table_next(const struct weft_entry *e)
{
	return find_key(e->next, e->key);
}

void weft_table_free(struct weft_table *t)
{
	free(t->chains);
	*t = (struct weft_table){ 0 };
}

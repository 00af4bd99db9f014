/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hash table of what its owner allocates, by a number of 64 bits that may
 * come from a peer: salted, so that nobody can choose whom he collides with.
 * Several entries may have the same key.  It grows, and never shrinks.
 */
#ifndef WEFT_UTIL_TABLE_H
#define WEFT_UTIL_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct weft_entry {
	struct weft_entry *next;
	uint64_t key;
};

/* Zeroed is empty. */
struct weft_table {
	struct weft_entry **chains;
	size_t nchains;			/* a power of two, or 0 */
	size_t n;
	uint64_t salt;
};

/* 0 or -ENOMEM. */
int weft_table_add(struct weft_table *t, struct weft_entry *e, uint64_t key);
/* Does nothing for one that is not in it. */
void weft_table_del(struct weft_table *t, struct weft_entry *e);
/* The first with @key, or NULL. */
struct weft_entry *weft_table_find(const struct weft_table *t, uint64_t key);
/* The next with the same key, or NULL. */
struct weft_entry *weft_table_next(const struct weft_entry *e);
/* The entries are not touched. */
void weft_table_free(struct weft_table *t);

#endif

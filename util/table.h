/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hash table with intrusive entries and 64-bit keys.  Keys may come from a
 * peer: the hash is salted, so that no peer can provoke collisions.  Several
 * entries may have the same key.  The table grows but never shrinks.
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
	size_t nchains; /* a power of two, or 0 */
	size_t n;
	uint64_t salt;
};

/* 0 or -ENOMEM. */
int weft_table_add(struct weft_table *t, struct weft_entry *e, uint64_t key);
/* An entry that is not in the table is ignored. */
void weft_table_del(struct weft_table *t, struct weft_entry *e);
/* The first entry with @key, or NULL. */
struct weft_entry *weft_table_find(const struct weft_table *t, uint64_t key);
/* The next entry with the same key, or NULL. */
struct weft_entry *weft_table_next(const struct weft_entry *e);
/* Does not touch the entries. */
void weft_table_free(struct weft_table *t);

#endif

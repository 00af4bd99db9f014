/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keyed hashing: BLAKE2b of libsodium, which is linked statically with hidden
 * symbols, so that it cannot clash with the program's own copy.  This is the
 * only user of it; sodium_init() is not needed, the portable code serves until
 * then.
 */
#ifndef WEFT_UTIL_HASH_H
#define WEFT_UTIL_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One part of the input; may be empty. */
struct weft_bytes {
	const void *data;
	size_t len;
};

/*
 * Hash the concatenated @parts.  @out_len: 16 to 64 bytes; @key_len: 16 to 64,
 * or 0 for no key.  Boundaries between parts are not hashed: a caller with
 * several parts of variable length must make them unambiguous.
 */
void weft_hash(void *out, size_t out_len, const void *key, size_t key_len,
	       const struct weft_bytes *parts, size_t n);

/* 8 bytes of the unkeyed hash of @label (a constant) and @data. */
uint64_t weft_hash_u64(const char *label, const void *data, size_t len);

/* Compare in constant time. */
bool weft_hash_equal(const void *a, const void *b, size_t len);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include <sodium/crypto_generichash.h>
#include <sodium/utils.h>
#include <string.h>

#include "util/hash.h"
#include "util/util.h"

void weft_hash(void *out, size_t out_len, const void *key, size_t key_len,
	       const struct weft_bytes *parts, size_t n)
{
	crypto_generichash_state st;
	size_t i;

	crypto_generichash_init(&st, key, key_len, out_len);
	for (i = 0; i < n; i++)
		if (parts[i].len)
			crypto_generichash_update(&st, parts[i].data,
						  parts[i].len);
	crypto_generichash_final(&st, out, out_len);
	weft_wipe(&st, sizeof(st));
}

uint64_t weft_hash_u64(const char *label, const void *data, size_t len)
{
	const struct weft_bytes parts[] = {
		{ label, strlen(label) + 1 },
		{ data, len },
	};
	uint8_t out[16];
	uint64_t v = 0;
	int i;

	weft_hash(out, sizeof(out), NULL, 0, parts, ARRAY_SIZE(parts));
	for (i = 7; i >= 0; i--)
		v = v << 8 | out[i];
	return v;
}

bool weft_hash_equal(const void *a, const void *b, size_t len)
{
	return !sodium_memcmp(a, b, len);
}

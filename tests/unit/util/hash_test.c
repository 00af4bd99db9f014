/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "util/hash.h"
#include "util/util.h"

TestSuite(hash, .timeout = 5);

static const char *hex(const uint8_t *bytes, size_t len)
{
	static char text[129];
	size_t i;

	for (i = 0; i < len; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return text;
}

/* RFC 7693, appendix A: BLAKE2b-512 of "abc". */
static const char abc[] =
	"ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
	"7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923";

Test(hash, is_blake2b_of_the_joined_parts)
{
	const struct weft_bytes whole = { "abc", 3 };
	const struct weft_bytes parts[] = {
		{ "", 0 },
		{ "a", 1 },
		{ NULL, 0 },
		{ "bc", 2 },
	};
	uint8_t out[65];

	out[64] = 0xa5;
	weft_hash(out, 64, NULL, 0, &whole, 1);
	cr_expect(eq(str, (char *)hex(out, 64), (char *)abc));
	memset(out, 0, 64);
	weft_hash(out, 64, NULL, 0, parts, ARRAY_SIZE(parts));
	cr_expect(eq(str, (char *)hex(out, 64), (char *)abc));
	cr_expect(eq(int, out[64], 0xa5), "wrote past out_len");
}

/* BLAKE2's own test vectors (blake2-kat.json), first and last of blake2b. */
Test(hash, key_changes_the_hash)
{
	uint8_t key[64], data[255], out[64];
	struct weft_bytes part = { data, 0 };
	size_t i;

	for (i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)i;
	for (i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	weft_hash(out, 64, key, 64, &part, 1);
	cr_expect(eq(
		str, (char *)hex(out, 64),
		(char *)"10ebb67700b1868efb4417987acf4690ae9d972fb7a590c2f02871799aaa4786"
			"b5e996e8f0f4eb981fc214b005f42d2ff4233499391653df7aefcbc13fc51568"));
	part.len = sizeof(data);
	weft_hash(out, 64, key, 64, &part, 1);
	cr_expect(eq(
		str, (char *)hex(out, 64),
		(char *)"142709d62e28fcccd0af97fad0f8465b971e82201dc51070faa0372aa43e9248"
			"4be1c1e73ba10906d5d1853db6a4106e0a7bf9800d373d6dee2d46d62ef2a461"));
}

/* It is BLAKE2b of that length, not the beginning of a longer one. */
Test(hash, short_outputs_match_blake2b)
{
	const struct weft_bytes part = { "abc", 3 };
	uint8_t out[16];

	weft_hash(out, 16, NULL, 0, &part, 1);
	cr_expect(eq(str, (char *)hex(out, 16),
		     (char *)"cf4ab791c62b8d2b2109c90275287816"));
}

/*
 * Addresses name a key by it, and both ends must agree whatever their byte
 * order: BLAKE2b-128 of "weft test\0data", its first 8 bytes little-endian.
 */
Test(hash, u64_is_the_first_eight_bytes)
{
	cr_expect(eq(u64, weft_hash_u64("weft test", "data", 4),
		     0xe67b1bd2b76d1f1aull));
	cr_expect(ne(u64, weft_hash_u64("weft tes", "tdata", 5),
		     weft_hash_u64("weft test", "data", 4)),
		  "label and data run into each other");
}

Test(hash, equal_compares_every_byte)
{
	const uint8_t a[] = { 1, 2, 3, 4 }, b[] = { 1, 2, 3, 5 };

	cr_expect(weft_hash_equal(a, a, 4));
	cr_expect(weft_hash_equal(a, b, 3));
	cr_expect(not(weft_hash_equal(a, b, 4)));
	cr_expect(weft_hash_equal(a, b, 0));
}

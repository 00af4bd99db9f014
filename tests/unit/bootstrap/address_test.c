/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>

#include "bootstrap/address.h"

static struct weft_address sample(int family)
{
	struct weft_address a = {
		.wire_min = 1,
		.wire_max = 3,
		.ns_id = 0x1122334455667788,
	};
	int i;

	for (i = 0; i < WEFT_KEY_LEN; i++)
		a.key[i] = (uint8_t)(0xa0 + i);
	a.sa.sa.sa_family = (sa_family_t)family;
	if (family == AF_INET6) {
		inet_pton(AF_INET6, "2001:db8::5", &a.sa.in6.sin6_addr);
		a.sa.in6.sin6_port = htons(4660);
	} else {
		inet_pton(AF_INET, "10.1.2.3", &a.sa.in.sin_addr);
		a.sa.in.sin_port = htons(4660);
	}
	return a;
}

static void there_and_back(int family, size_t dev_len)
{
	struct weft_address a = sample(family), b;
	uint8_t iface[WEFT_IFACE_ADDR_LEN + 2], dev[WEFT_DEV_ADDR_MAX + 2];

	memset(iface, 0x5a, sizeof(iface));
	memset(dev, 0x5a, sizeof(dev));
	memset(&b, 0x77, sizeof(b));
	weft_address_pack_iface(&a, iface);
	cr_assert(eq(sz, weft_address_pack_dev(&a, dev), dev_len));
	cr_expect(eq(u8, iface[WEFT_IFACE_ADDR_LEN], 0x5a));
	cr_expect(eq(u8, dev[dev_len], 0x5a));
	cr_assert(eq(int,
		     weft_address_unpack(iface, WEFT_IFACE_ADDR_LEN, dev,
					 dev_len, &b),
		     0));
	cr_expect(eq(u8, b.wire_min, 1));
	cr_expect(eq(u8, b.wire_max, 3));
	cr_expect(eq(u64, b.ns_id, a.ns_id));
	cr_expect(zero(int, memcmp(b.key, a.key, sizeof(a.key))));
	cr_expect(zero(int, memcmp(&b.sa, &a.sa, sizeof(a.sa))));
}

Test(address, ipv4_packs_and_unpacks)
{
	there_and_back(AF_INET, 6);
}

Test(address, ipv6_packs_and_unpacks)
{
	there_and_back(AF_INET6, 18);
}

Test(address, fabric_packs_and_unpacks)
{
	struct weft_address a = sample(AF_INET), b;
	uint8_t iface[WEFT_IFACE_ADDR_LEN], dev[WEFT_DEV_ADDR_MAX];

	weft_address_pack_iface(&a, iface);
	a.fabric = WEFT_FABRIC | 42;
	weft_address_pack_dev(&a, dev);
	cr_assert(zero(int, weft_address_unpack(iface, sizeof(iface), dev,
						sizeof(dev), &b)));
	cr_expect(eq(u8, b.fabric, WEFT_FABRIC | 42));
}

/* The bytes are a promise to other hosts and releases. */
Test(address, packed_bytes_are_as_specified)
{
	static const uint8_t iface_bytes[WEFT_IFACE_ADDR_LEN] = {
		1,    3,    0x12, 0x34, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
		0x22, 0x11, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,
		0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf,
	};
	static const uint8_t dev_bytes[6] = { 0, 2, 10, 1, 2, 3 };
	struct weft_address a = sample(AF_INET);
	uint8_t iface[WEFT_IFACE_ADDR_LEN], dev[WEFT_DEV_ADDR_MAX];

	weft_address_pack_iface(&a, iface);
	weft_address_pack_dev(&a, dev);
	cr_expect(zero(int, memcmp(iface, iface_bytes, sizeof(iface_bytes))));
	cr_expect(zero(int, memcmp(dev, dev_bytes, sizeof(dev_bytes))));
}

Test(address, longer_parts_are_accepted)
{
	struct weft_address a = sample(AF_INET), b;
	uint8_t iface[64] = { 0 }, dev[64] = { 0 };

	weft_address_pack_iface(&a, iface);
	weft_address_pack_dev(&a, dev);
	cr_expect(eq(int, weft_address_unpack(iface, 64, dev, 64, &b), 0));
}

static int unpack_changed(size_t iface_len, size_t dev_len, int part, size_t at,
			  uint8_t value)
{
	struct weft_address a = sample(AF_INET6), b, before;
	uint8_t bytes[2][32] = { { 0 }, { 0 } };
	int err;

	weft_address_pack_iface(&a, bytes[0]);
	weft_address_pack_dev(&a, bytes[1]);
	if (part >= 0)
		bytes[part][at] = value;
	memset(&b, 0x77, sizeof(b));
	before = b;
	err = weft_address_unpack(bytes[0], iface_len, bytes[1], dev_len, &b);
	if (err)
		cr_expect(zero(int, memcmp(&b, &before, sizeof(b))),
			  "an error changed the output");
	return err;
}

Test(address, malformed_parts_are_refused)
{
	size_t len;

	cr_assert(eq(int, unpack_changed(28, 18, -1, 0, 0), 0));
	for (len = 0; len < WEFT_IFACE_ADDR_LEN; len++)
		cr_expect(eq(int, unpack_changed(len, 18, -1, 0, 0), -EINVAL));
	for (len = 0; len < 18; len++)
		cr_expect(eq(int, unpack_changed(28, len, -1, 0, 0), -EINVAL));
	cr_expect(eq(int, unpack_changed(28, 18, 0, 0, 0), -EINVAL), "min 0");
	cr_expect(eq(int, unpack_changed(28, 18, 0, 0, 4), -EINVAL),
		  "min above max");
	cr_expect(eq(int, unpack_changed(28, 18, 1, 0, 1), -EINVAL), "flags");
	cr_expect(eq(int, unpack_changed(28, 18, 1, 1, 0), -EINVAL), "family");
	cr_expect(eq(int, unpack_changed(28, 18, 1, 1, 1), -EINVAL), "family");
}

Test(address, overlapping_versions_are_compatible)
{
	struct weft_address a = sample(AF_INET);

	a.wire_min = 1;
	a.wire_max = 200;
	cr_expect(weft_address_has_version(&a));
	a.wire_max = WEFT_WIRE_MIN - 1;
	cr_expect(not(weft_address_has_version(&a)));
	a.wire_min = WEFT_WIRE_MAX + 1;
	a.wire_max = 200;
	cr_expect(not(weft_address_has_version(&a)));
	a.wire_min = a.wire_max = WEFT_WIRE_MIN;
	cr_expect(weft_address_has_version(&a));
}

Test(address, key_id_differs_per_key_and_hides_it)
{
	struct weft_address a = sample(AF_INET);
	uint64_t id = weft_key_id(a.key), first;
	int i;

	memcpy(&first, a.key, sizeof(first));
	cr_expect(ne(u64, id, first));
	cr_expect(eq(u64, weft_key_id(a.key), id));
	for (i = 0; i < WEFT_KEY_LEN * 8; i++) {
		a.key[i / 8] ^= (uint8_t)(1 << i % 8);
		cr_expect(ne(u64, weft_key_id(a.key), id));
		a.key[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}

Test(address, sockaddr_is_formatted)
{
	char buf[WEFT_SOCKADDR_STR], small[8];
	struct weft_address a = sample(AF_INET), b = sample(AF_INET6);
	union weft_sockaddr none = { 0 };

	cr_expect(eq(str, (char *)weft_sockaddr_str(&a.sa, buf, sizeof(buf)),
		     (char *)"10.1.2.3:4660"));
	cr_expect(eq(str, (char *)weft_sockaddr_str(&b.sa, buf, sizeof(buf)),
		     (char *)"[2001:db8::5]:4660"));
	inet_pton(AF_INET6, "fe80::1", &b.sa.in6.sin6_addr);
	b.sa.in6.sin6_scope_id = if_nametoindex("lo");
	cr_expect(eq(str, (char *)weft_sockaddr_str(&b.sa, buf, sizeof(buf)),
		     (char *)"[fe80::1%lo]:4660"));
	cr_expect(eq(str, (char *)weft_sockaddr_str(&none, buf, sizeof(buf)),
		     (char *)"(address family 0)"));
	cr_expect(eq(str,
		     (char *)weft_sockaddr_str(&a.sa, small, sizeof(small)),
		     (char *)"10.1.2."),
		  "cut, not overrun");
	cr_expect(eq(uint, weft_sockaddr_len(&a.sa), 16));
	cr_expect(eq(uint, weft_sockaddr_len(&b.sa), 28));
	cr_expect(eq(uint, weft_sockaddr_len(&none), 0));
}

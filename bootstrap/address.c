/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "bootstrap/address.h"
#include "util/hash.h"
#include "util/util.h"

/* Interface part: wire_min, wire_max, port (network order), ns id (LE), key. */
enum {
	IFACE_MIN = 0,
	IFACE_MAX = 1,
	IFACE_PORT = 2,
	IFACE_NS = 4,
	IFACE_KEY = 12,
};
_Static_assert(IFACE_KEY + WEFT_KEY_LEN == WEFT_IFACE_ADDR_LEN,
	       "the interface part is full");

/*
 * Device part, as struct uct_tcp_device_addr of UCX from 1.13 on
 * (src/uct/tcp/tcp.h): flags, sa_family, address.  UCX uses the lowest flag
 * only; with WEFT_FABRIC set the byte is weft's.
 */
enum {
	DEV_FLAGS = 0,
	DEV_FAMILY = 1,
	DEV_ADDR = 2,
};
_Static_assert(DEV_ADDR + sizeof(struct in6_addr) == WEFT_DEV_ADDR_MAX,
	       "the device part holds an IPv6 address");

void weft_address_pack_iface(const struct weft_address *a, void *buf)
{
	const uint16_t port = a->sa.sa.sa_family == AF_INET6
				      ? a->sa.in6.sin6_port
				      : a->sa.in.sin_port;
	uint8_t *p = buf;
	unsigned int i;

	p[IFACE_MIN] = a->wire_min;
	p[IFACE_MAX] = a->wire_max;
	memcpy(p + IFACE_PORT, &port, sizeof(port));
	for (i = 0; i < sizeof(a->ns_id); i++)
		p[IFACE_NS + i] = (uint8_t)(a->ns_id >> (8 * i));
	memcpy(p + IFACE_KEY, a->key, WEFT_KEY_LEN);
}

size_t weft_address_pack_dev(const struct weft_address *a, void *buf)
{
	uint8_t *p = buf;

	p[DEV_FLAGS] = a->fabric;
	p[DEV_FAMILY] = (uint8_t)a->sa.sa.sa_family;
	if (a->sa.sa.sa_family == AF_INET6) {
		memcpy(p + DEV_ADDR, &a->sa.in6.sin6_addr,
		       sizeof(a->sa.in6.sin6_addr));
		return DEV_ADDR + sizeof(a->sa.in6.sin6_addr);
	}
	memcpy(p + DEV_ADDR, &a->sa.in.sin_addr, sizeof(a->sa.in.sin_addr));
	return DEV_ADDR + sizeof(a->sa.in.sin_addr);
}

static int unpack_dev(const uint8_t *p, size_t len, uint16_t port,
		      union weft_sockaddr *sa)
{
	if (len < DEV_ADDR || (p[DEV_FLAGS] && !(p[DEV_FLAGS] & WEFT_FABRIC)))
		return -EINVAL;
	switch (p[DEV_FAMILY]) {
	case AF_INET:
		if (len < DEV_ADDR + sizeof(sa->in.sin_addr))
			return -EINVAL;
		memcpy(&sa->in.sin_addr, p + DEV_ADDR, sizeof(sa->in.sin_addr));
		sa->in.sin_port = port;
		break;
	case AF_INET6:
		if (len < DEV_ADDR + sizeof(sa->in6.sin6_addr))
			return -EINVAL;
		memcpy(&sa->in6.sin6_addr, p + DEV_ADDR,
		       sizeof(sa->in6.sin6_addr));
		sa->in6.sin6_port = port;
		break;
	default:
		return -EINVAL;
	}
	sa->sa.sa_family = p[DEV_FAMILY];
	return 0;
}

int weft_address_unpack(const void *iface, size_t iface_len, const void *dev,
			size_t dev_len, struct weft_address *a)
{
	const uint8_t *p = iface;
	struct weft_address v = { 0 };
	uint16_t port;
	int i, err;

	if (iface_len < WEFT_IFACE_ADDR_LEN)
		return -EINVAL;
	v.wire_min = p[IFACE_MIN];
	v.wire_max = p[IFACE_MAX];
	if (!v.wire_min || v.wire_max < v.wire_min)
		return -EINVAL;
	memcpy(&port, p + IFACE_PORT, sizeof(port));
	for (i = sizeof(v.ns_id) - 1; i >= 0; i--)
		v.ns_id = v.ns_id << 8 | p[IFACE_NS + i];
	memcpy(v.key, p + IFACE_KEY, WEFT_KEY_LEN);
	err = unpack_dev(dev, dev_len, port, &v.sa);
	if (err)
		return err;
	v.fabric = ((const uint8_t *)dev)[DEV_FLAGS];
	*a = v;
	return 0;
}

const char weft_other_wire[] = "its weft has no wire version in common";

bool weft_address_has_version(const struct weft_address *a)
{
	return a->wire_min <= WEFT_WIRE_MAX && a->wire_max >= WEFT_WIRE_MIN;
}

uint64_t weft_key_id(const uint8_t key[WEFT_KEY_LEN])
{
	return weft_hash_u64("weft key id", key, WEFT_KEY_LEN);
}

socklen_t weft_sockaddr_len(const union weft_sockaddr *sa)
{
	switch (sa->sa.sa_family) {
	case AF_INET:
		return sizeof(sa->in);
	case AF_INET6:
		return sizeof(sa->in6);
	default:
		return 0;
	}
}

const char *weft_sockaddr_str(const union weft_sockaddr *sa, char *buf,
			      size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "?", zone[IF_NAMESIZE];

	switch (sa->sa.sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &sa->in.sin_addr, ip, sizeof(ip));
		snprintf(buf, len, "%s:%u", ip, ntohs(sa->in.sin_port));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &sa->in6.sin6_addr, ip, sizeof(ip));
		if (sa->in6.sin6_scope_id &&
		    if_indextoname(sa->in6.sin6_scope_id, zone))
			snprintf(buf, len, "[%s%%%s]:%u", ip, zone,
				 ntohs(sa->in6.sin6_port));
		else
			snprintf(buf, len, "[%s]:%u", ip,
				 ntohs(sa->in6.sin6_port));
		break;
	default:
		snprintf(buf, len, "(address family %u)", sa->sa.sa_family);
	}
	return buf;
}

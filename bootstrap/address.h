/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses, and the keys in them.
 *
 * An address is created once per interface that listens.  Its 128-bit key is a
 * capability: a process that has the address may connect.  It keeps out
 * accidents and scans, not people: UCP's connection manager and NCCL's
 * bootstrap carry addresses in clear.  WEFT_SECRET_FILE keeps out people.
 *
 * Two encodings, because the runtimes leave different room (UCX: interface
 * address <= 28 bytes so that address version 1 and the connection manager's
 * private data take it, and a device address in the form of UCX's own tcp;
 * NCCL: a handle of 128 bytes):
 *   interface part, 28 bytes: version range, port, namespace id, key
 *   device part, 6 or 18 bytes: {fabric, sa_family, in_addr | in6_addr}
 * All multi-byte fields are little-endian but port and addresses, which keep
 * network order.
 */
#ifndef WEFT_BOOTSTRAP_ADDRESS_H
#define WEFT_BOOTSTRAP_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Wire versions that this build speaks. */
#define WEFT_WIRE_MIN 9
#define WEFT_WIRE_MAX 9

#define WEFT_KEY_LEN	    16
#define WEFT_IFACE_ADDR_LEN 28
#define WEFT_DEV_ADDR_MAX   18

union weft_sockaddr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

struct weft_address {
	uint8_t wire_min, wire_max;
	uint64_t ns_id; /* weft_netns_id() of its owner */
	uint8_t key[WEFT_KEY_LEN];
	union weft_sockaddr sa; /* with port; scope id never travels */
	/*
	 * 0, or WEFT_FABRIC and bits that identify the adapter's fabric: see
	 * weft_verbs_fabric().
	 */
	uint8_t fabric;
};
#define WEFT_FABRIC 0x80

/* Writes exactly WEFT_IFACE_ADDR_LEN bytes. */
void weft_address_pack_iface(const struct weft_address *a, void *buf);
/* Returns the bytes written: 6 (IPv4) or 18 (IPv6). */
size_t weft_address_pack_dev(const struct weft_address *a, void *buf);

/*
 * Unpack both parts; @dev_len may be larger than the family needs.  -EINVAL:
 * too short, an unknown family, flags of UCX, or version 0.  Sets *@a on
 * success only.
 */
int weft_address_unpack(const void *iface, size_t iface_len, const void *dev,
			size_t dev_len, struct weft_address *a);

/*
 * Do the version ranges overlap?  If not, weft_other_wire is the reason, in
 * which "it" is the peer.
 */
bool weft_address_has_version(const struct weft_address *a);
extern const char weft_other_wire[];

/* The id of a key: 8 bytes of its hash; safe to log and to send. */
uint64_t weft_key_id(const uint8_t key[WEFT_KEY_LEN]);

socklen_t weft_sockaddr_len(const union weft_sockaddr *sa);
/* "10.0.0.5:1234", "[fe80::1%eth0]:1234"; returns @buf. */
#define WEFT_SOCKADDR_STR 80
const char *weft_sockaddr_str(const union weft_sockaddr *sa, char *buf,
			      size_t len);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The network interfaces of this namespace, and who is reached by which. */
#ifndef WEFT_BOOTSTRAP_NETIF_H
#define WEFT_BOOTSTRAP_NETIF_H

#include <net/if.h>
#include <stdbool.h>
#include "bootstrap/address.h"

struct weft_netif {
	char name[IF_NAMESIZE];
	unsigned int index;
	union weft_sockaddr addr; /* best address: global before link-local,
				     IPv4 before IPv6; port 0 */
	bool loopback;
	bool link_local_only; /* no wider address than fe80:: / 169.254 */
	uint64_t speed;	      /* bytes/s; ethtool's, 0 where unknown */
	unsigned int mtu;
};

/*
 * Interfaces that are up and have an address, loopback last.  @family: AF_INET,
 * AF_INET6 or AF_UNSPEC (any).  *@list is malloc'ed, free() it; returns the
 * count, or -errno.
 */
int weft_netif_list(int family, struct weft_netif **list);

/* Looks @name up anew; -ENODEV when it is gone, down or has no address. */
int weft_netif_get(const char *name, int family, struct weft_netif *out);

/* Has interface @name the address of @ip, as any of its addresses? */
bool weft_netif_has(const char *name, const union weft_sockaddr *ip);

/*
 * Can a peer with @remote be reached by leaving through @local?  Answered from
 * the address bytes and this host's tables alone, no packet is sent, and it is
 * certain, because UCP never changes a lane after wire-up:
 *  - the version ranges meet;
 *  - its address family is @local's;
 *  - a loopback address, or one that is also mine, only within one namespace
 *    (two hosts have the same docker0);
 *  - from a loopback interface, only loopback addresses, and from others none;
 *  - a link-local address only where the user named the interface;
 *  - an address of mine only if it is @local's own;
 *  - else the kernel's route to it, from @local's address, leaves by @local's
 *    netdev.
 * NULL @why is fine; otherwise it is set to a constant text when false.
 */
bool weft_netif_reaches(const struct weft_netif *local,
			const struct weft_address *remote, const char **why);

#endif

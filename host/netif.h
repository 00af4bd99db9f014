/* SPDX-License-Identifier: BSD-3-Clause */
/* The network interfaces of this namespace, and which peers each reaches. */
#ifndef WEFT_HOST_NETIF_H
#define WEFT_HOST_NETIF_H

#include <net/if.h>
#include <stdbool.h>
#include "bootstrap/address.h"

struct weft_netif {
	char name[IF_NAMESIZE];
	unsigned int index;
	union weft_sockaddr addr; /* best address: global before link-local,
				     IPv4 before IPv6; port 0 */
	bool loopback;
	bool link_local_only; /* has only fe80:: or 169.254 addresses */
	uint64_t speed;	      /* bytes/s; ethtool's, 0 where unknown */
	unsigned int mtu;
};

/*
 * List the interfaces that are up and have an address, loopback last.  @family:
 * AF_INET, AF_INET6 or AF_UNSPEC (any).  free() *@list.  Returns the count, or
 * -errno.
 */
int weft_netif_list(int family, struct weft_netif **list);

/* Query interface @name.  -ENODEV: it is gone, down or has no address. */
int weft_netif_get(const char *name, int family, struct weft_netif *out);

/* Is the address of @ip one of interface @name's? */
bool weft_netif_has(const char *name, const union weft_sockaddr *ip);

/*
 * Is the peer at @remote reachable through @local?  Answered from the address
 * bytes and this host's tables, without sending a packet.  The answer must be
 * certain, because UCP never changes a lane after wire-up:
 *  - the version ranges overlap;
 *  - its address family is @local's;
 *  - a loopback address, or one that this host has, too, only within one
 *    namespace (two hosts have the same docker0);
 *  - a loopback interface reaches loopback addresses only, others none;
 *  - a link-local address only if the user named the interface;
 *  - an address of this host only if it is @local's;
 *  - else the route from @local's address to it leaves through @local.
 * Sets *@why, unless @why is NULL, to a constant text if false.
 */
bool weft_netif_reaches(const struct weft_netif *local,
			const struct weft_address *remote, const char **why);

#endif

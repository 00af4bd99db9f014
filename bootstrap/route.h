/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way the kernel would send to an address; nothing is sent. */
#ifndef WEFT_BOOTSTRAP_ROUTE_H
#define WEFT_BOOTSTRAP_ROUTE_H

#include "bootstrap/netif.h"

enum weft_route_kind {
	WEFT_ROUTE_NONE,  /* unreachable, prohibited, no route at all */
	WEFT_ROUTE_LOCAL, /* the address is this namespace's own */
	WEFT_ROUTE_OTHER, /* leaves by another interface */
	WEFT_ROUTE_BY,	  /* leaves by the interface asked about */
};

struct weft_route {
	enum weft_route_kind kind;
	bool mine_here; /* LOCAL: the address is that interface's own */
};

/*
 * Asks for the route from @local's address to @to: rtnetlink's RTM_GETROUTE,
 * or where that is not allowed, what a connected UDP socket says.
 */
void weft_route_find(const struct weft_netif *local,
		     const union weft_sockaddr *to, struct weft_route *route);

/* The second way alone. */
void weft_route_find_udp(const struct weft_netif *local,
			 const union weft_sockaddr *to,
			 struct weft_route *route);

/* The rule of weft_netif_reaches(), given what the kernel said. */
bool weft_route_reaches(const struct weft_netif *local,
			const struct weft_address *remote, uint64_t ns_id,
			bool named, const struct weft_route *route,
			const char **why);

#endif

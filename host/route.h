/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way the kernel would send to an address; nothing is sent. */
#ifndef WEFT_HOST_ROUTE_H
#define WEFT_HOST_ROUTE_H

#include "host/netif.h"

enum weft_route_kind {
	WEFT_ROUTE_NONE,  /* unreachable, prohibited, no route at all */
	WEFT_ROUTE_LOCAL, /* an address of this namespace */
	WEFT_ROUTE_OTHER, /* leaves through another interface */
	WEFT_ROUTE_BY,	  /* leaves through @local */
};

struct weft_route {
	enum weft_route_kind kind;
	bool mine_here; /* LOCAL: @local has the address */
};

/*
 * Look up the route from @local's address to @to: by rtnetlink's RTM_GETROUTE,
 * or if that is not allowed, with a connected UDP socket.  WEFT_ROUTE_BY if
 * there is no descriptor to ask with.
 */
void weft_route_find(const struct weft_netif *local,
		     const union weft_sockaddr *to, struct weft_route *route);

/* With the UDP socket only. */
void weft_route_find_udp(const struct weft_netif *local,
			 const union weft_sockaddr *to,
			 struct weft_route *route);

/* The rules of weft_netif_reaches(), given the kernel's @route. */
bool weft_route_reaches(const struct weft_netif *local,
			const struct weft_address *remote, uint64_t ns_id,
			bool named, const struct weft_route *route,
			const char **why);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which interfaces NCCL's traffic may take, best first. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "host/netdevs.h"
#include "host/netif.h"
#include "host/route.h"
#include "nccl_net/net/netifs.h"
#include "settings/settings.h"
#include "settings/table.h"
#include "util/log.h"
#include "util/util.h"

/*
 * Bridges and their ports lead to containers of this host, not to the peers:
 * use them only if they are named, or if there is nothing else.
 */
static bool is_bridge(const char *name)
{
	static const char *const prefix[] = {
		"docker", "veth", "virbr", "br-",
		"cni",	  "lxc",  "cali",  "flannel",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(prefix); i++)
		if (!strncmp(name, prefix[i], strlen(prefix[i])))
			return true;
	return false;
}

static bool is_veth(const char *name)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq req = { .ifr_data = (void *)&info };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool veth = false;

	if (fd < 0)
		return false;
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	if (!ioctl(fd, SIOCETHTOOL, &req))
		veth = !strcmp(info.driver, "veth");
	close(fd);
	return veth;
}

/* Does the default route use @n?  Nothing is sent. */
static bool has_default_route(const struct weft_netif *n)
{
	union weft_sockaddr far = { .sa.sa_family = n->addr.sa.sa_family };
	struct weft_route route;

	/*
	 * addresses reserved for documentation, so without a route of their own
	 */
	if (far.sa.sa_family == AF_INET)
		inet_pton(AF_INET, "192.0.2.1", &far.in.sin_addr);
	else
		inet_pton(AF_INET6, "2001:db8::1", &far.in6.sin6_addr);
	weft_route_find(n, &far, &route);
	return route.kind == WEFT_ROUTE_BY;
}

/*
 * Lower is better; only the best interfaces are used.  In a container the
 * default route uses a veth, on a host never.
 */
static unsigned int rank(const struct weft_netif *n)
{
	if (n->loopback)
		return 4;
	if (weft_netdevs_named(n->name))
		return 0;
	if (n->link_local_only)
		return 3;
	if (is_bridge(n->name) || (is_veth(n->name) && !has_default_route(n)))
		return 2;
	return 1;
}

struct ranked {
	struct weft_netif netif;
	unsigned int rank;
};

static int compare_ranked(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	if (x->netif.speed != y->netif.speed)
		return x->netif.speed > y->netif.speed ? -1 : 1;
	return x->netif.index < y->netif.index ? -1 : 1;
}

/* Loopback is always allowed, but naming eth7 does not mean it. */
static bool only_loopback_is_left(const struct ranked *list, int n)
{
	const char *names = weft_settings()->net_devices;

	return n && list[0].netif.loopback && *names && *names != '^' &&
	       strcmp(names, "all") &&
	       !weft_netdev_match(names + (*names == '='), WEFT_NETDEV_LIST,
				  "lo");
}

int weft_net_netifs(struct weft_netif **out)
{
	struct weft_netif *list;
	struct ranked *ranked;
	int n, i, kept = 0, taken;

	n = weft_netif_list(weft_settings()->family, &list);
	if (n < 0)
		return n;
	ranked = calloc(n + 1, sizeof(*ranked));
	if (!ranked) {
		free(list);
		return weft_fail(-ENOMEM, "cannot list interfaces");
	}
	for (i = 0; i < n; i++) {
		if (!weft_netdevs_allowed(list[i].name))
			continue;
		ranked[kept].netif = list[i];
		ranked[kept++].rank = rank(&list[i]);
	}
	qsort(ranked, kept, sizeof(*ranked), compare_ranked);
	if (!kept || only_loopback_is_left(ranked, kept)) {
		free(ranked);
		free(list);
		return weft_fail(
			-ENODEV,
			"no interface of the %d here passes '%s' (WEFT_NET_DEVICES, UCX_NET_DEVICES, NCCL_SOCKET_IFNAME) and has an address",
			n, weft_settings()->net_devices);
	}
	for (taken = 0; taken < kept && ranked[taken].rank == ranked[0].rank;
	     taken++)
		list[taken] = ranked[taken].netif;
	free(ranked);
	*out = list;
	return taken;
}

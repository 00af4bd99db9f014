/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "host/host.h"
#include "host/netdevs.h"
#include "host/netif.h"
#include "host/route.h"
#include "settings/settings.h"
#include "util/log.h"
#include "util/util.h"

/* Lower is better. */
enum rank {
	RANK_IPV4,
	RANK_IPV6,
	RANK_IPV4_LINK,
	RANK_IPV6_LINK,
	RANK_NONE,
};

static enum rank rank_address(const struct sockaddr *sa, bool loopback)
{
	const struct sockaddr_in *in = (const void *)sa;
	const struct sockaddr_in6 *in6 = (const void *)sa;
	uint32_t ip;

	if (sa->sa_family == AF_INET) {
		ip = ntohl(in->sin_addr.s_addr);
		if (loopback) /* services put other addresses on lo too */
			return ip >> 24 == 127 ? RANK_IPV4 : RANK_IPV4_LINK;
		return ip >> 16 == 0xa9fe ? RANK_IPV4_LINK : RANK_IPV4;
	}
	if (sa->sa_family == AF_INET6) {
		if (loopback)
			return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr)
				       ? RANK_IPV6
				       : RANK_IPV6_LINK;
		return IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) ? RANK_IPV6_LINK
							      : RANK_IPV6;
	}
	return RANK_NONE;
}

/* An IPv4 alias is "eth0:1"; the name of a netdev has no ':'. */
static void strip_alias(const char *label, char name[IF_NAMESIZE])
{
	size_t i;

	for (i = 0; i + 1 < IF_NAMESIZE && label[i] && label[i] != ':'; i++)
		name[i] = label[i];
	name[i] = '\0';
}

static bool is_usable(const struct ifaddrs *ifa, int family)
{
	return ifa->ifa_addr && (ifa->ifa_flags & IFF_UP) &&
	       (ifa->ifa_flags & (IFF_RUNNING | IFF_LOOPBACK)) &&
	       (family == AF_UNSPEC || ifa->ifa_addr->sa_family == family) &&
	       rank_address(ifa->ifa_addr, false) != RANK_NONE;
}

/* Ask the driver: sysfs may show another network namespace. */
static uint64_t query_speed(int fd, const char *name)
{
	struct ethtool_cmd cmd = { .cmd = ETHTOOL_GSET };
	struct ifreq req = { .ifr_data = (void *)&cmd };
	uint32_t mbit;

	strncpy(req.ifr_name, name, IFNAMSIZ - 1);
	if (ioctl(fd, SIOCETHTOOL, &req))
		return 0;
	mbit = (uint32_t)cmd.speed_hi << 16 | cmd.speed;
	return !mbit || mbit >= INT32_MAX ? 0 : mbit * 125000ull;
}

static void fill_link(struct weft_netif *nif)
{
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq req = { 0 };

	nif->index = if_nametoindex(nif->name);
	nif->link_local_only =
		!nif->loopback &&
		rank_address(&nif->addr.sa, false) >= RANK_IPV4_LINK;
	if (fd < 0)
		return;
	strncpy(req.ifr_name, nif->name, IFNAMSIZ - 1);
	if (!ioctl(fd, SIOCGIFMTU, &req))
		nif->mtu = (unsigned int)req.ifr_mtu;
	nif->speed = query_speed(fd, nif->name);
	close(fd);
}

static void copy_addr(union weft_sockaddr *to, const struct sockaddr *from)
{
	memset(to, 0, sizeof(*to));
	if (from->sa_family == AF_INET6) {
		memcpy(&to->in6, from, sizeof(to->in6));
		to->in6.sin6_port = 0;
	} else {
		memcpy(&to->in, from, sizeof(to->in));
		to->in.sin_port = 0;
	}
}

/* Loopback last, otherwise keep the kernel's order. */
static size_t move_loopback(struct weft_netif *list, size_t n)
{
	struct weft_netif lo;
	size_t i;

	for (i = 0; i + 1 < n; i++)
		if (list[i].loopback && !list[i + 1].loopback) {
			lo = list[i];
			list[i] = list[i + 1];
			list[i + 1] = lo;
		}
	return n;
}

/*
 * For sandboxes without netlink, which getifaddrs() needs: the old ioctl, IPv4
 * only.
 */
static int list_by_ioctl(struct weft_netif **list)
{
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq reqs[64], flags;
	struct ifconf conf = { .ifc_len = sizeof(reqs), .ifc_req = reqs };
	struct weft_netif *found;
	size_t i, n = 0;

	if (fd < 0)
		return -errno;
	found = calloc(ARRAY_SIZE(reqs), sizeof(*found));
	if (!found || ioctl(fd, SIOCGIFCONF, &conf)) {
		free(found);
		close(fd);
		return -ENODEV;
	}
	for (i = 0; i < (size_t)conf.ifc_len / sizeof(reqs[0]); i++) {
		flags = reqs[i];
		if (strchr(flags.ifr_name, ':') ||
		    ioctl(fd, SIOCGIFFLAGS, &flags) ||
		    !(flags.ifr_flags & IFF_UP) ||
		    !(flags.ifr_flags & (IFF_RUNNING | IFF_LOOPBACK)))
			continue;
		strip_alias(reqs[i].ifr_name, found[n].name);
		found[n].loopback = flags.ifr_flags & IFF_LOOPBACK;
		copy_addr(&found[n++].addr, &reqs[i].ifr_addr);
	}
	close(fd);
	*list = found;
	return (int)n;
}

static int finish_list(struct weft_netif *list, int n)
{
	int i;

	for (i = 0; i < n; i++)
		fill_link(&list[i]);
	return (int)move_loopback(list, (size_t)n);
}

int weft_netif_list(int family, struct weft_netif **list)
{
	struct ifaddrs *all, *ifa;
	struct weft_netif *found, *nif;
	char name[IF_NAMESIZE];
	size_t n = 0, max = 0;
	int err, count;

	if (getifaddrs(&all)) {
		err = errno;
		if (family != AF_INET6) {
			count = list_by_ioctl(list);
			if (count >= 0)
				return finish_list(*list, count);
		}
		return weft_fail(-err, "cannot list the network interfaces");
	}
	for (ifa = all; ifa; ifa = ifa->ifa_next)
		max += is_usable(ifa, family);
	found = calloc(max + 1, sizeof(*found));
	if (!found) {
		freeifaddrs(all);
		return -ENOMEM;
	}
	for (ifa = all; ifa; ifa = ifa->ifa_next) {
		if (!is_usable(ifa, family))
			continue;
		strip_alias(ifa->ifa_name, name);
		for (nif = found; nif < found + n; nif++)
			if (!strcmp(nif->name, name))
				break;
		if (nif < found + n &&
		    rank_address(&nif->addr.sa, nif->loopback) <=
			    rank_address(ifa->ifa_addr, nif->loopback))
			continue;
		if (nif == found + n) {
			n++;
			memcpy(nif->name, name, sizeof(name));
			nif->loopback = ifa->ifa_flags & IFF_LOOPBACK;
		}
		copy_addr(&nif->addr, ifa->ifa_addr);
	}
	freeifaddrs(all);
	*list = found;
	return finish_list(found, (int)n);
}

int weft_netif_get(const char *name, int family, struct weft_netif *out)
{
	struct weft_netif *list;
	int i, n = weft_netif_list(family, &list);
	int err = -ENODEV;

	if (n < 0)
		return n;
	for (i = 0; i < n; i++)
		if (!strcmp(list[i].name, name)) {
			*out = list[i];
			err = 0;
		}
	free(list);
	return err;
}

bool weft_netif_has(const char *name, const union weft_sockaddr *ip)
{
	struct ifaddrs *all, *ifa;
	char label[IF_NAMESIZE];
	union weft_sockaddr sa;
	bool found = false;

	if (getifaddrs(&all))
		return false;
	for (ifa = all; ifa && !found; ifa = ifa->ifa_next) {
		if (!ifa->ifa_addr ||
		    ifa->ifa_addr->sa_family != ip->sa.sa_family)
			continue;
		strip_alias(ifa->ifa_name, label);
		if (strcmp(label, name))
			continue;
		copy_addr(&sa, ifa->ifa_addr);
		found = ip->sa.sa_family == AF_INET6
				? IN6_ARE_ADDR_EQUAL(&sa.in6.sin6_addr,
						     &ip->in6.sin6_addr)
				: sa.in.sin_addr.s_addr ==
					  ip->in.sin_addr.s_addr;
	}
	freeifaddrs(all);
	return found;
}

bool weft_netif_reaches(const struct weft_netif *local,
			const struct weft_address *remote, const char **why)
{
	struct weft_route route;

	if (!local->loopback)
		weft_route_find(local, &remote->sa, &route);
	else
		route = (struct weft_route){ .kind = WEFT_ROUTE_LOCAL };
	return weft_route_reaches(local, remote, weft_netns_id(),
				  weft_netdevs_named(local->name), &route, why);
}

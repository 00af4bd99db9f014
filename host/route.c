/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "host/host.h"
#include "host/route.h"
#include "util/util.h"

struct request {
	struct nlmsghdr nh;
	struct rtmsg rt;
	char attrs[128];
};

static void add_attr(struct request *q, unsigned short type, const void *data,
		     size_t len)
{
	struct rtattr *a = (void *)((char *)q + NLMSG_ALIGN(q->nh.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	q->nh.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->nh.nlmsg_len) +
				     RTA_ALIGN(a->rta_len));
}

static const void *get_ip(const union weft_sockaddr *sa, size_t *len)
{
	if (sa->sa.sa_family == AF_INET6) {
		*len = sizeof(sa->in6.sin6_addr);
		return &sa->in6.sin6_addr;
	}
	*len = sizeof(sa->in.sin_addr);
	return &sa->in.sin_addr;
}

static bool is_same_ip(const union weft_sockaddr *a,
		       const union weft_sockaddr *b)
{
	size_t alen, blen;
	const void *aip = get_ip(a, &alen), *bip = get_ip(b, &blen);

	return a->sa.sa_family == b->sa.sa_family && !memcmp(aip, bip, alen);
}

static bool is_link_local(const union weft_sockaddr *sa)
{
	return sa->sa.sa_family == AF_INET6
		       ? IN6_IS_ADDR_LINKLOCAL(&sa->in6.sin6_addr)
		       : ntohl(sa->in.sin_addr.s_addr) >> 16 == 0xa9fe;
}

static bool is_loopback(const union weft_sockaddr *sa)
{
	return sa->sa.sa_family == AF_INET6
		       ? IN6_IS_ADDR_LOOPBACK(&sa->in6.sin6_addr)
		       : ntohl(sa->in.sin_addr.s_addr) >> 24 == 127;
}

/* Is @ip any of the interface's addresses? */
static bool has_address(const struct weft_netif *local,
			const union weft_sockaddr *ip)
{
	return is_same_ip(&local->addr, ip) || weft_netif_has(local->name, ip);
}

static void parse_reply(const struct nlmsghdr *nh,
			const struct weft_netif *local,
			const union weft_sockaddr *to, struct weft_route *route)
{
	const struct rtmsg *rt = NLMSG_DATA(nh);
	const struct rtattr *a = RTM_RTA(rt);
	int len = (int)RTM_PAYLOAD(nh);
	unsigned int oif = 0;

	for (; RTA_OK(a, len); a = RTA_NEXT(a, len))
		if (a->rta_type == RTA_OIF && RTA_PAYLOAD(a) >= sizeof(oif))
			memcpy(&oif, RTA_DATA(a), sizeof(oif));
	if (rt->rtm_type == RTN_LOCAL) {
		route->kind = WEFT_ROUTE_LOCAL;
		route->mine_here = has_address(local, to);
	} else if (rt->rtm_type == RTN_UNICAST) {
		route->kind =
			oif == local->index ? WEFT_ROUTE_BY : WEFT_ROUTE_OTHER;
	}
}

/* 0, also if there is no route; -errno: netlink does not work. */
static int query_netlink(const struct weft_netif *local,
			 const union weft_sockaddr *to,
			 struct weft_route *route)
{
	struct request q = {
		.nh = {
			.nlmsg_len = NLMSG_LENGTH(sizeof(q.rt)),
			.nlmsg_type = RTM_GETROUTE,
			.nlmsg_flags = NLM_F_REQUEST,
			.nlmsg_seq = 1,
		},
		.rt = { .rtm_family = (uint8_t)to->sa.sa_family },
	};
	/* the kernel always replies, but never hang */
	const struct timeval timeout = { .tv_sec = 1 };
	union {
		struct nlmsghdr nh;
		char bytes[4096];
	} reply;
	const void *ip;
	size_t len;
	ssize_t n;
	int fd, err = 0;

	ip = get_ip(to, &len);
	q.rt.rtm_dst_len = (uint8_t)(8 * len);
	add_attr(&q, RTA_DST, ip, len);
	if (is_link_local(to)) {
		add_attr(&q, RTA_OIF, &local->index, sizeof(local->index));
	} else {
		ip = get_ip(&local->addr, &len);
		q.rt.rtm_src_len = (uint8_t)(8 * len);
		add_attr(&q, RTA_SRC, ip, len);
	}
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	if (send(fd, &q, q.nh.nlmsg_len, 0) < 0) {
		err = -errno;
		goto close_fd;
	}
	do
		n = recv(fd, &reply, sizeof(reply), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		err = -errno;
	else if (!NLMSG_OK(&reply.nh, (size_t)n))
		err = -EPROTO;
	else if (reply.nh.nlmsg_type == RTM_NEWROUTE)
		parse_reply(&reply.nh, local, to, route);
	/* else NLMSG_ERROR: *route already says that there is no route */
close_fd:
	close(fd);
	return err;
}

/* A UDP socket's connect() looks up the route and picks the source address. */
void weft_route_find_udp(const struct weft_netif *local,
			 const union weft_sockaddr *to,
			 struct weft_route *route)
{
	union weft_sockaddr dst = *to, src = { 0 };
	socklen_t len = sizeof(src);
	const int fd = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*route = (struct weft_route){ .kind = WEFT_ROUTE_NONE };
	if (fd < 0) {
		/* no descriptor is left to ask with: a dial reports it */
		if (errno == EMFILE || errno == ENFILE)
			route->kind = WEFT_ROUTE_BY;
		return;
	}
	if (to->sa.sa_family == AF_INET6) {
		dst.in6.sin6_port = htons(9);
		if (is_link_local(to))
			dst.in6.sin6_scope_id = local->index;
	} else {
		dst.in.sin_port = htons(9);
	}
	if (!connect(fd, &dst.sa, weft_sockaddr_len(&dst)) &&
	    !getsockname(fd, &src.sa, &len)) {
		if (is_same_ip(&src, to)) {
			route->kind = WEFT_ROUTE_LOCAL;
			route->mine_here = has_address(local, to);
		} else {
			route->kind = has_address(local, &src)
					      ? WEFT_ROUTE_BY
					      : WEFT_ROUTE_OTHER;
		}
	}
	close(fd);
}

void weft_route_find(const struct weft_netif *local,
		     const union weft_sockaddr *to, struct weft_route *route)
{
	*route = (struct weft_route){ .kind = WEFT_ROUTE_NONE };
	if (query_netlink(local, to, route))
		weft_route_find_udp(local, to, route);
}

static bool set_reason(const char **why, const char *text)
{
	if (why)
		*why = text;
	return false;
}

bool weft_route_reaches(const struct weft_netif *local,
			const struct weft_address *remote, uint64_t ns_id,
			bool named, const struct weft_route *route,
			const char **why)
{
	const bool mine = route->kind == WEFT_ROUTE_LOCAL;

	if (!weft_address_has_version(remote))
		return set_reason(why, weft_other_wire);
	if (remote->sa.sa.sa_family != local->addr.sa.sa_family)
		return set_reason(why, "it has another address family");
	if ((mine || is_loopback(&remote->sa)) && remote->ns_id != ns_id)
		return set_reason(why, weft_host_known()
					       ? "its address means this host"
					       : weft_host_unknown);
	if (local->loopback != is_loopback(&remote->sa))
		return set_reason(
			why,
			local->loopback
				? "a loopback interface reaches loopback addresses only"
				: "a loopback address is reached by loopback only");
	if (local->loopback)
		return true;
	/*
	 * Every link has 169.254/16 and fe80::/10 (a management controller's,
	 * too), so the address does not tell whether both sides mean the same
	 * link, unless the user names the interface.
	 */
	if (is_link_local(&remote->sa) && !mine && !named)
		return set_reason(
			why,
			"a link-local address is used only where WEFT_NET_DEVICES names the interface");
	if (mine && !route->mine_here)
		return set_reason(
			why, "another interface of this host has its address");
	if (route->kind == WEFT_ROUTE_NONE)
		return set_reason(why, "there is no route to it");
	if (route->kind == WEFT_ROUTE_OTHER)
		return set_reason(
			why, "the route to it leaves by another interface");
	return true;
}

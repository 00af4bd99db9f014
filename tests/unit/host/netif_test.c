/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "host/host.h"
#include "host/netif.h"
#include "host/route.h"
#include "settings/settings.h"
#include "tests/lib/fds.h"
#include "util/util.h"

static union weft_sockaddr ip(const char *text)
{
	union weft_sockaddr sa = { 0 };

	if (strchr(text, ':')) {
		sa.sa.sa_family = AF_INET6;
		cr_assert(inet_pton(AF_INET6, text, &sa.in6.sin6_addr));
	} else {
		sa.sa.sa_family = AF_INET;
		cr_assert(inet_pton(AF_INET, text, &sa.in.sin_addr));
	}
	return sa;
}

#define HERE  7
#define THERE 8

static const struct {
	const char *what;
	const char *local;
	const char *remote;
	uint64_t ns;
	enum weft_route_kind route;
	bool mine_here, named, reaches;
	uint8_t wire;
} cases[] = {
	{ "neighbour", "10.0.0.1", "10.0.0.2", THERE, WEFT_ROUTE_BY,
	  .reaches = true },
	{ "neighbour of a container", "10.0.0.1", "10.0.0.2", HERE,
	  WEFT_ROUTE_BY, .reaches = true },
	{ "by another interface", "10.0.0.1", "10.1.0.2", THERE,
	  WEFT_ROUTE_OTHER },
	{ "no route", "10.0.0.1", "10.1.0.2", THERE, WEFT_ROUTE_NONE },
	{ "IPv6 neighbour", "fd00::1", "fd00::2", THERE, WEFT_ROUTE_BY,
	  .reaches = true },
	{ "another family", "10.0.0.1", "fd00::2", THERE, WEFT_ROUTE_BY },
	{ "the docker0 of two hosts", "172.17.0.1", "172.17.0.1", THERE,
	  WEFT_ROUTE_LOCAL, .mine_here = true },
	{ "the docker0 of this host", "172.17.0.1", "172.17.0.1", HERE,
	  WEFT_ROUTE_LOCAL, .mine_here = true, .reaches = true },
	{ "my other interface", "10.0.0.1", "172.17.0.1", HERE,
	  WEFT_ROUTE_LOCAL },
	{ "loopback of this host", "127.0.0.1", "127.0.0.1", HERE,
	  WEFT_ROUTE_LOCAL, .reaches = true },
	{ "IPv6 loopback of this host", "::1", "::1", HERE, WEFT_ROUTE_LOCAL,
	  .reaches = true },
	{ "loopback of another host", "127.0.0.1", "127.0.0.1", THERE,
	  WEFT_ROUTE_LOCAL },
	{ "loopback from eth0", "10.0.0.1", "127.0.0.1", HERE,
	  WEFT_ROUTE_LOCAL },
	{ "eth0 from loopback", "127.0.0.1", "10.0.0.1", HERE,
	  WEFT_ROUTE_LOCAL },
	{ "link-local, not named", "fe80::1", "fe80::2", THERE, WEFT_ROUTE_BY },
	{ "link-local, named", "fe80::1", "fe80::2", THERE, WEFT_ROUTE_BY,
	  .named = true, .reaches = true },
	{ "169.254, not named", "169.254.3.1", "169.254.3.2", THERE,
	  WEFT_ROUTE_BY },
	{ "my own link-local", "169.254.3.1", "169.254.3.1", HERE,
	  WEFT_ROUTE_LOCAL, .mine_here = true, .reaches = true },
	{ "a future wire", "10.0.0.1", "10.0.0.2", THERE, WEFT_ROUTE_BY,
	  .wire = WEFT_WIRE_MAX + 1 },
};

Test(netif, reachability_rules)
{
	struct weft_netif local;
	struct weft_address remote;
	struct weft_route route;
	const char *why;
	size_t i;
	bool got;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		local = (struct weft_netif){ .addr = ip(cases[i].local) };
		local.loopback = !strcmp(cases[i].local, "::1") ||
				 !strncmp(cases[i].local, "127.", 4);
		remote = (struct weft_address){
			.wire_min = cases[i].wire ?: WEFT_WIRE_MIN,
			.wire_max = cases[i].wire ?: WEFT_WIRE_MAX,
			.ns_id = cases[i].ns,
			.sa = ip(cases[i].remote),
		};
		route = (struct weft_route){ cases[i].route,
					     cases[i].mine_here };
		why = NULL;
		got = weft_route_reaches(&local, &remote, HERE, cases[i].named,
					 &route, &why);
		cr_expect(got == cases[i].reaches, "%s: %s", cases[i].what,
			  why ? why : "reached");
		cr_expect(got == !why, "%s: why, and only then", cases[i].what);
		cr_expect(weft_route_reaches(&local, &remote, HERE,
					     cases[i].named, &route,
					     NULL) == got,
			  "%s", cases[i].what);
	}
}

Test(netif, loopback_is_listed_last)
{
	struct weft_netif *list, lo;
	int n = weft_netif_list(AF_UNSPEC, &list), i;

	cr_assert(ge(int, n, 1));
	for (i = 0; i < n - 1; i++)
		cr_expect(not(list[i].loopback), "%s", list[i].name);
	cr_expect(list[n - 1].loopback);
	cr_expect(eq(str, list[n - 1].name, (char *)"lo"));
	cr_expect(eq(uint, list[n - 1].index, 1));
	cr_expect(gt(uint, list[n - 1].mtu, 1000));
	cr_expect(eq(int, list[n - 1].addr.sa.sa_family, AF_INET));
	cr_expect(eq(uint, ntohl(list[n - 1].addr.in.sin_addr.s_addr),
		     INADDR_LOOPBACK));
	cr_assert(zero(int, weft_netif_get("lo", AF_INET, &lo)));
	cr_expect(eq(str, lo.name, (char *)"lo"));
	cr_expect(eq(int, weft_netif_get("nosuch0", AF_UNSPEC, &lo), -ENODEV));
	cr_expect(eq(str, lo.name, (char *)"lo"),
		  "an error changed the output");
	free(list);
}

/* Interfaces of our own, in a namespace of our own. */
static void new_namespace(void)
{
	if (unshare(CLONE_NEWNET))
		cr_skip_test("no right to make a network namespace");
	if (system("ip link set lo up &&"
		   "ip link add w0 type veth peer name p0 &&"
		   "ip link add w1 type veth peer name p1 &&"
		   "ip link add gone0 type veth peer name p2 &&"
		   "ip addr add 169.254.7.7/16 dev w0 &&"
		   "ip addr add 10.7.0.1/24 dev w0 &&"
		   "ip addr add 10.7.9.1/24 dev w0 label w0:x &&"
		   "ip addr add fd07::1/64 dev w0 nodad &&"
		   "ip addr add fd08::1/64 dev w1 nodad &&"
		   "ip addr add 10.9.0.1/24 dev gone0 &&"
		   "for i in w0 w1 p0 p1; do ip link set $i up; done &&"
		   /* a work queue makes IPv6's addresses usable, later */
		   "for i in $(seq 200); do "
		   "ip -6 route show table local | grep -q fd07::1 && "
		   "ip -6 route show table local | grep -q fd08::1 && "
		   "! ip -6 addr show tentative to fd00::/8 | grep -q . && "
		   "break; sleep 0.05; done &&"
		   "ip route add 10.8.0.0/16 via 10.7.0.2 &&"
		   "ip route add prohibit 10.6.0.0/16"))
		cr_skip_test("no iproute2");
}

Test(netif, each_interface_has_its_best_address)
{
	struct weft_netif nif;
	char buf[WEFT_SOCKADDR_STR];

	new_namespace();
	cr_assert(zero(int, weft_netif_get("w0", AF_UNSPEC, &nif)));
	cr_expect(eq(str,
		     (char *)weft_sockaddr_str(&nif.addr, buf, sizeof(buf)),
		     (char *)"10.7.0.1:0"),
		  "IPv4, wider than link-local");
	cr_expect(not(nif.link_local_only));
	cr_expect(eq(uint, nif.mtu, 1500));
	cr_expect(eq(u64, nif.speed, 10000 * 125000ull), "a veth's 10 Gbit/s");
	cr_assert(zero(int, weft_netif_get("w0", AF_INET6, &nif)));
	cr_expect(eq(str,
		     (char *)weft_sockaddr_str(&nif.addr, buf, sizeof(buf)),
		     (char *)"[fd07::1]:0"));
	cr_assert(zero(int, weft_netif_get("w1", AF_UNSPEC, &nif)));
	cr_expect(eq(str,
		     (char *)weft_sockaddr_str(&nif.addr, buf, sizeof(buf)),
		     (char *)"[fd08::1]:0"));
	cr_expect(eq(int, weft_netif_get("w1", AF_INET, &nif), -ENODEV));
	cr_expect(eq(int, weft_netif_get("gone0", AF_UNSPEC, &nif), -ENODEV),
		  "it is down");
	cr_expect(eq(int, weft_netif_get("w0:x", AF_UNSPEC, &nif), -ENODEV),
		  "a label is no interface");
}

static bool reaches(const char *netdev, int family, const char *to,
		    const char **why)
{
	struct weft_netif nif;
	struct weft_address remote = {
		.wire_min = WEFT_WIRE_MIN,
		.wire_max = WEFT_WIRE_MAX,
		.ns_id = weft_netns_id(),
		.sa = ip(to),
	};

	cr_assert(zero(int, weft_netif_get(netdev, family, &nif)));
	return weft_netif_reaches(&nif, &remote, why);
}

Test(netif, route_comes_from_the_kernel)
{
	static const struct {
		const char *netdev, *to;
		bool reaches;
	} asked[] = {
		{ "w0", "10.7.0.2", true },
		{ "w0", "10.7.9.9", true },
		{ "w0", "10.8.1.1", true }, /* by a gateway */
		{ "w0", "10.7.0.1", true }, /* my own */
		{ "w0", "10.7.9.1", true }, /* my second own */
		{ "w0", "fd07::2", true },
		{ "w0", "fd07::1", true },
		{ "w0", "fd08::2", false },
		{ "w0", "10.6.1.1", false },  /* prohibited */
		{ "w0", "192.0.2.1", false }, /* no route at all */
		{ "w0", "127.0.0.1", false },
		{ "w1", "fd08::2", true },
		{ "w1", "fd08::1", true },
		{ "w1", "fd07::1", false }, /* w0's */
		{ "w1", "fd07::2", false },
		{ "lo", "127.0.0.1", true },
		{ "lo", "::1", true },
		{ "lo", "10.7.0.1", false },
	};
	const char *why;
	size_t i;

	new_namespace();
	for (i = 0; i < ARRAY_SIZE(asked); i++) {
		why = "reached";
		cr_expect(reaches(asked[i].netdev,
				  strchr(asked[i].to, ':') ? AF_INET6 : AF_INET,
				  asked[i].to, &why) == asked[i].reaches,
			  "%s to %s: %s", asked[i].netdev, asked[i].to, why);
	}
}

/* Where the sandbox forbids netlink, a connected UDP socket says the same. */
Test(netif, udp_and_netlink_routes_agree)
{
	static const char *const to[] = {
		"10.7.0.2",  "10.8.1.1",  "10.7.0.1", "10.7.9.1", "10.6.1.1",
		"192.0.2.1", "127.0.0.1", "fd07::2",  "fd07::1",  "fd08::1",
	};
	struct weft_route a, b;
	struct weft_netif nif;
	union weft_sockaddr sa;
	size_t i;

	new_namespace();
	for (i = 0; i < ARRAY_SIZE(to); i++) {
		sa = ip(to[i]);
		cr_assert(
			zero(int, weft_netif_get("w0", sa.sa.sa_family, &nif)));
		weft_route_find(&nif, &sa, &a);
		weft_route_find_udp(&nif, &sa, &b);
		cr_expect(eq(int, a.kind, b.kind), "%s", to[i]);
		cr_expect(a.mine_here == b.mine_here, "%s", to[i]);
	}
	/* not by it; but without a descriptor to ask with it may be */
	cr_expect(ne(int, a.kind, WEFT_ROUTE_BY));
	allow_fds(false);
	weft_route_find(&nif, &sa, &a);
	allow_fds(true);
	cr_expect(eq(int, a.kind, WEFT_ROUTE_BY));
}

/* As a service under systemd's RestrictAddressFamilies=AF_INET is. */
static void forbid_netlink(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { ARRAY_SIZE(rules), rules };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		cr_skip_test("no seccomp here");
}

Test(netif, works_without_netlink)
{
	struct weft_netif nif;
	char buf[WEFT_SOCKADDR_STR];
	const char *why = "reached";

	new_namespace();
	forbid_netlink();
	cr_assert(zero(int, weft_netif_get("w0", AF_UNSPEC, &nif)));
	weft_sockaddr_str(&nif.addr, buf, sizeof(buf));
	cr_expect(eq(int, nif.addr.sa.sa_family, AF_INET), "%s", buf);
	cr_expect(gt(uint, nif.index, 1));
	cr_expect(eq(int, weft_netif_get("gone0", AF_UNSPEC, &nif), -ENODEV));
	cr_assert(zero(int, weft_netif_get("lo", AF_UNSPEC, &nif)));
	cr_expect(nif.loopback);
	cr_expect(reaches("lo", AF_INET, "127.0.0.1", &why), "%s", why);
	cr_expect(not(reaches("w0", AF_INET, "10.6.1.1", &why)));
	cr_expect(reaches("w0", AF_INET,
			  buf[0] == '1' && buf[1] == '0' ? "10.7.0.2"
							 : "169.254.7.7",
			  &why),
		  "%s", why);
}

Test(netif, link_local_needs_a_named_interface)
{
	struct weft_netif nif;
	struct weft_address remote = {
		.wire_min = WEFT_WIRE_MIN,
		.wire_max = WEFT_WIRE_MAX,
		.ns_id = 5,
		.sa = ip("169.254.7.8"),
	};

	new_namespace();
	cr_assert(zero(int, weft_netif_get("w0", AF_INET, &nif)));
	cr_expect(not(weft_netif_reaches(&nif, &remote, NULL)));
	setenv("WEFT_NET_DEVICES", "w0", 1);
	weft_settings_reset();
	cr_expect(weft_netif_reaches(&nif, &remote, NULL));
}

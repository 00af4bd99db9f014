/* SPDX-License-Identifier: BSD-3-Clause */
/* weft check: the devices that both sides have, and what to change. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/host.h"
#include "bootstrap/settings.h"
#include "bootstrap/ucxenv.h"
#include "config.h"
#include "tools/check.h"
#include "util/bytes.h"
#include "util/util.h"

enum wire_kind { KIND_TCP = 1, KIND_IB };

/* ---- lists --------------------------------------------------------------- */

static void fill_address(struct check_device *d, const struct weft_netif *netif)
{
	d->addr = (struct weft_address){
		.wire_min = WEFT_WIRE_MIN,
		.wire_max = WEFT_WIRE_MAX,
		.ns_id = weft_netns_id(),
		.sa = netif->addr,
	};
	d->netif = *netif;
}

static int add_netifs(const struct weft_netif *route, struct check_device *list)
{
	struct weft_netif *netifs;
	int n, i, used = 0;

	n = weft_netif_list(route->addr.sa.sa_family, &netifs);
	if (n < 0)
		return n;
	for (i = 0; i < n && used < CHECK_DEVICES_MAX; i++) {
		if (!weft_settings_netdev_allowed(netifs[i].name))
			continue;
		list[used] = (struct check_device){
			.ops = &weft_tcp_ops,
			.speed = netifs[i].loopback ? 0 : netifs[i].speed,
			.route = !strcmp(netifs[i].name, route->name),
		};
		snprintf(list[used].name, sizeof(list[used].name), "%s",
			 netifs[i].name);
		fill_address(&list[used++], &netifs[i]);
	}
	free(netifs);
	return used;
}

#ifdef HAVE_VERBS_H
static int add_ports(const struct weft_netif *route, struct check_device *list,
		     int used)
{
	struct weft_verbs_port *ports;
	unsigned int index;
	uint8_t gid[16];
	int n, i;

	n = weft_verbs_list(&ports);
	for (i = 0; i < n && used < CHECK_DEVICES_MAX; i++) {
		if (!weft_verbs_openable(ports[i].dev) ||
		    weft_verbs_gid(&ports[i], route->addr.sa.sa_family, &index,
				   gid))
			continue;
		list[used] = (struct check_device){ .ops = &weft_ib_ops,
						    .speed = ports[i].speed };
		snprintf(list[used].name, sizeof(list[used].name), "%s",
			 ports[i].name);
		fill_address(&list[used], route);
		list[used++].addr.fabric = weft_verbs_fabric(&ports[i], gid);
	}
	if (n >= 0)
		free(ports);
	return used;
}
#endif

int check_list(const struct weft_netif *route,
	       struct check_device list[CHECK_DEVICES_MAX])
{
	int n = add_netifs(route, list);

#ifdef HAVE_VERBS_H
	if (n >= 0)
		n = add_ports(route, list, n);
#endif
	return n;
}

/* kind, route, speed, name, length of the device address, both addresses */
#define NAME_AT	 10
#define DEV_LEN	 (NAME_AT + CHECK_NAME_LEN)
#define IFACE_AT (DEV_LEN + 1)
#define DEV_AT	 (IFACE_AT + WEFT_IFACE_ADDR_LEN)
_Static_assert(DEV_AT + WEFT_DEV_ADDR_MAX <= CHECK_ENTRY_LEN, "it fits");

void check_pack_list(const struct check_device *list, int n,
		     uint8_t text[CHECK_LIST_LEN])
{
	uint8_t *at = text + 1;
	int i;

	memset(text, 0, CHECK_LIST_LEN);
	text[0] = (uint8_t)n;
	for (i = 0; i < n; i++, at += CHECK_ENTRY_LEN) {
		at[0] = list[i].ops == &weft_tcp_ops ? KIND_TCP : KIND_IB;
		at[1] = list[i].route;
		weft_put_le64(at + 2, list[i].speed);
		memcpy(at + NAME_AT, list[i].name, CHECK_NAME_LEN);
		weft_address_pack_iface(&list[i].addr, at + IFACE_AT);
		at[DEV_LEN] = (uint8_t)weft_address_pack_dev(&list[i].addr,
							     at + DEV_AT);
	}
}

/* A peer's text: only what names of devices have. */
static void unpack_name(const uint8_t *from, char name[CHECK_NAME_LEN])
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789_.:-@";
	size_t i;

	memcpy(name, from, CHECK_NAME_LEN);
	name[CHECK_NAME_LEN - 1] = '\0';
	for (i = 0; name[i]; i++)
		if (!strchr(good, name[i]))
			name[i] = '?';
}

int check_unpack_list(const uint8_t text[CHECK_LIST_LEN],
		      struct check_device list[CHECK_DEVICES_MAX])
{
	const uint8_t *at = text + 1;
	int i, used = 0;

	if (text[0] > CHECK_DEVICES_MAX)
		return -EPROTO;
	for (i = 0; i < text[0]; i++, at += CHECK_ENTRY_LEN) {
		struct check_device *d = &list[used];

		memset(d, 0, sizeof(*d));
		if (at[DEV_LEN] > WEFT_DEV_ADDR_MAX ||
		    weft_address_unpack(at + IFACE_AT, WEFT_IFACE_ADDR_LEN,
					at + DEV_AT, at[DEV_LEN], &d->addr))
			return -EPROTO;
		if (at[0] == KIND_TCP)
			d->ops = &weft_tcp_ops;
#ifdef HAVE_VERBS_H
		else if (at[0] == KIND_IB)
			d->ops = &weft_ib_ops;
#endif
		else
			continue; /* this side has no such device */
		d->route = at[1];
		d->speed = weft_get_le64(at + 2);
		unpack_name(at + NAME_AT, d->name);
		used++;
	}
	return used;
}

/* ---- pairs --------------------------------------------------------------- */

static bool is_ib(const struct check_device *d)
{
	return d->ops != &weft_tcp_ops;
}

static bool is_pair(const struct check_device *here,
		    const struct check_device *there)
{
	if (here->ops != there->ops)
		return false;
	if (here->route || there->route)
		return here->route && there->route;
	if (is_ib(here))
		return weft_verbs_reachable(here->addr.fabric,
					    there->addr.fabric, NULL);
	/* within one namespace all is loopback's */
	return here->addr.ns_id != there->addr.ns_id &&
	       weft_netif_reaches(&here->netif, &there->addr, NULL);
}

/* Of the same name if possible, else one that no other is paired with. */
static const struct check_device *
find_partner(const struct check_device *here, const struct check_device *there,
	     int m, const struct check_pair *pairs, int n)
{
	const struct check_device *best = NULL;
	bool taken;
	int i, p;

	for (i = 0; i < m; i++) {
		if (!is_pair(here, &there[i]))
			continue;
		if (!strcmp(here->name, there[i].name))
			return &there[i];
		for (taken = false, p = 0; p < n; p++)
			taken |= pairs[p].there == &there[i];
		if (!best || !taken)
			best = &there[i];
	}
	return best;
}

static int compare_routes(const void *a, const void *b)
{
	const struct check_pair *x = a, *y = b;

	return (int)y->here->route - (int)x->here->route;
}

int check_match(const struct check_device *here, int n,
		const struct check_device *there, int m,
		struct check_pair pairs[CHECK_DEVICES_MAX])
{
	const struct check_device *partner;
	int i, used = 0;

	for (i = 0; i < n; i++) {
		partner = find_partner(&here[i], there, m, pairs, used);
		if (partner)
			pairs[used++] = (struct check_pair){ .here = &here[i],
							     .there = partner };
	}
	qsort(pairs, (size_t)used, sizeof(*pairs), compare_routes);
	return used;
}

/* ---- advice -------------------------------------------------------------- */

static double get_rate(const struct check_pair *p)
{
	return p->measured ? p->rates.put : 0;
}

static const struct check_pair *find_fastest(const struct check_pair *pairs,
					     int n, bool ib)
{
	const struct check_pair *best = NULL;
	int i;

	for (i = 0; i < n; i++)
		if (is_ib(pairs[i].here) == ib &&
		    get_rate(&pairs[i]) > (best ? get_rate(best) : 0))
			best = &pairs[i];
	return best;
}

/* Why no port of the two sides meets another; NULL: some do, or one has none.
 */
static const char *find_ib_obstacle(const struct check_device *here, int n,
				    const struct check_device *there, int m)
{
	const char *why = NULL;
	int i, k;

	for (i = 0; i < n; i++)
		for (k = 0; k < m; k++)
			if (is_ib(&here[i]) && is_ib(&there[k]) &&
			    weft_verbs_reachable(here[i].addr.fabric,
						 there[k].addr.fabric, &why))
				return NULL;
	return why;
}

static void print_advice(const char *text, bool json, int *count)
{
	if (json)
		printf("%s\"%s\"", *count ? "," : "", text);
	else
		printf("%s  %s\n", *count ? "" : "\nTo change\n", text);
	(*count)++;
}

void check_advise(const struct check_pair *pairs, int n,
		  const struct check_device *here, int own,
		  const struct check_device *there, int others, bool json)
{
	const struct check_pair *tcp = find_fastest(pairs, n, false);
	const struct check_pair *ib = find_fastest(pairs, n, true);
	const char *why = find_ib_obstacle(here, own, there, others);
	char text[400];
	int i, count = 0;

	for (i = 0; i < n; i++) {
		if (!pairs[i].err)
			continue;
		snprintf(
			text, sizeof(text),
			"%s does not work, though addresses and routes "
			"promise it: let the ports of WEFT_PORT_RANGE through, "
			"or leave it out (WEFT_NET_DEVICES=^%s, on all hosts)",
			pairs[i].here->name, pairs[i].here->name);
		print_advice(text, json, &count);
	}
	if (tcp && tcp != pairs && get_rate(tcp) > 1.5 * get_rate(pairs)) {
		snprintf(
			text, sizeof(text),
			"%s is faster than %s, over which this check reached the host: give programs the addresses of %s (Dask: "
			"--interface %s)",
			tcp->here->name, pairs->here->name, tcp->here->name,
			tcp->here->name);
		print_advice(text, json, &count);
	}
	if (ib && get_rate(ib) > (tcp ? get_rate(tcp) : 0) &&
	    !weft_is_requested("weft_ib"))
		print_advice("weft_ib is the fastest: UCX_TLS=weft_ib,weft_tcp "
			     "takes it",
			     json, &count);
	if (why) {
		snprintf(text, sizeof(text),
			 "both sides have InfiniBand or RoCE ports, but none "
			 "that meet: %s",
			 why);
		print_advice(text, json, &count);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* weft check: the devices that both sides have, and what to change. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/host.h"
#include "host/netdevs.h"
#include "settings/settings.h"
#include "ucx_tl/ucxenv.h"
#include "config.h"
#include "tools/check/check.h"
#include "util/bytes.h"
#include "util/util.h"

enum wire_kind { KIND_TCP = 1, KIND_IB, KIND_SHM };

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

static int add_netifs(const struct weft_netif *route, struct check_list *list)
{
	struct weft_netif *netifs;
	struct check_device *d;
	int n, i;

	n = weft_netif_list(route->addr.sa.sa_family, &netifs);
	if (n < 0)
		return n;
	for (i = 0; i < n && list->n < CHECK_DEVICES_MAX; i++) {
		if (!weft_netdevs_allowed(netifs[i].name))
			continue;
		d = &list->devices[list->n++];
		*d = (struct check_device){
			.ops = &weft_tcp_ops,
			.speed = netifs[i].loopback ? 0 : netifs[i].speed,
			.route = !strcmp(netifs[i].name, route->name),
		};
		snprintf(d->name, sizeof(d->name), "%s", netifs[i].name);
		fill_address(d, &netifs[i]);
	}
	free(netifs);
	return 0;
}

#ifdef HAVE_VERBS_H
static void add_ports(const struct weft_netif *route, struct check_list *list)
{
	struct weft_verbs_port *ports;
	struct check_device *d;
	unsigned int index;
	uint8_t gid[16];
	int n, i;

	n = weft_verbs_list(&ports);
	for (i = 0; i < n && list->n < CHECK_DEVICES_MAX; i++) {
		if (!weft_verbs_openable(ports[i].dev) ||
		    weft_verbs_gid(&ports[i], route->addr.sa.sa_family, &index,
				   gid))
			continue;
		d = &list->devices[list->n++];
		*d = (struct check_device){ .ops = &weft_ib_ops,
					    .speed = ports[i].speed };
		snprintf(d->name, sizeof(d->name), "%s", ports[i].name);
		fill_address(d, route);
		d->addr.fabric = weft_verbs_fabric(&ports[i], gid);
	}
	if (n >= 0)
		free(ports);
}
#endif

/*
 * Does weft_shm work here (*@own is where it is found), and does it reach
 * @remote (NULL: not asked)?  If not, *@why says so.
 */
static bool try_shm(struct weft_address *own, const struct weft_address *remote,
		    const char **why)
{
	static const struct weft_iface_cb cb; /* there is no progress() */
	const struct weft_iface_params params = { .netdev = "shm", .cb = &cb };
	struct weft_iface_attr attr;
	struct weft_iface *iface;
	bool reached;

	*why = "its own message says why";
	if (weft_shm_ops.iface_open(&params, &iface))
		return false;
	weft_shm_ops.iface_query(iface, &attr);
	*own = attr.addr;
	reached = !remote || weft_shm_ops.reaches(iface, remote, why);
	weft_shm_ops.iface_close(iface);
	return reached;
}

static void add_shm(struct check_list *list)
{
	struct check_device d = { .ops = &weft_shm_ops, .name = "shm" };
	const char *why;

	if (list->n < CHECK_DEVICES_MAX && try_shm(&d.addr, NULL, &why))
		list->devices[list->n++] = d;
}

int check_list_own(const struct weft_netif *route, struct check_list *list)
{
	int err;

	memset(list, 0, sizeof(*list));
	list->host = weft_host_id();
	err = add_netifs(route, list);
	if (err)
		return err;
	add_shm(list);
#ifdef HAVE_VERBS_H
	add_ports(route, list);
#endif
	return 0;
}

/* kind, route, speed, name, length of the device address, both addresses */
#define NAME_AT	 10
#define DEV_LEN	 (NAME_AT + CHECK_NAME_LEN)
#define IFACE_AT (DEV_LEN + 1)
#define DEV_AT	 (IFACE_AT + WEFT_IFACE_ADDR_LEN)
_Static_assert(DEV_AT + WEFT_DEV_ADDR_MAX <= CHECK_ENTRY_LEN, "it fits");

static enum wire_kind kind_of(const struct check_device *d)
{
	if (d->ops == &weft_tcp_ops)
		return KIND_TCP;
	return d->ops == &weft_shm_ops ? KIND_SHM : KIND_IB;
}

/* NULL: this side has no such device. */
static const struct weft_dev_ops *ops_of(enum wire_kind kind)
{
	switch (kind) {
	case KIND_TCP:
		return &weft_tcp_ops;
	case KIND_SHM:
		return &weft_shm_ops;
#ifdef HAVE_VERBS_H
	case KIND_IB:
		return &weft_ib_ops;
#endif
	default:
		return NULL;
	}
}

void check_pack_list(const struct check_list *list,
		     uint8_t text[CHECK_LIST_LEN])
{
	const struct check_device *d;
	uint8_t *at = text + 9;
	int i;

	memset(text, 0, CHECK_LIST_LEN);
	text[0] = (uint8_t)list->n;
	weft_put_le64(text + 1, list->host);
	for (i = 0; i < list->n; i++, at += CHECK_ENTRY_LEN) {
		d = &list->devices[i];
		at[0] = kind_of(d);
		at[1] = d->route;
		weft_put_le64(at + 2, d->speed);
		memcpy(at + NAME_AT, d->name, CHECK_NAME_LEN);
		weft_address_pack_iface(&d->addr, at + IFACE_AT);
		at[DEV_LEN] =
			(uint8_t)weft_address_pack_dev(&d->addr, at + DEV_AT);
	}
}

/* Accepts only characters that names of devices have: the text is a peer's. */
static void unpack_name(const uint8_t *from, char name[CHECK_NAME_LEN])
{
	static const char good[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-@";
	size_t i;

	memcpy(name, from, CHECK_NAME_LEN);
	name[CHECK_NAME_LEN - 1] = '\0';
	for (i = 0; name[i]; i++)
		if (!strchr(good, name[i]))
			name[i] = '?';
}

int check_unpack_list(const uint8_t text[CHECK_LIST_LEN],
		      struct check_list *list)
{
	const uint8_t *at = text + 9;
	int i;

	if (text[0] > CHECK_DEVICES_MAX)
		return -EPROTO;
	memset(list, 0, sizeof(*list));
	list->host = weft_get_le64(text + 1);
	for (i = 0; i < text[0]; i++, at += CHECK_ENTRY_LEN) {
		struct check_device *d = &list->devices[list->n];

		memset(d, 0, sizeof(*d));
		if (at[DEV_LEN] > WEFT_DEV_ADDR_MAX ||
		    weft_address_unpack(at + IFACE_AT, WEFT_IFACE_ADDR_LEN,
					at + DEV_AT, at[DEV_LEN], &d->addr))
			return -EPROTO;
		d->ops = ops_of(at[0]);
		if (!d->ops)
			continue;
		d->route = at[1];
		d->speed = weft_get_le64(at + 2);
		unpack_name(at + NAME_AT, d->name);
		list->n++;
	}
	return 0;
}

/* ---- pairs --------------------------------------------------------------- */

static bool is_pair(const struct check_device *here,
		    const struct check_device *there)
{
	struct weft_address own;
	const char *why;

	if (here->ops != there->ops)
		return false;
	if (here->route || there->route)
		return here->route && there->route;
	switch (kind_of(here)) {
	case KIND_IB:
		return weft_verbs_reachable(here->addr.fabric,
					    there->addr.fabric, NULL);
	case KIND_SHM:
		return try_shm(&own, &there->addr, &why);
	default:
		/* within one network namespace loopback is used */
		return here->addr.ns_id != there->addr.ns_id &&
		       weft_netif_reaches(&here->netif, &there->addr, NULL);
	}
}

/* The device of the same name if possible, else one that is not paired yet. */
static const struct check_device *find_partner(const struct check_device *here,
					       const struct check_list *list,
					       const struct check_pair *pairs,
					       int n)
{
	const struct check_device *best = NULL, *there;
	bool taken;
	int i, p;

	for (i = 0; i < list->n; i++) {
		there = &list->devices[i];
		if (!is_pair(here, there))
			continue;
		if (!strcmp(here->name, there->name))
			return there;
		for (taken = false, p = 0; p < n; p++)
			taken |= pairs[p].there == there;
		if (!best || !taken)
			best = there;
	}
	return best;
}

static int compare_routes(const void *a, const void *b)
{
	const struct check_pair *x = a, *y = b;

	return (int)y->here->route - (int)x->here->route;
}

int check_match(const struct check_list *here, const struct check_list *there,
		struct check_pair pairs[CHECK_DEVICES_MAX])
{
	const struct check_device *own, *partner;
	int i, used = 0;

	for (i = 0; i < here->n; i++) {
		own = &here->devices[i];
		partner = find_partner(own, there, pairs, used);
		if (partner)
			pairs[used++] = (struct check_pair){ .here = own,
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

/* NULL: none of @kind was measured. */
static const struct check_pair *find_fastest(const struct check_pair *pairs,
					     int n, enum wire_kind kind)
{
	const struct check_pair *best = NULL;
	int i;

	for (i = 0; i < n; i++)
		if (kind_of(pairs[i].here) == kind &&
		    get_rate(&pairs[i]) > (best ? get_rate(best) : 0))
			best = &pairs[i];
	return best;
}

/*
 * Why no two ports of the sides reach each other; NULL: some do, or a side has
 * none.
 */
static const char *find_ib_obstacle(const struct check_list *here,
				    const struct check_list *there)
{
	const struct check_device *a, *b;
	const char *why = NULL;
	int i, k;

	for (i = 0; i < here->n; i++)
		for (k = 0; k < there->n; k++) {
			a = &here->devices[i];
			b = &there->devices[k];
			if (kind_of(a) == KIND_IB && kind_of(b) == KIND_IB &&
			    weft_verbs_reachable(a->addr.fabric, b->addr.fabric,
						 &why))
				return NULL;
		}
	return why;
}

static const struct check_device *find_shm(const struct check_list *list)
{
	int i;

	for (i = 0; i < list->n; i++)
		if (kind_of(&list->devices[i]) == KIND_SHM)
			return &list->devices[i];
	return NULL;
}

/*
 * Why two sides of one host do not reach each other; NULL: they do, or are on
 * two hosts.
 */
static const char *find_shm_obstacle(const struct check_list *here,
				     const struct check_list *there)
{
	const struct check_device *a = find_shm(here), *b = find_shm(there);
	struct weft_address own;
	const char *why;

	if (!a || !b || here->host != there->host)
		return NULL;
	return try_shm(&own, &b->addr, &why) ? NULL : why;
}

static void print_advice(const char *text, bool json, int *count)
{
	if (json)
		printf("%s\"%s\"", *count ? "," : "", text);
	else
		printf("%s  %s\n", *count ? "" : "\nTo change\n", text);
	(*count)++;
}

static void advise_broken(const struct check_pair *pair, bool json, int *count)
{
	const char *name = pair->here->name;
	char text[300];

	if (kind_of(pair->here) == KIND_SHM) {
		print_advice(
			"weft_shm does not work, though the two have a network namespace or a folder in common: UCX_TLS=weft_tcp, on both sides, leaves it out",
			json, count);
		return;
	}
	snprintf(
		text, sizeof(text),
		"%s does not work, though addresses and routes promise it: let the ports of WEFT_PORT_RANGE through, or leave it out (WEFT_NET_DEVICES=^%s, on all hosts)",
		name, name);
	print_advice(text, json, count);
}

void check_advise(const struct check_pair *pairs, int n,
		  const struct check_list *here, const struct check_list *there,
		  bool json)
{
	const struct check_pair *tcp = find_fastest(pairs, n, KIND_TCP);
	const struct check_pair *ib = find_fastest(pairs, n, KIND_IB);
	const struct check_pair *shm = find_fastest(pairs, n, KIND_SHM);
	const double tcp_rate = tcp ? get_rate(tcp) : 0;
	const double ib_rate = ib ? get_rate(ib) : 0;
	const char *why;
	char text[400];
	int i, count = 0;

	for (i = 0; i < n; i++)
		if (pairs[i].err)
			advise_broken(&pairs[i], json, &count);
	if (tcp && tcp != pairs && tcp_rate > 1.5 * get_rate(pairs)) {
		snprintf(
			text, sizeof(text),
			"%s is faster than %s, over which this check reached the host: give programs the addresses of %s (Dask: --interface %s)",
			tcp->here->name, pairs->here->name, tcp->here->name,
			tcp->here->name);
		print_advice(text, json, &count);
	}
	if (shm && get_rate(shm) > tcp_rate && get_rate(shm) > ib_rate &&
	    !weft_is_requested("weft_shm"))
		print_advice(
			"weft_shm is the fastest: UCX_TLS=weft_shm,weft_tcp selects it, as 'weft run' does",
			json, &count);
	else if (ib_rate > tcp_rate && !weft_is_requested("weft_ib"))
		print_advice(
			"weft_ib is the fastest: UCX_TLS=weft_ib,weft_tcp takes it",
			json, &count);
	why = find_ib_obstacle(here, there);
	if (why) {
		snprintf(
			text, sizeof(text),
			"both sides have InfiniBand or RoCE ports, but none that meet: %s",
			why);
		print_advice(text, json, &count);
	}
	why = find_shm_obstacle(here, there);
	if (why) {
		snprintf(
			text, sizeof(text),
			"both sides are of one host, but weft_shm does not reach the other: %s; mount one folder in both (WEFT_RUN_DIR)",
			why);
		print_advice(text, json, &count);
	}
}

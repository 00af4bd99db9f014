/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ports of a context: one per interface for TCP, and one for each
 * verbs device that NCCL uses.  The latter are opened on demand: a rank sees
 * all devices of its host, and uses the one or two nearest to its GPU.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "config.h"
#include "host/netif.h"
#include "nccl_net/net/context.h"
#include "nccl_net/net/hcas.h"
#include "nccl_net/net/netifs.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "settings/settings.h"
#include "util/clock.h"
#include "util/log.h"

/* How long closing waits for the last messages to leave. */
#define CLOSE_MS 1000

struct unreachable {
	struct weft_list link; /* port->unreachable */
	uint8_t key[WEFT_KEY_LEN];
};

static const struct weft_dev_ops *const wires[] = {
#ifdef HAVE_VERBS_H
	[WEFT_WIRE_IB] = &weft_ib_ops,
#endif
	[WEFT_WIRE_TCP] = &weft_tcp_ops,
};

static int open_port(struct weft_net *net, enum weft_net_wire wire,
		     const char *netdev, int family, struct weft_net_port **out)
{
	struct weft_net_port *port = calloc(1, sizeof(*port));
	struct weft_iface_cb cb = net->ops->events;
	const struct weft_iface_params params = {
		.netdev = netdev,
		.family = family,
		.cb = &cb,
	};
	int ret;

	if (!port)
		return weft_fail(-ENOMEM, "cannot open '%s'", netdev);
	cb.arg = port;
	port->net = net;
	port->wire = wire;
	port->ops = wires[wire];
	snprintf(port->netdev, sizeof(port->netdev), "%s", netdev);
	weft_list_init(&port->peers);
	weft_list_init(&port->closing);
	weft_list_init(&port->unreachable);
	ret = port->ops->iface_open(&params, &port->iface);
	if (ret < 0) {
		free(port);
		return ret;
	}
	port->ops->iface_query(port->iface, &port->attr);
	weft_list_add_tail(&net->ports, &port->link);
	*out = port;
	return 0;
}

static int open_tcp(struct weft_net *net, const struct weft_netif *netif)
{
	struct weft_net_port *port;
	int ret;

	ret = open_port(net, WEFT_WIRE_TCP, netif->name,
			netif->addr.sa.sa_family, &port);
	if (!ret)
		port->speed = netif->speed;
	return ret;
}

static struct weft_net_port *open_ib(struct weft_net *net, unsigned int i)
{
	const struct weft_verbs_port *list;
	struct weft_net_port *port;

	weft_net_hcas(&list);
	if (!weft_net_hca_usable(i))
		return NULL;
	if (open_port(net, WEFT_WIRE_IB, list[i].name, weft_settings()->family,
		      &port) < 0) {
		/* logged by the device */
		weft_net_hca_give_up(i);
		return NULL;
	}
	port->hca = i;
	return port;
}

struct weft_net_port *weft_net_hca_port(struct weft_net *net, int dev)
{
	const struct weft_verbs_port *list;
	struct weft_net_port *port, *tmp;

	if (dev < 0 || (unsigned int)dev >= weft_net_hcas(&list))
		return NULL;
	weft_list_for_each (port, tmp, &net->ports, link)
		if (port->wire == WEFT_WIRE_IB &&
		    port->hca == (unsigned int)dev)
			return port;
	return open_ib(net, (unsigned int)dev);
}

bool weft_net_is_unreachable(const struct weft_net_port *port,
			     const struct weft_address *addr)
{
	struct unreachable *s, *tmp;

	weft_list_for_each (s, tmp, &port->unreachable, link)
		if (!memcmp(s->key, addr->key, WEFT_KEY_LEN))
			return true;
	return false;
}

void weft_net_mark_unreachable(struct weft_net_port *port,
			       const struct weft_address *addr)
{
	struct unreachable *s;

	if (weft_net_is_unreachable(port, addr))
		return;
	s = malloc(sizeof(*s));
	if (!s)
		return; /* then it will be tried again */
	memcpy(s->key, addr->key, WEFT_KEY_LEN);
	weft_list_add_tail(&port->unreachable, &s->link);
}

static bool is_port_flushing(struct weft_net_port *port)
{
	struct weft_net_peer *peer, *tmp;

	weft_net_peer_reap(port, false);
	weft_list_for_each (peer, tmp, &port->closing, link)
		if (peer->flushing)
			return true;
	return false;
}

static void close_port(struct weft_net_port *port)
{
	struct weft_net *net = port->net;
	struct unreachable *s, *tmp;

	port->ops->iface_close(port->iface);
	weft_list_del(&port->link);
	weft_list_for_each (s, tmp, &port->unreachable, link)
		free(s);
	weft_list_init(&port->unreachable);
	if (!net->closed) /* a closed context keeps it, since its peers refer to
			     it */
		free(port);
}

void weft_net_ports_close(struct weft_net *net)
{
	const uint64_t deadline = weft_now_ms() + CLOSE_MS;
	struct weft_net_port *port, *tmp;

	weft_list_for_each (port, tmp, &net->ports, link) {
		while (is_port_flushing(port) && weft_now_ms() < deadline)
			if (!port->ops->progress(port->iface))
				poll(NULL, 0, 1);
		weft_net_peer_reap(port, true);
		close_port(port);
	}
}

int weft_net_ports_get(struct weft_net *net)
{
	struct weft_netif *list;
	int n, i, ret = -ENODEV;

	if (net->closed)
		return -ECANCELED;
	if (net->users++)
		return 0;
	n = weft_net_netifs(&list);
	if (n < 0) {
		net->users--;
		return n;
	}
	for (i = 0; i < n; i++)
		ret = open_tcp(net, &list[i]);
	free(list);
	/* One interface that fails is no reason to fail. */
	if (!weft_list_empty(&net->ports))
		return 0;
	net->users--;
	return ret;
}

void weft_net_ports_put(struct weft_net *net)
{
	if (!--net->users && !net->closed)
		weft_net_ports_close(net);
}

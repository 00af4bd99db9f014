/* SPDX-License-Identifier: BSD-3-Clause */
/* The ports of a context: a device opened on one interface or adapter. */
#ifndef WEFT_NCCL_NET_NET_PORTS_H
#define WEFT_NCCL_NET_NET_PORTS_H

#include <stdbool.h>
#include <stdint.h>
#include "devices/device.h"
#include "host/verbs.h"
#include "nccl_net/net/net.h"
#include "nccl_net/net/wire.h"
#include "util/list.h"

struct weft_net_port {
	struct weft_list link; /* in net->ports */
	struct weft_net *net;
	const struct weft_dev_ops *ops;
	struct weft_iface *iface;
	struct weft_iface_attr attr;
	char netdev[WEFT_VERBS_NAME + 8]; /* or a port's, "mlx5_0:1" */
	enum weft_net_wire wire;
	unsigned int hca;	      /* ib: index in weft_net_hcas() */
	uint64_t speed;		      /* bytes/s, 0 unknown */
	struct weft_list peers;	      /* alive */
	struct weft_list closing;     /* no comm left, or dead */
	struct weft_list unreachable; /* addresses left to TCP */
};

/* Opens the ports for the first user; the last one closes them. */
int weft_net_ports_get(struct weft_net *net);
void weft_net_ports_put(struct weft_net *net);
void weft_net_ports_close(struct weft_net *net);
/*
 * The port of NCCL's device @dev, opened at its first use; NULL: there is none,
 * or it cannot be opened.
 */
struct weft_net_port *weft_net_hca_port(struct weft_net *net, int dev);
/* @port does not reach this address: do not try again. */
void weft_net_mark_unreachable(struct weft_net_port *port,
			       const struct weft_address *addr);
bool weft_net_is_unreachable(const struct weft_net_port *port,
			     const struct weft_address *addr);

#endif

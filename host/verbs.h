/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs devices of this host (InfiniBand and RoCE), their ports and GIDs,
 * and the network interfaces that belong to them.  From sysfs alone
 * (Documentation/ABI/stable/sysfs-class-infiniband of Linux), so that neither
 * libibverbs nor a device is opened before one is used.
 */
#ifndef WEFT_HOST_VERBS_H
#define WEFT_HOST_VERBS_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/pci.h"

#define WEFT_VERBS_NAME 64

struct weft_verbs_port {
	char dev[WEFT_VERBS_NAME];	/* "mlx5_0" */
	char name[WEFT_VERBS_NAME + 8]; /* "mlx5_0:1", as in UCX */
	unsigned int port;		/* from 1 */
	bool roce;		  /* link layer is Ethernet, not InfiniBand */
	uint64_t speed;		  /* bytes/s; 0: unknown */
	uint64_t guid;		  /* of the node, host order */
	char netdev[IF_NAMESIZE]; /* its interface; "": none found */
	struct weft_pci pci;
};

/*
 * List the active ports that the settings allow, sorted by name.  free()
 * *@list.  Returns the count (0: there is no verbs device), or -ENOMEM.
 */
int weft_verbs_list(struct weft_verbs_port **list);
/*
 * The same, but if the settings are "auto" and the process has a GPU
 * (weft_gpu_of_process()), only the port nearest to that.  For UCX; NCCL itself
 * chooses a port for each GPU.
 */
int weft_verbs_list_near(struct weft_verbs_port **list);
/* Is there any active port, allowed or not? */
bool weft_verbs_present(void);
/* By name, "mlx5_0:1", or "mlx5_0" for its first active port.  -ENODEV. */
int weft_verbs_get(const char *name, struct weft_verbs_port *out);
/* The port whose interface is @netdev; -ENODEV. */
int weft_verbs_of_netdev(const char *netdev, struct weft_verbs_port *out);

/*
 * Can this process open verbs device @dev?  In a container sysfs shows every
 * device of the host, but only the assigned ones have device nodes.  True also
 * if sysfs does not tell the node.
 */
bool weft_verbs_openable(const char *dev);
/*
 * The interface over which QPs are exchanged: the port's own if allowed, so
 * that peers reachable there are reachable by the port; else the first allowed.
 * -ENODEV: there is none, and the port is of no use.
 */
int weft_verbs_control_netdev(const struct weft_verbs_port *port, int family,
			      char name[IF_NAMESIZE]);
/*
 * Was weft built with libibverbs, and does it load?  Look for a port first: a
 * host without one never loads it.
 */
bool weft_verbs_loads(void);

/*
 * The index of the GID to use.  InfiniBand: always the first, as in NCCL
 * (ncclIbGetGidIndex() in net_ib/connect.cc of 2.30): all have the subnet's
 * prefix, and paths are by LID.  RoCE: version 2 before version 1, then IPv4,
 * then IPv6, link-local last.  @family AF_INET or AF_INET6 prefers that kind.
 * -ENODEV: the port has none.
 */
int weft_verbs_gid(const struct weft_verbs_port *port, int family,
		   unsigned int *index, uint8_t gid[16]);

/*
 * The entry of the port's partition key table to use: that of the key in the
 * settings, full membership preferred, else the index in the settings.  With a
 * key on RoCE it is 0.  -ENODEV: the port is not in that partition; logged.
 */
int weft_verbs_pkey(const struct weft_verbs_port *port, unsigned int *index);

/*
 * The traffic class of the settings; for "auto" as in UCX
 * (uct_ib_device_query_roce_tclass() of 1.22): on RoCE v2 the device's global
 * one, else 106; 0 elsewhere.
 */
unsigned int weft_verbs_traffic_class(const struct weft_verbs_port *port,
				      unsigned int gid_index);

/*
 * The fabric of a port (weft_address.fabric), to detect peers that cannot be
 * reached without trying: InfiniBand and a digest of the subnet prefix, the
 * first half of the GID (InfiniBand Architecture Specification, volume 1,
 * section 4.1.1), or RoCE and the family of the GID's address, which Linux
 * requires to be equal on both sides (rdma_resolve_ip() in
 * drivers/infiniband/core/addr.c).  weft does not look up routers' LIDs, so
 * subnets cannot reach each other.
 */
uint8_t weft_verbs_fabric(const struct weft_verbs_port *port,
			  const uint8_t gid[16]);
/*
 * Can ports of these fabrics reach each other?  If not, *@why, unless NULL, is
 * a constant text that calls @theirs "it".  0: unknown, an address made by
 * UCX.
 */
bool weft_verbs_reachable(uint8_t ours, uint8_t theirs, const char **why);

/*
 * The index of the port nearest to @to.  @turn (a GPU's ordinal) chooses among
 * equally near ones, so that neighbouring GPUs share them.  -ENODEV: the list
 * is empty.
 */
int weft_verbs_nearest(const struct weft_verbs_port *list, size_t n,
		       const struct weft_pci *to, unsigned int turn,
		       enum weft_distance *distance);

/* The form of a list of verbs devices. */
enum weft_verbs_form {
	WEFT_VERBS_LIST, /* "mlx5_0,mlx5_1:1", "^mlx5_2", "all" */
	WEFT_VERBS_NCCL, /* prefixes; "=mlx5_1:1": exact; "^" negates */
};
bool weft_verbs_match(const char *list, enum weft_verbs_form form,
		      const char *dev, unsigned int port);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs devices of this host (InfiniBand and RoCE), their ports and GIDs,
 * and which network interfaces they stand beside.  From sysfs alone
 * (Documentation/ABI/stable/sysfs-class-infiniband of Linux), so that neither
 * libibverbs nor a device is opened before one is used.
 */
#ifndef WEFT_BOOTSTRAP_VERBS_H
#define WEFT_BOOTSTRAP_VERBS_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/pci.h"

#define WEFT_VERBS_NAME 64

struct weft_verbs_port {
	char dev[WEFT_VERBS_NAME];  /* "mlx5_0" */
	char name[WEFT_VERBS_NAME + 8]; /* "mlx5_0:1", as UCX writes it */
	unsigned int port;	    /* from 1 */
	bool roce;		    /* Ethernet below, else InfiniBand */
	uint64_t speed;		    /* bytes/s; 0 where unknown */
	uint64_t guid;		    /* of the node, host order */
	char netdev[IF_NAMESIZE];   /* its interface; "": none to be seen */
	struct weft_pci pci;
};

/*
 * The active ports that the settings allow, by name.  *@list is malloc'ed,
 * free() it; the count (0 where there is no verbs device), or -ENOMEM.
 */
int weft_verbs_list(struct weft_verbs_port **list);
/*
 * The same, but where the settings say "auto" the port nearest to the process's
 * GPU alone; all, where it has none (weft_gpu_own()).  For who does not choose
 * by itself, as NCCL does for each GPU.
 */
int weft_verbs_list_near(struct weft_verbs_port **list);
/* Is there any active port, allowed or not? */
bool weft_verbs_present(void);
/* "mlx5_0:1", or "mlx5_0" for its first active port.  -ENODEV: none such. */
int weft_verbs_get(const char *name, struct weft_verbs_port *out);
/* The port whose interface is @netdev; -ENODEV. */
int weft_verbs_of_netdev(const char *netdev, struct weft_verbs_port *out);

/*
 * May this process open the verbs device @dev?  A container sees every device
 * of its host in sysfs, but has the device nodes of those alone that it was
 * given.  True also where sysfs does not say which node that is.
 */
bool weft_verbs_openable(const char *dev);

/*
 * The index of the GID to use.  InfiniBand: the first, whatever the settings
 * name, as in NCCL (net_ib/connect.cc of 2.30, ncclIbGetGidIndex()): all have
 * the subnet's prefix, and a path is by LID.  RoCE: version 2 before version 1,
 * then IPv4, then IPv6, link-local last.  @family AF_INET or AF_INET6 prefers
 * its own kind; the settings may prefer another, and version 1, and before all
 * others the GIDs of some addresses.  -ENODEV: the port has none.
 */
int weft_verbs_gid(const struct weft_verbs_port *port, int family,
		   unsigned int *index, uint8_t gid[16]);

/*
 * The entry of the port's partition key table to use: of the key that the
 * settings name, as a full member before a limited one, else the one that they
 * name.  0 on RoCE for any key.  -ENODEV: it is in no such partition; logged.
 */
int weft_verbs_pkey(const struct weft_verbs_port *port, unsigned int *index);

/*
 * The settings' traffic class; for "auto" as UCX has it
 * (uct_ib_device_query_roce_tclass() of 1.22): on RoCE v2 what the device is
 * told to use for all, else 106; 0 elsewhere.
 */
unsigned int weft_verbs_traffic_class(const struct weft_verbs_port *port,
				      unsigned int gid_index);

/*
 * What a port's address tells of its fabric (weft_address.fabric), so that two
 * that cannot meet are told apart without trying: InfiniBand with a digest of
 * the subnet prefix, the GID's first half (InfiniBand Architecture
 * Specification, volume 1, section 4.1.1), or RoCE with the family of its GID's
 * address, which Linux wants alike on both sides (drivers/infiniband/core/
 * addr.c, rdma_resolve_ip()).  Between subnets nothing is routed: a router's
 * LID is not looked up.
 */
uint8_t weft_verbs_fabric(const struct weft_verbs_port *port,
			  const uint8_t gid[16]);
/*
 * False: certainly not, and *@why (unless NULL) says why, a constant text that
 * speaks of @theirs as "it".  0 tells nothing: an address that UCX made.
 */
bool weft_verbs_meet(uint8_t ours, uint8_t theirs, const char **why);

/*
 * The nearest of @list to @to; of several that are equally near, the one that
 * @turn picks (a GPU's ordinal, so that neighbours share what there is).
 * -ENODEV where the list is empty.
 */
int weft_verbs_nearest(const struct weft_verbs_port *list, size_t n,
		       const struct weft_pci *to, unsigned int turn,
		       enum weft_distance *distance);

/* How a list of verbs devices is meant. */
enum weft_verbs_form {
	WEFT_VERBS_LIST, /* "mlx5_0,mlx5_1:1", "^mlx5_2", "all" */
	WEFT_VERBS_NCCL, /* prefixes; "=mlx5_1:1" whole names; "^" negates */
};
bool weft_verbs_match(const char *list, enum weft_verbs_form form,
		      const char *dev, unsigned int port);

#endif

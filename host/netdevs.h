/* SPDX-License-Identifier: BSD-3-Clause */
/* The interfaces that the settings name, and those of verbs devices. */
#ifndef WEFT_HOST_NETDEVS_H
#define WEFT_HOST_NETDEVS_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Does the interface list in force allow @name?  "a,b": only these, "^a,b": all
 * but these, empty, "all" or "auto": all.  "mlx5_0:1" stands for the netdev of
 * that verbs device.  NCCL_SOCKET_IFNAME keeps NCCL's form.  Hints
 * (UCXPY_IFNAME, NCCL_SOCKET_IFNAME) never exclude "lo".
 */
bool weft_netdevs_allowed(const char *name);

/*
 * The @i-th interface that the list names: no verbs devices, no excluded names.
 * False: there are no more.
 */
bool weft_netdevs_entry(unsigned int i, char *name, size_t len);

/*
 * Warn once per process if the interface that the user names for addresses
 * (UCXPY_IFNAME, else --interface on the command line, as with Dask) does not
 * belong to the verbs devices that they list: UCXPY_IFNAME=ib0, which is of
 * mlx5_0, with UCX_NET_DEVICES=mlx5_1:1.
 */
void weft_netdevs_check(void);

/*
 * Is the list Dask's "auto": all interfaces, and the verbs port nearest to the
 * process's GPU (weft_verbs_list_near())?
 */
bool weft_netdevs_auto(void);

/* Does the list name @name, instead of allowing all? */
bool weft_netdevs_named(const char *name);

/*
 * Do the settings allow port @port of verbs device @dev, whose interface is
 * @netdev?  WEFT_IB_DEVICES must (in NCCL's form if it is from NCCL_IB_HCA),
 * and so must the interface list if it names devices, by @dev or @netdev.
 * NCCL_SOCKET_IFNAME and UCXPY_IFNAME do not restrict verbs devices.
 */
bool weft_netdevs_verbs_allowed(const char *dev, unsigned int port,
				const char *netdev);

/* The form of an interface list. */
enum weft_netdev_form {
	WEFT_NETDEV_LIST, /* "eth0,mlx5_0:1", "^docker0", "all" */
	WEFT_NETDEV_HINT, /* the same; does not restrict loopback */
	WEFT_NETDEV_NCCL, /* prefixes; "=name": exact; "^" negates */
};
enum weft_netdev_form weft_netdev_form(const char *origin);
bool weft_netdev_match(const char *list, enum weft_netdev_form form,
		       const char *name);
/* Is @name a netdev of the verbs device or port @dev? */
bool weft_netdev_of_verbs(const char *dev, const char *name);
/*
 * The netdev of verbs device @dev ("mlx5_0:1") according to sysfs: for @which 0
 * that of its first GID (RoCE; the bond if there is one), for 1 its parent
 * (software devices, which have no PCI device).  False: none.
 */
#define WEFT_NETDEV_SOURCES 2
bool weft_netdev_read_verbs(const char *dev, unsigned int which,
			    char name[IF_NAMESIZE]);
/* For tests: the file with this process's command line. */
extern const char *weft_cmdline;

#endif

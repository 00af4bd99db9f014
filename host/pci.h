/* SPDX-License-Identifier: BSD-3-Clause */
/* How far two PCI devices of this host are from each other, by sysfs alone. */
#ifndef WEFT_HOST_PCI_H
#define WEFT_HOST_PCI_H

#include <limits.h>

/* For tests: the root of sysfs, "/sys". */
extern const char *weft_sysfs_root;

/*
 * What lies between two PCI devices, as in NCCL's documentation of
 * NCCL_P2P_LEVEL.  Nearer is smaller.
 */
enum weft_distance {
	WEFT_NEAR_SAME, /* functions of one device */
	WEFT_NEAR_PIX,	/* at most one PCI bridge each way: one switch */
	WEFT_NEAR_PXB,	/* several bridges, but no host bridge */
	WEFT_NEAR_PHB,	/* the host bridge */
	WEFT_NEAR_NODE, /* host bridges of one NUMA node */
	WEFT_NEAR_SYS,	/* NUMA nodes, or unknown */
};

struct weft_pci {
	char path[PATH_MAX]; /* "/sys/devices/pci0000:16/..."; "": unknown */
	int numa;	     /* -1: unknown */
};

/* @link: a path below sysfs, as "bus/pci/devices/0000:17:00.0". */
void weft_pci_find(const char *link, struct weft_pci *pci);
/* The same by PCI address, "0000:17:00.0", in upper or lower case. */
void weft_pci_find_busid(const char *busid, struct weft_pci *pci);
enum weft_distance weft_pci_distance(const struct weft_pci *a,
				     const struct weft_pci *b);
/* "PIX" and so on. */
const char *weft_distance_name(enum weft_distance d);

#endif

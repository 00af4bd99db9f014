/* SPDX-License-Identifier: BSD-3-Clause */
/* How far two PCI devices of this host are from each other, by sysfs alone. */
#ifndef WEFT_BOOTSTRAP_PCI_H
#define WEFT_BOOTSTRAP_PCI_H

#include <limits.h>

/* Tests: another root than "/sys". */
extern const char *weft_sysfs_root;

/*
 * In NCCL's words (its documentation of NCCL_P2P_LEVEL): what lies between.
 * Nearer is smaller.
 */
enum weft_distance {
	WEFT_NEAR_SAME,	/* functions of one device */
	WEFT_NEAR_PIX,	/* at most one PCI bridge each way: one switch */
	WEFT_NEAR_PXB,	/* several bridges, but no host bridge */
	WEFT_NEAR_PHB,	/* the host bridge */
	WEFT_NEAR_NODE, /* host bridges of one NUMA node */
	WEFT_NEAR_SYS,	/* NUMA nodes; also: not known */
};

struct weft_pci {
	char path[PATH_MAX]; /* "/sys/devices/pci0000:16/...", "": masked */
	int numa;	     /* -1: not known */
};

/* @link: a path below the root, as "bus/pci/devices/0000:17:00.0". */
void weft_pci_find(const char *link, struct weft_pci *pci);
/* The same of a GPU's or NIC's address: "0000:17:00.0", in any case. */
void weft_pci_find_busid(const char *busid, struct weft_pci *pci);
enum weft_distance weft_pci_distance(const struct weft_pci *a,
				     const struct weft_pci *b);
/* "PIX" and so on. */
const char *weft_distance_name(enum weft_distance d);

#endif

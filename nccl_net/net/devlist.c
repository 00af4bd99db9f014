/* SPDX-License-Identifier: BSD-3-Clause */
/* The devices that NCCL sees. */
#include <errno.h>
#include <stdlib.h>
#include "host/netif.h"
#include "host/verbs.h"
#include "nccl_net/abi/net.h"
#include "nccl_net/net/devlist.h"
#include "nccl_net/net/hcas.h"
#include "nccl_net/net/net.h"
#include "nccl_net/net/netifs.h"
#include "util/log.h"

/*
 * Each port of a verbs device, else one device wherever there is a network at
 * all.  So ranks with different interfaces list the same; and if ranks differ
 * in adapters, any device of one connects to any of the other.
 */
int weft_net_devices(void)
{
	const struct weft_verbs_port *hca;
	struct weft_netif *list;
	int n = weft_net_netifs(&list);

	if (n < 0)
		return n;
	free(list);
	n = (int)weft_net_hcas(&hca);
	return n ? n : 1;
}

int weft_net_check_device(int dev)
{
	const struct weft_verbs_port *hca;
	const int n = (int)weft_net_hcas(&hca);

	if (dev >= 0 && (dev < n || !dev))
		return 0;
	return weft_fail(-EINVAL, "no device %d, the number of devices is %d",
			 dev, n ? n : 1);
}

/* NCCL's interface lacks the const. */
static char *cast_const(const char *text)
{
	return (char *)(uintptr_t)text;
}

static void hca_properties(const struct weft_verbs_port *hca, int dev,
			   struct weft_net_props *props)
{
	props->name = cast_const(hca->name);
	if (hca->pci.path[0])
		props->pci_path = cast_const(hca->pci.path);
	/* without one, NCCL would take several for ports of one adapter */
	props->guid = hca->guid ? hca->guid : (uint64_t)dev + 1;
	props->port = (int)hca->port;
	if (hca->speed)
		props->speed = (int)(hca->speed / 125000);
	/* memory is registered for the wire of one comm */
	props->reg_is_global = 0;
}

int weft_net_properties(int dev, struct weft_net_props *props)
{
	static char name[] = "weft";
	const struct weft_verbs_port *hca;
	struct weft_netif *list;
	uint64_t speed = 0;
	int n, i;

	n = weft_net_check_device(dev);
	if (!n)
		n = weft_net_netifs(&list);
	if (n < 0)
		return n;
	for (i = 0; i < n; i++)
		speed += list[i].speed;
	free(list);
	*props = (struct weft_net_props){
		.name = name,
		.guid = 0,
		.ptr_support = NCCL_PTR_HOST,
		/*
		 * Over TCP an entry in a table of the process, which all comms
		 * can use; over InfiniBand it belongs to one comm's wire.
		 */
		.reg_is_global = 1,
		/* NCCL's own guess if the driver does not know it. */
		.speed = speed ? (int)(speed / 125000) : 10000,
		.max_comms = 65536,
		.max_recvs = 1,
		.max_bytes = NCCL_MAX_SIZE,
	};
	if (weft_net_hcas(&hca))
		hca_properties(&hca[dev], dev, props);
	return 0;
}

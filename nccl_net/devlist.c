/* SPDX-License-Identifier: BSD-3-Clause */
/* The devices that NCCL sees. */
#include <errno.h>
#include <stdlib.h>
#include "bootstrap/netif.h"
#include "nccl_net/abi/net.h"
#include "nccl_net/net.h"
#include "nccl_net/netdevs.h"
#include "nccl_net/offer.h"
#include "util/log.h"

/*
 * Bytes/s that NCCL is told where NVLink is offered; it takes what the PCIe path
 * between GPU and network would carry if that is less.  No pci_path: the GPU's
 * own as the network's crashes NCCL 2.28.9.
 */
#define NVLINK_SPEED	400000000000ull

/*
 * One device wherever there is a network at all: ranks with different
 * interfaces, or none in common but a route, list the same.
 */
int weft_net_devices(void)
{
	struct weft_netif *list;
	int n = weft_net_netdevs(&list);

	if (n < 0)
		return n;
	free(list);
	return 1;
}

int weft_net_properties(int dev, struct weft_net_props *props)
{
	static char name[] = "weft";
	struct weft_netif *list;
	uint64_t speed = 0;
	bool nvlink;
	int n, i;

	if (dev != 0)
		return weft_fail(EINVAL, "no device %d, there is one", dev);
	n = weft_net_netdevs(&list);
	if (n < 0)
		return n;
	for (i = 0; i < n; i++)
		speed += list[i].speed;
	free(list);
	nvlink = weft_nccl_nvlink_offered();
	if (nvlink)
		speed = NVLINK_SPEED;
	*props = (struct weft_net_props){
		.name = name,
		.guid = 0,
		.ptr_support = NCCL_PTR_HOST | (nvlink ? NCCL_PTR_CUDA : 0),
		/* a buffer is exposed to one peer alone */
		.reg_is_global = !nvlink,
		/* NCCL's own guess where a driver does not say. */
		.speed = speed ? (int)(speed / 125000) : 10000,
		.max_comms = 65536,
		.max_recvs = 1,
		.max_bytes = NCCL_MAX_SIZE,
	};
	return 0;
}

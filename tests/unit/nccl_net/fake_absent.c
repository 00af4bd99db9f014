/* SPDX-License-Identifier: BSD-3-Clause */
/* What devices do beyond the contract, of those that are not there. */
#include "devices/nvlink.h"

int weft_nvl_use_current(struct weft_iface *i)
{
	(void)i;
	return 0;
}

void weft_nvl_serve_kernels(struct weft_iface *iface)
{
	(void)iface;
}

int weft_nvl_unmap_apart(struct weft_iface *iface)
{
	(void)iface;
	return 0;
}

int weft_nvl_prepare(struct weft_ep *ep, const void *gpu_memory)
{
	(void)ep;
	(void)gpu_memory;
	return 0;
}

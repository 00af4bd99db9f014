/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory. */
#ifndef WEFT_NCCL_NET_NET_MEMORY_H
#define WEFT_NCCL_NET_NET_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "devices/device.h"
#include "nccl_net/net/net.h"

struct weft_net_mr {
	struct weft_net *net;
	const struct weft_dev_ops *ops;
	struct weft_mem *mem; /* NULL: revoked */
	uint8_t rkey[WEFT_RKEY_MAX];
	uintptr_t addr;
	size_t size;
	unsigned int posted; /* receives that name it */
	bool deregistered;
};

static inline bool weft_net_mr_covers(const struct weft_net_mr *mr,
				      const void *data, size_t size)
{
	return mr->mem && (uintptr_t)data >= mr->addr && size <= mr->size &&
	       (uintptr_t)data - mr->addr <= mr->size - size;
}

void weft_net_mr_revoke(struct weft_net_mr *mr);
void weft_net_mr_put(struct weft_net_mr *mr);

#endif

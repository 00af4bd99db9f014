/* SPDX-License-Identifier: BSD-3-Clause */
/* Any thread. */
#ifndef WEFT_DEVICES_IB_MEM_H
#define WEFT_DEVICES_IB_MEM_H

#include "devices/ib/ib.h"

int ib_mem_register(void *addr, size_t len, enum weft_mem_kind kind,
		    struct weft_mem **mem);
void ib_mem_pack(struct weft_mem *mem, void *rkey);
void ib_mem_release(struct weft_mem *mem);
/* The lkey of @dev; registers if @dev was opened later; -errno, logged. */
int ib_mem_lkey(struct weft_mem *mem, struct ib_device *dev, uint32_t *lkey);

#endif

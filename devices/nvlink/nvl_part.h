/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory as the driver made it. */
#ifndef WEFT_DEVICES_NVL_PART_H
#define WEFT_DEVICES_NVL_PART_H

#include "devices/nvlink/nvl.h"

/*
 * Those of cuMemCreate() around [@addr, @addr + @len), NVL_PARTS at most; 0:
 * not all can be mapped by descriptors.
 */
unsigned int nvl_parts_find(const struct weft_cuda *cu, uint64_t addr,
			    size_t len, struct nvl_part *parts);
/*
 * Does the driver have an IPC handle for the one around @addr?  In any process.
 */
bool nvl_part_handle(const struct weft_cuda *cu, uint64_t addr,
		     struct nvl_part *part, struct weft_cu_ipc *handle);
bool nvl_part_is_same(const struct nvl_part *a, const struct nvl_part *b);
/* A descriptor for others.  CUresult; INVALID_VALUE: another one is there. */
int nvl_part_export(const struct weft_cuda *cu, const struct nvl_part *part,
		    int *fd);

#endif

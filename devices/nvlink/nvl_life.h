/* SPDX-License-Identifier: BSD-3-Clause */
/* What peers may access. */
#ifndef WEFT_DEVICES_NVL_LIFE_H
#define WEFT_DEVICES_NVL_LIFE_H

#include "devices/nvlink/nvl.h"

/*
 * The table exists from the first to the last of these calls; -errno, logged.
 */
int nvl_lives_begin(void);
void nvl_lives_end(void);
/* In a child: it has none. */
void nvl_lives_forget(void);
int nvl_lives_fd(void);
/* False, and a serial of 0: there are too many.  Memory leaves some free. */
bool nvl_life_begin(struct nvl_life *life);
bool nvl_life_begin_memory(struct nvl_life *life);
void nvl_life_end(struct nvl_life *life);
/*
 * Tells peers to check which of the allocations that they have mapped has
 * ended.
 */
void nvl_lives_allocation_ended(void);
/* The number of this process in keys; 0: there is none. */
uint32_t nvl_process(void);

#endif

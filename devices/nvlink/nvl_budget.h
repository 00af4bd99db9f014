/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory for rings, all processes of a run folder together. */
#ifndef WEFT_DEVICES_NVL_BUDGET_H
#define WEFT_DEVICES_NVL_BUDGET_H

#include "devices/folder.h"

#define NVL_BUDGET_UNIT (4ul << 20) /* a ring is a multiple of this */

/*
 * Takes up to @want units (NVL_BUDGET_UNIT) of GPU @name out of @limit, fewer
 * when little is left; *@first is the first one.  0: nothing is left.
 */
unsigned int nvl_budget_take(const struct weft_folder *run, const char *name,
			     unsigned int want, unsigned int limit,
			     unsigned int *first);
void nvl_budget_give(const char *name, unsigned int first, unsigned int units);
/* In a forked child, which has no rings: the locks stay with the parent. */
void nvl_budget_forget(void);

#endif

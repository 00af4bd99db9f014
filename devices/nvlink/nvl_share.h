/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_DEVICES_NVL_SHARE_H
#define WEFT_DEVICES_NVL_SHARE_H

#include <stdbool.h>

/*
 * May memory of this GPU be exported, and other GPUs' be mapped for it?  Found
 * when first called, which may take as long as NVML takes to begin; any thread.
 */
bool nvl_share_allowed(int ordinal);

#endif

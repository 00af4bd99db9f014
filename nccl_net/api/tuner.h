/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one implementation behind all versions of NCCL's tuner interface
 * (tuner_plugin.c): lowers the number of channels of small collectives, and
 * never raises it.  It chooses no algorithm and no protocol.
 *
 * NCCL finds it in the network plugin: by the name in NCCL_NET_PLUGIN from 2.21
 * on, by the loaded library from 2.26 on.  NCCL 2.19 and 2.20 look only where
 * NCCL_TUNER_PLUGIN says, for a version 1; 2.18 has none.
 */
#ifndef WEFT_NCCL_NET_API_TUNER_H
#define WEFT_NCCL_NET_API_TUNER_H

#include <stddef.h>

/* ncclFunc_t, the same in 2.21 to 2.30 */
enum nccl_func {
	NCCL_BROADCAST = 0,
	NCCL_REDUCE = 1,
	NCCL_ALL_GATHER = 2,
	NCCL_REDUCE_SCATTER = 3,
	NCCL_ALL_REDUCE = 4,
};

/* 0: as many as NCCL wants. */
int weft_tuner_channels(size_t ranks, int func, size_t bytes);

#endif

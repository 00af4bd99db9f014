/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/api/tuner.h"
#include "nccl_net/api/tuner_table.h"
#include "util/util.h"

static int find_channels(size_t share)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(tuner_table); i++)
		if (share <= tuner_table[i].share)
			return tuner_table[i].channels;
	return 0;
}

int weft_tuner_channels(size_t ranks, int func, size_t bytes)
{
	switch (func) {
	case NCCL_ALL_GATHER:
	case NCCL_REDUCE_SCATTER:
	case NCCL_ALL_REDUCE:
		return find_channels(bytes / ranks);
	default:
		return 0;
	}
}

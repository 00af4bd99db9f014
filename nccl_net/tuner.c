/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/tuner.h"
#include "nccl_net/tuner_table.h"
#include "util/util.h"

int weft_tuner_channels(size_t ranks, int func, size_t bytes)
{
	size_t i;

	switch (func) {
	case NCCL_ALL_GATHER:
	case NCCL_REDUCE_SCATTER:
	case NCCL_ALL_REDUCE:
		break;
	default:
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(tuner_table); i++)
		if (bytes / ranks <= tuner_table[i].share)
			return tuner_table[i].channels;
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/tuner.h"
#include "nccl_net/tuner_table.h"
#include "util/util.h"

static int look_up(const struct tuner_row *table, size_t rows, size_t share)
{
	size_t i;

	for (i = 0; i < rows; i++)
		if (share <= table[i].share)
			return table[i].channels;
	return 0;
}

/* What one step of the ring moves, in all channels together. */
static size_t share_of(size_t ranks, int func, size_t bytes)
{
	return func == NCCL_BROADCAST || func == NCCL_REDUCE ? bytes :
							       bytes / ranks;
}

bool weft_tuner_simple(size_t ranks, int func, size_t bytes)
{
	return share_of(ranks, func, bytes) > LL_SHARE;
}

bool weft_tuner_ring(size_t ranks)
{
	return ranks <= RING_RANKS;
}

int weft_tuner_channels(bool nvlink, size_t ranks, int func, size_t bytes)
{
	switch (func) {
	case NCCL_BROADCAST:
	case NCCL_REDUCE:
		if (!nvlink)
			return 0;
		break;
	case NCCL_ALL_GATHER:
	case NCCL_REDUCE_SCATTER:
	case NCCL_ALL_REDUCE:
		break;
	default:
		return 0;
	}
	if (nvlink)
		return look_up(nvlink_table, ARRAY_SIZE(nvlink_table),
			       share_of(ranks, func, bytes));
	return look_up(tcp_table, ARRAY_SIZE(tcp_table), bytes / ranks);
}

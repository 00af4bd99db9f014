/* SPDX-License-Identifier: BSD-3-Clause */
/* Translates NCCL's types, for all versions of the tuner interface. */
#include <errno.h>
#include <stdlib.h>
#include "nccl_net/abi/tuner.h"
#include "nccl_net/common/channels.h"
#include "nccl_net/net/net.h"
#include "nccl_net/common/result.h"
#include "nccl_net/api/versions.h"
#include "util/util.h"
#include "nccl_net/api/tuner.h"
#include "util/log.h"

struct tuner { /* one per communicator */
	size_t ranks;
};

/*
 * *@ctx stays NULL if there is nothing to do: NCCL asks this tuner also on one
 * node, with the user's own channels or with another network.
 */
static enum nccl_result init_v2(size_t ranks, size_t nodes, nccl_logger log,
				void **ctx)
{
	struct tuner *t;

	(void)log; /* the network plugin has set the logger already */
	*ctx = NULL;
	if (nodes < 2 || !ranks || !weft_net_active() ||
	    !weft_nccl_channels_raised())
		return NCCL_SUCCESS;
	t = calloc(1, sizeof(*t));
	if (!t)
		return weft_nccl_result(
			weft_fail(-ENOMEM, "cannot create a tuner"));
	t->ranks = ranks;
	*ctx = t;
	return NCCL_SUCCESS;
}

static enum nccl_result init_v5(void **ctx, uint64_t comm_id, size_t ranks,
				size_t nodes, nccl_logger log,
				struct nccl_nvl_domains_v5 *domains,
				struct nccl_tuner_constants_v5 *constants)
{
	return init_v2(ranks, nodes, log, ctx);
}

static enum nccl_result take_channels(const struct tuner *t, int func,
				      size_t bytes, int *channels)
{
	const int n = t ? weft_tuner_channels(t->ranks, func, bytes) : 0;

	if (n)
		*channels = n;
	return NCCL_SUCCESS;
}

static enum nccl_result get_coll_v4(void *ctx, int func, size_t bytes,
				    int pipelined, float **costs, int algos,
				    int protos, int registered, int *channels)
{
	return take_channels(ctx, func, bytes, channels);
}

static enum nccl_result get_coll_v3(void *ctx, int func, size_t bytes,
				    int pipelined, float **costs, int algos,
				    int protos, int *channels)
{
	return take_channels(ctx, func, bytes, channels);
}

static enum nccl_result get_coll_v2(void *ctx, int func, size_t bytes,
				    int collnet, int nvls, int pipelined,
				    int *algo, int *proto, int *channels)
{
	return take_channels(ctx, func, bytes, channels);
}

static enum nccl_result destroy_tuner(void *ctx)
{
	free(ctx);
	return NCCL_SUCCESS;
}

extern struct nccl_tuner_v2 ncclTunerPlugin_v2;
WEFT_EXPORT struct nccl_tuner_v2 ncclTunerPlugin_v2 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v2,
	.get_coll = get_coll_v2,
	.destroy = destroy_tuner,
};

extern struct nccl_tuner_v3 ncclTunerPlugin_v3;
WEFT_EXPORT struct nccl_tuner_v3 ncclTunerPlugin_v3 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v2,
	.get_coll = get_coll_v3,
	.destroy = destroy_tuner,
};

extern struct nccl_tuner_v4 ncclTunerPlugin_v4;
WEFT_EXPORT struct nccl_tuner_v4 ncclTunerPlugin_v4 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v2,
	.get_coll = get_coll_v4,
	.destroy = destroy_tuner,
};

extern struct nccl_tuner_v5 ncclTunerPlugin_v5;
WEFT_EXPORT struct nccl_tuner_v5 ncclTunerPlugin_v5 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v5,
	.get_coll = get_coll_v4,
	.finalize = destroy_tuner,
};

extern struct nccl_tuner_v6 ncclTunerPlugin_v6;
WEFT_EXPORT struct nccl_tuner_v6 ncclTunerPlugin_v6 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v5,
	.get_coll = get_coll_v4,
	.finalize = destroy_tuner,
};

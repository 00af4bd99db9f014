/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's tuner interface, all versions: lowers the number of channels of small
 * collectives, and never raises it.  It chooses no algorithm and no protocol.
 *
 * NCCL finds it in the network plugin: by the name in NCCL_NET_PLUGIN from 2.21
 * on, by the loaded library from 2.26 on.  NCCL 2.19 and 2.20 look only where
 * NCCL_TUNER_PLUGIN says, for a version 1; 2.18 has none.
 */
#include "nccl_net/abi/tuner.h"
#include "nccl_net/api/versions.h"
#include "nccl_net/common/channels.h"
#include "nccl_net/net/net.h"
#include "util/util.h"

/*
 * How many channels pay, by a rank's share of a collective (its bytes over the
 * ranks: what one step of a ring moves).  Above the last line all that are
 * built are used.
 *
 * Measured on 2026-11-21 with NCCL 2.28.9 (torch 2.11), two H200 in one host of
 * 32 cores, P2P and shared memory off, TCP over loopback, by bench/gpu/run.sh
 * in two rounds.  us of all_reduce, all_gather over two ranks with 1, 2, 4
 * channels built:
 *	 64 KiB	   71	81    110	   43	49   61
 *	128 KiB	   80	95    124	   52	57   68
 *	512 KiB	  161  207    206	   91  119  108
 *	  1 MiB	  267  190    350	  127  107  171
 *	  2 MiB	  450  309    342	  388  238  185
 *	  4 MiB	  947  571    484	  648  307  308
 *	  8 MiB	 1871  870    618	 1279  669  430
 *	 64 MiB	15626 5693   3662	 9305 3143 2452
 * Broadcast gains from every channel at any size: 256 KiB 65, 75, 43; 1 MiB
 * 183, 140, 104; 8 MiB 1161, 793, 345.
 *
 * Two channels below a share of 64 KiB may be more than NCCL's own number,
 * which setting one undoes.
 */
static const struct {
	size_t share; /* up to so many bytes */
	int channels;
} table[] = {
	{ 256u << 10, 1 },
	{ 1024u << 10, 2 },
};

/*
 * The context is the number of ranks.  NULL: there is nothing to do, since NCCL
 * asks this tuner also on one node, with the user's own channels or with
 * another network.
 */
static enum nccl_result init_v2(size_t ranks, size_t nodes, nccl_logger log,
				void **ctx)
{
	(void)log; /* the network plugin has set the logger already */
	*ctx = nodes > 1 && weft_net_active() && weft_nccl_channels_raised()
		       ? (void *)ranks
		       : NULL;
	return NCCL_SUCCESS;
}

static enum nccl_result init_v5(void **ctx, uint64_t comm_id, size_t ranks,
				size_t nodes, nccl_logger log,
				struct nccl_nvl_domains_v5 *domains,
				struct nccl_tuner_constants_v5 *constants)
{
	return init_v2(ranks, nodes, log, ctx);
}

static bool is_tuned(int func)
{
	return func == NCCL_ALL_GATHER || func == NCCL_REDUCE_SCATTER ||
	       func == NCCL_ALL_REDUCE;
}

/* Leaves *@channels to NCCL if all that are built pay. */
static enum nccl_result take_channels(const void *ctx, int func, size_t bytes,
				      int *channels)
{
	const size_t ranks = (size_t)ctx;
	size_t i;

	if (!ranks || !is_tuned(func))
		return NCCL_SUCCESS;
	for (i = 0; i < ARRAY_SIZE(table); i++)
		if (bytes / ranks <= table[i].share) {
			*channels = table[i].channels;
			break;
		}
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

static enum nccl_result end(void *ctx)
{
	return NCCL_SUCCESS;
}

#define TABLE(VERSION)                                                \
	extern struct nccl_tuner_##VERSION ncclTunerPlugin_##VERSION; \
	WEFT_EXPORT struct nccl_tuner_##VERSION ncclTunerPlugin_##VERSION

TABLE(v2) = { .name = WEFT_NCCL_NAME,
	      .init = init_v2,
	      .get_coll = get_coll_v2,
	      .destroy = end };
TABLE(v3) = { .name = WEFT_NCCL_NAME,
	      .init = init_v2,
	      .get_coll = get_coll_v3,
	      .destroy = end };
TABLE(v4) = { .name = WEFT_NCCL_NAME,
	      .init = init_v2,
	      .get_coll = get_coll_v4,
	      .destroy = end };
TABLE(v5) = { .name = WEFT_NCCL_NAME,
	      .init = init_v5,
	      .get_coll = get_coll_v4,
	      .finalize = end };
TABLE(v6) = { .name = WEFT_NCCL_NAME,
	      .init = init_v5,
	      .get_coll = get_coll_v4,
	      .finalize = end };

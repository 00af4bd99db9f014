/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's tuner plugin interface, versions 2 to 6, declared independently;
 * abi/net.h says how it is checked.  Sources of the layout: the nccl_tuner.h of
 * NCCL 2.21 (v2), 2.22 (v3), 2.24 (v4), 2.28 (v5) and 2.30 (v6).
 */
#ifndef WEFT_NCCL_NET_ABI_TUNER_H
#define WEFT_NCCL_NET_ABI_TUNER_H

#include "nccl_net/abi/net.h"

/* ncclFunc_t, the same in 2.21 to 2.30 */
enum nccl_func {
	NCCL_BROADCAST = 0,
	NCCL_REDUCE = 1,
	NCCL_ALL_GATHER = 2,
	NCCL_REDUCE_SCATTER = 3,
	NCCL_ALL_REDUCE = 4,
};

/*
 * weft changes none of these: costs of algorithms, constants, NVLink domains.
 */
struct nccl_nvl_domains_v5;
struct nccl_tuner_constants_v5;

struct nccl_tuner_v2 {
	const char *name;
	enum nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger log,
				 void **ctx);
	/*
	 * leave *algo, *proto and *channels as they are to accept NCCL's choice
	 */
	enum nccl_result (*get_coll)(void *ctx, int func, size_t bytes,
				     int collnet, int nvls, int pipelined,
				     int *algo, int *proto, int *channels);
	enum nccl_result (*destroy)(void *ctx);
};

struct nccl_tuner_v3 {
	const char *name;
	enum nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger log,
				 void **ctx);
	enum nccl_result (*get_coll)(void *ctx, int func, size_t bytes,
				     int pipelined, float **costs, int algos,
				     int protos, int *channels);
	enum nccl_result (*destroy)(void *ctx);
};

struct nccl_tuner_v4 {
	const char *name;
	enum nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger log,
				 void **ctx);
	enum nccl_result (*get_coll)(void *ctx, int func, size_t bytes,
				     int pipelined, float **costs, int algos,
				     int protos, int registered, int *channels);
	enum nccl_result (*destroy)(void *ctx);
};

#define NCCL_TUNER_V5                                                         \
	const char *name;                                                     \
	enum nccl_result (*init)(void **ctx, uint64_t comm_id, size_t ranks,  \
				 size_t nodes, nccl_logger log,               \
				 struct nccl_nvl_domains_v5 *domains,         \
				 struct nccl_tuner_constants_v5 *constants);  \
	enum nccl_result (*get_coll)(void *ctx, int func, size_t bytes,       \
				     int pipelined, float **costs, int algos, \
				     int protos, int registered,              \
				     int *channels);                          \
	enum nccl_result (*finalize)(void *ctx);

struct nccl_tuner_v5 {
	NCCL_TUNER_V5
};

struct nccl_tuner_v6 {
	NCCL_TUNER_V5
	/* NULL: NCCL's own chunk sizes */
	enum nccl_result (*get_chunk)(void *ctx, int func, size_t bytes,
				      int algo, int proto, int channels,
				      size_t *size);
};

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's environment plugin interface, versions 1 (NCCL 2.28.7) and 2 (2.30),
 * declared independently; abi/net.h says how it is checked.
 */
#ifndef WEFT_NCCL_NET_ABI_ENV_H
#define WEFT_NCCL_NET_ABI_ENV_H

#include "nccl_net/abi/net.h"

struct nccl_env_v1 {
	const char *name;
	enum nccl_result (*init)(uint8_t major, uint8_t minor, uint8_t patch,
				 const char *suffix);
	enum nccl_result (*finalize)(void);
	/* What is returned must stay valid until finalize(). */
	const char *(*get_env)(const char *name);
};

struct nccl_env_v2 {
	const char *name;
	enum nccl_result (*init)(uint8_t major, uint8_t minor, uint8_t patch,
				 const char *suffix, nccl_logger log);
	enum nccl_result (*finalize)(void);
	const char *(*get_env)(const char *name);
};

#endif

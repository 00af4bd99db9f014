/* SPDX-License-Identifier: BSD-3-Clause */
/* libnccl-env-weft.so: NCCL asks it for every NCCL_* setting. */
#include "nccl_net/abi/env.h"
#include "nccl_net/env.h"
#include "nccl_net/log.h"
#include "nccl_net/table.h"

static enum nccl_result init_v2(uint8_t major, uint8_t minor, uint8_t patch,
				const char *suffix, nccl_logger log)
{
	(void)major;
	(void)minor;
	(void)patch;
	(void)suffix;
	weft_nccl_log_to(log, NCCL_SUBSYS_INIT | NCCL_SUBSYS_ENV);
	weft_nccl_plugin_lost();
	return NCCL_SUCCESS;
}

static enum nccl_result init_v1(uint8_t major, uint8_t minor, uint8_t patch,
				const char *suffix)
{
	return init_v2(major, minor, patch, suffix, NULL);
}

static enum nccl_result finalize(void)
{
	return NCCL_SUCCESS;
}

extern struct nccl_env_v1 ncclEnvPlugin_v1;
WEFT_EXPORT struct nccl_env_v1 ncclEnvPlugin_v1 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v1,
	.finalize = finalize,
	.get_env = weft_nccl_env_get,
};

extern struct nccl_env_v2 ncclEnvPlugin_v2;
WEFT_EXPORT struct nccl_env_v2 ncclEnvPlugin_v2 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v2,
	.finalize = finalize,
	.get_env = weft_nccl_env_get,
};

/* SPDX-License-Identifier: BSD-3-Clause */
/* The only place where -errno becomes one of NCCL's results. */
#ifndef WEFT_NCCL_NET_COMMON_RESULT_H
#define WEFT_NCCL_NET_COMMON_RESULT_H

#include "nccl_net/abi/net.h"

enum nccl_result weft_nccl_result(int err);

#endif

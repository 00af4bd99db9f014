/* SPDX-License-Identifier: BSD-3-Clause */
/* weft's messages through NCCL's logger. */
#ifndef WEFT_NCCL_NET_COMMON_LOG_H
#define WEFT_NCCL_NET_COMMON_LOG_H

#include "nccl_net/abi/net.h"

/* May be called again with each communicator; NULL: stderr. */
void weft_nccl_log_to(nccl_logger log, unsigned long subsys);
/*
 * Before NCCL has passed its logger: log to stderr, at the level of NCCL_DEBUG.
 */
void weft_nccl_log_alone(void);

#endif

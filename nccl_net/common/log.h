/* SPDX-License-Identifier: BSD-3-Clause */
/* weft's messages through NCCL's logger. */
#ifndef WEFT_NCCL_NET_COMMON_LOG_H
#define WEFT_NCCL_NET_COMMON_LOG_H

#include "nccl_net/abi/net.h"

/* May be called again with each communicator; NULL: stderr. */
void weft_nccl_log_to(nccl_logger log, unsigned long subsys);
/*
 * Where NCCL has not handed over its logger (yet): to stderr, and with
 * NCCL_DEBUG as much as NCCL itself would say.
 */
void weft_nccl_log_alone(void);

#endif

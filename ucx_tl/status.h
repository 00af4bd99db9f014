/* SPDX-License-Identifier: BSD-3-Clause */
/* The only place where weft's -errno and UCX's status meet. */
#ifndef WEFT_UCX_TL_STATUS_H
#define WEFT_UCX_TL_STATUS_H

#include "ucx_tl/abi.h"

/* 0 and counts are OK; an errno without UCX status is IO_ERROR. */
enum weft_ucs_status weft_ucs_status(int err);

#endif

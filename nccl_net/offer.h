/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is GPU memory taken from NCCL, to go by NVLink where it can?
 *
 * NCCL lets every rank choose for itself, but wants the same number of channels
 * and the same buffers everywhere.  So this looks at what all hosts of a job
 * have in common, not at which peers there will be: WEFT_NCCL_NVLINK, a CUDA
 * driver that the program has loaded, and two GPUs or more in the host (its PCI
 * devices count, which no container hides; with one alone there is nobody to
 * talk to, and NCCL's own host buffers are the better way to TCP).
 */
#ifndef WEFT_NCCL_NET_OFFER_H
#define WEFT_NCCL_NET_OFFER_H

#include <stdbool.h>

/* Found once per process; never loads the driver that the program has not. */
bool weft_nccl_nvlink_offered(void);

#endif

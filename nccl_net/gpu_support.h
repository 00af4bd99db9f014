/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does weft accept GPU memory from NCCL, to use NVLink where it can?
 *
 * Every rank chooses for itself, before it knows its peers: WEFT_NCCL_NVLINK, a
 * CUDA driver that the program has loaded, and two GPUs or more in the host
 * (its PCI devices count, which no container hides; with one there is no peer,
 * and NCCL's own host buffers are the better way to TCP).  Nothing that ranks
 * must have in common, as channels and buffers, may depend on it.
 */
#ifndef WEFT_NCCL_NET_GPU_SUPPORT_H
#define WEFT_NCCL_NET_GPU_SUPPORT_H

#include <stdbool.h>

/*
 * Found once per process; never loads the driver that the program has not, but
 * initialises it: for the network plugin, which NCCL asks when it has done so.
 */
bool weft_nccl_nvlink_offered(void);
/* The contract's works() of the device, which not all who ask here have. */
void weft_nccl_nvlink_if(int (*works)(const char **why));
/*
 * NCCL speaks a version of the interface older than 10 (2.26): nothing is
 * offered unless the user says so.  On GPUs 2.27, 2.28 and 2.32 were right and
 * 2.18 hung, for a reason that was not found.
 */
void weft_nccl_nvlink_untested(void);
/*
 * NCCL has been introduced (introduce.h) to all that have a GPU of this host,
 * and uses NVLink itself: nothing is offered, unless the user says so.
 */
void weft_nccl_set_introduced(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What a launcher (mpirun, srun, jsrun, ...) says of the task it has started.
 */
#ifndef WEFT_TOOLS_LAUNCHER_H
#define WEFT_TOOLS_LAUNCHER_H

#include "host/gpu.h"

struct launcher_task {
	const char *variable; /* that has the local rank; NULL: none has */
	unsigned int local_rank;
};

/* The texts of errors. */
#define LAUNCHER_WHY_LEN 256

/*
 * This process's rank among the tasks of its host, from the environment.  The
 * innermost launcher decides: a batch system's variables are in the environment
 * of whatever a job starts, also of what another launcher starts in it.
 * -EINVAL: the rank is not a number; @why says it.
 */
int launcher_find(struct launcher_task *task, char why[LAUNCHER_WHY_LEN]);

#define LAUNCHER_GPU_LEN 64 /* "MIG-GPU-<UUID>/1/0" */

struct launcher_gpus {
	/* for CUDA_VISIBLE_DEVICES; "": what the task sees is right already */
	char list[WEFT_GPUS_MAX * LAUNCHER_GPU_LEN];
	char reason[80];
};

/*
 * Choose the task's @count GPUs: the first @count for local rank 0, the next
 * for
 * 1.  Of those that CUDA_VISIBLE_DEVICES names, if it names more than @count;
 * if it is unset, of those that the driver shows, by UUID in the order of their
 * PCI addresses.  -ENODEV: there are none, too few, or divided ones; @why says
 * it.
 */
int launcher_choose_gpus(const struct launcher_task *task, unsigned int count,
			 struct launcher_gpus *choice,
			 char why[LAUNCHER_WHY_LEN]);

/* "0-41": the processors that this process may use; "": unknown. */
#define LAUNCHER_CPUS_LEN 256
void launcher_read_cpus(char cpus[LAUNCHER_CPUS_LEN]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory for subcommands that measure: allocated as NCCL does (the driver's
 * virtual memory management, exportable as a descriptor), filled and looked at
 * by way of the host.  What returns int returns the driver's result, 0 for
 * success; weft_cuda_error_name() names it.
 */
#ifndef WEFT_TOOLS_GPU_H
#define WEFT_TOOLS_GPU_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "util/cuda.h"

struct tool_gpu {
	const struct weft_cuda *cu; /* NULL: not open */
	int dev;
	void *ctx, *stream;
	pthread_mutex_t lock; /* one copy at a time */
};

/*
 * GPU @ordinal with its primary context, which is not left current.  Only after
 * weft_cuda_init().
 */
int tool_gpu_open(struct tool_gpu *g, int ordinal);
void tool_gpu_close(struct tool_gpu *g);
/* *@len is raised to what the driver gives; all of it is to be freed. */
int tool_gpu_alloc(struct tool_gpu *g, size_t *len, uint64_t *at);
void tool_gpu_free(struct tool_gpu *g, uint64_t at, size_t len);
/* Between the host and this GPU, either way; done when it returns. */
int tool_gpu_copy(struct tool_gpu *g, uint64_t dst, uint64_t src, size_t len);

#endif

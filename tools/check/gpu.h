/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory for subcommands that measure, allocated as by cudaMalloc(); the
 * host accesses it by copies.  Functions that return int return the driver's
 * result, 0 for success; see weft_cuda_error_name().
 */
#ifndef WEFT_TOOLS_GPU_H
#define WEFT_TOOLS_GPU_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "util/drivers/cuda.h"

struct tool_gpu {
	const struct weft_cuda *cu; /* NULL: not open */
	int dev;
	void *ctx, *stream;
	pthread_mutex_t lock; /* one copy at a time */
};

/*
 * Open GPU @ordinal with its primary context, which does not stay current.
 * Call weft_cuda_init() first.
 */
int tool_gpu_open(struct tool_gpu *g, int ordinal);
void tool_gpu_close(struct tool_gpu *g);
int tool_gpu_alloc(struct tool_gpu *g, size_t len, uint64_t *at);
void tool_gpu_free(struct tool_gpu *g, uint64_t at);
/* Copy between host and GPU, either way; synchronous. */
int tool_gpu_copy(struct tool_gpu *g, uint64_t dst, uint64_t src, size_t len);

#endif

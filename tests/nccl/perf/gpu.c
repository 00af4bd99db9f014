/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers in GPU memory.  Each has a double in host memory, where cases write
 * and look; what a send takes is copied to the GPU before, what a receive got
 * from there after.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "tools/gpu.h"
#include "tests/nccl/perf/perf.h"

static struct tool_gpu gpu; /* not open: host memory */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list bufs = { &bufs, &bufs };

bool perf_gpu_open(struct perf *p, char *why, size_t len)
{
	int n = 0, r;

	if (weft_cuda_init() || weft_cuda()->device_count(&n) || !n) {
		snprintf(why, len, "there is no GPU for --memory gpu");
		return false;
	}
	r = tool_gpu_open(&gpu, p->rank % n);
	/* as a program has it, whose thread NCCL works in */
	if (!r)
		r = gpu.cu->ctx_push(gpu.ctx);
	if (r)
		snprintf(why, len, "no CUDA context on GPU %d (%s)",
			 p->rank % n, weft_cuda_error_name(r));
	return !r;
}

static void must(struct perf *p, int r, const char *what)
{
	if (r)
		perf_fail(p, "%s: %s", what, weft_cuda_error_name(r));
}

static void copy(struct perf *p, uint64_t dst, uint64_t src, size_t n)
{
	must(p, tool_gpu_copy(&gpu, dst, src, n), "a copy");
}

void perf_gpu_new(struct perf *p, struct perf_buf *b)
{
	b->gpu = 0;
	weft_list_init(&b->link);
	if (!gpu.cu)
		return;
	b->gpu_size = b->whole;
	must(p, tool_gpu_alloc(&gpu, &b->gpu_size, &b->gpu), "GPU memory");
	pthread_mutex_lock(&lock);
	weft_list_add_tail(&bufs, &b->link);
	pthread_mutex_unlock(&lock);
	perf_buf_push(p, b);
}

void perf_gpu_free(struct perf_buf *b)
{
	if (!b->gpu)
		return;
	pthread_mutex_lock(&lock);
	weft_list_del(&b->link);
	pthread_mutex_unlock(&lock);
	tool_gpu_free(&gpu, b->gpu, b->gpu_size);
	b->gpu = 0;
}

void perf_buf_push(struct perf *p, struct perf_buf *b)
{
	if (b->gpu)
		copy(p, b->gpu, (uintptr_t)b->base, b->whole);
}

void perf_buf_pull(struct perf *p, struct perf_buf *b)
{
	if (b->gpu)
		copy(p, (uintptr_t)b->base, b->gpu, b->whole);
}

static struct perf_buf *around(const void *data)
{
	struct perf_buf *b, *tmp, *found = NULL;

	if (!gpu.cu)
		return NULL;
	pthread_mutex_lock(&lock);
	weft_list_for_each (b, tmp, &bufs, link)
		if ((const char *)data >= b->base &&
		    (const char *)data < b->base + b->whole)
			found = b;
	pthread_mutex_unlock(&lock);
	return found;
}

void *perf_gpu_place(void *data)
{
	struct perf_buf *b = around(data);

	return b ? (void *)(uintptr_t)(b->gpu + ((char *)data - b->base))
		 : data;
}

void perf_gpu_sending(struct perf *p, const struct perf_op *op)
{
	struct perf_buf *b = around(op->data);

	if (b && !b->by_hand)
		copy(p, b->gpu + ((char *)op->data - b->base),
		     (uintptr_t)op->data, op->size);
}

void perf_gpu_fetch(struct perf *p, struct perf_buf *b, const char *from,
		    const char *to)
{
	size_t at = from - b->base;

	if (b->gpu && !b->by_hand && to > from)
		copy(p, (uintptr_t)from, b->gpu + at, to - from);
}

void perf_gpu_received(struct perf *p, const struct perf_op *op)
{
	struct perf_buf *b = around(op->data);

	if (b)
		perf_gpu_fetch(p, b, op->data, (char *)op->data + op->size);
}

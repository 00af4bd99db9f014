/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers in GPU memory: allocated as NCCL does (the driver's virtual memory
 * management, exportable as a descriptor).  Each has a double in host memory,
 * where cases write and look; what a send takes is copied to the GPU before,
 * what a receive got from there after.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/perf.h"
#include "util/cuda.h"
#include "util/util.h"

#define GRANULE	(2ul << 20)		/* of GPU memory; a multiple of all */

static struct {
	const struct weft_cuda *cu;	/* NULL: host memory */
	void *ctx, *stream;
	int dev;
} gpu;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list bufs = { &bufs, &bufs };

bool perf_gpu_open(struct perf *p, char *why, size_t len)
{
	int n = 0, r;

	if (weft_cuda_init() || weft_cuda()->device_count(&n) || !n) {
		snprintf(why, len, "there is no GPU for --memory gpu");
		return false;
	}
	gpu.cu = weft_cuda();
	r = gpu.cu->device_get(&gpu.dev, p->rank % n);
	if (!r)
		r = gpu.cu->primary_retain(&gpu.ctx, gpu.dev);
	if (!r)
		r = gpu.cu->ctx_push(gpu.ctx);
	if (!r)
		r = gpu.cu->stream_create(&gpu.stream,
					  WEFT_CU_STREAM_NON_BLOCKING);
	if (r)
		snprintf(why, len, "no CUDA context on GPU %d (%s)", gpu.dev,
			 weft_cuda_error_name(r));
	return !r;
}

static void must(struct perf *p, int r, const char *call)
{
	if (r)
		perf_fail(p, "%s: %s", call, weft_cuda_error_name(r));
}

static void copy(struct perf *p, uint64_t dst, uint64_t src, size_t n)
{
	struct weft_cuda_scope s;
	int r;

	if (!n)
		return;
	if (weft_cuda_enter(&s, gpu.ctx))
		perf_fail(p, "the CUDA context is gone");
	pthread_mutex_lock(&lock);
	r = gpu.cu->memcpy_async(dst, src, n, gpu.stream);
	while (!r && (r = gpu.cu->stream_query(gpu.stream)) ==
	       WEFT_CU_NOT_READY) {
		sched_yield();
		r = 0;
	}
	pthread_mutex_unlock(&lock);
	weft_cuda_leave(&s);
	must(p, r, "a copy");
}

void perf_gpu_new(struct perf *p, struct perf_buf *b)
{
	struct weft_cu_alloc_prop prop = {
		.type = WEFT_CU_ALLOCATION_PINNED,
		.handle_types = WEFT_CU_HANDLE_POSIX_FD,
		.location = { WEFT_CU_LOCATION_DEVICE, gpu.dev },
	};
	struct weft_cu_access access = { prop.location,
					 WEFT_CU_ACCESS_READWRITE };
	unsigned long long handle;
	struct weft_cuda_scope s;

	b->gpu = 0;
	weft_list_init(&b->link);
	if (!gpu.cu)
		return;
	if (weft_cuda_enter(&s, gpu.ctx))
		perf_fail(p, "the CUDA context is gone");
	b->gpu_size = (b->whole + GRANULE - 1) & ~(GRANULE - 1);
	must(p, gpu.cu->mem_create(&handle, b->gpu_size, &prop, 0),
	     "cuMemCreate");
	must(p, gpu.cu->address_reserve(&b->gpu, b->gpu_size, 0, 0, 0),
	     "cuMemAddressReserve");
	must(p, gpu.cu->mem_map(b->gpu, b->gpu_size, 0, handle, 0),
	     "cuMemMap");
	must(p, gpu.cu->mem_access(b->gpu, b->gpu_size, &access, 1),
	     "cuMemSetAccess");
	gpu.cu->mem_release(handle);
	weft_cuda_leave(&s);
	pthread_mutex_lock(&lock);
	weft_list_add_tail(&bufs, &b->link);
	pthread_mutex_unlock(&lock);
	perf_buf_push(p, b);
}

void perf_gpu_free(struct perf_buf *b)
{
	struct weft_cuda_scope s;

	if (!b->gpu)
		return;
	pthread_mutex_lock(&lock);
	weft_list_del(&b->link);
	pthread_mutex_unlock(&lock);
	if (weft_cuda_enter(&s, gpu.ctx))
		return;
	gpu.cu->mem_unmap(b->gpu, b->gpu_size);
	gpu.cu->address_free(b->gpu, b->gpu_size);
	weft_cuda_leave(&s);
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
	weft_list_for_each(b, tmp, &bufs, link)
		if ((const char *)data >= b->base &&
		    (const char *)data < b->base + b->whole)
			found = b;
	pthread_mutex_unlock(&lock);
	return found;
}

void *perf_gpu_place(void *data)
{
	struct perf_buf *b = around(data);

	return b ? (void *)(uintptr_t)(b->gpu + ((char *)data - b->base)) :
		   data;
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

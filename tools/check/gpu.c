/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/check/gpu.h"

#include <sched.h>
#include <string.h>

int tool_gpu_open(struct tool_gpu *g, int ordinal)
{
	struct weft_cuda_scope s;
	int r;

	memset(g, 0, sizeof(*g));
	if (weft_cuda_enter(&s, NULL))
		return WEFT_CU_NOT_INITIALIZED;
	r = s.cu->device_get(&g->dev, ordinal);
	if (!r)
		r = s.cu->primary_retain(&g->ctx, g->dev);
	weft_cuda_leave(&s);
	if (r)
		return r;
	if (!weft_cuda_enter(&s, g->ctx)) {
		r = s.cu->stream_create(&g->stream,
					WEFT_CU_STREAM_NON_BLOCKING);
		weft_cuda_leave(&s);
	} else {
		r = WEFT_CU_INVALID_CONTEXT;
	}
	if (r) {
		weft_cuda()->primary_release(g->dev);
		return r;
	}
	pthread_mutex_init(&g->lock, NULL);
	g->cu = weft_cuda();
	return 0;
}

void tool_gpu_close(struct tool_gpu *g)
{
	struct weft_cuda_scope s;

	if (!g->cu)
		return;
	if (!weft_cuda_enter(&s, g->ctx)) {
		g->cu->stream_destroy(g->stream);
		weft_cuda_leave(&s);
	}
	g->cu->primary_release(g->dev);
	pthread_mutex_destroy(&g->lock);
	g->cu = NULL;
}

int tool_gpu_alloc(struct tool_gpu *g, size_t len, uint64_t *at)
{
	struct weft_cuda_scope s;
	int r;

	if (weft_cuda_enter(&s, g->ctx))
		return WEFT_CU_INVALID_CONTEXT;
	r = g->cu->mem_alloc(at, len);
	weft_cuda_leave(&s);
	return r;
}

void tool_gpu_free(struct tool_gpu *g, uint64_t at)
{
	struct weft_cuda_scope s;

	if (weft_cuda_enter(&s, g->ctx))
		return;
	g->cu->mem_free(at);
	weft_cuda_leave(&s);
}

int tool_gpu_copy(struct tool_gpu *g, uint64_t dst, uint64_t src, size_t len)
{
	struct weft_cuda_scope s;
	int r;

	if (!len)
		return 0;
	if (weft_cuda_enter(&s, g->ctx))
		return WEFT_CU_INVALID_CONTEXT;
	pthread_mutex_lock(&g->lock);
	r = g->cu->memcpy_async(dst, src, len, g->stream);
	while (!r &&
	       (r = g->cu->stream_query(g->stream)) == WEFT_CU_NOT_READY) {
		sched_yield();
		r = 0;
	}
	pthread_mutex_unlock(&g->lock);
	weft_cuda_leave(&s);
	return r;
}

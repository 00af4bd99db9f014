/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA contexts and our streams in them; nvl_copy.c has what goes into those.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "devices/nvlink/nvl.h"
#include "devices/nvlink/nvl_copy.h"
#include "devices/nvlink/nvl_direct.h"
#include "util/log.h"

/* ---- streams ------------------------------------------------------------ */

static int init_stream(struct nvl_gpu *gpu, unsigned int index,
		       const struct weft_cuda *cu)
{
	struct nvl_stream *st = &gpu->streams[index];
	int r;

	weft_list_init(&st->link);
	weft_list_init(&st->in_flight);
	weft_list_init(&st->failed);
	st->gpu = gpu;
	st->mark = &gpu->page[index];
	st->waiting =
		index == NVL_RX_STREAM ? &gpu->rx_waiting : &gpu->tx_waiting;
	pthread_mutex_init(&st->lock, NULL);
	/* non-blocking: the program's default stream has no part in this */
	r = cu->stream_create(&st->cu, WEFT_CU_STREAM_NON_BLOCKING);
	if (r) {
		st->cu = NULL;
		return weft_fail(-weft_cuda_errno(r),
				 "cannot make a CUDA stream (%s)",
				 weft_cuda_error_name(r));
	}
	/* tried with the value that is there: some drivers refuse it */
	if (gpu->page_pinned && cu->write_value32 &&
	    !cu->host_device_ptr(&st->flag_dev, &st->mark->flag, 0) &&
	    !cu->write_value32(st->cu, st->flag_dev, 0, 0))
		st->flag = &st->mark->flag;
	nvl_stream_enlist(st);
	return 0;
}

static void free_stream(struct nvl_stream *st, const struct weft_cuda *cu)
{
	if (!st->cu)
		return;
	nvl_stream_retire(st);
	if (cu)
		cu->stream_destroy(st->cu);
	pthread_mutex_destroy(&st->lock);
}

/* ---- contexts ----------------------------------------------------------- */

static int open_gpu(struct nvl_gpu *gpu)
{
	struct weft_cuda_scope s;
	unsigned int i;
	int err;

	err = weft_cuda_enter(&s, gpu->ctx);
	if (err)
		return weft_fail(err, "cannot use the CUDA context of GPU %d",
				 gpu->ordinal);
	gpu->page_pinned = !s.cu->host_register(
		gpu->page, NVL_MARK_PAGE,
		WEFT_CU_HOSTREGISTER_PORTABLE | WEFT_CU_HOSTREGISTER_DEVICEMAP);
	for (i = 0; i < NVL_STREAMS && !err; i++)
		err = init_stream(gpu, i, s.cu);
	weft_cuda_leave(&s);
	return err;
}

/* One of those that peers may see, as long as there are some. */
static bool take_page(struct nvl_gpu *gpu)
{
	struct nvl_iface *iface = gpu->iface;
	void *p;

	if (!iface->marks)
		nvl_marks_make(iface);
	gpu->page_shared = iface->marks && iface->nmarks < NVL_MARK_PAGES;
	if (gpu->page_shared) {
		p = (char *)iface->marks + iface->nmarks++ * NVL_MARK_PAGE;
	} else {
		p = mmap(NULL, NVL_MARK_PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			return false;
	}
	gpu->page = p;
	return true;
}

struct nvl_gpu *nvl_gpu_get(struct nvl_iface *iface,
			    const struct weft_cuda_ptr *where, int *err)
{
	struct nvl_gpu *gpu, *tmp;

	weft_list_for_each (gpu, tmp, &iface->gpus, link)
		if (gpu->ctx == where->ctx)
			return gpu;
	*err = -ENOMEM;
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		return NULL;
	weft_list_init(&gpu->link);
	weft_list_init(&gpu->tx_waiting);
	weft_list_init(&gpu->rx_waiting);
	gpu->iface = iface;
	gpu->ctx = where->ctx;
	gpu->ordinal = where->ordinal;
	if (!take_page(gpu)) {
		free(gpu);
		return NULL;
	}
	*err = open_gpu(gpu);
	if (*err) {
		/* the next one takes it: engines wrote zeros alone */
		iface->nmarks -= gpu->page_shared;
		nvl_gpu_free(gpu);
		return NULL;
	}
	weft_list_add_tail(&iface->gpus, &gpu->link);
	return gpu;
}

void nvl_gpu_free(struct nvl_gpu *gpu)
{
	struct weft_cuda_scope s;
	const bool in = !weft_cuda_enter(&s, gpu->ctx);
	unsigned int i;

	for (i = 0; i < NVL_STREAMS; i++)
		free_stream(&gpu->streams[i], in ? s.cu : NULL);
	if (in && gpu->page_pinned)
		s.cu->host_unregister(gpu->page);
	if (in)
		weft_cuda_leave(&s);
	if (!gpu->page_shared)
		munmap(gpu->page, NVL_MARK_PAGE);
	weft_list_del(&gpu->link);
	free(gpu);
}

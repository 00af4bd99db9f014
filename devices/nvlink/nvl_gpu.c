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

/* Here and now: once copies go, NCCL's kernels wait for them. */
static int make_events(struct nvl_stream *st, const struct weft_cuda *cu)
{
	unsigned int i;
	int r = 0;

	for (i = 0; i < NVL_MARKS && !r; i++) {
		r = cu->event_create(&st->events[i],
				     WEFT_CU_EVENT_DISABLE_TIMING);
		if (r)
			st->events[i] = NULL;
	}
	return r ? weft_fail(-weft_cuda_errno(r),
			     "cannot make CUDA events (%s)",
			     weft_cuda_error_name(r))
		 : 0;
}

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
	return gpu->how->by_event < SIZE_MAX ? make_events(st, cu) : 0;
}

/* False: the engine still has work of it. */
static bool free_stream(struct nvl_stream *st, const struct weft_cuda *cu)
{
	unsigned int i;
	bool drained;

	if (!st->cu)
		return true;
	drained = nvl_stream_retire(st);
	for (i = 0; cu && i < NVL_MARKS; i++)
		if (st->events[i])
			cu->event_destroy(st->events[i]);
	if (cu)
		cu->stream_destroy(st->cu);
	pthread_mutex_destroy(&st->lock);
	return drained;
}

/* ---- contexts ----------------------------------------------------------- */

/*
 * Two H200, copies between host memory and both in both directions at once, a
 * stream each: pieces of 512 KiB go at 29 GB/s with a stream write behind each
 * and at 35 with an event, of 1 MiB at 36 and 42, of 4 MiB at 43 by writes.  A
 * piece costs the engine 3 us, a stream write 4 more.  To query an event is a
 * call of the driver's, so what is small has the write.
 *
 * To hand over a copy takes the driver 4 us, in a batch as by itself, and the
 * reader sees nothing of a batch before its end: of a long one that is late.
 * Puts and gets of 64 KiB over a ring: 7.9 and 6.8 GB/s with up to 64 copies in
 * each, 10.2 and 7.7 with four; of 1 MiB 117 and 108, 156 and 125; of 64 MiB
 * the same (one H200 under MPS, medians of 15).  Fewer batches with the engine
 * make that better by some, but halve it where processes take turns on a GPU:
 * what is not with the engine in time waits for the next turn.
 *
 * Where kernels wait, what comes first is to end first: two copies beside each
 * other take twice as long, and a part of a batch is of no use.
 */
static const struct nvl_handing plain = {
	.tx_streams = NVL_TX_STREAMS,
	.batches = NVL_STREAM_DEPTH,
	.copies = 4,
	.by_event = SIZE_MAX,
};
static const struct nvl_handing kernels_wait = {
	.tx_streams = 1,
	.batches = NVL_MARKS - 1,
	.copies = NVL_BATCH,
	.batch = 1u << 20,
	.by_event = 256u << 10,
};

static int open_gpu(struct nvl_gpu *gpu)
{
	struct weft_cuda_scope s;
	unsigned int i;
	int err = 0;

	if (gpu->iface->kernels_wait)
		err = weft_cuda_own_get(gpu->ordinal, &gpu->ctx);
	if (err)
		return err;
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

	if (!iface->marks && !iface->kernels_wait)
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
		if (gpu->of == where->ctx)
			return gpu;
	*err = -ENOMEM;
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		return NULL;
	weft_list_init(&gpu->link);
	weft_list_init(&gpu->tx_waiting);
	weft_list_init(&gpu->rx_waiting);
	gpu->iface = iface;
	gpu->how = iface->kernels_wait ? &kernels_wait : &plain;
	gpu->of = gpu->ctx = where->ctx;
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
	bool in = !weft_cuda_enter(&s, gpu->ctx), drained = true;
	unsigned int i;

	for (i = 0; i < NVL_STREAMS; i++)
		drained &= free_stream(&gpu->streams[i], in ? s.cu : NULL);
	if (in && gpu->page_pinned)
		s.cu->host_unregister(gpu->page);
	if (in)
		weft_cuda_leave(&s);
	/* to destroy one that works would wait, maybe for ever: it stays */
	if (gpu->ctx != gpu->of && drained)
		weft_cuda_own_put(gpu->ordinal);
	if (!gpu->page_shared)
		munmap(gpu->page, NVL_MARK_PAGE);
	weft_list_del(&gpu->link);
	free(gpu);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA contexts and our streams in them: making, looking for the end of what
 * they carry, waiting for it.  See nvl_copy.c for what goes into them.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/nvlink/nvl.h"
#include "util/clock.h"
#include "util/log.h"

#define PAGE		4096u
#define LINE		64u

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list streams = { &streams, &streams };

/* ---- streams ------------------------------------------------------------ */

static int init_stream(struct nvl_stream *st, struct nvl_gpu *gpu,
		       struct weft_list *waiting, const struct weft_cuda *cu,
		       unsigned int index)
{
	int r;

	memset(st, 0, sizeof(*st));
	weft_list_init(&st->link);
	weft_list_init(&st->flying);
	weft_list_init(&st->failed);
	st->gpu = gpu;
	st->waiting = waiting;
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
	    !cu->host_device_ptr(&st->flag_dev, (char *)gpu->page +
				 index * LINE, 0) &&
	    !cu->write_value32(st->cu, st->flag_dev, 0, 0))
		st->flag = gpu->page + index * LINE / sizeof(uint32_t);
	pthread_mutex_lock(&streams_lock);
	weft_list_add_tail(&streams, &st->link);
	pthread_mutex_unlock(&streams_lock);
	return 0;
}

/* Asks the driver whether all of the stream has ended: batches to @issued. */
static void ask_driver(struct nvl_stream *st, const struct weft_cuda *cu,
		       uint32_t issued)
{
	int r = cu->stream_query(st->cu);

	if (r == WEFT_CU_NOT_READY)
		return;
	if (r) {
		if (!atomic_exchange(&st->broken, weft_cuda_errno(r)))
			weft_error("copies on GPU %d have failed (%s): the GPU "
				   "or its CUDA context is gone",
				   st->gpu->ordinal, weft_cuda_error_name(r));
	}
	atomic_store_explicit(&st->finished, issued, memory_order_release);
}

/* Moves `finished` on; st->lock held, any thread. */
static void update_finished(struct nvl_stream *st)
{
	uint32_t issued = atomic_load_explicit(&st->issued,
					       memory_order_acquire);
	uint32_t done = atomic_load(&st->finished);
	struct weft_cuda_scope s;
	int r;

	if (nvl_reached(done, issued))
		return;
	if (st->flag && !atomic_load(&st->broken)) {
		done = __atomic_load_n(st->flag, __ATOMIC_ACQUIRE);
		if (done != atomic_load(&st->finished)) {
			atomic_store_explicit(&st->finished, done,
					      memory_order_release);
			st->issued_ms = 0;
		}
		if (nvl_reached(done, issued))
			return;
		/* looked at by the clock, but not on every call */
		if (st->looks++ % 64)
			return;
	}
	if (!st->issued_ms)
		st->issued_ms = weft_now_ms();
	r = weft_cuda_enter(&s, st->gpu->ctx);
	if (r == -ENODEV) {		/* and all that was in it */
		atomic_store(&st->broken, -ENODEV);
		atomic_store(&st->finished, issued);
	}
	if (r)
		return;
	/* of a broken one the last mark was not made */
	if (!st->flag || atomic_load(&st->broken) ||
	    weft_now_ms() - st->issued_ms > NVL_SUSPECT_MS)
		ask_driver(st, s.cu, issued);
	weft_cuda_leave(&s);
}

uint32_t nvl_stream_finished(struct nvl_stream *st)
{
	pthread_mutex_lock(&st->lock);
	update_finished(st);
	pthread_mutex_unlock(&st->lock);
	return atomic_load_explicit(&st->finished, memory_order_acquire);
}

static bool drain_stream(struct nvl_stream *st)
{
	uint64_t end = weft_now_ms() + NVL_WATCHDOG_MS;
	uint32_t seq = atomic_load_explicit(&st->issued, memory_order_acquire);

	while (!nvl_reached(nvl_stream_finished(st), seq)) {
		if (weft_now_ms() > end) {
			weft_error("copies on GPU %d did not end within %u s",
				   st->gpu->ordinal, NVL_WATCHDOG_MS / 1000);
			return false;
		}
		sched_yield();
	}
	return true;
}

void nvl_copy_drain_all(void)
{
	struct nvl_stream *st, *tmp;

	pthread_mutex_lock(&streams_lock);
	weft_list_for_each(st, tmp, &streams, link)
		drain_stream(st);
	pthread_mutex_unlock(&streams_lock);
}

/* False: the engine still has work of it. */
static bool free_stream(struct nvl_stream *st, const struct weft_cuda *cu)
{
	uint64_t end = weft_now_ms() + NVL_LAST_BELL_MS;
	bool drained;

	if (!st->cu)
		return true;
	pthread_mutex_lock(&streams_lock);
	weft_list_del(&st->link);
	pthread_mutex_unlock(&streams_lock);
	drained = drain_stream(st);
	while (atomic_load(&st->bells) && weft_now_ms() < end)
		sched_yield();
	if (cu)
		cu->stream_destroy(st->cu);
	pthread_mutex_destroy(&st->lock);
	return drained;
}

/* ---- contexts ----------------------------------------------------------- */

static int open_gpu(struct nvl_gpu *gpu)
{
	struct weft_cuda_scope s;
	unsigned int i, n = 0;
	int err = 0;

	if (gpu->iface->for_kernels)
		err = weft_cuda_own_get(gpu->ordinal, &gpu->ctx);
	if (err)
		return err;
	err = weft_cuda_enter(&s, gpu->ctx);
	if (err)
		return weft_fail(err, "cannot use the CUDA context of GPU %d",
				 gpu->ordinal);
	gpu->page_pinned = !s.cu->host_register(gpu->page, PAGE,
						WEFT_CU_HOSTREGISTER_PORTABLE |
						WEFT_CU_HOSTREGISTER_DEVICEMAP);
	for (i = 0; i < NVL_TX_STREAMS && !err; i++)
		err = init_stream(&gpu->tx[i], gpu, &gpu->tx_waiting, s.cu,
				  n++);
	if (!err)
		err = init_stream(&gpu->rx, gpu, &gpu->rx_waiting, s.cu, n++);
	weft_cuda_leave(&s);
	return err;
}

struct nvl_gpu *nvl_gpu_get(struct nvl_iface *iface,
			    const struct weft_cuda_ptr *where, int *err)
{
	struct nvl_gpu *gpu, *tmp;

	weft_list_for_each(gpu, tmp, &iface->gpus, link)
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
	gpu->of = gpu->ctx = where->ctx;
	gpu->ordinal = where->ordinal;
	gpu->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (gpu->page == MAP_FAILED) {
		free(gpu);
		return NULL;
	}
	*err = open_gpu(gpu);
	if (*err) {
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

	for (i = 0; i < NVL_TX_STREAMS; i++)
		drained &= free_stream(&gpu->tx[i], in ? s.cu : NULL);
	drained &= free_stream(&gpu->rx, in ? s.cu : NULL);
	if (in && gpu->page_pinned)
		s.cu->host_unregister(gpu->page);
	if (in)
		weft_cuda_leave(&s);
	/* to destroy one that works would wait, maybe for ever: it stays */
	if (gpu->ctx != gpu->of && drained)
		weft_cuda_own_put(gpu->ordinal);
	munmap(gpu->page, PAGE);
	weft_list_del(&gpu->link);
	free(gpu);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies by the GPUs' engines.
 *
 * Copies are queued during a round of progress and handed over together, each
 * batch followed by a stream write of its number: the write is ordered behind
 * the copies and carries a system-wide barrier, so that whoever reads the
 * number sees the bytes.  Where the driver has no stream writes an event
 * stands behind the batch instead.
 *
 * A guarded copy is looked up in the region table while it is handed over, and
 * counted in `issued` before the reference is given back: weft_region_remove()
 * and then nvl_copy_drain_all() leave nothing that could still land.
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
#define BATCH		64u
#define SUSPECT_MS	1000u		/* unfinished for so long: ask why */

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list streams = { &streams, &streams };

static bool reached(uint32_t finished, uint32_t seq)
{
	return (int32_t)(finished - seq) >= 0;
}

/* ---- streams ------------------------------------------------------------ */

static int stream_init(struct nvl_stream *st, struct nvl_gpu *gpu,
		       const struct weft_cuda *cu, unsigned int index)
{
	int r;

	memset(st, 0, sizeof(*st));
	weft_list_init(&st->link);
	weft_list_init(&st->waiting);
	weft_list_init(&st->flying);
	st->gpu = gpu;
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

/* Asks the driver about a stream that seems stuck, or has failed. */
static void stream_ask(struct nvl_stream *st, const struct weft_cuda *cu)
{
	int r = cu->stream_query(st->cu);

	if (r == WEFT_CU_NOT_READY)
		return;
	if (r) {
		if (!atomic_exchange(&st->broken, weft_cuda_errno(r)))
			weft_error("copies on GPU %d have failed (%s): the GPU "
				   "or the program's CUDA context is gone",
				   st->gpu->ordinal, weft_cuda_error_name(r));
	}
	atomic_store_explicit(&st->finished, atomic_load(&st->issued),
			      memory_order_release);
}

/* Moves `finished` on; st->lock held, any thread. */
static void stream_look(struct nvl_stream *st)
{
	uint32_t issued = atomic_load_explicit(&st->issued,
					       memory_order_acquire);
	uint32_t done = atomic_load(&st->finished);
	struct weft_cuda_scope s;
	int r = 0;

	if (done == issued)
		return;
	if (st->flag && !atomic_load(&st->broken)) {
		done = __atomic_load_n(st->flag, __ATOMIC_ACQUIRE);
		if (done != atomic_load(&st->finished)) {
			atomic_store_explicit(&st->finished, done,
					      memory_order_release);
			st->issued_ms = 0;
		}
		if (done == issued)
			return;
		/* looked at by the clock, but not on every call */
		if (st->looks++ % 1024)
			return;
	}
	if (!st->issued_ms)
		st->issued_ms = weft_now_ms();
	if (weft_cuda_enter(&s, st->gpu->ctx)) {
		atomic_store(&st->broken, -ENODEV);
		atomic_store(&st->finished, issued);
		return;
	}
	if (!st->flag) {
		while (done != issued && !r) {
			r = s.cu->event_query(st->events[(done + 1) %
							 ARRAY_SIZE(st->events)]);
			if (!r)
				atomic_store_explicit(&st->finished, ++done,
						      memory_order_release);
		}
		if (r && r != WEFT_CU_NOT_READY)
			stream_ask(st, s.cu);
	} else if (atomic_load(&st->broken) ||
		   weft_now_ms() - st->issued_ms > SUSPECT_MS) {
		stream_ask(st, s.cu);
	}
	weft_cuda_leave(&s);
}

static uint32_t stream_finished(struct nvl_stream *st)
{
	pthread_mutex_lock(&st->lock);
	stream_look(st);
	pthread_mutex_unlock(&st->lock);
	return atomic_load_explicit(&st->finished, memory_order_acquire);
}

static bool stream_drain(struct nvl_stream *st)
{
	uint64_t end = weft_now_ms() + NVL_WATCHDOG_MS;
	uint32_t seq = atomic_load_explicit(&st->issued, memory_order_acquire);

	while (!reached(stream_finished(st), seq)) {
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
		stream_drain(st);
	pthread_mutex_unlock(&streams_lock);
}

static void stream_free(struct nvl_stream *st, const struct weft_cuda *cu)
{
	uint64_t end = weft_now_ms() + 1000;
	unsigned int i;

	if (!st->cu)
		return;
	pthread_mutex_lock(&streams_lock);
	weft_list_del(&st->link);
	pthread_mutex_unlock(&streams_lock);
	stream_drain(st);
	while (atomic_load(&st->bell_set) && weft_now_ms() < end)
		sched_yield();
	for (i = 0; cu && i < ARRAY_SIZE(st->events); i++)
		if (st->events[i])
			cu->event_destroy(st->events[i]);
	if (cu)
		cu->stream_destroy(st->cu);
	pthread_mutex_destroy(&st->lock);
}

/* ---- contexts ----------------------------------------------------------- */

static int gpu_open(struct nvl_gpu *gpu)
{
	struct weft_cuda_scope s;
	unsigned int i, n = 0;
	int err;

	err = weft_cuda_enter(&s, gpu->ctx);
	if (err)
		return weft_fail(err, "cannot use the CUDA context of GPU %d",
				 gpu->ordinal);
	gpu->page_pinned = !s.cu->host_register(gpu->page, PAGE,
						WEFT_CU_HOSTREGISTER_PORTABLE |
						WEFT_CU_HOSTREGISTER_DEVICEMAP);
	for (i = 0; i < NVL_TX_STREAMS && !err; i++)
		err = stream_init(&gpu->tx[i], gpu, s.cu, n++);
	if (!err)
		err = stream_init(&gpu->rx, gpu, s.cu, n++);
	weft_cuda_leave(&s);
	return err;
}

struct nvl_gpu *nvl_gpu_get(struct nvl_iface *iface,
			    const struct weft_cuda_ptr *where, int *err)
{
	struct nvl_gpu *gpu, *tmp;

	weft_list_for_each(gpu, tmp, &iface->gpus, link)
		if (gpu->ctx == where->ctx)
			return gpu;
	*err = -ENOMEM;
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		return NULL;
	weft_list_init(&gpu->link);
	gpu->iface = iface;
	gpu->ctx = where->ctx;
	gpu->ordinal = where->ordinal;
	gpu->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (gpu->page == MAP_FAILED) {
		free(gpu);
		return NULL;
	}
	*err = gpu_open(gpu);
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
	bool in = !weft_cuda_enter(&s, gpu->ctx);
	unsigned int i;

	for (i = 0; i < NVL_TX_STREAMS; i++)
		stream_free(&gpu->tx[i], in ? s.cu : NULL);
	stream_free(&gpu->rx, in ? s.cu : NULL);
	if (in && gpu->page_pinned)
		s.cu->host_unregister(gpu->page);
	if (in)
		weft_cuda_leave(&s);
	munmap(gpu->page, PAGE);
	weft_list_del(&gpu->link);
	free(gpu);
}

struct nvl_stream *nvl_gpu_tx(struct nvl_gpu *gpu)
{
	return &gpu->tx[gpu->next_tx++ % NVL_TX_STREAMS];
}

/* ---- copies ------------------------------------------------------------- */

void nvl_copy_queue(struct nvl_stream *st, struct nvl_copy *copy)
{
	copy->stream = st;
	weft_list_add_tail(&st->waiting, &copy->link);
}

static void finish(struct nvl_copy *copy, int status)
{
	weft_list_del(&copy->link);
	copy->done(copy, status);
}

/* Copies one by one, or all of them where the driver takes a batch. */
static void issue(struct nvl_stream *st, const struct weft_cuda *cu,
		  struct nvl_copy **c, int *result, unsigned int n)
{
	struct weft_cu_copy_attr attr = { .src_order = WEFT_CU_SRC_ORDER_STREAM };
	uint64_t dst[BATCH], src[BATCH];
	size_t len[BATCH], at = 0;
	unsigned int i;

	if (n > 1 && cu->memcpy_batch && nvl_tune.batch) {
		for (i = 0; i < n; i++) {
			dst[i] = c[i]->dst;
			src[i] = c[i]->src;
			len[i] = c[i]->len;
			result[i] = 0;
		}
		if (!cu->memcpy_batch(dst, src, len, n, &attr, &at, 1, st->cu))
			return;
		/* one by one tells which of them it is */
	}
	for (i = 0; i < n; i++)
		result[i] = cu->memcpy_async(c[i]->dst, c[i]->src, c[i]->len,
					     st->cu);
}

static int mark_end(struct nvl_stream *st, const struct weft_cuda *cu,
		    uint32_t seq)
{
	void **ev = &st->events[seq % ARRAY_SIZE(st->events)];
	int r;

	/* the default flags: with the barrier that makes the copies visible */
	if (st->flag)
		return cu->write_value32(st->cu, st->flag_dev, seq, 0);
	r = *ev ? 0 : cu->event_create(ev, WEFT_CU_EVENT_DISABLE_TIMING);
	return r ? r : cu->event_record(*ev, st->cu);
}

/* A batch of what waits on @st; the copies handed over. */
static unsigned int submit_batch(struct nvl_stream *st,
				 const struct weft_cuda *cu)
{
	struct nvl_copy *c[BATCH], *copy, *tmp;
	int result[BATCH], r = 0;
	unsigned int i, n = 0, good = 0;
	uint32_t seq = atomic_load(&st->issued) + 1;

	weft_list_for_each(copy, tmp, &st->waiting, link) {
		if (n == BATCH || st->nflying + n == NVL_STREAM_DEPTH)
			break;
		if (copy->guarded &&
		    !weft_region_get(&copy->key, copy->at, copy->len)) {
			finish(copy, -EACCES);
			continue;
		}
		c[n++] = copy;
	}
	if (!n)
		return 0;
	issue(st, cu, c, result, n);
	for (i = 0; i < n; i++)
		good += !result[i];
	if (good)
		r = mark_end(st, cu, seq);
	pthread_mutex_lock(&st->lock);
	if (r)
		atomic_store(&st->broken, weft_cuda_errno(r));
	if (good)
		atomic_store_explicit(&st->issued, seq, memory_order_release);
	pthread_mutex_unlock(&st->lock);
	for (i = 0; i < n; i++) {
		if (c[i]->guarded)
			weft_region_put(&c[i]->key);
		if (result[i]) {
			weft_debug("a copy of %zu bytes: %s", c[i]->len,
				   weft_cuda_error_name(result[i]));
			finish(c[i], weft_cuda_errno(result[i]));
			continue;
		}
		weft_list_del(&c[i]->link);
		c[i]->seq = seq;
		weft_list_add_tail(&st->flying, &c[i]->link);
		st->nflying++;
	}
	return n;
}

static bool can_submit(struct nvl_stream *st)
{
	uint32_t out = atomic_load(&st->issued) - atomic_load(&st->finished);

	return !weft_list_empty(&st->waiting) &&
	       st->nflying < NVL_STREAM_DEPTH &&
	       (st->flag || out < ARRAY_SIZE(st->events) - 1);
}

static void fail_waiting(struct nvl_stream *st, int status)
{
	struct nvl_copy *copy, *tmp;

	weft_list_for_each(copy, tmp, &st->waiting, link)
		finish(copy, status);
}

static unsigned int stream_submit(struct nvl_stream *st)
{
	struct weft_cuda_scope s;
	unsigned int n = 0;

	if (!can_submit(st))
		return 0;
	if (atomic_load(&st->broken) || weft_cuda_enter(&s, st->gpu->ctx)) {
		fail_waiting(st, -EIO);
		return 0;
	}
	while (can_submit(st) && !atomic_load(&st->broken))
		n += submit_batch(st, s.cu);
	weft_cuda_leave(&s);
	return n;
}

unsigned int nvl_copy_submit(struct nvl_iface *iface)
{
	struct nvl_gpu *gpu, *tmp;
	unsigned int i, n = 0;

	weft_list_for_each(gpu, tmp, &iface->gpus, link) {
		for (i = 0; i < NVL_TX_STREAMS; i++)
			n += stream_submit(&gpu->tx[i]);
		n += stream_submit(&gpu->rx);
	}
	return n;
}

static unsigned int stream_poll(struct nvl_stream *st)
{
	struct nvl_copy *copy, *tmp;
	unsigned int n = 0;
	uint32_t done;

	if (!st->nflying)
		return 0;
	done = stream_finished(st);
	weft_list_for_each(copy, tmp, &st->flying, link) {
		if (!reached(done, copy->seq))
			break;
		st->nflying--;
		finish(copy, atomic_load(&st->broken));
		n++;
	}
	return n;
}

unsigned int nvl_copy_poll(struct nvl_iface *iface)
{
	struct nvl_gpu *gpu, *tmp;
	unsigned int i, n = 0;

	weft_list_for_each(gpu, tmp, &iface->gpus, link) {
		for (i = 0; i < NVL_TX_STREAMS; i++)
			n += stream_poll(&gpu->tx[i]);
		n += stream_poll(&gpu->rx);
	}
	return n;
}

void nvl_copy_recall(struct nvl_conn *conn)
{
	struct nvl_gpu *gpu, *tmp;
	struct nvl_copy *copy, *next;
	struct nvl_stream *st;
	unsigned int i;

	weft_list_for_each(gpu, tmp, &conn->iface->gpus, link) {
		for (i = 0; i <= NVL_TX_STREAMS; i++) {
			st = i < NVL_TX_STREAMS ? &gpu->tx[i] : &gpu->rx;
			weft_list_for_each(copy, next, &st->waiting, link)
				if (copy->conn == conn)
					finish(copy, -ECANCELED);
		}
	}
}

/* ---- sleeping ----------------------------------------------------------- */

/* Runs on a thread of the driver, behind the copies. */
static void ring_iface(void *arg)
{
	struct nvl_stream *st = arg;
	int fd = st->gpu->iface->wake_fd;
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0)
		weft_debug("an interface's eventfd is gone");
	/* last: stream_free() waits for this */
	atomic_store(&st->bell_set, false);
}

static bool stream_arm(struct nvl_stream *st, bool *flying)
{
	struct weft_cuda_scope s;
	int r;

	if (!st->nflying)
		return true;
	*flying = true;
	if (atomic_exchange(&st->bell_set, true))
		return true;
	r = -1;
	if (!weft_cuda_enter(&s, st->gpu->ctx)) {
		r = s.cu->host_func(st->cu, ring_iface, st);
		weft_cuda_leave(&s);
	}
	if (r)
		atomic_store(&st->bell_set, false);
	return !r;
}

bool nvl_copy_arm(struct nvl_iface *iface, bool *flying)
{
	struct nvl_gpu *gpu, *tmp;
	bool ok = true;
	unsigned int i;

	*flying = false;
	weft_list_for_each(gpu, tmp, &iface->gpus, link) {
		for (i = 0; i < NVL_TX_STREAMS; i++)
			ok &= stream_arm(&gpu->tx[i], flying);
		ok &= stream_arm(&gpu->rx, flying);
	}
	return ok;
}

static bool stream_pending(struct nvl_stream *st)
{
	struct nvl_copy *first;

	if (!weft_list_empty(&st->waiting) && can_submit(st))
		return true;
	if (!st->nflying)
		return false;
	first = weft_list_first(&st->flying, struct nvl_copy, link);
	return reached(stream_finished(st), first->seq);
}

bool nvl_copy_pending(struct nvl_iface *iface)
{
	struct nvl_gpu *gpu, *tmp;
	unsigned int i;

	weft_list_for_each(gpu, tmp, &iface->gpus, link) {
		for (i = 0; i < NVL_TX_STREAMS; i++)
			if (stream_pending(&gpu->tx[i]))
				return true;
		if (stream_pending(&gpu->rx))
			return true;
	}
	return false;
}

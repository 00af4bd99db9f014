/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our streams in a context, and which batches of copies in them have ended:
 * what copy.c waits for, and any thread that takes memory back.
 */
#include <errno.h>
#include <sched.h>

#include "devices/engine/copy.h"
#include "util/clock.h"
#include "util/log.h"

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list streams = { &streams, &streams };

/* ---- the end of batches -------------------------------------------------- */

static void set_finished(struct weft_stream *st, uint32_t seq)
{
	if (seq == atomic_load(&st->mark->finished))
		return;
	atomic_store_explicit(&st->mark->finished, seq, memory_order_release);
	st->issued_ms = 0;
}

/*
 * The last batch that has ended according to the flag, or @done, if the driver
 * has reported a later one.
 */
static uint32_t read_flag(struct weft_stream *st, uint32_t done,
			  uint32_t issued)
{
	uint32_t flag = __atomic_load_n(st->flag, __ATOMIC_ACQUIRE);

	if (flag - done - 1 < issued - done)
		done = flag;
	set_finished(st, done);
	return done;
}

/* Queries whether all of the stream has ended: batches to @issued. */
static void query_driver(struct weft_stream *st, const struct weft_cuda *cu,
			 uint32_t issued)
{
	int r = cu->stream_query(st->cu);

	if (r == WEFT_CU_NOT_READY)
		return;
	if (r) {
		if (!atomic_exchange(&st->broken, weft_cuda_errno(r)))
			weft_error(
				"copies on GPU %d have failed (%s): the GPU or its CUDA context is gone",
				st->engine->ordinal, weft_cuda_error_name(r));
	}
	atomic_store_explicit(&st->mark->finished, issued,
			      memory_order_release);
}

/* Moves `finished` on; st->lock held, any thread. */
static void update_finished(struct weft_stream *st)
{
	uint32_t issued =
		atomic_load_explicit(&st->mark->issued, memory_order_acquire);
	uint32_t done = atomic_load(&st->mark->finished);
	const bool broken = atomic_load(&st->broken);
	struct weft_cuda_scope s;
	int r;

	if (st->flag && !broken)
		done = read_flag(st, done, issued);
	if (weft_batch_ended(done, issued))
		return;
	/* reads the clock, so not on every call */
	if (st->flag && !broken && st->looks++ % 64)
		return;
	if (!st->issued_ms)
		st->issued_ms = weft_now_ms();
	r = weft_cuda_enter_kept(&s, &st->engine->ctx);
	if (r == -ENODEV) { /* the context is gone with all that it had */
		atomic_store(&st->broken, -ENODEV);
		atomic_store(&st->mark->finished, issued);
	}
	if (r)
		return;
	/* on a broken stream the last mark is missing */
	if (!st->flag || broken ||
	    weft_now_ms() - st->issued_ms > WEFT_COPY_SUSPECT_MS)
		query_driver(st, s.cu, issued);
	weft_cuda_leave(&s);
}

uint32_t weft_stream_finished(struct weft_stream *st)
{
	pthread_mutex_lock(&st->lock);
	update_finished(st);
	pthread_mutex_unlock(&st->lock);
	return atomic_load_explicit(&st->mark->finished, memory_order_acquire);
}

static void drain_stream(struct weft_stream *st)
{
	uint64_t end = weft_now_ms() + WEFT_COPY_WATCHDOG_MS;
	uint32_t seq =
		atomic_load_explicit(&st->mark->issued, memory_order_acquire);

	while (!weft_batch_ended(weft_stream_finished(st), seq)) {
		if (weft_now_ms() > end) {
			weft_error("copies on GPU %d did not end within %u s",
				   st->engine->ordinal,
				   WEFT_COPY_WATCHDOG_MS / 1000);
			return;
		}
		sched_yield();
	}
}

void weft_copy_drain_all(void)
{
	struct weft_stream *st, *tmp;

	pthread_mutex_lock(&streams_lock);
	weft_list_for_each (st, tmp, &streams, link)
		drain_stream(st);
	pthread_mutex_unlock(&streams_lock);
}

/* ---- making and freeing ----------------------------------------------------
 */

static void enlist_stream(struct weft_stream *st)
{
	pthread_mutex_lock(&streams_lock);
	weft_list_add_tail(&streams, &st->link);
	pthread_mutex_unlock(&streams_lock);
}

/* From now on no other thread waits for it. */
static void delist_stream(struct weft_stream *st)
{
	pthread_mutex_lock(&streams_lock);
	weft_list_del(&st->link);
	pthread_mutex_unlock(&streams_lock);
	drain_stream(st);
}

static void retire_stream(struct weft_stream *st)
{
	uint64_t end = weft_now_ms() + WEFT_COPY_LAST_WAKE_MS;

	delist_stream(st);
	while (atomic_load(&st->wakes) && weft_now_ms() < end)
		sched_yield();
}

int weft_stream_init(struct weft_engine *engine, unsigned int index,
		     const struct weft_cuda *cu)
{
	struct weft_stream *st = &engine->streams[index];
	int r;

	weft_list_init(&st->link);
	weft_list_init(&st->in_flight);
	weft_list_init(&st->failed);
	st->engine = engine;
	st->mark = &engine->page[index];
	st->waiting = index == WEFT_RX_STREAM ? &engine->rx_waiting
					      : &engine->tx_waiting;
	pthread_mutex_init(&st->lock, NULL);
	/* non-blocking: the program's default stream has no part in this */
	r = cu->stream_create(&st->cu, WEFT_CU_STREAM_NON_BLOCKING);
	if (r) {
		st->cu = NULL;
		return weft_fail(weft_cuda_errno(r),
				 "cannot make a CUDA stream (%s)",
				 weft_cuda_error_name(r));
	}
	/* try it with what has ended: some drivers refuse the call */
	if (engine->page_pinned && cu->write_value32 &&
	    !cu->host_device_ptr(&st->flag_dev, &st->mark->flag, 0) &&
	    !cu->write_value32(st->cu, st->flag_dev,
			       atomic_load(&st->mark->issued), 0))
		st->flag = &st->mark->flag;
	enlist_stream(st);
	return 0;
}

void weft_stream_free(struct weft_stream *st, const struct weft_cuda *cu)
{
	if (!st->cu)
		return;
	retire_stream(st);
	if (cu)
		cu->stream_destroy(st->cu);
	pthread_mutex_destroy(&st->lock);
}

void weft_stream_abandon(struct weft_stream *st)
{
	static struct weft_engine_mark none;

	delist_stream(st);
	atomic_store(&st->broken, -ENODEV);
	st->flag = NULL;
	st->mark = &none;
}

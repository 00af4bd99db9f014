/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies by the GPUs' engines.
 *
 * Copies are queued during a round of progress and handed over together, each
 * batch followed by a stream write of its number: the write is ordered behind
 * the copies and carries a system-wide barrier, so that a reader of the
 * number sees the bytes.  A driver that has no stream writes is queried whether
 * the stream is empty.
 *
 * A guarded copy is looked up in the region table while it is handed over, and
 * counted in `issued` before the reference is given back: weft_region_remove()
 * and then weft_copy_drain_all() leave nothing that could still land.  Copies
 * to or from memory of a peer work alike: its owner revokes what `allowed`
 * reads, waits while a batch is claimed, and then for what was issued
 * (nvl_export.c).
 *
 * Submitting never calls back; copies that fail there wait in `failed` for the
 * next poll.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "devices/engine/copy.h"
#include "util/clock.h"
#include "util/log.h"

/* ---- copies ------------------------------------------------------------- */

void weft_copy_queue(struct weft_list *queue, struct weft_copy *copy)
{
	copy->status = 0;
	weft_list_add_tail(queue, &copy->link);
}

static bool has_batches(const struct weft_cuda *cu)
{
	return cu->memcpy_batch || cu->memcpy_batch_12;
}

/* Returns CUDA's error, which does not tell the copy that failed. */
static int issue_batch(const struct weft_cuda *cu, uint64_t *dst, uint64_t *src,
		       size_t *len, size_t n, void *st)
{
	struct weft_cu_copy_attr attr = { .src_order =
						  WEFT_CU_SRC_ORDER_STREAM };
	size_t at = 0, failed;

	if (cu->memcpy_batch)
		return cu->memcpy_batch(dst, src, len, n, &attr, &at, 1, st);
	return cu->memcpy_batch_12(dst, src, len, n, &attr, &at, 1, &failed,
				   st);
}

/*
 * Issues all copies as a batch if the driver can, else one by one.  True: a
 * batch was refused, but the engine may have some copies of it.
 */
static bool issue_copies(struct weft_stream *st, const struct weft_cuda *cu,
			 struct weft_copy **c, int *result, unsigned int n)
{
	uint64_t dst[WEFT_BATCH], src[WEFT_BATCH];
	size_t len[WEFT_BATCH];
	bool refused = false;
	unsigned int i;

	for (i = 0; i < n; i++) {
		dst[i] = c[i]->dst;
		src[i] = c[i]->src;
		len[i] = c[i]->len;
		result[i] = 0;
	}
	if (n > 1 && has_batches(cu)) {
		if (!issue_batch(cu, dst, src, len, n, st->cu))
			return false;
		/* issue them one by one, to find the copy that fails */
		refused = true;
	}
	for (i = 0; i < n; i++)
		result[i] = cu->memcpy_async(dst[i], src[i], len[i], st->cu);
	return refused;
}

static int mark_end(struct weft_stream *st, const struct weft_cuda *cu,
		    uint32_t seq)
{
	/* the default flags: with the barrier that makes the copies visible */
	return st->flag ? cu->write_value32(st->cu, st->flag_dev, seq, 0) : 0;
}

/* Batches that the engine has. */
static uint32_t count_batches(struct weft_stream *st)
{
	uint32_t done = st->flag ? __atomic_load_n(st->flag, __ATOMIC_RELAXED)
				 : weft_stream_finished(st);

	return atomic_load(&st->mark->issued) - done;
}

static bool has_room(const struct weft_stream *st)
{
	return st->nflying < WEFT_STREAM_DEPTH;
}

/* Takes up to a batch of waiting copies, as far as the limits allow. */
static unsigned int take_batch(struct weft_stream *st, struct weft_copy **c)
{
	const size_t max = st->engine->engines->batch;
	unsigned int n = 0;
	size_t bytes = 0;

	while (n < WEFT_BATCH && st->nflying + n < WEFT_STREAM_DEPTH &&
	       bytes < max && !weft_list_empty(st->waiting)) {
		c[n] = weft_list_first(st->waiting, struct weft_copy, link);
		bytes += c[n]->len;
		weft_list_del(&c[n++]->link);
	}
	return n;
}

/*
 * Moves copies that have an error to `failed`, unless @all, and the others to
 * `in_flight`.
 */
static void check_results(struct weft_stream *st, struct weft_copy **c,
			  unsigned int n, bool all)
{
	unsigned int i;
	bool fails;

	for (i = 0; i < n; i++) {
		fails = c[i]->status && !all;
		st->nflying += !fails;
		weft_list_add_tail(fails ? &st->failed : &st->in_flight,
				   &c[i]->link);
	}
}

static unsigned int fail_waiting(struct weft_stream *st, int status)
{
	struct weft_copy *c[WEFT_BATCH];
	unsigned int i, n, all = 0;

	while ((n = take_batch(st, c))) {
		for (i = 0; i < n; i++)
			c[i]->status = status;
		check_results(st, c, n, false);
		all += n;
	}
	return all;
}

/* Hands over a batch of what waits on @st; the copies taken. */
static unsigned int submit_batch(struct weft_stream *st,
				 const struct weft_cuda *cu)
{
	struct weft_copy *c[WEFT_BATCH], *go[WEFT_BATCH];
	int result[WEFT_BATCH], r = 0;
	unsigned int i, n, ngo = 0, good = 0;
	bool all = false;
	uint32_t seq = atomic_load(&st->mark->issued) + 1;

	n = take_batch(st, c);
	/* for a peer that revokes: works as a reference of the region table */
	atomic_store(&st->mark->claimed, 1);
	for (i = 0; i < n; i++) {
		c[i]->seq = seq;
		if (c[i]->allowed && !c[i]->allowed(c[i]))
			c[i]->status = -EACCES;
		else if (c[i]->guarded &&
			 !weft_region_get(&c[i]->key, c[i]->at, c[i]->len))
			c[i]->status = -EACCES;
		else
			go[ngo++] = c[i];
	}
	if (ngo)
		all = issue_copies(st, cu, go, result, ngo);
	for (i = 0; i < ngo; i++)
		good += !result[i];
	if (good || all)
		r = mark_end(st, cu, seq);
	if (r && !atomic_exchange(&st->broken, weft_cuda_errno(r)))
		weft_error(
			"the end of copies on GPU %d cannot be marked (%s): no more are made there",
			st->engine->ordinal, weft_cuda_error_name(r));
	if (good || all)
		atomic_store_explicit(&st->mark->issued, seq,
				      memory_order_release);
	atomic_store_explicit(&st->mark->claimed, 0, memory_order_release);
	for (i = 0; i < ngo; i++) {
		if (go[i]->guarded)
			weft_region_put(&go[i]->key);
		if (!result[i])
			continue;
		weft_debug("a copy of %zu bytes: %s", go[i]->len,
			   weft_cuda_error_name(result[i]));
		/* report memory that is gone like a bad key */
		go[i]->status =
			weft_cuda_errno(result[i]) == -EIO ? -EIO : -EACCES;
	}
	check_results(st, c, n, all);
	return n;
}

/* One batch. */
static unsigned int submit_stream(struct weft_stream *st)
{
	struct weft_cuda_scope s;
	unsigned int n;
	int err;

	if (weft_list_empty(st->waiting))
		return 0;
	if (atomic_load(&st->broken))
		return fail_waiting(st, -EIO);
	if (!has_room(st))
		return 0;
	err = weft_cuda_enter_kept(&s, &st->engine->ctx);
	if (err) {
		weft_warn_once(
			"copies on GPU %d fail: its CUDA context cannot be used (%s)",
			st->engine->ordinal, strerror(-err));
		return fail_waiting(st, -EIO);
	}
	n = submit_batch(st, s.cu);
	weft_cuda_leave(&s);
	return n;
}

/*
 * The stream with the fewest copies, round robin; a broken one if there is no
 * other.
 */
static struct weft_stream *choose_tx(struct weft_engine *engine)
{
	struct weft_stream *st, *best = NULL;
	unsigned int i;

	for (i = 0; i < WEFT_TX_STREAMS; i++) {
		st = &engine->streams[(engine->last_tx + 1 + i) %
				      WEFT_TX_STREAMS];
		if (!best || atomic_load(&best->broken) ||
		    (!atomic_load(&st->broken) &&
		     count_batches(st) < count_batches(best)))
			best = st;
	}
	return best;
}

static unsigned int submit_engine(struct weft_engine *engine)
{
	unsigned int n = 0, all = 0;
	struct weft_stream *st;

	do {
		all += n;
		st = choose_tx(engine);
		n = submit_stream(st);
		if (n)
			engine->last_tx = st - engine->streams;
	} while (n);
	while ((n = submit_stream(&engine->streams[WEFT_RX_STREAM])))
		all += n;
	return all;
}

unsigned int weft_copy_submit(struct weft_engines *engines)
{
	struct weft_engine *engine, *tmp;
	unsigned int n = 0;

	weft_list_for_each (engine, tmp, &engines->list, link)
		if (!weft_list_empty(&engine->tx_waiting) ||
		    !weft_list_empty(&engine->rx_waiting))
			n += submit_engine(engine);
	return n;
}

/* The next finished copy, or NULL. */
static struct weft_copy *take_ended(struct weft_stream *st, uint32_t done)
{
	struct weft_copy *copy;

	if (!weft_list_empty(&st->failed)) {
		copy = weft_list_first(&st->failed, struct weft_copy, link);
	} else if (st->nflying) {
		copy = weft_list_first(&st->in_flight, struct weft_copy, link);
		if (!weft_batch_ended(done, copy->seq))
			return NULL;
		if (!copy->status && atomic_load(&st->broken))
			copy->status = -EIO;
		st->nflying--;
	} else {
		return NULL;
	}
	weft_list_del(&copy->link);
	return copy;
}

static unsigned int poll_stream(struct weft_stream *st)
{
	struct weft_copy *copy;
	unsigned int n = 0;
	uint32_t done;

	if (!st->nflying && weft_list_empty(&st->failed))
		return 0;
	done = weft_stream_finished(st);
	while ((copy = take_ended(st, done))) {
		copy->done(copy, copy->status);
		n++;
	}
	return n;
}

unsigned int weft_copy_poll(struct weft_engines *engines)
{
	struct weft_engine *engine, *tmp;
	unsigned int i, n = 0;

	weft_list_for_each (engine, tmp, &engines->list, link) {
		for (i = 0; i < WEFT_STREAMS; i++)
			n += poll_stream(&engine->streams[i]);
	}
	return n;
}

static void cancel_waiting(struct weft_list *queue, const void *group,
			   bool guarded)
{
	struct weft_copy *copy, *next;

	weft_list_for_each (copy, next, queue, link) {
		if (copy->group != group || (copy->guarded && !guarded))
			continue;
		weft_list_del(&copy->link);
		copy->done(copy, -ECANCELED);
	}
}

void weft_copy_cancel(struct weft_engines *engines, const void *group,
		      bool guarded)
{
	struct weft_engine *engine, *tmp;

	weft_list_for_each (engine, tmp, &engines->list, link) {
		cancel_waiting(&engine->tx_waiting, group, guarded);
		cancel_waiting(&engine->rx_waiting, group, guarded);
	}
}

void weft_copy_stop(struct weft_engines *engines, const unsigned int *copies)
{
	const uint64_t end = weft_now_ms() + WEFT_COPY_WATCHDOG_MS;

	while (*copies && weft_now_ms() < end) {
		weft_copy_submit(engines);
		if (!weft_copy_poll(engines))
			sched_yield();
	}
	if (*copies)
		weft_error("%u copies for a peer did not end within %u s",
			   *copies, WEFT_COPY_WATCHDOG_MS / 1000);
}

/* ---- sleeping ----------------------------------------------------------- */

/* Runs on a thread of the driver, behind the copies. */
static void wake_owner(void *arg)
{
	struct weft_stream *st = arg;
	int fd = st->engine->wake_fd;
	uint64_t one = 1;

	/* do this first: an arm() from now on may need another wake */
	atomic_store(&st->wake_set, false);
	if (write(fd, &one, sizeof(one)) < 0)
		weft_debug("an interface's eventfd is gone");
	/* do this last: weft_stream_free() waits for it */
	atomic_fetch_sub(&st->wakes, 1);
}

static bool arm_stream(struct weft_stream *st, bool *in_flight)
{
	struct weft_cuda_scope s;
	int r;

	if (!st->nflying)
		return true;
	*in_flight = true;
	if (atomic_exchange(&st->wake_set, true))
		return true;
	r = -1;
	atomic_fetch_add(&st->wakes, 1);
	if (!weft_cuda_enter_kept(&s, &st->engine->ctx)) {
		r = s.cu->host_func(st->cu, wake_owner, st);
		weft_cuda_leave(&s);
	}
	if (r) {
		atomic_fetch_sub(&st->wakes, 1);
		atomic_store(&st->wake_set, false);
	}
	return !r;
}

bool weft_copy_arm(struct weft_engines *engines, bool *in_flight)
{
	struct weft_engine *engine, *tmp;
	bool ok = true;
	unsigned int i;

	*in_flight = false;
	weft_list_for_each (engine, tmp, &engines->list, link) {
		for (i = 0; i < WEFT_STREAMS; i++)
			ok &= arm_stream(&engine->streams[i], in_flight);
	}
	return ok;
}

/* Would submit do anything for this stream? */
static bool can_submit(struct weft_stream *st)
{
	const unsigned int index = st - st->engine->streams;
	unsigned int i;

	if (weft_list_empty(st->waiting))
		return false;
	if (!atomic_load(&st->broken))
		return has_room(st);
	/* if no other stream takes the copies, submit fails them */
	for (i = 0; index != WEFT_RX_STREAM && i < WEFT_TX_STREAMS; i++)
		if (!atomic_load(&st->engine->streams[i].broken))
			return false;
	return true;
}

static bool is_pending(struct weft_stream *st)
{
	if (!weft_list_empty(&st->failed) || can_submit(st))
		return true;
	return st->nflying &&
	       weft_batch_ended(
		       weft_stream_finished(st),
		       weft_list_first(&st->in_flight, struct weft_copy, link)
			       ->seq);
}

bool weft_copy_pending(struct weft_engines *engines)
{
	struct weft_engine *engine, *tmp;
	unsigned int i;

	weft_list_for_each (engine, tmp, &engines->list, link) {
		for (i = 0; i < WEFT_STREAMS; i++)
			if (is_pending(&engine->streams[i]))
				return true;
	}
	return false;
}

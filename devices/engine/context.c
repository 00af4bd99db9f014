/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA contexts; stream.c has weft's streams in them, copy.c queues copies. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/common/forked.h"
#include "devices/engine/copy.h"
#include "devices/common/memfd.h"
#include "util/log.h"

/* ---- contexts ----------------------------------------------------------- */

static int open_engine(struct weft_engine *engine)
{
	struct weft_cuda_scope s;
	unsigned int i;
	int err;

	err = weft_cuda_enter_kept(&s, &engine->ctx);
	if (err)
		return weft_fail(err, "cannot use the CUDA context of GPU %d",
				 engine->ordinal);
	engine->page_pinned = !s.cu->host_register(
		engine->page, WEFT_MARK_PAGE,
		WEFT_CU_HOSTREGISTER_PORTABLE | WEFT_CU_HOSTREGISTER_DEVICEMAP);
	for (i = 0; i < WEFT_STREAMS && !err; i++)
		err = weft_stream_init(engine, i, s.cu);
	weft_cuda_leave(&s);
	return err;
}

int weft_engines_share(struct weft_engines *engines)
{
	void *p;
	int fd;

	if (engines->marks)
		return engines->marks_fd;
	fd = weft_memfd_make("weft-marks", WEFT_MARKS_SIZE, &p);
	if (fd < 0)
		return fd;
	engines->marks = p;
	engines->marks_fd = fd;
	return fd;
}

/* Takes a page that peers can read, as long as one is free. */
static bool take_page(struct weft_engine *engine)
{
	struct weft_engines *engines = engine->engines;
	unsigned int i = 0;
	void *p;

	weft_engines_share(engines);
	while (i < WEFT_MARK_PAGES && engines->marks_used & BIT(i))
		i++;
	engine->page_shared = engines->marks && i < WEFT_MARK_PAGES;
	if (engine->page_shared) {
		engines->marks_used |= BIT(i);
		p = (char *)engines->marks + i * WEFT_MARK_PAGE;
	} else {
		p = mmap(NULL, WEFT_MARK_PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			return false;
	}
	engine->page = p;
	return true;
}

/* All that it marked has ended: the next one goes on with the numbers. */
static void release_page(struct weft_engine *engine)
{
	struct weft_engines *engines = engine->engines;

	if (!engine->page)
		return;
	if (engine->page_shared)
		engines->marks_used &=
			~BIT(((char *)engine->page - (char *)engines->marks) /
			     WEFT_MARK_PAGE);
	else
		munmap(engine->page, WEFT_MARK_PAGE);
	engine->page = NULL;
	engine->page_pinned = engine->page_shared = false;
}

/* Does a driver thread still have to write to its descriptor? */
static bool is_to_ring(const struct weft_engine *engine)
{
	unsigned int i, wakes = 0;

	for (i = 0; i < WEFT_STREAMS; i++)
		wakes += atomic_load(&engine->streams[i].wakes);
	return wakes;
}

static void free_engine(struct weft_engine *engine)
{
	struct weft_cuda_scope s;
	const bool in = !weft_cuda_enter_kept(&s, &engine->ctx);
	unsigned int i;

	for (i = 0; i < WEFT_STREAMS; i++)
		weft_stream_free(&engine->streams[i], in ? s.cu : NULL);
	if (in && engine->page_pinned)
		s.cu->host_unregister(engine->page);
	if (in)
		weft_cuda_leave(&s);
	release_page(engine);
	weft_list_del(&engine->link);
	if (is_to_ring(engine))
		engine->engines->events->wake_fd = -1; /* both stay */
	else
		free(engine);
}

static bool is_idle(const struct weft_engine *engine)
{
	const struct weft_stream *st = engine->streams;
	unsigned int i;

	for (i = 0; i < WEFT_STREAMS; i++)
		if (st[i].nflying || !weft_list_empty(&st[i].failed))
			return false;
	return weft_list_empty(&engine->tx_waiting) &&
	       weft_list_empty(&engine->rx_waiting);
}

/*
 * Those whose place @ctx has taken: there are few pages that peers can read.
 * Operations may name them still, and fail.
 */
static void abandon_replaced(struct weft_engines *engines,
			     const struct weft_cuda_ctx *ctx)
{
	struct weft_engine *engine, *tmp;
	unsigned int i;

	weft_list_for_each (engine, tmp, &engines->list, link) {
		if (engine->ctx.ptr != ctx->ptr || !engine->page ||
		    !is_idle(engine))
			continue;
		for (i = 0; i < WEFT_STREAMS; i++)
			weft_stream_abandon(&engine->streams[i]);
		release_page(engine);
	}
}

struct weft_engine *weft_engine_get(struct weft_engines *engines,
				    const struct weft_cuda_ptr *where, int *err)
{
	struct weft_engine *engine, *tmp;

	weft_list_for_each (engine, tmp, &engines->list, link)
		if (weft_cuda_is_same_ctx(&engine->ctx, &where->ctx))
			return engine;
	abandon_replaced(engines, &where->ctx);
	*err = weft_events_need_wake(engines->events);
	if (*err)
		return NULL;
	*err = -ENOMEM;
	engine = calloc(1, sizeof(*engine));
	if (!engine)
		return NULL;
	weft_list_init(&engine->link);
	weft_list_init(&engine->tx_waiting);
	weft_list_init(&engine->rx_waiting);
	engine->engines = engines;
	engine->ctx = where->ctx;
	engine->ordinal = where->ordinal;
	engine->wake_fd = engines->events->wake_fd;
	if (!take_page(engine)) {
		free(engine);
		return NULL;
	}
	*err = open_engine(engine);
	if (*err) {
		free_engine(engine);
		return NULL;
	}
	weft_list_add_tail(&engines->list, &engine->link);
	return engine;
}

/* ---- memory ----------------------------------------------------------------
 */

/*
 * UCP registers no local memory, so this may be the first GPU memory of the
 * process, which only the driver knows.  A program that has not loaded the
 * driver passes host memory.
 */
static int use_driver(void)
{
	return weft_cuda() || weft_cuda_program_gpus() <= 0 ? 0
							    : weft_cuda_init();
}

int weft_engine_locate(const struct weft_iov *v, struct weft_cuda_ptr *where)
{
	int err;

	if (v->mem) {
		*where = v->mem->where;
		return 0;
	}
	err = use_driver();
	if (err)
		return err;
	err = weft_cuda_query(v->addr, where);
	if (err)
		return weft_fail(
			err,
			"GPU memory at %p belongs to no CUDA context that is active",
			v->addr);
	return 0;
}

int weft_engine_register(void *addr, size_t len, struct weft_mem **mem)
{
	const struct weft_iov all = { addr, len, NULL };
	struct weft_cuda_ptr where;
	int err = weft_cuda_init();

	if (!err)
		err = weft_engine_locate(&all, &where);
	if (err)
		return err;
	if (where.where != WEFT_CUDA_DEVICE || where.managed)
		return weft_fail(-EINVAL, "%p is no GPU memory%s", addr,
				 where.managed
					 ? " (managed memory is not supported)"
					 : "");
	err = weft_region_add(addr, len, WEFT_MEM_CUDA, mem);
	if (!err)
		(*mem)->where = where;
	return err;
}

/* ---- those of an interface ----------------------------------------------- */

void weft_engines_init(struct weft_engines *engines, struct weft_events *events,
		       size_t batch)
{
	weft_list_init(&engines->list);
	engines->events = events;
	engines->batch = batch;
	engines->marks_fd = -1;
}

void weft_engines_fini(struct weft_engines *engines)
{
	struct weft_engine *engine, *next;

	weft_list_for_each (engine, next, &engines->list, link)
		free_engine(engine);
	if (!engines->marks)
		return;
	munmap(engines->marks, WEFT_MARKS_SIZE);
	close(engines->marks_fd);
}

void weft_engines_forget(struct weft_engines *engines)
{
	weft_forked_close(&engines->marks_fd);
}

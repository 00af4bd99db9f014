/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake driver's streams: a thread each, late by a random time. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/cuda/fake_cuda_int.h"

#define STREAMS 256

#define CU_EVENT_DISABLE_TIMING 2 /* which is how UCX makes them */

struct event {
	unsigned long recorded, done;
};

struct task {
	struct task *next;
	enum { COPY, WRITE, EVENT, CALL } what;
	uint64_t dst, src;
	size_t len;
	uint32_t value;
	struct event *event;
	unsigned long stamp;
	void (*fn)(void *arg);
	void *arg;
};

struct stream {
	struct context *ctx;
	unsigned long long ctx_id;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond; /* a task came, or all are done */
	struct task *first, **last;
	bool stop;
	unsigned int seed;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t list_cond = PTHREAD_COND_INITIALIZER;
static struct stream *streams[STREAMS];
static bool held, stepping; /* one task may pass all the same */
static unsigned long ncopies;

static void wait_while_held(void)
{
	pthread_mutex_lock(&list_lock);
	while (held && !stepping)
		pthread_cond_wait(&list_cond, &list_lock);
	stepping = false;
	pthread_mutex_unlock(&list_lock);
}

static void run(const struct task *t)
{
	switch (t->what) {
	case COPY:
		memcpy((void *)(uintptr_t)t->dst, (void *)(uintptr_t)t->src,
		       t->len);
		if (t->len > 4096 && atomic_exchange(&fake_wrong, false))
			*(char *)(uintptr_t)t->dst ^= 1;
		__atomic_fetch_add(&ncopies, 1, __ATOMIC_RELAXED);
		break;
	case WRITE:
		__atomic_store_n((uint32_t *)(uintptr_t)t->dst, t->value,
				 __ATOMIC_RELEASE);
		break;
	case EVENT:
		__atomic_store_n(&t->event->done, t->stamp, __ATOMIC_RELEASE);
		break;
	case CALL:
		t->fn(t->arg);
		break;
	}
}

static void *stream_main(void *arg)
{
	struct stream *st = arg;
	struct task *t;

	pthread_mutex_lock(&st->lock);
	for (;;) {
		while (!st->first && !st->stop)
			pthread_cond_wait(&st->cond, &st->lock);
		t = st->first;
		if (!t)
			break;
		pthread_mutex_unlock(&st->lock);
		wait_while_held();
		if (fake_delay_us && t->what == COPY)
			usleep(rand_r(&st->seed) % fake_delay_us);
		run(t);
		pthread_mutex_lock(&st->lock);
		st->first = t->next;
		if (!st->first)
			st->last = &st->first;
		free(t);
		pthread_cond_broadcast(&st->cond);
	}
	pthread_mutex_unlock(&st->lock);
	return NULL;
}

static void push(struct stream *st, struct task like)
{
	struct task *t = malloc(sizeof(*t));

	*t = like;
	t->next = NULL;
	pthread_mutex_lock(&st->lock);
	*st->last = t;
	st->last = &t->next;
	pthread_cond_broadcast(&st->cond);
	pthread_mutex_unlock(&st->lock);
}

static void drain(struct stream *st)
{
	pthread_mutex_lock(&st->lock);
	while (st->first)
		pthread_cond_wait(&st->cond, &st->lock);
	pthread_mutex_unlock(&st->lock);
}

static bool is_busy(unsigned int i)
{
	bool busy = false;

	pthread_mutex_lock(&list_lock);
	if (streams[i]) {
		pthread_mutex_lock(&streams[i]->lock);
		busy = streams[i]->first;
		pthread_mutex_unlock(&streams[i]->lock);
	}
	pthread_mutex_unlock(&list_lock);
	return busy;
}

/* Their threads take the list's lock: it is not held meanwhile. */
void fake_streams_drain(void)
{
	unsigned int i;

	for (i = 0; i < STREAMS; i++)
		while (is_busy(i))
			usleep(50);
}

/* A stream of another context than the current one is no handle here. */
static int check(struct stream *st)
{
	struct context *c = fake_current();

	return st && st->ctx == c && st->ctx_id == c->id
		       ? 0
		       : WEFT_CU_INVALID_HANDLE;
}

int fake_stream_wait(void *stream)
{
	struct stream *st = stream;
	int err = check(st);

	if (!err)
		drain(st);
	return err;
}

EXPORT int cuStreamCreate(void **out, unsigned int flags)
{
	struct stream *st;
	unsigned int i;

	GATE(CONTEXT | UNSAFE);
	if (flags != WEFT_CU_STREAM_NON_BLOCKING)
		return WEFT_CU_INVALID_VALUE;
	st = calloc(1, sizeof(*st));
	st->ctx = fake_current();
	st->ctx_id = st->ctx->id;
	st->last = &st->first;
	pthread_mutex_init(&st->lock, NULL);
	pthread_cond_init(&st->cond, NULL);
	pthread_mutex_lock(&list_lock);
	for (i = 0; i < STREAMS && streams[i]; i++)
		;
	if (i == STREAMS)
		abort();
	streams[i] = st;
	st->seed = i + getpid();
	pthread_mutex_unlock(&list_lock);
	if (pthread_create(&st->thread, NULL, stream_main, st))
		abort();
	__atomic_fetch_add(&fake_live.streams, 1, __ATOMIC_RELAXED);
	*out = st;
	return 0;
}

EXPORT int cuStreamDestroy_v2(void *stream)
{
	struct stream *st = stream;
	unsigned int i;

	GATE(UNSAFE);
	pthread_mutex_lock(&list_lock);
	for (i = 0; i < STREAMS && streams[i] != st; i++)
		;
	if (i < STREAMS)
		streams[i] = NULL;
	pthread_mutex_unlock(&list_lock);
	if (i == STREAMS)
		return WEFT_CU_INVALID_HANDLE;
	pthread_mutex_lock(&st->lock);
	st->stop = true;
	pthread_cond_broadcast(&st->cond);
	pthread_mutex_unlock(&st->lock);
	pthread_join(st->thread, NULL);
	free(st);
	__atomic_fetch_sub(&fake_live.streams, 1, __ATOMIC_RELAXED);
	return 0;
}

EXPORT int cuStreamQuery(void *stream)
{
	struct stream *st = stream;
	int err = fake_gate(__func__, UNSAFE);
	bool busy;

	/* the context is gone: its engines do nothing any more */
	if (err) {
		drain(st);
		return err;
	}
	pthread_mutex_lock(&st->lock);
	busy = st->first;
	pthread_mutex_unlock(&st->lock);
	return busy ? WEFT_CU_NOT_READY : 0;
}

/* Known, or ordinary host memory that is still mapped. */
static bool reachable(uint64_t p, size_t len, int ordinal)
{
	struct object *o;
	uint64_t at = p;
	bool ok;

	pthread_mutex_lock(&fake_lock);
	o = fake_find(p, 1);
	ok = !o;
	/* mappings may follow each other */
	while (o && ((o->kind != MAPPED && o->kind != IMPORTED) ||
		     (o->access & BIT(ordinal)))) {
		at = o->base + o->size;
		ok = at >= p + len;
		o = ok || o->kind != MAPPED ? NULL : fake_find(at, 1);
	}
	pthread_mutex_unlock(&fake_lock);
	return ok;
}

static int copy(uint64_t dst, uint64_t src, size_t n, struct stream *st)
{
	int err = check(st);

	if (err)
		return err;
	if (!reachable(dst, n, st->ctx->ordinal) ||
	    !reachable(src, n, st->ctx->ordinal))
		return WEFT_CU_INVALID_VALUE;
	push(st,
	     (struct task){ .what = COPY, .dst = dst, .src = src, .len = n });
	return 0;
}

EXPORT int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t n, void *stream)
{
	GATE(CONTEXT);
	return copy(dst, src, n, stream);
}

static int batch(uint64_t *dsts, uint64_t *srcs, size_t *sizes, size_t n,
		 const struct weft_cu_copy_attr *attrs, const size_t *attr_at,
		 size_t nattrs, void *stream)
{
	size_t i;
	int err = 0;

	if (nattrs != 1 || *attr_at ||
	    attrs->src_order != WEFT_CU_SRC_ORDER_STREAM)
		return WEFT_CU_INVALID_VALUE;
	/* within a batch there is no order */
	for (i = n; i-- > 0 && !err;)
		err = cuMemcpyAsync(dsts[i], srcs[i], sizes[i], stream);
	return err;
}

static int batch_new(uint64_t *dsts, uint64_t *srcs, size_t *sizes, size_t n,
		     struct weft_cu_copy_attr *attrs, size_t *attr_at,
		     size_t nattrs, void *stream)
{
	int err = fake_gate("cuMemcpyBatchAsync_v2", CONTEXT);

	return err ? err
		   : batch(dsts, srcs, sizes, n, attrs, attr_at, nattrs,
			   stream);
}

static int batch_old(uint64_t *dsts, uint64_t *srcs, size_t *sizes, size_t n,
		     struct weft_cu_copy_attr *attrs, size_t *attr_at,
		     size_t nattrs, size_t *failed, void *stream)
{
	int err = fake_gate("cuMemcpyBatchAsync", CONTEXT);

	*failed = SIZE_MAX;
	return err ? err
		   : batch(dsts, srcs, sizes, n, attrs, attr_at, nattrs,
			   stream);
}

/* dlsym() asks these which function it is: none, where it finds NULL. */
typedef void (*function)(void);

static __attribute__((used)) function find_batch_new(void)
{
	return getenv(FAKE_CUDA_BATCH) ? NULL : (function)batch_new;
}

static __attribute__((used)) function find_batch_old(void)
{
	const char *which = getenv(FAKE_CUDA_BATCH);

	return which && !strcmp(which, "no") ? NULL : (function)batch_old;
}

EXPORT void cuMemcpyBatchAsync_v2(void)
	__attribute__((ifunc("find_batch_new")));
EXPORT void cuMemcpyBatchAsync(void) __attribute__((ifunc("find_batch_old")));

EXPORT int cuStreamWriteValue32_v2(void *stream, uint64_t addr, uint32_t value,
				   unsigned int flags)
{
	struct stream *st = stream;
	struct object *o;
	int err;

	GATE(CONTEXT);
	err = check(st);
	if (err)
		return err;
	pthread_mutex_lock(&fake_lock);
	o = fake_find(addr, sizeof(value));
	pthread_mutex_unlock(&fake_lock);
	if (fake_no_write)
		return WEFT_CU_NOT_SUPPORTED;
	if (flags || !o)
		return WEFT_CU_INVALID_VALUE;
	push(st, (struct task){ .what = WRITE, .dst = addr, .value = value });
	return 0;
}

EXPORT int cuEventCreate(void **out, unsigned int flags)
{
	GATE(CONTEXT);
	if (flags != CU_EVENT_DISABLE_TIMING)
		return WEFT_CU_INVALID_VALUE;
	*out = calloc(1, sizeof(struct event));
	__atomic_fetch_add(&fake_live.events, 1, __ATOMIC_RELAXED);
	return 0;
}

EXPORT int cuEventDestroy_v2(void *event)
{
	GATE(0);
	free(event);
	__atomic_fetch_sub(&fake_live.events, 1, __ATOMIC_RELAXED);
	return 0;
}

EXPORT int cuEventRecord(void *event, void *stream)
{
	struct event *e = event;
	struct stream *st = stream;
	int err;

	GATE(CONTEXT);
	err = check(st);
	if (err)
		return err;
	push(st, (struct task){
			 .what = EVENT, .event = e, .stamp = ++e->recorded });
	return 0;
}

EXPORT int cuEventQuery(void *event)
{
	struct event *e = event;

	GATE(UNSAFE);
	return __atomic_load_n(&e->done, __ATOMIC_ACQUIRE) == e->recorded
		       ? 0
		       : WEFT_CU_NOT_READY;
}

EXPORT int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *arg)
{
	struct stream *st = stream;
	int err;

	GATE(CONTEXT);
	err = check(st);
	if (err)
		return err;
	push(st, (struct task){ .what = CALL, .fn = fn, .arg = arg });
	return 0;
}

EXPORT void fake_cuda_hold(bool on)
{
	pthread_mutex_lock(&list_lock);
	held = on;
	stepping = false;
	pthread_cond_broadcast(&list_cond);
	pthread_mutex_unlock(&list_lock);
}

EXPORT void fake_cuda_step(void)
{
	pthread_mutex_lock(&list_lock);
	stepping = held;
	pthread_cond_broadcast(&list_cond);
	pthread_mutex_unlock(&list_lock);
}

EXPORT unsigned long fake_cuda_copies(void)
{
	return __atomic_load_n(&ncopies, __ATOMIC_RELAXED);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies handed to the driver together, by every call that drivers have for it.
 */
#include <stdatomic.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include "devices/engine/copy.h"
#include "tests/unit/devices/nvl_pair.h"

#define PIECES 32u
#define PIECE  (32u << 10)
#define LEN    (PIECES * PIECE)

static struct weft_events events;
static struct weft_engines engines;
static struct weft_engine *engine;
static uint8_t *from, *to;
static struct weft_copy copies[PIECES];
static unsigned int done, canceled;

static void begin(void)
{
	begin_folder();
	setenv(FAKE_NVML, "1", 1);
}

TestSuite(engine, .init = begin, .fini = end_folder, .timeout = 120);

static unsigned int no_timer(struct weft_events *ev, uint64_t now,
			     uint64_t stood)
{
	return 0;
}

static void begin_engine(void)
{
	struct weft_cuda_ptr where;
	int err;

	load_fake();
	cr_assert(eq(int, weft_cuda_init(), 0));
	cr_assert(eq(int, weft_events_open(&events, no_timer), 0));
	weft_engines_init(&engines, &events, LEN);
	from = fake.fake_cuda_malloc(0, LEN);
	to = fake.fake_cuda_malloc(0, LEN);
	cr_assert(eq(int,
		     weft_engine_locate(&(struct weft_iov){ from, LEN, NULL },
					&where),
		     0));
	engine = weft_engine_get(&engines, &where, &err);
	cr_assert(ne(ptr, engine, NULL));
}

static void end_engine(void)
{
	weft_engines_fini(&engines);
	weft_events_close(&events);
	cr_expect(eq(uint, log_lines(""), 0));
}

static void copy_done(struct weft_copy *copy, int status)
{
	done++;
	canceled += status == -ECANCELED;
	cr_expect(yes(!status || status == -ECANCELED));
}

/* All of @from to @to, for groups by turns. */
static void queue_all(void)
{
	unsigned int i;

	done = canceled = 0;
	pattern_fill(from, LEN, 7);
	memset(to, 0xa5, LEN);
	for (i = 0; i < PIECES; i++) {
		copies[i] = (struct weft_copy){
			.done = copy_done,
			.group = i % 2 ? &done : &canceled,
			.src = (uintptr_t)from + i * PIECE,
			.dst = (uintptr_t)to + i * PIECE,
			.len = PIECE,
		};
		weft_copy_queue(&engine->tx_waiting, &copies[i]);
	}
}

static void wait_done(void)
{
	cr_assert(yes(step_until(weft_copy_poll(&engines), done == PIECES)));
}

static void copy_all(void)
{
	queue_all();
	cr_expect(eq(uint, weft_copy_submit(&engines), PIECES));
	wait_done();
	cr_expect(eq(int, memcmp(from, to, LEN), 0));
}

/* Which of the two calls were made. */
static void copies_by(bool newer, bool older)
{
	const char *const names[] = { "cuMemcpyBatchAsync_v2",
				      "cuMemcpyBatchAsync" };
	const bool used[] = { newer, older };
	unsigned int i;

	begin_engine();
	for (i = 0; i < 3; i++)
		copy_all();
	for (i = 0; i < ARRAY_SIZE(names); i++)
		cr_expect(eq(uint, fake.fake_cuda_called(names[i]),
			     used[i] ? 3 * PIECES / WEFT_BATCH : 0),
			  "%s", names[i]);
	end_engine();
}

Test(engine, copies_go_in_batches)
{
	copies_by(true, false);
}

Test(engine, copies_go_in_batches_of_cuda_12)
{
	setenv(FAKE_CUDA_BATCH, "old", 1);
	copies_by(false, true);
}

Test(engine, driver_without_batches_copies_one_by_one)
{
	setenv(FAKE_CUDA_BATCH, "no", 1);
	copies_by(false, false);
}

/* What it refuses goes one by one, and all of it arrives. */
Test(engine, refused_batch_is_copied_one_by_one)
{
	setenv(FAKE_CUDA_BATCH, "old", 1);
	begin_engine();
	fake.fake_cuda_refuse("cuMemcpyBatchAsync", WEFT_CU_NOT_SUPPORTED);
	copy_all();
	cr_expect(eq(uint, fake.fake_cuda_called("cuMemcpyBatchAsync"),
		     PIECES / WEFT_BATCH));
	end_engine();
}

/* Its reader sees nothing of a batch before its end: it is not a long one. */
Test(engine, four_copies_end_together)
{
	unsigned int i, flying = 0, batches = 0;
	struct weft_stream *st;

	begin_engine();
	fake.fake_cuda_hold(true);
	queue_all();
	weft_copy_submit(&engines);
	for (i = 0; i < WEFT_TX_STREAMS; i++) {
		st = &engine->streams[i];
		flying += st->nflying;
		batches += atomic_load(&st->mark->issued) -
			   atomic_load(&st->mark->finished);
	}
	cr_expect(eq(uint, flying, PIECES), "not all are with the engine");
	cr_expect(eq(uint, batches, PIECES / 4));
	fake.fake_cuda_hold(false);
	wait_done();
	end_engine();
}

/* Of one group, what no engine has. */
Test(engine, what_waits_is_taken_back)
{
	unsigned int i;

	begin_engine();
	queue_all();
	weft_copy_cancel(&engines, &done, true);
	cr_expect(eq(uint, canceled, PIECES / 2));
	cr_expect(eq(uint, weft_copy_submit(&engines), PIECES / 2));
	weft_copy_cancel(&engines, &canceled, true);
	wait_done();
	cr_expect(eq(uint, canceled, PIECES / 2));
	for (i = 0; i < PIECES; i++)
		cr_expect(
			eq(int, to[i * PIECE], i % 2 ? 0xa5 : from[i * PIECE]));
	end_engine();
}

static struct {
	void (*fn)(void *arg);
	void *arg;
} late[WEFT_STREAMS];
static unsigned int nlate;

static int keep_wake(void *st, void (*fn)(void *arg), void *arg)
{
	late[nlate].fn = fn;
	late[nlate++].arg = arg;
	return 0;
}

/* Functions of the program keep the driver's thread: all has ended by then. */
Test(engine, wake_that_comes_late_rings_no_other)
{
	int fds[3]; /* whose numbers are used again */
	bool in_flight;
	unsigned int i;
	eventfd_t n;

	begin_engine();
	((struct weft_cuda *)(uintptr_t)weft_cuda())->host_func = keep_wake;
	queue_all();
	weft_copy_submit(&engines);
	cr_assert(yes(weft_copy_arm(&engines, &in_flight)));
	cr_assert(gt(uint, nlate, 0));
	wait_done();
	end_engine();
	for (i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	while (nlate--)
		late[nlate].fn(late[nlate].arg);
	for (i = 0; i < ARRAY_SIZE(fds); i++) {
		cr_expect(eq(int, eventfd_read(fds[i], &n), -1));
		close(fds[i]);
	}
}

/*
 * What ends in events leaves the flag behind; two thousand million batches
 * later it looks as if it were ahead.
 */
Test(engine, completion_flag_2_31_behind_is_not_ahead)
{
	const uint32_t far = 0x80000010;
	struct weft_stream *st;
	unsigned int i, busy = 0;

	begin_engine();
	copy_all();
	for (i = 0; i < WEFT_STREAMS; i++) {
		st = &engine->streams[i];
		cr_assert(yes(st->flag && !st->nflying));
		atomic_store(&st->mark->issued, *st->flag + far);
		atomic_store(&st->mark->finished, *st->flag + far);
	}
	fake.fake_cuda_hold(true);
	queue_all();
	weft_copy_submit(&engines);
	weft_copy_poll(&engines);
	for (i = 0; i < WEFT_STREAMS; i++) {
		st = &engine->streams[i];
		busy += atomic_load(&st->mark->issued) - *st->flag != far;
		cr_expect(eq(u32, atomic_load(&st->mark->finished),
			     *st->flag + far));
	}
	cr_expect(gt(uint, busy, 0));
	cr_expect(eq(uint, done, 0));
	fake.fake_cuda_hold(false);
	wait_done();
	cr_expect(eq(int, memcmp(from, to, LEN), 0));
	end_engine();
}

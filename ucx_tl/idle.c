/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rest for programs that spin without meaning to.
 *
 * A program that progresses "blocking" asks for the event fd, arms, and sleeps.
 * ucxx 0.52 arms once and never again: UCP's own event fd then stays readable
 * and every loop turn of asyncio calls ucp_worker_progress(), in every process
 * of a Dask cluster, for ever; on few processors these turns take the time that
 * the transfers and the computation need.  Progress is called without Python's
 * lock, so the cure is to do there what the program ought to: arm, and sleep.
 * The rest ends with whatever UCP's event fd reports, and with whatever the
 * program's own loop waits for: the loop's epoll instance watches the event fd,
 * by which it is found.  Only what the loop has put off to a time, or to its
 * next turn, waits for us.  So a rest comes after several turns in which
 * nothing happened, the first is short, and each is longer than the one before,
 * up to WEFT_UCX_IDLE_WAIT; without a loop to be found all are short.
 *
 * It concerns nobody else: a program that never asked UCP for its event fd
 * polls on purpose, and one that arms before it sleeps never makes so many
 * fruitless calls in between.  Only the preload library sees who asks and who
 * arms.
 */
#include <poll.h>
#include <stdatomic.h>
#include <time.h>
#include "bootstrap/settings.h"
#include "ucx_tl/load.h"
#include "ucx_tl/loop.h"
#include "ucx_tl/uct.h"
#include "util/clock.h"

#define MAX_WORKERS 16u	 /* that want events; of more, some never rest */
#define FRUITLESS   5u	 /* calls before the first rest */
#define FIRST_US    100u /* the first rest; each further is twice that */
#define BLIND_US    200u /* the longest while the loop is not watched */
#define WAKES	    16u	 /* in a row by a loop that does nothing */
#define LOOK_NS	    1000000000ull /* the loop is looked for this often */

struct sleeper {
	_Atomic(void *) worker; /* NULL: free */
	atomic_uint fruitless;
	atomic_flag resting; /* a thread is; what follows is its own */
	struct weft_uct_worker_calls calls;
	int efd;
	unsigned int rests; /* in a row which only time ended */
	unsigned int wakes; /* in a row that only the loop ended */
	unsigned int n_loops;
	int loops[WEFT_LOOP_MAX];
	uint64_t look_at; /* weft_now_ns() of the next search */
};

static struct sleeper sleepers[MAX_WORKERS];
static atomic_uint n_ifaces;

void weft_uct_idle_iface(int change)
{
	atomic_fetch_add(&n_ifaces, (unsigned int)change);
}

static struct sleeper *find(void *worker)
{
	for (unsigned int i = 0; i < MAX_WORKERS; i++)
		if (atomic_load_explicit(&sleepers[i].worker,
					 memory_order_acquire) == worker)
			return &sleepers[i];
	return NULL;
}

void weft_uct_event_driven(void *worker, int efd,
			   const struct weft_uct_worker_calls *calls)
{
	static atomic_flag adding = ATOMIC_FLAG_INIT;
	struct sleeper *s;

	while (atomic_flag_test_and_set(&adding))
		;
	s = find(worker);
	/* known, or of one that went without a word and had the same address */
	if (s && s->efd == efd && s->calls.progress == calls->progress)
		s = NULL;
	else if (s)
		atomic_store(&s->worker, NULL);
	else
		s = find(NULL);
	if (s) {
		atomic_store(&s->fruitless, 0);
		atomic_flag_clear(&s->resting);
		s->calls = *calls;
		s->efd = efd;
		s->rests = s->wakes = s->n_loops = 0;
		s->look_at = 0;
		atomic_store_explicit(&s->worker, worker, memory_order_release);
	}
	atomic_flag_clear(&adding);
}

void weft_uct_worker_armed(void *worker)
{
	struct sleeper *s = find(worker);

	if (s)
		atomic_store_explicit(&s->fruitless, 0, memory_order_relaxed);
}

void weft_uct_worker_gone(void *worker)
{
	struct sleeper *s = find(worker);

	if (s)
		atomic_store(&s->worker, NULL);
}

/* Seldom, and where there are many descriptors for 1 % of the time at most. */
static void look_for_loops(struct sleeper *s)
{
	const uint64_t start = weft_now_ns();
	uint64_t took;
	bool more;

	if (start < s->look_at)
		return;
	s->n_loops = weft_loop_find(s->efd, s->loops, &more);
	if (!more)
		s->n_loops = 0;
	took = weft_now_ns() - start;
	s->look_at = start + (took > LOOK_NS / 100 ? 100 * took : LOOK_NS);
}

/* How long, in microseconds, and on what. */
static unsigned int plan(struct sleeper *s, struct pollfd *fds, nfds_t *n)
{
	const unsigned int limit = weft_settings()->ucx_idle_wait_us;
	const bool blind = !s->n_loops || s->wakes >= WAKES;
	unsigned int us = FIRST_US << s->rests;

	fds[0] = (struct pollfd){ .fd = s->efd, .events = POLLIN };
	*n = 1;
	for (unsigned int i = 0; !blind && i < s->n_loops; i++)
		fds[(*n)++] =
			(struct pollfd){ .fd = s->loops[i], .events = POLLIN };
	if (blind && us > BLIND_US)
		us = BLIND_US;
	return us < limit ? us : limit;
}

/* Armed.  Returns the events of what ended it. */
static unsigned int sleep_armed(struct sleeper *s, void *worker)
{
	struct pollfd fds[WEFT_LOOP_MAX + 1];
	struct timespec limit = { 0 };
	unsigned int us;
	nfds_t n;
	int ready;

	look_for_loops(s);
	us = plan(s, fds, &n);
	limit.tv_nsec = us * 1000L;
	ready = ppoll(fds, n, &limit, NULL);
	if (ready < 0)
		return 0; /* a signal: let the program see to it */
	if (!ready) {
		if (FIRST_US << s->rests < weft_settings()->ucx_idle_wait_us)
			s->rests++;
		if (n > 1)
			s->wakes = 0;
		return 0;
	}
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].revents & POLLNVAL)
			s->look_at = 0;
	if (fds[0].revents)
		return s->calls.progress(worker);
	/* the program's own work: its turns before the next rest are free */
	s->wakes++;
	s->rests = 0;
	atomic_store_explicit(&s->fruitless, 0, memory_order_relaxed);
	return 0;
}

static unsigned int rest(struct sleeper *s, void *worker)
{
	unsigned int events = 0;
	bool quieted = false;

	/*
	 * What keeps the event fd readable may be a call for progress of which
	 * we have not heard: as ucp_worker_arm() wants it, progress once more.
	 */
	if (s->calls.arm(worker)) {
		quieted = true;
		events = s->calls.progress(worker);
		if (!events && !s->calls.arm(worker))
			events = sleep_armed(s, worker);
	} else {
		events = sleep_armed(s, worker);
	}
	/* the loop calls progress because the fd is readable, and shall again
	 */
	if (quieted)
		s->calls.signal(worker);
	return events;
}

unsigned int weft_uct_worker_progressed(void *worker, unsigned int events)
{
	struct sleeper *s = find(worker);

	if (!s)
		return events;
	if (!events &&
	    (atomic_fetch_add_explicit(&s->fruitless, 1, memory_order_relaxed) +
			     1 <
		     FRUITLESS ||
	     !weft_settings()->ucx_idle_wait_us || !atomic_load(&n_ifaces)))
		return 0;
	/* in the second of two threads there is nothing to be won */
	if (atomic_flag_test_and_set_explicit(&s->resting,
					      memory_order_acquire))
		return events;
	if (!events)
		events = rest(s, worker);
	if (events) {
		atomic_store_explicit(&s->fruitless, 0, memory_order_relaxed);
		s->rests = s->wakes = 0;
	}
	atomic_flag_clear_explicit(&s->resting, memory_order_release);
	return events;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleep in programs that poll an idle worker unintentionally.
 *
 * A program in "blocking" progress mode gets the event fd, arms the worker and
 * sleeps.  ucxx 0.52 arms it only once: then UCP's event fd stays readable,
 * and asyncio calls ucp_worker_progress() in every iteration of its loop, in
 * every process of a Dask cluster.  With few processors this takes the time
 * that transfers and computation need.  ucxx calls progress without Python's
 * lock, so do there what the program should: arm, and sleep.
 *
 * Events on UCP's fd end the sleep, and so do events that the program's loop
 * waits for: its epoll instance is the one that watches UCP's fd.  Only timers
 * and callbacks of the loop are delayed.  Therefore sleep only after several
 * idle calls, where there are processors enough after a while of them; the
 * first sleep is short, and each is longer than the one before, up to
 * WEFT_UCX_IDLE_WAIT.  Without such a loop all are short.
 *
 * Other programs are not affected: one that never gets UCP's event fd polls on
 * purpose, and one that arms before it sleeps makes fewer idle calls in
 * between.  Only the preload library sees these calls.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "host/host.h"
#include "settings/settings.h"
#include "preload/load.h"
#include "preload/loop.h"
#include "preload/sleep.h"
#include "util/clock.h"

#define MAX_WORKERS 16u /* with an event fd; further ones never sleep */
#define IDLE_CALLS  5u	/* idle calls before the first sleep */
/*
 * With so many processors they also take so long: each sleep delays the next
 * message.  32 processors, Dask's transpose of 8,000 x 8,000, medians: 2
 * workers 0.40 s without polling, 0.37 with 0.3 ms, 0.32 with 1 ms, 0.31 with 3
 * ms and 0.32 without sleeping (docs/performance/dask-over-ucxx.md).
 */
#define ENOUGH_CPUS 8u
#define POLL_NS	    1000000u
#define FIRST_US    100u /* the first sleep; each further one doubles */
#define BLIND_US    200u /* the longest sleep that no event loop ends */
#define WAKES	    16u	 /* wakes in a row, then ignore the loop */
#define SEARCH_NS   1000000000ull /* interval of searches for the loop */

struct idle_worker {
	_Atomic(void *) worker; /* NULL: free */
	atomic_uint idle_calls;
	_Atomic uint64_t idle_ns; /* weft_now_ns() of the first of them */
	atomic_flag sleeping;	  /* a thread is; protects the members below */
	struct weft_uct_worker_calls calls;
	int efd;
	unsigned int sleeps; /* in a row that timed out */
	unsigned int wakes;  /* in a row that the loop ended */
	unsigned int n_loops;
	int loops[WEFT_LOOP_MAX];
	uint64_t next_search_ns; /* weft_now_ns() */
};

static struct idle_worker idle_workers[MAX_WORKERS];
static atomic_flag adding = ATOMIC_FLAG_INIT;
static atomic_uint n_ifaces;
static uint64_t poll_ns; /* of idle calls, before the first sleep */

void weft_uct_idle_iface(int change)
{
	atomic_fetch_add(&n_ifaces, (unsigned int)change);
}

static struct idle_worker *find_sleeper(void *worker)
{
	for (unsigned int i = 0; i < MAX_WORKERS; i++)
		if (atomic_load_explicit(&idle_workers[i].worker,
					 memory_order_acquire) == worker)
			return &idle_workers[i];
	return NULL;
}

/*
 * In a forked child: UCP's destructors remove the interfaces from the worker's
 * epoll instance.  That is the parent's, which would never wake up again; and
 * UCP ends a process that does not find its descriptors there.
 */
static void leave_parent(void)
{
	for (unsigned int i = 0; i < MAX_WORKERS; i++)
		if (atomic_exchange(&idle_workers[i].worker, NULL))
			weft_loop_own(idle_workers[i].efd);
	atomic_flag_clear(&adding);
}

static void begin(void)
{
	poll_ns = weft_host_cpus() < ENOUGH_CPUS ? 0 : POLL_NS;
	pthread_atfork(NULL, NULL, leave_parent);
}

void weft_uct_event_driven(void *worker, int efd,
			   const struct weft_uct_worker_calls *calls)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct idle_worker *s;

	pthread_once(&once, begin);
	while (atomic_flag_test_and_set(&adding))
		;
	s = find_sleeper(worker);
	/* known, unless it is a stale entry with the same address */
	if (s && s->efd == efd && s->calls.progress == calls->progress)
		s = NULL;
	else if (s)
		atomic_store(&s->worker, NULL);
	else
		s = find_sleeper(NULL);
	if (s) {
		atomic_store(&s->idle_calls, 0);
		atomic_flag_clear(&s->sleeping);
		s->calls = *calls;
		s->efd = efd;
		s->sleeps = s->wakes = s->n_loops = 0;
		s->next_search_ns = 0;
		atomic_store_explicit(&s->worker, worker, memory_order_release);
	}
	atomic_flag_clear(&adding);
}

void weft_uct_worker_armed(void *worker)
{
	struct idle_worker *s = find_sleeper(worker);

	if (s)
		atomic_store_explicit(&s->idle_calls, 0, memory_order_relaxed);
}

void weft_uct_worker_gone(void *worker)
{
	struct idle_worker *s = find_sleeper(worker);

	if (s)
		atomic_store(&s->worker, NULL);
}

/* With many descriptors the search takes at most 1 % of the time. */
static void find_event_loops(struct idle_worker *s)
{
	const uint64_t start = weft_now_ns();
	uint64_t took;
	bool more;

	if (start < s->next_search_ns)
		return;
	s->n_loops = weft_loop_find(s->efd, s->loops, &more);
	if (!more)
		s->n_loops = 0;
	took = weft_now_ns() - start;
	s->next_search_ns =
		start + (took > SEARCH_NS / 100 ? 100 * took : SEARCH_NS);
}

/* The length of the next sleep in microseconds, and the descriptors to poll. */
static unsigned int next_sleep_us(struct idle_worker *s, struct pollfd *fds,
				  nfds_t *n)
{
	const unsigned int limit = weft_settings()->ucx_idle_wait_us;
	const bool blind = !s->n_loops || s->wakes >= WAKES;
	unsigned int us = FIRST_US << s->sleeps;

	fds[0] = (struct pollfd){ .fd = s->efd, .events = POLLIN };
	*n = 1;
	for (unsigned int i = 0; !blind && i < s->n_loops; i++)
		fds[(*n)++] =
			(struct pollfd){ .fd = s->loops[i], .events = POLLIN };
	if (blind && us > BLIND_US)
		us = BLIND_US;
	return us < limit ? us : limit;
}

/* Called with the worker armed.  Returns the events of what ended the sleep. */
static unsigned int sleep_armed(struct idle_worker *s, void *worker)
{
	struct pollfd fds[WEFT_LOOP_MAX + 1];
	struct timespec limit = { 0 };
	unsigned int us;
	nfds_t n;
	int ready;

	find_event_loops(s);
	us = next_sleep_us(s, fds, &n);
	limit.tv_nsec = us * 1000L;
	ready = ppoll(fds, n, &limit, NULL);
	if (ready < 0)
		return 0; /* a signal: let the program handle it */
	if (!ready) {
		if (FIRST_US << s->sleeps < weft_settings()->ucx_idle_wait_us)
			s->sleeps++;
		if (n > 1)
			s->wakes = 0;
		return 0;
	}
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].revents & POLLNVAL)
			s->next_search_ns = 0;
	if (fds[0].revents)
		return s->calls.progress(worker);
	/* the program has other work: start counting again */
	s->wakes++;
	s->sleeps = 0;
	atomic_store_explicit(&s->idle_calls, 0, memory_order_relaxed);
	return 0;
}

static unsigned int sleep_idle(struct idle_worker *s, void *worker)
{
	unsigned int events = 0;
	bool progressed = false;

	/*
	 * The event fd may be readable because of unfinished progress:
	 * ucp_worker_arm() wants one more call then.
	 */
	if (s->calls.arm(worker)) {
		progressed = true;
		events = s->calls.progress(worker);
		if (!events && !s->calls.arm(worker))
			events = sleep_armed(s, worker);
	} else {
		events = sleep_armed(s, worker);
	}
	/* keep the fd readable: the loop calls progress because of it */
	if (progressed)
		s->calls.signal(worker);
	return events;
}

/* Has it been idle for long enough, with this call? */
static bool is_idle(struct idle_worker *s)
{
	const unsigned int before = atomic_fetch_add_explicit(
		&s->idle_calls, 1, memory_order_relaxed);

	if (!before && poll_ns)
		atomic_store(&s->idle_ns, weft_now_ns());
	return before + 1 >= IDLE_CALLS &&
	       (!poll_ns ||
		weft_now_ns() - atomic_load(&s->idle_ns) >= poll_ns);
}

unsigned int weft_uct_worker_progressed(void *worker, unsigned int events)
{
	struct idle_worker *s = find_sleeper(worker);

	if (!s)
		return events;
	if (!events && (!is_idle(s) || !weft_settings()->ucx_idle_wait_us ||
			!atomic_load(&n_ifaces)))
		return 0;
	/* another thread sleeps already */
	if (atomic_flag_test_and_set_explicit(&s->sleeping,
					      memory_order_acquire))
		return events;
	if (!events)
		events = sleep_idle(s, worker);
	if (events) {
		atomic_store_explicit(&s->idle_calls, 0, memory_order_relaxed);
		s->sleeps = s->wakes = 0;
	}
	atomic_flag_clear_explicit(&s->sleeping, memory_order_release);
	return events;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Who sleeps when there is nothing to do, on what, and who never does. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "settings/settings.h"
#include "preload/load.h"
#include "preload/loop.h"
#include "preload/sleep.h"
#include "util/clock.h"

#define FRUITLESS 5 /* calls before the first sleep */
#define US	  1000L
#define WORKER	  ((void *)worker)
#define OTHER	  ((void *)(worker + 1))

/*
 * A worker as UCP makes it: an epoll instance in which UCP's own eventfd and
 * the interfaces' descriptors are, here a pipe.
 */
static char worker[2];
static struct {
	int efd, event, wire[2];
	unsigned int progressed, armed, signalled;
	unsigned int events; /* that the next progress finds */
	signed char busy;    /* what arm says although the eventfd is quiet */
	bool wire_armed;
} ucp;

/* The program's loop: ucxx's epoll instance in asyncio's, and a self-pipe. */
static int ucxx, loop, self[2];

/* Replaces the C library's: records each sleep, and returns at once. */
static unsigned int sleeps;
static long limit_ns;
static nfds_t watched;
static void (*during)(void); /* happens while the program sleeps */

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *limit,
	  const sigset_t *mask)
{
	sleeps++;
	watched = n;
	limit_ns = limit->tv_nsec;
	cr_expect(ucp.wire_armed, "no sleep without arming");
	if (during)
		during();
	return poll(fds, n, 0);
}

static unsigned int progress(void *w)
{
	const unsigned int events = ucp.events;

	cr_assert_eq(w, WORKER);
	ucp.progressed++;
	ucp.events = 0;
	return events;
}

/* As ucp_worker_arm() does it: what is signalled is taken, and busy. */
static signed char arm(void *w)
{
	eventfd_t value;

	cr_assert_eq(w, WORKER);
	ucp.armed++;
	if (!eventfd_read(ucp.event, &value))
		return -15; /* UCS_ERR_BUSY */
	ucp.wire_armed = !ucp.busy;
	return ucp.busy;
}

static signed char ring(void *w)
{
	cr_assert_eq(w, WORKER);
	ucp.signalled++;
	ucp.wire_armed = false;
	return eventfd_write(ucp.event, 1) ? -3 : 0;
}

static const struct weft_uct_worker_calls calls = { progress, arm, ring };

static void watch(int epfd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	cr_assert_eq(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event), 0);
}

static bool readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

/* Replaces host/host.c's. */
static unsigned int cpus;
unsigned int __wrap_weft_host_cpus(void);
unsigned int __wrap_weft_host_cpus(void)
{
	return cpus;
}

static uint64_t now_ns;
static uint64_t test_clock(void)
{
	return now_ns;
}

static void setup(void)
{
	const int spare = epoll_create1(EPOLL_CLOEXEC);

	clearenv();
	weft_settings_reset();
	now_ns = 1;
	cpus = 2;
	weft_clock_set(test_clock);
	weft_uct_idle_iface(1);
	ucp.efd = epoll_create1(EPOLL_CLOEXEC);
	ucp.event = eventfd(1, EFD_NONBLOCK);
	cr_assert_eq(pipe2(ucp.wire, O_NONBLOCK), 0);
	watch(ucp.efd, ucp.event);
	watch(ucp.efd, ucp.wire[0]);
	/* its number is higher than the loop's, which watches it */
	ucxx = dup2(spare, 200);
	close(spare);
	watch(ucxx, ucp.efd);
	cr_assert_eq(pipe2(self, O_NONBLOCK), 0);
}

static void start_loop(void)
{
	loop = epoll_create1(EPOLL_CLOEXEC);
	watch(loop, ucxx);
	watch(loop, self[0]);
}

/* The same, of a program whose worker is driven by its events. */
static void drive_loop(void)
{
	start_loop();
	weft_uct_event_driven(WORKER, ucp.efd, &calls);
}

static void fruitless(unsigned int n)
{
	while (n--)
		cr_expect_eq(weft_uct_worker_progressed(WORKER, 0), 0);
}

/* Up to the first sleep, and it. */
static void first_sleep(void)
{
	const unsigned int before = sleeps;

	fruitless(FRUITLESS - 1);
	cr_expect_eq(sleeps, before, "too early");
	fruitless(1);
	cr_expect_eq(sleeps, before + 1);
}

TestSuite(sleep, .init = setup, .timeout = 20);

Test(sleep, polling_worker_never_sleeps)
{
	fruitless(100 * FRUITLESS);
	weft_uct_event_driven(OTHER, ucp.efd, &calls);
	fruitless(100 * FRUITLESS);
	cr_expect_eq(sleeps + ucp.armed + ucp.signalled, 0);
}

/* Where the program has processors left, messages come faster. */
Test(sleep, with_many_processors_it_polls_for_a_while)
{
	cpus = 8;
	drive_loop();
	for (unsigned int round = 0; round < 2; round++) {
		fruitless(100 * FRUITLESS);
		now_ns += 1000 * US - 1;
		fruitless(1);
		cr_expect_eq(sleeps, round, "too early");
		now_ns++;
		fruitless(1);
		cr_expect_eq(sleeps, round + 1);
		/* an event begins it again */
		cr_expect_eq(weft_uct_worker_progressed(WORKER, 1), 1);
	}
}

Test(sleep, no_sleep_without_interface)
{
	weft_uct_idle_iface(-1);
	weft_uct_event_driven(WORKER, ucp.efd, &calls);
	fruitless(2 * FRUITLESS);
	cr_expect_eq(sleeps + ucp.armed, 0);
	weft_uct_idle_iface(1);
	fruitless(1);
	cr_expect_eq(sleeps, 1);
}

Test(sleep, sleeps_grow_until_an_event)
{
	long want = 100 * US;

	drive_loop();
	first_sleep();
	cr_expect_eq(watched, 3, "UCP's, ucxx's and the loop's");
	for (int i = 0; i < 10; i++) {
		cr_expect_eq(limit_ns, want < 5000 * US ? want : 5000 * US,
			     "sleep %d is %ld ns", i, limit_ns);
		want *= 2;
		fruitless(1);
	}
	cr_expect_eq(sleeps, 11);
	cr_expect_eq(ucp.signalled, 11);
	cr_expect(readable(loop), "what was readable is so again");

	/* something came */
	cr_expect_eq(weft_uct_worker_progressed(WORKER, 7), 7);
	first_sleep();
	cr_expect_eq(limit_ns, 100 * US);
	/* or the program sleeps by itself */
	weft_uct_worker_armed(WORKER);
	first_sleep();
}

static void data(void)
{
	cr_assert_eq(write(ucp.wire[1], "d", 1), 1);
	ucp.events = 3;
}

Test(sleep, data_ends_sleep_and_is_progressed)
{
	drive_loop();
	fruitless(FRUITLESS + 3);
	during = data;
	cr_expect_eq(weft_uct_worker_progressed(WORKER, 0), 3);
	cr_expect_eq(sleeps, 5);
	during = NULL;
	cr_expect(readable(ucp.efd), "the loop calls progress again");
	cr_assert_eq(read(ucp.wire[0], &(char){ 0 }, 1), 1);
	first_sleep();
	cr_expect_eq(limit_ns, 100 * US);
}

static void call_soon(void)
{
	cr_assert_eq(write(self[1], "", 1), 1);
}

Test(sleep, event_loop_work_ends_sleep)
{
	drive_loop();
	fruitless(FRUITLESS + 3);
	during = call_soon;
	fruitless(1);
	cr_expect_eq(sleeps, 5);
	during = NULL;
	cr_expect(readable(ucp.efd));
	cr_assert_eq(read(self[0], &(char){ 0 }, 1), 1);
	first_sleep();
	cr_expect_eq(limit_ns, 100 * US);
}

/* What asks for progress while nothing is on the wire is not slept over. */
Test(sleep, pending_signal_is_progressed_before_sleep)
{
	weft_uct_event_driven(WORKER, ucp.efd, &calls);
	ucp.events = 2;
	fruitless(FRUITLESS - 1);
	cr_expect_eq(weft_uct_worker_progressed(WORKER, 0), 2);
	cr_expect_eq(sleeps, 0);
	cr_expect_eq(ucp.progressed, 1);
	cr_expect(readable(ucp.efd));

	ucp.busy = -15;
	fruitless(2 * FRUITLESS);
	cr_expect_eq(sleeps, 0);
	cr_expect(readable(ucp.efd));
	ucp.busy = 0;
	fruitless(1);
	cr_expect_eq(sleeps, 1);
}

/* A program that armed, and whose fd is quiet, finds it so afterwards. */
Test(sleep, idle_fd_is_not_signalled)
{
	drive_loop();
	arm(WORKER);
	cr_expect(!readable(ucp.efd));
	first_sleep();
	cr_expect_eq(ucp.signalled, 0);
	cr_expect(!readable(ucp.efd));
}

Test(sleep, without_loop_sleeps_are_short)
{
	weft_uct_event_driven(WORKER, ucp.efd, &calls);
	first_sleep();
	cr_expect_eq(limit_ns, 100 * US);
	fruitless(64);
	cr_expect_eq(sleeps, 65);
	cr_expect_eq(limit_ns, 200 * US);
	cr_expect_eq(watched, 1);

	/* it is looked for again, though not each time */
	start_loop();
	fruitless(1);
	cr_expect_eq(watched, 1);
	now_ns += 1100 * 1000 * US;
	fruitless(1);
	cr_expect_eq(watched, 3);
	cr_expect_eq(limit_ns, 5000 * US);
}

Test(sleep, closed_loop_is_not_polled)
{
	drive_loop();
	first_sleep();
	cr_expect_eq(watched, 3);
	close(loop);
	fruitless(1);
	cr_expect_eq(watched, 3);
	/* that one said so, and the next looks again */
	fruitless(FRUITLESS);
	cr_expect_eq(sleeps, 3);
	cr_expect_eq(watched, 1);
	cr_expect_eq(limit_ns, 100 * US);
	fruitless(3);
	cr_expect_eq(limit_ns, 200 * US);
}

/* A descriptor in the loop that is always ready must not make us spin again. */
Test(sleep, always_ready_loop_is_ignored)
{
	drive_loop();
	call_soon();
	fruitless(16 * FRUITLESS);
	cr_expect_eq(sleeps, 16);
	cr_expect_eq(watched, 3);
	fruitless(FRUITLESS + 4);
	cr_expect_eq(sleeps, 21);
	cr_expect_eq(watched, 1);
	cr_expect_eq(limit_ns, 200 * US);
	/* until something comes */
	weft_uct_worker_progressed(WORKER, 1);
	first_sleep();
	cr_expect_eq(watched, 3);
}

Test(sleep, workers_are_independent)
{
	drive_loop();
	weft_uct_event_driven(WORKER, ucp.efd, &calls); /* asked twice */
	weft_uct_event_driven(OTHER, ucp.efd, &calls);
	for (int i = 0; i < FRUITLESS - 1; i++) {
		weft_uct_worker_progressed(WORKER, 0);
		weft_uct_worker_progressed(OTHER, 1);
	}
	cr_expect_eq(sleeps, 0);
	fruitless(1);
	cr_expect_eq(sleeps, 1);

	/* another worker at the same address has not asked */
	weft_uct_worker_gone(WORKER);
	fruitless(10 * FRUITLESS);
	cr_expect_eq(sleeps, 1);
	weft_uct_event_driven(WORKER, ucp.efd, &calls);
	first_sleep();
}

Test(sleep, too_many_workers_never_sleep)
{
	static char many[40];

	for (unsigned int i = 0; i < sizeof(many); i++)
		weft_uct_event_driven(&many[i], ucp.efd, &calls);
	weft_uct_event_driven(WORKER, ucp.efd, &calls);
	fruitless(10 * FRUITLESS);
	cr_expect_eq(sleeps, 0);
	weft_uct_worker_gone(&many[3]);
	weft_uct_event_driven(WORKER, ucp.efd, &calls);
	first_sleep();
}

Test(sleep, setting_limits_sleep)
{
	setenv("WEFT_UCX_IDLE_WAIT", "150", 1);
	weft_settings_reset();
	drive_loop();
	first_sleep();
	cr_expect_eq(limit_ns, 100 * US);
	fruitless(40);
	cr_expect_eq(limit_ns, 150 * US);
}

Test(sleep, zero_disables_sleep)
{
	setenv("WEFT_UCX_IDLE_WAIT", "0", 1);
	weft_settings_reset();
	weft_uct_event_driven(WORKER, ucp.efd, &calls);
	fruitless(10 * FRUITLESS);
	cr_expect_eq(sleeps + ucp.armed, 0);
}

TestSuite(loop, .init = setup, .timeout = 20);

Test(loop, nested_epolls_are_found)
{
	int found[WEFT_LOOP_MAX], unrelated;
	bool more = true;

	cr_expect_eq(weft_loop_find(ucp.efd, found, &more), 1);
	cr_expect_eq(found[0], ucxx);
	cr_expect(!more, "ucxx's waits for nothing else");
	unrelated = epoll_create1(EPOLL_CLOEXEC);
	watch(unrelated, self[0]);
	start_loop();
	cr_expect_eq(weft_loop_find(ucp.efd, found, &more), 2);
	cr_expect(found[0] == loop || found[1] == loop);
	cr_expect(found[0] == ucxx || found[1] == ucxx);
	cr_expect(more);
	cr_expect_eq(weft_loop_find(self[1], found, &more), 0);
	cr_expect(!more);
}

Test(loop, too_many_epolls_find_none)
{
	int found[WEFT_LOOP_MAX];
	bool more;

	for (unsigned int i = 1; i < WEFT_LOOP_MAX; i++) {
		watch(epoll_create1(EPOLL_CLOEXEC), ucp.efd);
		watch(epoll_create1(EPOLL_CLOEXEC), self[0]);
	}
	cr_expect_eq(weft_loop_find(ucp.efd, found, &more), WEFT_LOOP_MAX);
	start_loop();
	cr_expect_eq(weft_loop_find(ucp.efd, found, &more), 0);
	cr_expect(!more);
}

/* UCP's destructors take the interfaces out in a child, too. */
Test(sleep, forked_child_has_an_epoll_instance_of_its_own)
{
	int status;
	pid_t pid;

	drive_loop();
	arm(WORKER); /* which makes it quiet */
	pid = fork();
	if (!pid) {
		fruitless(100 * FRUITLESS);
		_exit(sleeps ||
		      epoll_ctl(ucp.efd, EPOLL_CTL_DEL, ucp.wire[0], NULL) ||
		      epoll_ctl(ucp.efd, EPOLL_CTL_DEL, ucp.event, NULL));
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
	cr_expect(!readable(ucp.efd));
	cr_assert_eq(write(ucp.wire[1], "d", 1), 1);
	cr_expect(readable(ucp.efd), "it still watches the interface");
	cr_expect(readable(loop), "and the loop the worker");
}

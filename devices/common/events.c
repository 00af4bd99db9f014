/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/events.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "stats/stats.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/util.h"

/* Descriptors are created when needed: many interfaces are never used. */
static int add_fd(struct weft_events *ev, int *at, int fd,
		  struct weft_source *src)
{
	int err = fd < 0 ? -errno : weft_events_add(ev, fd, src, EPOLLIN);

	if (!err)
		*at = fd;
	else if (fd >= 0)
		close(fd);
	return err;
}

static bool has_timer(struct weft_events *ev)
{
	int err = 0;

	if (ev->timer_fd < 0)
		err = add_fd(ev, &ev->timer_fd,
			     timerfd_create(CLOCK_MONOTONIC,
					    TFD_CLOEXEC | TFD_NONBLOCK),
			     &ev->timer);
	if (err)
		weft_warn_once(
			"cannot create a timer (%s): a program that would sleep is kept awake; raise the limit with 'ulimit -n'",
			strerror(-err));
	return !err;
}

/*
 * A caller that makes progress reads the clock; only one that sleeps needs a
 * descriptor.
 */
static bool set_timer(struct weft_events *ev)
{
	struct itimerspec its = { .it_value.tv_sec = 0 };
	uint64_t now, ms;

	if (!ev->sleeps || ev->timer_ms >= ev->set_ms)
		return true;
	if (!has_timer(ev))
		return false;
	now = weft_now_ms();
	ms = ev->timer_ms > now ? ev->timer_ms - now : 1;
	its.it_value.tv_sec = ms / 1000;
	its.it_value.tv_nsec = ms % 1000 * 1000000;
	timerfd_settime(ev->timer_fd, 0, &its, NULL);
	ev->set_ms = ev->timer_ms;
	return true;
}

void weft_events_wake_at(struct weft_events *ev, uint64_t ms)
{
	if (ms >= ev->timer_ms)
		return;
	ev->timer_ms = ms;
	set_timer(ev);
}

int weft_events_arm(struct weft_events *ev)
{
	ev->sleeps = true;
	weft_events_wake_at(ev, weft_stats_sleep(weft_now_ms()));
	return set_timer(ev) ? 0 : -EBUSY;
}

static unsigned int handle_wake(struct weft_source *src, uint32_t events)
{
	struct weft_events *ev = container_of(src, struct weft_events, wake);
	eventfd_t n;

	eventfd_read(ev->wake_fd, &n);
	return 0;
}

/* Compares with the clock, whether the timer has fired or not. */
static unsigned int handle_timer(struct weft_source *src, uint32_t events)
{
	struct weft_events *ev = container_of(src, struct weft_events, timer);
	uint64_t fires;

	if (read(ev->timer_fd, &fires, sizeof(fires)) > 0)
		ev->set_ms = UINT64_MAX;
	return 0;
}

int weft_events_open(struct weft_events *ev,
		     unsigned int (*on_timer)(struct weft_events *ev,
					      uint64_t now, uint64_t stood))
{
	ev->wake.handle = handle_wake;
	ev->timer.handle = handle_timer;
	ev->timer_ms = ev->set_ms = UINT64_MAX;
	ev->on_timer = on_timer;
	ev->wake_fd = ev->timer_fd = -1;
	ev->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (ev->epfd < 0)
		return weft_fail(
			-errno,
			"cannot create an event queue; raise the limit with 'ulimit -n'");
	return 0;
}

int weft_events_need_wake(struct weft_events *ev)
{
	int err = 0;

	if (ev->wake_fd < 0)
		err = add_fd(ev, &ev->wake_fd,
			     eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), &ev->wake);
	if (err)
		weft_fail(
			err,
			"cannot create an event descriptor; raise the limit with 'ulimit -n'");
	return err;
}

void weft_events_wake(struct weft_events *ev)
{
	if (ev->wake_fd >= 0)
		eventfd_write(ev->wake_fd, 1);
	else
		weft_events_wake_at(ev, weft_now_ms());
}

void weft_events_close(struct weft_events *ev)
{
	int *fds[] = { &ev->timer_fd, &ev->wake_fd, &ev->epfd };
	unsigned int i;

	if (!ev->on_timer) /* never opened */
		return;
	for (i = 0; i < ARRAY_SIZE(fds); i++)
		if (*fds[i] >= 0)
			close(*fds[i]);
}

static int control_epoll(struct weft_events *ev, int op, int fd,
			 struct weft_source *src, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = src };

	return epoll_ctl(ev->epfd, op, fd, &e) ? -errno : 0;
}

int weft_events_add(struct weft_events *ev, int fd, struct weft_source *src,
		    uint32_t events)
{
	return control_epoll(ev, EPOLL_CTL_ADD, fd, src, events);
}

int weft_events_change(struct weft_events *ev, int fd, struct weft_source *src,
		       uint32_t events)
{
	return control_epoll(ev, EPOLL_CTL_MOD, fd, src, events);
}

void weft_events_del(struct weft_events *ev, int fd)
{
	control_epoll(ev, EPOLL_CTL_DEL, fd, NULL, 0);
}

void weft_events_close_fd(struct weft_events *ev, int fd)
{
	if (fd < 0)
		return;
	/* a child may hold it: close() alone neither ends nor unwatches it */
	weft_events_del(ev, fd);
	shutdown(fd, SHUT_RDWR);
	close(fd);
}

static unsigned int look_at_clock(struct weft_events *ev)
{
	const uint64_t now = weft_now_ms(), due = ev->timer_ms;

	weft_stats_tick(now);
	if (now < due)
		return 0;
	ev->timer_ms = UINT64_MAX;
	return ev->on_timer(ev, now,
			    now - due > WEFT_TICK_MS ? now - due - WEFT_TICK_MS
						     : 0);
}

unsigned int weft_events_handle(struct weft_events *ev)
{
	struct epoll_event e[32];
	struct weft_source *src;
	unsigned int done = 0;
	int i, n;

	ev->sleeps = false;
	n = epoll_wait(ev->epfd, e, ARRAY_SIZE(e), 0);
	for (i = 0; i < n; i++) {
		src = e[i].data.ptr;
		done += src->handle(src, e[i].events);
	}
	return done + look_at_clock(ev);
}

bool weft_events_pending(const struct weft_events *ev)
{
	struct epoll_event e;

	return epoll_wait(ev->epfd, &e, 1, 0) > 0;
}

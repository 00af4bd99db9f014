/* SPDX-License-Identifier: BSD-3-Clause */
/* What an interface waits for: its timer, and how late it was looked at. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "settings/settings.h"
#include "stats/stats.h"
#include "devices/common/events.h"
#include "tests/lib/folder.h"
#include "util/clock.h"
#include "util/util.h"

static struct weft_events ev;
static uint64_t now_ms, fired_at, stood_ms;
static unsigned int fires;

static uint64_t fake_clock(void)
{
	return now_ms * 1000000;
}

static unsigned int on_timer(struct weft_events *e, uint64_t now,
			     uint64_t stood)
{
	fires++;
	fired_at = now;
	stood_ms = stood;
	return 1;
}

static void begin(void)
{
	now_ms = 1000;
	weft_clock_set(fake_clock);
	cr_assert(zero(int, weft_events_open(&ev, on_timer)));
}

static void end(void)
{
	weft_events_close(&ev);
}

TestSuite(events, .init = begin, .fini = end, .timeout = 60);

static unsigned int fires_at(uint64_t ms)
{
	now_ms = ms;
	fires = 0;
	weft_events_handle(&ev);
	return fires;
}

Test(events, the_earliest_time_counts)
{
	weft_events_wake_at(&ev, 1500);
	weft_events_wake_at(&ev, 1200);
	weft_events_wake_at(&ev, 1900);
	cr_expect(eq(uint, fires_at(1199), 0));
	cr_expect(eq(uint, fires_at(1200), 1));
	cr_expect(eq(u64, fired_at, 1200));
	cr_expect(eq(uint, fires_at(5000), 0), "once");
	weft_events_wake_at(&ev, 6000);
	cr_expect(eq(uint, fires_at(6000), 1), "and again when it is set");
}

Test(events, the_timer_learns_of_a_stall)
{
	weft_events_wake_at(&ev, 2000);
	cr_expect(eq(uint, fires_at(2000 + WEFT_TICK_MS), 1));
	cr_expect(eq(u64, stood_ms, 0), "a tick late is not late");
	weft_events_wake_at(&ev, 3000);
	cr_expect(eq(uint, fires_at(3000 + WEFT_TICK_MS + 700), 1));
	cr_expect(eq(u64, stood_ms, 700));
}

Test(events, a_sleeper_is_woken)
{
	struct pollfd p = { .fd = ev.epfd, .events = POLLIN };

	cr_expect(not(weft_events_pending(&ev)));
	cr_assert(zero(int, weft_events_need_wake(&ev)));
	eventfd_write(ev.wake_fd, 1);
	cr_expect(eq(int, poll(&p, 1, 0), 1));
	weft_events_handle(&ev);
	cr_expect(not(weft_events_pending(&ev)));
	/* by the real clock, which is the kernel's */
	weft_events_wake_at(&ev, now_ms + 1);
	cr_expect(eq(int, ev.timer_fd, -1), "it may be polling");
	weft_events_arm(&ev);
	cr_expect(eq(int, poll(&p, 1, 30000), 1));
	weft_events_handle(&ev);
	cr_expect(eq(uint, fires, 0), "ours says that it is too early");
	weft_events_arm(&ev);
	cr_expect(eq(int, poll(&p, 1, 30000), 1), "it fires again");
	cr_expect(eq(uint, fires_at(now_ms + 1), 1));
}

static unsigned int handled;

static unsigned int handle(struct weft_source *src, uint32_t events)
{
	handled = events;
	return 3;
}

Test(events, a_source_gets_its_events)
{
	struct weft_source src = { handle };
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	cr_assert(zero(int, weft_events_add(&ev, fd, &src, EPOLLIN)));
	cr_expect(zero(uint, weft_events_handle(&ev)));
	eventfd_write(fd, 1);
	cr_expect(eq(uint, weft_events_handle(&ev), 3));
	cr_expect(eq(uint, handled, EPOLLIN));
	cr_assert(zero(int, weft_events_change(&ev, fd, &src, EPOLLOUT)));
	cr_expect(eq(uint, weft_events_handle(&ev), 3));
	cr_expect(eq(uint, handled, EPOLLOUT));
	weft_events_del(&ev, fd);
	cr_expect(zero(uint, weft_events_handle(&ev)));
	close(fd);
}

/* Of the only peer in the only page in the folder. */
static uint64_t shown_gets(void)
{
	struct weft_page_row row = { 0 };
	char pattern[64];
	glob_t g;
	int fd;

	snprintf(pattern, sizeof(pattern), "%s/weft-*/c-*", folder);
	cr_assert(zero(int, glob(pattern, 0, NULL, &g)));
	fd = open(g.gl_pathv[0], O_RDONLY | O_CLOEXEC);
	cr_assert(eq(int,
		     (int)pread(fd, &row, sizeof(row),
				sizeof(struct weft_page_head)),
		     (int)sizeof(row)));
	close(fd);
	globfree(&g);
	return row.c.gets;
}

Test(events, counters_are_copied_now_and_then_and_before_sleep)
{
	struct weft_counters *c;
	struct weft_stats *s;

	folder_begin();
	setenv("WEFT_RUN_DIR", folder, 1);
	weft_settings_reset();
	s = weft_stats_open("tcp", "lo");
	c = weft_stats_peer(s, 1, "x");
	weft_count(c, gets, 1);
	weft_events_handle(&ev);
	cr_expect(eq(u64, shown_gets(), 1));
	weft_count(c, gets, 1);
	now_ms += 249;
	weft_events_handle(&ev);
	cr_expect(eq(u64, shown_gets(), 1));
	weft_events_arm(&ev);
	cr_expect(eq(u64, shown_gets(), 2));
	weft_count(c, gets, 1);
	weft_events_arm(&ev);
	cr_expect(eq(u64, shown_gets(), 2));
	cr_expect(eq(u64, ev.set_ms, now_ms + 250), "it wakes for that");
	now_ms += 250;
	weft_events_handle(&ev);
	cr_expect(eq(u64, shown_gets(), 3));
	weft_stats_close(s);
	folder_end();
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an interface waits for, behind one descriptor that the caller can poll:
 * sockets, a timer for deadlines, and an eventfd that other threads write.
 */
#ifndef WEFT_DEVICES_EVENTS_H
#define WEFT_DEVICES_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#define WEFT_TICK_MS 250 /* deadlines of peers are looked at this often */

/* A descriptor that is waited for; part of the object that it belongs to. */
struct weft_source {
	/* @events as of epoll_ctl(2); how much was done. */
	unsigned int (*handle)(struct weft_source *src, uint32_t events);
};

struct weft_events {
	int epfd;    /* the descriptor for the caller */
	int wake_fd; /* any thread may write it */
	int timer_fd;
	struct weft_source wake, timer;
	uint64_t timer_ms; /* when it fires; UINT64_MAX: not at all */
	/*
	 * It has fired.  @stood: ms for which this program did not look, so
	 * that it let its peers wait, not they it.
	 */
	unsigned int (*on_timer)(struct weft_events *ev, uint64_t now,
				 uint64_t stood);
};

/* -errno, logged; to be closed in any case. */
int weft_events_open(struct weft_events *ev,
		     unsigned int (*on_timer)(struct weft_events *ev,
					      uint64_t now, uint64_t stood));
void weft_events_close(struct weft_events *ev);
/* Waits for @events at @fd, from now on or instead of what it was; -errno. */
int weft_events_add(struct weft_events *ev, int fd, struct weft_source *src,
		    uint32_t events);
int weft_events_change(struct weft_events *ev, int fd, struct weft_source *src,
		       uint32_t events);
void weft_events_del(struct weft_events *ev, int fd);
/* Stops watching @fd and closes it; -1: nothing. */
void weft_events_close_fd(struct weft_events *ev, int fd);
/* The timer fires then at the latest. */
void weft_events_wake_at(struct weft_events *ev, uint64_t ms);
/* Handles what has happened, timer last; how much was done. */
unsigned int weft_events_handle(struct weft_events *ev);
/* Has anything happened that was not handled? */
bool weft_events_pending(const struct weft_events *ev);

#endif

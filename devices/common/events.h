/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an interface waits for, behind one descriptor that the caller can poll:
 * sockets, a timer for deadlines, and an eventfd that other threads write.
 */
#ifndef WEFT_DEVICES_COMMON_EVENTS_H
#define WEFT_DEVICES_COMMON_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#define WEFT_TICK_MS 250 /* how often deadlines of peers are checked */

/* A watched descriptor, embedded in the object that it belongs to. */
struct weft_source {
	/* @events: as in epoll_ctl(2).  Returns how much was done. */
	unsigned int (*handle)(struct weft_source *src, uint32_t events);
};

struct weft_events {
	int epfd;     /* the descriptor for the caller */
	int wake_fd;  /* any thread may write to it; -1: none needed it yet */
	int timer_fd; /* -1: likewise */
	bool sleeps;  /* armed: deadlines must wake the owner */
	struct weft_source wake, timer;
	uint64_t timer_ms; /* the next deadline; UINT64_MAX: none */
	uint64_t set_ms;   /* when timer_fd fires, likewise */
	/*
	 * The timer has fired.  @stood: ms for which this process stalled;
	 * deadlines of peers are extended by that.
	 */
	unsigned int (*on_timer)(struct weft_events *ev, uint64_t now,
				 uint64_t stood);
};

/* -errno, logged; close it even on failure. */
int weft_events_open(struct weft_events *ev,
		     unsigned int (*on_timer)(struct weft_events *ev,
					      uint64_t now, uint64_t stood));
void weft_events_close(struct weft_events *ev);
/* From now on other threads may call weft_events_wake(); -errno, logged. */
int weft_events_need_wake(struct weft_events *ev);
/*
 * Makes the descriptor readable; before weft_events_need_wake() only the owner
 * may call it.
 */
void weft_events_wake(struct weft_events *ev);
/* Watches @fd for @events; _change() replaces the former ones.  -errno. */
int weft_events_add(struct weft_events *ev, int fd, struct weft_source *src,
		    uint32_t events);
int weft_events_change(struct weft_events *ev, int fd, struct weft_source *src,
		       uint32_t events);
void weft_events_del(struct weft_events *ev, int fd);
/* Stops watching the socket @fd, shuts it down and closes it; -1: nothing. */
void weft_events_close_fd(struct weft_events *ev, int fd);
/*
 * The owner may sleep until it handles events again; -EBUSY: it may not,
 * because there is no descriptor to wake it for the next deadline.
 */
int weft_events_arm(struct weft_events *ev);
/* Has on_timer() called at @ms (weft_now_ms()) or earlier. */
void weft_events_wake_at(struct weft_events *ev, uint64_t ms);
/* Handles pending events, the timer last; returns how much was done. */
unsigned int weft_events_handle(struct weft_events *ev);
/* Is there an unhandled event? */
bool weft_events_pending(const struct weft_events *ev);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rest for programs that spin without meaning to.
 *
 * A program that progresses "blocking" asks for the event fd, arms, and sleeps.
 * ucxx 0.52 arms once and never again: UCP's own event fd then stays readable
 * and every loop turn of asyncio calls ucp_worker_progress(), in every process
 * of a Dask cluster, for ever; on few processors these turns take the time that
 * the transfers and the computation need.  Progress is called without Python's
 * lock, so the cure is to sleep here, for at most WEFT_UCX_IDLE_WAIT, on the
 * event fds of all of the worker's interfaces, armed: whatever arrives ends it
 * at once.
 *
 * It concerns nobody else: a program that never asked UCP for its event fd polls
 * on purpose, and one that arms before it sleeps never makes so many fruitless
 * calls in between.  Only the preload library sees who asks (UCP itself takes
 * the fds of all interfaces, and arms them, in every program).
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include "bootstrap/settings.h"
#include "ucx_tl/load.h"
#include "ucx_tl/uct.h"

#define FRUITLESS	100u	/* calls per interface before the first rest */
#define MAX_FDS		64u	/* with more interfaces nobody rests */

/* The interfaces of one worker, which UCX calls from one thread at a time. */
struct weft_uct_idle {
	struct weft_uct_idle *next;
	const void *worker;
	struct weft_list ifaces; /* by idle_link */
	unsigned int nifaces;
	unsigned int fruitless;
};

static atomic_bool event_driven;
static struct weft_uct_idle *groups;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void weft_uct_event_driven(void)
{
	atomic_store(&event_driven, true);
}

int weft_uct_idle_join(struct weft_uct_iface *iface, const void *worker)
{
	struct weft_uct_idle *g;

	pthread_mutex_lock(&lock);
	for (g = groups; g && g->worker != worker; g = g->next)
		;
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g) {
			pthread_mutex_unlock(&lock);
			return -ENOMEM;
		}
		g->worker = worker;
		weft_list_init(&g->ifaces);
		g->next = groups;
		groups = g;
	}
	g->nifaces++;
	weft_list_add_tail(&g->ifaces, &iface->idle_link);
	iface->idle = g;
	pthread_mutex_unlock(&lock);
	return 0;
}

void weft_uct_idle_leave(struct weft_uct_iface *iface)
{
	struct weft_uct_idle *g = iface->idle, **at;

	if (!g)
		return;
	pthread_mutex_lock(&lock);
	weft_list_del(&iface->idle_link);
	if (!--g->nifaces) {
		for (at = &groups; *at != g; at = &(*at)->next)
			;
		*at = g->next;
		free(g);
	}
	pthread_mutex_unlock(&lock);
	iface->idle = NULL;
}

void weft_uct_idle_armed(struct weft_uct_iface *iface)
{
	iface->idle->fruitless = 0;
}

void weft_uct_idle_rest(struct weft_uct_iface *iface, unsigned int events)
{
	struct weft_uct_idle *g = iface->idle;
	struct timespec limit = { 0, weft_settings()->ucx_idle_wait_us * 1000 };
	struct weft_uct_iface *member, *tmp;
	struct pollfd fds[MAX_FDS];
	nfds_t n = 0;

	if (events) {
		g->fruitless = 0;
		return;
	}
	if (!atomic_load_explicit(&event_driven, memory_order_relaxed) ||
	    ++g->fruitless < FRUITLESS * g->nifaces)
		return;
	/* once per round over the interfaces, not once for each of them */
	if (g->fruitless % g->nifaces || !limit.tv_nsec ||
	    g->nifaces > MAX_FDS)
		return;
	weft_list_for_each (member, tmp, &g->ifaces, idle_link) {
		/* devices ring for who sleeps, and for nobody else */
		if (!weft_uct_iface_arm(member))
			return;
		fds[n].fd = member->dev->event_fd(member->iface);
		fds[n++].events = POLLIN;
	}
	ppoll(fds, n, &limit, NULL);
}

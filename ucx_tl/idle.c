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
 * event fds of all of the worker's interfaces: whatever arrives ends it at once.
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
#define MAX_FDS		16u

/* The interfaces of one worker, which UCX calls from one thread at a time. */
struct weft_uct_idle {
	struct weft_uct_idle *next;
	const void *worker;
	unsigned int ifaces;
	unsigned int fruitless;
	unsigned int nfds;
	struct pollfd fds[MAX_FDS];
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
		g->next = groups;
		groups = g;
	}
	g->ifaces++;
	iface->idle = g;
	if (g->nfds < MAX_FDS) {
		g->fds[g->nfds].fd = iface->dev->event_fd(iface->iface);
		g->fds[g->nfds++].events = POLLIN;
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

void weft_uct_idle_leave(struct weft_uct_iface *iface)
{
	struct weft_uct_idle *g = iface->idle, **at;
	int fd = iface->dev->event_fd(iface->iface);
	unsigned int i;

	if (!g)
		return;
	pthread_mutex_lock(&lock);
	for (i = 0; i < g->nfds && g->fds[i].fd != fd; i++)
		;
	if (i < g->nfds)
		g->fds[i] = g->fds[--g->nfds];
	if (!--g->ifaces) {
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

	if (events) {
		g->fruitless = 0;
		return;
	}
	if (!atomic_load_explicit(&event_driven, memory_order_relaxed) ||
	    ++g->fruitless < FRUITLESS * g->ifaces)
		return;
	/* once per round over the interfaces, not once for each of them */
	if (g->fruitless % g->ifaces || !limit.tv_nsec)
		return;
	ppoll(g->fds, g->nfds, &limit, NULL);
}

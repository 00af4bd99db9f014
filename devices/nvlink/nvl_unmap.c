/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that unmaps memory of peers: cuMemUnmap waits until the kernels that
 * run have ended, and those may wait for what the caller is to send.
 *
 * One for the process, since the driver maps nothing twice at one place, be it
 * for two interfaces.  It is started when the first mapping is to go, and ends
 * with the last interface, which unmaps what is left.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "devices/nvlink/nvl_map.h"
#include "devices/nvlink/nvl_unmap.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

/* The kernel that is waited for may wait for the caller. */
#define DRAIN_MS 1000u

struct unmap {
	struct unmap *next;
	struct nvl_mapping map;
};

static pthread_mutex_t ifaces_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int nifaces; /* by ifaces_lock, as the thread's end is */

/* All by lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct unmap *todo;
static pthread_t thread;
static bool has_thread, stop;
static bool busy; /* the driver is called */

/* With the lock; the driver is called without it. */
static void unmap_all(void)
{
	struct unmap *u;

	while (todo) {
		u = todo;
		todo = u->next;
		busy = true;
		pthread_mutex_unlock(&lock);
		nvl_map_undo(&u->map);
		free(u);
		pthread_mutex_lock(&lock);
		busy = false;
	}
}

static void *run_unmapper(void *arg)
{
	pthread_mutex_lock(&lock);
	while (!stop) {
		unmap_all();
		if (!stop)
			pthread_cond_wait(&wake, &lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void start_unmapper(void)
{
	int err = weft_thread_start(&thread, "weft-unmap", run_unmapper, NULL);

	has_thread = !err;
	if (err)
		weft_info(
			"no thread to unmap memory of peers (%s): it stays until there is one or the last interface closes",
			strerror(-err));
}

void nvl_unmap_begin(void)
{
	pthread_mutex_lock(&ifaces_lock);
	nifaces++;
	pthread_mutex_unlock(&ifaces_lock);
}

void nvl_map_close(struct nvl_mapping *m)
{
	struct unmap *u = NULL;

	if (m->kind > NVL_MAP_OWN)
		u = malloc(sizeof(*u));
	if (!u) {
		nvl_map_undo(m);
		return;
	}
	u->map = *m;
	memset(m, 0, sizeof(*m));
	pthread_mutex_lock(&lock);
	u->next = todo;
	todo = u;
	if (!has_thread)
		start_unmapper();
	pthread_cond_signal(&wake);
	pthread_mutex_unlock(&lock);
}

void nvl_unmap_drain(void)
{
	const uint64_t end = weft_now_ms() + DRAIN_MS;
	bool left = true;

	while (left && weft_now_ms() < end) {
		pthread_mutex_lock(&lock);
		/* without a thread it stays where it is */
		left = has_thread && (busy || todo);
		pthread_mutex_unlock(&lock);
		if (left)
			sched_yield();
	}
}

static void stop_unmapper(void)
{
	pthread_mutex_lock(&lock);
	stop = true;
	pthread_cond_signal(&wake);
	pthread_mutex_unlock(&lock);
	if (has_thread)
		pthread_join(thread, NULL);
	pthread_mutex_lock(&lock);
	unmap_all();
	has_thread = stop = false;
	pthread_mutex_unlock(&lock);
}

void nvl_unmap_end(void)
{
	pthread_mutex_lock(&ifaces_lock);
	if (!--nifaces)
		stop_unmapper();
	pthread_mutex_unlock(&ifaces_lock);
}

void nvl_unmap_forget(void)
{
	ifaces_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	todo = NULL;
	nifaces = 0;
	has_thread = stop = busy = false;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that unmaps memory of peers: cuMemUnmap waits until the kernels that
 * run have ended, and those may wait for what the caller is to send.
 *
 * The thread is started when the first one is to go; what it has not come to
 * when the interface closes is unmapped there.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "devices/nvlink/nvl_map.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"
#include "util/thread.h"

/* The kernel that is waited for may wait for the caller. */
#define DRAIN_MS 1000u

struct unmap {
	struct weft_list link;
	struct nvl_mapping map;
};

struct nvl_unmapper {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct weft_list todo; /* by lock */
	bool stop;	       /* by lock */
	bool busy;	       /* by lock: the driver is called */
	bool on;	       /* there is a thread */
};

/* With the lock; the driver is called without it. */
static void unmap_all(struct nvl_unmapper *un)
{
	struct unmap *u;

	while (!weft_list_empty(&un->todo)) {
		u = weft_list_first(&un->todo, struct unmap, link);
		weft_list_del(&u->link);
		un->busy = true;
		pthread_mutex_unlock(&un->lock);
		nvl_map_undo(&u->map);
		free(u);
		pthread_mutex_lock(&un->lock);
		un->busy = false;
	}
}

static void *run_unmapper(void *arg)
{
	struct nvl_unmapper *un = arg;

	pthread_mutex_lock(&un->lock);
	while (!un->stop) {
		unmap_all(un);
		if (!un->stop)
			pthread_cond_wait(&un->wake, &un->lock);
	}
	pthread_mutex_unlock(&un->lock);
	return NULL;
}

static void start_unmapper(struct nvl_unmapper *un)
{
	int err =
		weft_thread_start(&un->thread, "weft-unmap", run_unmapper, un);

	un->on = !err;
	if (err)
		weft_info(
			"no thread to unmap memory of peers (%s): it stays until there is one or the interface closes",
			strerror(-err));
}

static struct nvl_unmapper *new_unmapper(void)
{
	struct nvl_unmapper *un = calloc(1, sizeof(*un));

	if (!un)
		return NULL;
	pthread_mutex_init(&un->lock, NULL);
	pthread_cond_init(&un->wake, NULL);
	weft_list_init(&un->todo);
	return un;
}

void nvl_map_close(struct nvl_unmapper **where, struct nvl_mapping *m)
{
	struct nvl_unmapper *un;
	struct unmap *u = NULL;

	if (m->kind > NVL_MAP_OWN && !*where)
		*where = new_unmapper();
	un = *where;
	if (m->kind > NVL_MAP_OWN && un)
		u = malloc(sizeof(*u));
	if (!u) {
		nvl_map_undo(m);
		return;
	}
	u->map = *m;
	weft_list_init(&u->link);
	memset(m, 0, sizeof(*m));
	pthread_mutex_lock(&un->lock);
	weft_list_add_tail(&un->todo, &u->link);
	if (!un->on)
		start_unmapper(un);
	pthread_cond_signal(&un->wake);
	pthread_mutex_unlock(&un->lock);
}

void nvl_unmap_drain(struct nvl_unmapper *un)
{
	const uint64_t end = weft_now_ms() + DRAIN_MS;
	bool left = un != NULL;

	while (left && weft_now_ms() < end) {
		pthread_mutex_lock(&un->lock);
		/* without a thread it stays where it is */
		left = un->on && (un->busy || !weft_list_empty(&un->todo));
		pthread_mutex_unlock(&un->lock);
		if (left)
			sched_yield();
	}
}

void nvl_unmap_end(struct nvl_unmapper *un)
{
	if (!un)
		return;
	pthread_mutex_lock(&un->lock);
	un->stop = true;
	pthread_cond_signal(&un->wake);
	pthread_mutex_unlock(&un->lock);
	if (un->on)
		pthread_join(un->thread, NULL);
	pthread_mutex_lock(&un->lock);
	unmap_all(un);
	pthread_mutex_unlock(&un->lock);
	pthread_cond_destroy(&un->wake);
	pthread_mutex_destroy(&un->lock);
	free(un);
}

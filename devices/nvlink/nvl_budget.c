/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much memory of a GPU all rings take together, over all processes that
 * share the run folder: a file with one byte per unit, and a lock of the
 * kernel on each byte in use, which ends with its process.  Without a folder
 * only this process's own rings are counted.
 *
 * The locks belong to an open file description, so that two plugins in one
 * process count as two; within one plugin this table knows the local ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "devices/forked.h"
#include "devices/nvlink/nvl_budget.h"
#include "util/util.h"

#define MAX_UNITS 1024u
#define MAX_GPUS  32u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu {
	char name[64];
	int fd;		   /* -1: not shared */
	unsigned int used; /* by us; 0: the entry is free */
	uint64_t mine[MAX_UNITS / 64];
} gpus[MAX_GPUS];

static struct gpu *find_gpu(const char *name)
{
	unsigned int i;

	for (i = 0; i < MAX_GPUS; i++)
		if (gpus[i].used && !strcmp(gpus[i].name, name))
			return &gpus[i];
	return NULL;
}

static struct gpu *add_gpu(const struct weft_folder *run, const char *name)
{
	char file[80];
	unsigned int i;

	for (i = 0; i < MAX_GPUS && gpus[i].used; i++)
		;
	if (i == MAX_GPUS)
		return NULL;
	memset(&gpus[i], 0, sizeof(gpus[i]));
	snprintf(gpus[i].name, sizeof(gpus[i].name), "%s", name);
	snprintf(file, sizeof(file), "b-%s", name);
	gpus[i].fd = run ? weft_folder_open_file(run, file) : -1;
	return &gpus[i];
}

static bool is_mine(const struct gpu *g, unsigned int u)
{
	return g->mine[u / 64] & BIT(u % 64);
}

static bool set_lock(const struct gpu *g, int cmd, short type,
		     unsigned int unit, unsigned int n, struct flock *l)
{
	*l = (struct flock){ .l_type = type,
			     .l_whence = SEEK_SET,
			     .l_start = unit,
			     .l_len = n };
	return !fcntl(g->fd, cmd, l);
}

static bool is_free(const struct gpu *g, unsigned int u)
{
	struct flock l;

	if (is_mine(g, u))
		return false;
	return g->fd < 0 || (set_lock(g, F_OFD_GETLK, F_WRLCK, u, 1, &l) &&
			     l.l_type == F_UNLCK);
}

static bool take_unit(struct gpu *g, unsigned int u)
{
	struct flock l;

	if (is_mine(g, u) ||
	    (g->fd >= 0 && !set_lock(g, F_OFD_SETLK, F_WRLCK, u, 1, &l)))
		return false;
	g->mine[u / 64] |= BIT(u % 64);
	g->used++;
	return true;
}

unsigned int nvl_budget_take(const struct weft_folder *run, const char *name,
			     unsigned int want, unsigned int limit,
			     unsigned int *first)
{
	unsigned int u, left = 0, got = 0;
	struct gpu *g;

	limit = weft_min(limit, MAX_UNITS);
	pthread_mutex_lock(&lock);
	g = find_gpu(name);
	if (!g)
		g = add_gpu(run, name);
	if (!g)
		goto out;
	for (u = 0; u < limit; u++)
		left += is_free(g, u);
	/* an eighth at most, so that many connections find room */
	want = weft_min(want, weft_max(left / 8, 1));
	for (u = 0; u < limit && got < want; u++) {
		if (take_unit(g, u)) {
			if (!got++)
				*first = u;
		} else if (got) {
			break; /* what is before the gap must do */
		}
	}
	if (!g->used && g->fd >= 0)
		close(g->fd);
out:
	pthread_mutex_unlock(&lock);
	return got;
}

void nvl_budget_give(const char *name, unsigned int first, unsigned int units)
{
	struct flock l;
	struct gpu *g;
	unsigned int u;

	pthread_mutex_lock(&lock);
	g = find_gpu(name);
	if (g && units) {
		for (u = first; u < first + units; u++)
			g->mine[u / 64] &= ~BIT(u % 64);
		if (g->fd >= 0)
			set_lock(g, F_OFD_SETLK, F_UNLCK, first, units, &l);
		g->used -= units;
		if (!g->used && g->fd >= 0)
			close(g->fd);
	}
	pthread_mutex_unlock(&lock);
}

void nvl_budget_forget(void)
{
	unsigned int i;

	for (i = 0; i < MAX_GPUS; i++) {
		if (gpus[i].used)
			weft_forked_close(&gpus[i].fd);
		gpus[i].used = 0;
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table that tells peers which memory of this process they may still
 * access.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/common/forked.h"
#include "devices/common/memfd.h"
#include "devices/nvlink/nvl_life.h"
#include "util/fork.h"
#include "util/log.h"
#include "util/secret.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvl_table *table;
static int table_fd = -1;
static unsigned int table_users;
/* where the next free word is looked for; the last serial that was given */
static uint32_t next_life, last_serial, nlives;

int nvl_lives_begin(void)
{
	void *p;
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!table) {
		table_fd = weft_memfd_make("weft-lives", sizeof(*table), &p);
		err = table_fd < 0 ? table_fd : 0;
		if (!err) {
			table = p;
			nlives = 0;
		}
	}
	table_users += !err;
	pthread_mutex_unlock(&lock);
	return err ? weft_fail(err, "cannot set up %zu KiB of shared memory",
			       sizeof(*table) >> 10)
		   : 0;
}

void nvl_lives_end(void)
{
	pthread_mutex_lock(&lock);
	if (!--table_users) {
		munmap(table, sizeof(*table));
		close(table_fd);
		table = NULL;
		table_fd = -1;
	}
	pthread_mutex_unlock(&lock);
}

void nvl_lives_forget(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	if (table_fd < 0)
		return;
	weft_forked_close(&table_fd);
	table = NULL;
	table_users = 0;
}

int nvl_lives_fd(void)
{
	return table_fd;
}

/* False: there are @most. */
static bool begin_life(struct nvl_life *life, uint32_t most)
{
	bool room;

	life->serial = 0;
	pthread_mutex_lock(&lock);
	room = nlives < most;
	if (room) {
		do
			life->slot = next_life++ % NVL_LIVES;
		while (atomic_load(&table->serial[life->slot]));
		if (!++last_serial)
			last_serial++;
		life->serial = last_serial;
		atomic_store(&table->serial[life->slot], life->serial);
		nlives++;
	}
	pthread_mutex_unlock(&lock);
	return room;
}

bool nvl_life_begin(struct nvl_life *life)
{
	return begin_life(life, NVL_LIVES);
}

bool nvl_life_begin_memory(struct nvl_life *life)
{
	return begin_life(life, NVL_LIVES - NVL_LIVES_KEPT);
}

void nvl_life_end(struct nvl_life *life)
{
	pthread_mutex_lock(&lock);
	if (life->serial && table) {
		atomic_store(&table->serial[life->slot], 0);
		nlives--;
	}
	pthread_mutex_unlock(&lock);
	life->serial = 0;
}

void nvl_lives_allocation_ended(void)
{
	atomic_fetch_add(&table->ended, 1);
}

/* No pid: the kernel's end at 2^22 (PID_MAX_LIMIT). */
#define NO_PID (1u << 30)

/*
 * A handle has the getpid() of its maker in four of its bytes, and the driver
 * refuses it where that is the opener's, by whatever kernel or namespace; it
 * opens it with any other number there (driver 580, two H100).  Processes of
 * different pods often have the same small pid, so another number takes its
 * place: the same in all handles of this process, and no other process's.
 * 0: there is none.
 */
uint32_t nvl_process(void)
{
	static uint32_t number;
	static unsigned int forks;
	uint32_t n;

	pthread_mutex_lock(&lock);
	if ((!number || forks != weft_forks()) && !weft_random(&n, sizeof(n)))
		number = NO_PID | (n & (NO_PID - 1));
	forks = weft_forks();
	n = number;
	pthread_mutex_unlock(&lock);
	return n;
}

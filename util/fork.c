/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/fork.h"

#include <pthread.h>

static unsigned int forks;

static void count_fork(void)
{
	forks++;
}

/* vfork() and posix_spawn() do not come here: they only exec. */
__attribute__((constructor)) static void begin_count(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}

unsigned int weft_forks(void)
{
	return forks;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/thread.h"

#include <signal.h>

int weft_thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
		      void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_setname_np(*thread, name);
	return -err;
}

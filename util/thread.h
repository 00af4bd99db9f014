/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that weft starts in the program's process. */
#ifndef WEFT_UTIL_THREAD_H
#define WEFT_UTIL_THREAD_H

#include <pthread.h>

/*
 * Starts @run(@arg) as *@thread, to be joined.  It is called @name (at most 15
 * bytes, pthread_setname_np(3)) and blocks all signals, which belong to the
 * program.  0 or -errno, not logged.
 */
int weft_thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
		      void *arg);

#endif

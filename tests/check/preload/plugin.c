/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for libuct_weft.so: registers with the copy that @inside lies in. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "preload/load.h"

int weft_uct_load(const void *inside)
{
	const char **registered;
	Dl_info info;
	void *uct;

	if (!dladdr(inside, &info))
		return -1;
	uct = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	registered = uct ? dlsym(uct, "uct_registered") : NULL;
	if (!registered)
		return -1;
	*registered = "weft inside";
	return 0;
}

void weft_uct_environment(void)
{
	setenv("WEFT_TEST_MAPPED", "mapped", 0);
}

const char *weft_uct_option(const char *name, const char *value)
{
	return NULL;
}

/* Prints the calls for a worker, with the results of its copy of UCX. */
void weft_uct_event_driven(void *worker, int efd,
			   const struct weft_uct_worker_calls *calls)
{
	printf("fd %d, %u %d %d", efd, calls->progress(worker),
	       calls->arm(worker), calls->signal(worker));
}

unsigned int weft_uct_worker_progressed(void *worker, unsigned int events)
{
	return events + 1000;
}

void weft_uct_worker_armed(void *worker)
{
	printf(", armed");
}

void weft_uct_worker_gone(void *worker)
{
	printf(", gone");
}

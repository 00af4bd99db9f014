/* SPDX-License-Identifier: BSD-3-Clause */
/* What this process has open: tests compare it before and after. */
#ifndef WEFT_TESTS_FDS_H
#define WEFT_TESTS_FDS_H

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* With "." and ".."; 0: there is no such folder. */
static inline int count_entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static inline unsigned int count_fds(void)
{
	return (unsigned int)count_entries("/proc/self/fd");
}

/* Lets this process open no further descriptor, or again what it could. */
static inline void allow_fds(bool yes)
{
	static struct rlimit before;
	struct rlimit now = before;
	int next;

	if (!yes) {
		next = dup(0); /* the lowest that is free */
		if (next < 0 || getrlimit(RLIMIT_NOFILE, &before))
			abort();
		close(next);
		now = (struct rlimit){ (rlim_t)next, before.rlim_max };
	}
	if (setrlimit(RLIMIT_NOFILE, &now))
		abort();
}

#endif

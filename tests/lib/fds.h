/* SPDX-License-Identifier: BSD-3-Clause */
/* What this process has open: tests compare it before and after. */
#ifndef WEFT_TESTS_FDS_H
#define WEFT_TESTS_FDS_H

#include <dirent.h>

static inline unsigned int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

#endif

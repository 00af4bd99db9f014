/* SPDX-License-Identifier: BSD-3-Clause */
/* What this process has open: tests compare it before and after. */
#ifndef WEFT_TESTS_FDS_H
#define WEFT_TESTS_FDS_H

#include <dirent.h>

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

#endif

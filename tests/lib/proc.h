/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_TESTS_PROC_H
#define WEFT_TESTS_PROC_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What begins like this is not there, as in a container without /proc. */
static const char *hidden;

/* open() of this program. */
int open(const char *path, int flags, ...)
{
	unsigned int mode = 0;
	va_list args;

	if (hidden && !strncmp(path, hidden, strlen(hidden))) {
		errno = ENOENT;
		return -1;
	}
	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, unsigned int);
		va_end(args);
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#endif

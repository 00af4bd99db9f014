/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_TESTS_FALLOCATE_H
#define WEFT_TESTS_FALLOCATE_H

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the memory lacks: an errno; 0: nothing. */
static int lacking;

/* fallocate() of this program: the memory there is, or is not. */
int fallocate(int fd, int mode, off_t at, off_t len)
{
	if (!lacking)
		return syscall(SYS_fallocate, fd, mode, at, len);
	errno = lacking;
	return -1;
}

#endif

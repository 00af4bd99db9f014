/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t weft_file_read(const char *path, char *text, size_t len)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : read(fd, text, len - 1);

	if (fd >= 0) {
		n = n < 0 ? -errno : n;
		close(fd);
	}
	if (n > 0 && text[n - 1] == '\n')
		n--;
	text[n > 0 ? n : 0] = '\0';
	return n;
}

bool weft_file_allows(size_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || size <= limit.rlim_cur;
}

static int set_not_regular(const char **why)
{
	*why = "it is not a regular file";
	return -EINVAL;
}

static int check_owner(const struct statx *st, const char **why)
{
	if (!S_ISREG(st->stx_mode))
		return set_not_regular(why);
	if (st->stx_uid != geteuid() && st->stx_uid) {
		*why = "it belongs to another user";
		return -EPERM;
	}
	return 0;
}

int weft_file_open(int dir, const char *name, int flags, unsigned int mode,
		   struct statx *st, const char **why)
{
	struct statx mine;
	int fd, err;

	if (!st)
		st = &mine;
	fd = openat(dir, name, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode);
	if (fd < 0) {
		err = -errno;
		/* a socket, or a FIFO without reader */
		if (err == -ENXIO)
			return set_not_regular(why);
		*why = err == -ELOOP && flags & O_NOFOLLOW
			       ? "it is a symbolic link"
			       : strerror(-err);
		return err;
	}
	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, st)) {
		err = -errno;
		*why = strerror(-err);
	} else {
		err = check_owner(st, why);
	}
	if (!err)
		return fd;
	close(fd);
	return err;
}

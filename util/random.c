/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/log.h"
#include "util/util.h"

/* For kernels and sandboxes without getrandom(). */
static int read_urandom(unsigned char *buf, size_t n)
{
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	ssize_t got;
	int err;

	if (fd < 0)
		return weft_fail(-errno, "cannot open /dev/urandom");
	while (n) {
		got = read(fd, buf, n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			err = got ? errno : EIO;
			close(fd);
			return weft_fail(-err, "cannot read /dev/urandom");
		}
		buf += got;
		n -= got;
	}
	close(fd);
	return 0;
}

int weft_random(void *buf, size_t n)
{
	unsigned char *p = buf;
	long got;

	while (n) {
		got = syscall(SYS_getrandom, p, n, 0);
		if (got > 0) {
			p += got;
			n -= got;
		} else if (errno != EINTR) {
			return read_urandom(p, n);
		}
	}
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

int weft_memfd_make(const char *name, size_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err;

	if (fd < 0)
		return -errno;
	/* memory that lacks later is a SIGBUS; not every sandbox can tell */
	do {
		err = ftruncate(fd, size) || fallocate(fd, 0, 0, size) ? errno
								       : 0;
	} while (err == EINTR);
	if (err == EOPNOTSUPP || err == ENOSYS)
		err = 0;
	if (!err && fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL))
		err = errno;
	if (err) {
		close(fd);
		return -err;
	}
	return fd;
}

bool weft_memfd_is_sealed(int fd, size_t size)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & SEALS) == SEALS &&
	       lseek(fd, 0, SEEK_END) == (off_t)size;
}

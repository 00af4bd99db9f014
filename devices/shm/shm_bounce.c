/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/local/memfd.h"
#include "devices/shm/shm_bounce.h"
#include "util/log.h"

int shm_bounce_open(struct shm_iface *iface)
{
	void *p;
	int fd = weft_memfd_make("weft-bounce", SHM_PIECE, &p);

	if (fd < 0)
		return weft_fail(fd, "cannot set up a bounce buffer of %u KiB",
				 SHM_PIECE >> 10);
	iface->bounce_fd = fd;
	iface->bounce = p;
	return 0;
}

void shm_bounce_close(struct shm_iface *iface)
{
	if (iface->bounce_fd < 0)
		return;
	munmap(iface->bounce, SHM_PIECE);
	close(iface->bounce_fd);
}

bool shm_bounce_out(struct shm_iface *iface, void *to, const void *ring,
		    size_t len)
{
	for (size_t at = 0, n; at < len; at += n) {
		n = weft_min(len - at, (size_t)SHM_PIECE);
		memcpy(iface->bounce, (const char *)ring + at, n);
		if (pread(iface->bounce_fd, (char *)to + at, n, 0) !=
		    (ssize_t)n)
			return false;
	}
	return true;
}

bool shm_bounce_in(struct shm_iface *iface, void *ring, const void *from,
		   size_t len)
{
	for (size_t at = 0, n; at < len; at += n) {
		n = weft_min(len - at, (size_t)SHM_PIECE);
		if (pwrite(iface->bounce_fd, (const char *)from + at, n, 0) !=
		    (ssize_t)n)
			return false;
		memcpy((char *)ring + at, iface->bounce, n);
	}
	return true;
}

/* linux/mman.h of 5.14 */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

bool shm_bounce_check(const void *p, size_t len, bool write)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	const uintptr_t begin = (uintptr_t)p & ~page;
	const int how = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	if (!madvise((void *)begin, (uintptr_t)p + len - begin, how))
		return true;
	if (errno == EFAULT || errno == ENOMEM)
		return false;
	/* -EINVAL: protected, or unknown to the kernel */
	return errno != EINVAL ||
	       madvise((void *)((uintptr_t)&page & ~page), page + 1, how);
}

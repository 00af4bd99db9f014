/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/file.h"
#include "util/log.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static int map_memory(int fd, size_t size, int prot, void **p)
{
	void *at = mmap(NULL, size, prot, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	madvise(at, size, MADV_DONTDUMP);
	*p = at;
	return 0;
}

int weft_memfd_make(const char *name, size_t size, void **p)
{
	return weft_memfd_make_sparse(name, size, size, p);
}

int weft_memfd_make_sparse(const char *name, size_t size, size_t there,
			   void **p)
{
	int fd, err;

	if (!weft_file_allows(size))
		return -EFBIG;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/*
	 * allocate now: later a lack of memory would be a SIGBUS; some
	 * sandboxes cannot
	 */
	do {
		err = ftruncate(fd, size) || fallocate(fd, 0, 0, there) ? -errno
									: 0;
	} while (err == -EINTR);
	if (err == -EOPNOTSUPP || err == -ENOSYS)
		err = 0;
	if (!err && fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL))
		err = -errno;
	if (!err)
		err = map_memory(fd, size, PROT_READ | PROT_WRITE, p);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

/* linux/mman.h of 5.14 */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

bool weft_memfd_fill(void *p, size_t len)
{
	return !madvise(p, len, MADV_POPULATE_WRITE);
}

bool weft_memfd_can_fill(void)
{
	return !madvise(NULL, 0, MADV_POPULATE_WRITE) || errno != EINVAL;
}

bool weft_memfd_drop(void *p, size_t len)
{
	return !madvise(p, len, MADV_REMOVE);
}

static bool is_sealed(int fd, size_t size)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & SEALS) == SEALS &&
	       lseek(fd, 0, SEEK_END) == (off_t)size;
}

int weft_memfd_check(void)
{
	const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *p;
	int fd, err;

	if (!weft_file_allows(WEFT_MEMFD_MAX))
		return -EFBIG;
	fd = weft_memfd_make("weft-check", size, &p);
	if (fd < 0)
		return fd;
	err = is_sealed(fd, size) ? 0 : -EOPNOTSUPP;
	munmap(p, size);
	close(fd);
	return err;
}

int weft_memfd_map(int fd, size_t size, int prot, void **p)
{
	const int err =
		is_sealed(fd, size) ? map_memory(fd, size, prot, p) : -EINVAL;

	if (!err)
		return 0;
	return weft_fail(
		err,
		"a peer on this host sent shared memory that is not sealed, has another size than %zu bytes, or cannot be mapped",
		size);
}

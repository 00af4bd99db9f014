/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/bounce.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "devices/common/memfd.h"
#include "util/util.h"

#define SIZE ((size_t)32 << 10)
/*
 * A piece is placed at the same page offset in the buffer as in the program's
 * memory, where the kernel's copy, by `rep movsb`, is fast (weft_copy()).
 */
#define ROOM (SIZE + WEFT_COPY_PAGE)

static bool is_made(struct weft_bounce *b)
{
	void *p;

	if (b->map)
		return true;
	b->fd = weft_memfd_make("weft-bounce", ROOM, &p);
	if (b->fd < 0)
		return false;
	/* or each read looks at the clock */
	fcntl(b->fd, F_SETFL, O_NOATIME);
	b->map = p;
	return true;
}

void weft_bounce_close(struct weft_bounce *b)
{
	if (!b->map)
		return;
	munmap(b->map, ROOM);
	close(b->fd);
	b->map = NULL;
}

static int result_of(ssize_t got, size_t len)
{
	if (got == (ssize_t)len)
		return 0;
	return got >= 0 || errno == EFAULT ? -EACCES : -errno;
}

/* Slower, but no sandbox refuses it; a page has room in every pipe. */
static int copy_by_pipe(uint8_t *to, const uint8_t *from, size_t len)
{
	int pipe[2], err = 0;
	size_t n;

	if (pipe2(pipe, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	for (; len && !err; len -= n, to += n, from += n) {
		n = weft_min(len, (size_t)4096);
		err = result_of(write(pipe[1], from, n), n);
		if (!err)
			err = result_of(read(pipe[0], to, n), n);
	}
	close(pipe[0]);
	close(pipe[1]);
	return err;
}

/* Takes no descriptor: a program may have none left. */
static int copy_without(void *to, const void *from, size_t len)
{
	const struct iovec there = { to, len };
	const struct iovec here = { (void *)from, len };
	const int err = result_of(
		process_vm_writev(getpid(), &here, 1, &there, 1, 0), len);

	return err && err != -EACCES ? copy_by_pipe(to, from, len) : err;
}

static int piece_out(struct weft_bounce *b, void *to, const void *from,
		     size_t n)
{
	const size_t at = (uintptr_t)to % WEFT_COPY_PAGE;

	weft_copy((char *)b->map + at, from, n);
	return result_of(pread(b->fd, to, n, at), n);
}

static int piece_in(struct weft_bounce *b, void *to, const void *from, size_t n)
{
	const size_t at = (uintptr_t)from % WEFT_COPY_PAGE;
	const int err = result_of(pwrite(b->fd, from, n, at), n);

	if (!err)
		weft_copy(to, (char *)b->map + at, n);
	return err;
}

static int
copy(struct weft_bounce *b, uint8_t *to, const uint8_t *from, size_t len,
     int (*piece)(struct weft_bounce *b, void *to, const void *from, size_t n))
{
	int err = 0;
	size_t n;

	if (!is_made(b))
		return copy_without(to, from, len);
	for (; len && !err; len -= n, to += n, from += n) {
		n = weft_min(len, SIZE);
		err = piece(b, to, from, n);
	}
	return err;
}

int weft_bounce_out(struct weft_bounce *b, void *to, const void *from,
		    size_t len)
{
	return copy(b, to, from, len, piece_out);
}

int weft_bounce_in(struct weft_bounce *b, void *to, const void *from,
		   size_t len)
{
	return copy(b, to, from, len, piece_in);
}

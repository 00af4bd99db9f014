/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU copies no byte straight into or out of memory that a peer named:
 * where it was unmapped behind our back, a system call says EFAULT where memcpy
 * would end the process.
 */
#include "devices/tcp/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

/* Where a seccomp filter refuses process_vm_writev(). */
static int copy_by_pipe(struct tcp_iface *iface, uint8_t *dest,
			const uint8_t *src, size_t n)
{
	ssize_t got, put;

	if (iface->pipe[0] < 0 && pipe2(iface->pipe, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	while (n) {
		put = write(iface->pipe[1], src, weft_min(n, 64 << 10));
		if (put < 0)
			return errno == EFAULT ? -EACCES : -errno;
		src += put;
		n -= put;
		while (put) {
			got = read(iface->pipe[0], dest, put);
			if (got <= 0)	/* the rest stays: not used again */
				goto broken_pipe;
			dest += got;
			put -= got;
		}
	}
	return 0;

broken_pipe:
	close(iface->pipe[0]);
	close(iface->pipe[1]);
	iface->pipe[0] = iface->pipe[1] = -1;
	return -EACCES;
}

int tcp_copy(struct tcp_iface *iface, void *dest, const void *src, size_t n)
{
	struct iovec l = { (void *)src, n }, r = { dest, n };
	ssize_t got;

	got = process_vm_writev(getpid(), &l, 1, &r, 1, 0);
	if (got == (ssize_t)n)
		return 0;
	if (got >= 0 || errno == EFAULT)
		return -EACCES;
	return copy_by_pipe(iface, dest, src, n);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies from and to memory that a peer named.  Never by memcpy(): if it was
 * unmapped meanwhile, a system call returns EFAULT, but memcpy() would end the
 * process.  The pipe serves where a seccomp filter refuses process_vm_writev().
 */
#include "devices/tcp/tcp_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

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
			if (got <= 0) /* bytes are left: do not reuse it */
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

static int copy_one(struct tcp_iface *iface, const struct iovec *to,
		    const struct iovec *from)
{
	ssize_t got = process_vm_writev(getpid(), from, 1, to, 1, 0);

	if (got == (ssize_t)from->iov_len)
		return 0;
	if (got >= 0 || errno == EFAULT)
		return -EACCES;
	return copy_by_pipe(iface, to->iov_base, from->iov_base, from->iov_len);
}

void tcp_copy(struct tcp_iface *iface, const struct iovec *to,
	      const struct iovec *from, unsigned int n, int *status)
{
	size_t total = 0;
	unsigned int i;

	for (i = 0; i < n; i++) {
		total += from[i].iov_len;
		status[i] = 0;
	}
	if (!total ||
	    process_vm_writev(getpid(), from, n, to, n, 0) == (ssize_t)total)
		return;
	for (i = 0; i < n; i++)
		status[i] = copy_one(iface, &to[i], &from[i]);
}

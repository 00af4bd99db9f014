/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A frame's descriptor lies on its first byte; the kernel never joins the bytes
 * of two messages that carry descriptors, so one recvmsg() of one frame's
 * length sees its own.
 */
#include "devices/local/frame.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/log.h"

int weft_frame_send(int sock, const void *f, size_t len, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct iovec iov = { .iov_base = (void *)f, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	ssize_t n;

	if (fd >= 0) {
		m.msg_control = control.buf;
		m.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	do
		n = sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	/* a Unix stream takes a message this small whole or not at all */
	return n == (ssize_t)len ? 0 : -EPROTO;
}

/* The first descriptor to *@fd, else -1; how many there were. */
static unsigned int take_fds(struct msghdr *m, int *fd)
{
	unsigned int n = 0, i, room;
	struct cmsghdr *c;
	int one;

	*fd = -1;
	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		room = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < room; i++) {
			memcpy(&one, CMSG_DATA(c) + i * sizeof(int),
			       sizeof(one));
			if (!n++)
				*fd = one;
			else
				close(one);
		}
	}
	return n;
}

ssize_t weft_frame_recv(int sock, void *f, size_t len, int *fd,
			unsigned int *nfds)
{
	union {
		/* room for one more than allowed, to detect it */
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = f, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	ssize_t n;

	*fd = -1;
	do
		n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	*nfds = take_fds(&m, fd);
	if (!n || !(m.msg_flags & MSG_CTRUNC))
		return n;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	/* descriptors of mapped memory may come one after the other */
	weft_warn_once(
		"descriptors sent by a peer on this host were lost: raise the limit on open files ('ulimit -n'), or see whether SELinux or AppArmor forbids passing them (give both containers the same label or profile)");
	return n == (ssize_t)len ? -EMFILE : -EPROTO;
}

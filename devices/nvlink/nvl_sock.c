/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames on the Unix socket of a connection, after the hello.  A frame's
 * descriptors lie on its first byte; the kernel never joins the bytes of two
 * messages that carry descriptors, so one recvmsg() of one frame's length sees
 * its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/nvlink/nvl_sock.h"
#include "util/log.h"

/* A peer that asks and never reads the answers: some for each place. */
#define FRAMES_KEPT (1u << 10)

struct queued_frame {
	struct weft_list link;
	struct nvl_frame frame;
	int fd; /* a duplicate, ours; -1: none */
};

/* Does a frame of this type carry a descriptor? */
static const bool has_fd[NVL_FRAME_TYPES] = {
	[NVL_FRAME_INBOX] = true,
	[NVL_FRAME_RING_OFFER] = true,
};

/* @fd -1: none; 0, -EAGAIN, -errno */
static int send_frame(int sock, const struct nvl_frame *f, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct iovec iov = { .iov_base = (void *)f, .iov_len = sizeof(*f) };
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
	return n == sizeof(*f) ? 0 : -EPROTO;
}

static int queue_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	struct queued_frame *q;

	if (conn->nframes_out == FRAMES_KEPT)
		return weft_fail(ENOBUFS, "a peer on this host does not read "
					  "what it is told");
	q = malloc(sizeof(*q));
	if (!q)
		return -ENOMEM;
	*q = (struct queued_frame){ .frame = *f, .fd = -1 };
	if (fd >= 0) {
		q->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (q->fd < 0) {
			free(q);
			return -EMFILE;
		}
	}
	weft_list_add_tail(&conn->frames_out, &q->link);
	conn->nframes_out++;
	return 0;
}

static void drop_frame(struct nvl_conn *conn, struct queued_frame *q)
{
	conn->nframes_out--;
	if (q->fd >= 0)
		close(q->fd);
	weft_list_del(&q->link);
	free(q);
}

/* A peer that polls its inbox sees there that a frame waits; one that sleeps
   watches the socket. */
static void count_frame(struct nvl_conn *conn)
{
	if (!conn->tx.head)
		return;
	atomic_store_explicit(&conn->tx.head->frames, ++conn->frames_sent,
			      memory_order_release);
}

/* The peer has gone: what it sent before is delivered first, then it ends. */
static bool note_hangup(struct nvl_conn *conn, int err)
{
	if (err != -EPIPE && err != -ECONNRESET)
		return false;
	conn->hung_up = true;
	return true;
}

int nvl_sock_send(struct nvl_conn *conn, struct nvl_frame *f, int fd)
{
	int err = -EAGAIN;

	f->magic = NVL_FRAME_MAGIC;
	f->nfds = fd >= 0;
	if (weft_list_empty(&conn->frames_out))
		err = send_frame(conn->fd, f, fd);
	if (err == -EAGAIN)
		return queue_frame(conn, f, fd);
	if (!err)
		count_frame(conn);
	return note_hangup(conn, err) ? 0 : err;
}

int nvl_sock_flush(struct nvl_conn *conn)
{
	struct queued_frame *q, *tmp;
	int err;

	weft_list_for_each (q, tmp, &conn->frames_out, link) {
		err = send_frame(conn->fd, &q->frame, q->fd);
		if (err)
			return err == -EAGAIN || note_hangup(conn, err) ? 0
									: err;
		drop_frame(conn, q);
		count_frame(conn);
	}
	return 0;
}

void nvl_sock_drop(struct nvl_conn *conn)
{
	struct queued_frame *q, *tmp;

	weft_list_for_each (q, tmp, &conn->frames_out, link)
		drop_frame(conn, q);
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

int nvl_sock_recv(struct nvl_conn *conn, struct nvl_frame *f, int *fd)
{
	union {
		/* room for one more than allowed, so that a lie is seen */
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = f, .iov_len = sizeof(*f) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	unsigned int nfds;
	ssize_t n;
	int err;

	*fd = -1;
	do
		n = recvmsg(conn->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
	nfds = take_fds(&m, fd);
	if (n == sizeof(*f) && !(m.msg_flags & MSG_CTRUNC) &&
	    f->magic == NVL_FRAME_MAGIC && f->type &&
	    f->type < NVL_FRAME_TYPES && nfds == f->nfds &&
	    nfds == has_fd[f->type])
		return 1;
	if (!n)
		err = -ECONNRESET;
	else if (m.msg_flags & MSG_CTRUNC)
		err = weft_fail(EMFILE,
				"descriptors sent by a peer on this "
				"host were lost: raise the limit on open files "
				"('ulimit -n'), or see whether SELinux or "
				"AppArmor forbids passing them (give both "
				"containers the same label or profile)");
	else
		err = weft_fail(EPROTO,
				"a peer on this host sent a frame that "
				"is none (%zd bytes, %u descriptors)",
				n, nfds);
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return err;
}

/* Counted after they are sent, never before. */
int32_t nvl_sock_unread(const struct nvl_conn *conn)
{
	return (int32_t)(atomic_load(&conn->rx.head->frames) -
			 conn->frames_read);
}

bool nvl_sock_waiting(const struct nvl_conn *conn)
{
	/* nothing comes any more from a socket that has ended */
	return !conn->hung_up && nvl_sock_unread(conn) > 0;
}

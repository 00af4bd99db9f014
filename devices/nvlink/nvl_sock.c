/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames on the Unix socket of a connection, after the hello. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "devices/local/frame.h"
#include "devices/nvlink/nvl_sock.h"
#include "util/log.h"

/* A peer that queries and never reads the replies: some for each place. */
#define FRAMES_KEPT (1u << 10)

struct queued_frame {
	struct weft_list link;
	struct nvl_frame frame;
	int fd; /* a duplicate, local; -1: none */
};

/* Does a frame of this type carry a descriptor? */
static const bool has_fd[NVL_FRAME_TYPES] = {
	[NVL_FRAME_TABLE] = true,
	[NVL_FRAME_MARKS] = true,
	[NVL_FRAME_PART] = true,
};

static int queue_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	struct queued_frame *q;

	if (conn->nframes_out == FRAMES_KEPT)
		return weft_fail(
			-ENOBUFS,
			"a peer on this host does not read its frames");
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

/* The peer has gone: what it sent before is read first, then its end. */
static bool is_hangup(int err)
{
	return err == -EPIPE || err == -ECONNRESET;
}

int nvl_sock_send(struct nvl_conn *conn, struct nvl_frame *f, int fd)
{
	int err = -EAGAIN;

	f->magic = NVL_FRAME_MAGIC;
	if (weft_list_empty(&conn->frames_out))
		err = weft_frame_send(conn->fd, f, sizeof(*f), fd);
	if (err == -EAGAIN)
		return queue_frame(conn, f, fd);
	return is_hangup(err) ? 0 : err;
}

int nvl_sock_flush(struct nvl_conn *conn)
{
	struct queued_frame *q, *tmp;
	int err;

	weft_list_for_each (q, tmp, &conn->frames_out, link) {
		err = weft_frame_send(conn->fd, &q->frame, sizeof(q->frame),
				      q->fd);
		if (err)
			return err == -EAGAIN || is_hangup(err) ? 0 : err;
		drop_frame(conn, q);
	}
	return 0;
}

void nvl_sock_drop(struct nvl_conn *conn)
{
	struct queued_frame *q, *tmp;

	weft_list_for_each (q, tmp, &conn->frames_out, link)
		drop_frame(conn, q);
}

int nvl_sock_recv(struct nvl_conn *conn, struct nvl_frame *f, int *fd)
{
	unsigned int nfds;
	ssize_t n;

	n = weft_frame_recv(conn->fd, f, sizeof(*f), fd, &nfds);
	if (n == -EAGAIN)
		return 0;
	/* it is not mapped, and an operation fails: not the connection here */
	if (n == -EMFILE && f->magic == NVL_FRAME_MAGIC &&
	    f->type == NVL_FRAME_PART)
		return 1;
	if (n <= 0)
		return n ? (int)n : -ECONNRESET;
	if (n == sizeof(*f) && f->magic == NVL_FRAME_MAGIC && f->type &&
	    f->type < NVL_FRAME_TYPES && nfds == has_fd[f->type])
		return 1;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return weft_fail(
		-EPROTO,
		"a peer on this host sent an unknown frame (%zd bytes, %u descriptors)",
		n, nfds);
}

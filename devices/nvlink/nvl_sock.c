/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames on the Unix socket of a connection, after the hello. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "devices/frame.h"
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
	[NVL_FRAME_INBOX] = true,
	[NVL_FRAME_RING_OFFER] = true,
	[NVL_FRAME_MARKS] = true,
	[NVL_FRAME_MAP_PART] = true,
};

static int queue_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	struct queued_frame *q;

	if (conn->nframes_out == FRAMES_KEPT)
		return weft_fail(ENOBUFS, "a peer on this host does not read "
					  "its frames");
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
		err = weft_frame_send(conn->fd, f, sizeof(*f), fd);
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
		err = weft_frame_send(conn->fd, &q->frame, sizeof(q->frame),
				      q->fd);
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

int nvl_sock_recv(struct nvl_conn *conn, struct nvl_frame *f, int *fd)
{
	unsigned int nfds;
	ssize_t n;

	n = weft_frame_recv(conn->fd, f, sizeof(*f), fd, &nfds);
	if (n == -EAGAIN)
		return 0;
	/* what is not mapped goes over a ring */
	if (n == -EMFILE && f->magic == NVL_FRAME_MAGIC &&
	    f->type == NVL_FRAME_MAP_PART)
		return 1;
	if (n <= 0)
		return n ? (int)n : -ECONNRESET;
	if (n == sizeof(*f) && f->magic == NVL_FRAME_MAGIC && f->type &&
	    f->type < NVL_FRAME_TYPES && nfds == f->nfds &&
	    nfds == has_fd[f->type])
		return 1;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return weft_fail(EPROTO,
			 "a peer on this host sent a frame that "
			 "is none (%zd bytes, %u descriptors)",
			 n, nfds);
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

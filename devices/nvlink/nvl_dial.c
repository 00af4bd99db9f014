/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device's part of meeting: a Unix socket to the peer, and, once
 * devices/session has proven both sides, the exchange of inboxes over it.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "devices/nvlink/nvl_dial.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_sock.h"
#include "util/log.h"

static int open_socket(struct weft_conn *base, bool *connecting)
{
	const struct nvl_iface *iface = nvl_conn(base)->iface;

	*connecting = false;
	return weft_local_dial(&iface->local, &iface->base, base->remote);
}

/* ---- joining ------------------------------------------------------------- */

/* Both sides are proven: descriptors may leave. */
static void send_inbox(struct nvl_conn *conn)
{
	struct nvl_frame f = { .type = NVL_FRAME_INBOX,
			       .size = NVL_INBOX_SIZE };
	int fd = -1, err;

	conn->stats = weft_stats_peer(conn->iface->base.stats,
				      conn->base.peer_id, "this host");
	err = nvl_inbox_make(&conn->rx, &fd);
	if (!err)
		err = nvl_sock_send(conn, &f, fd);
	if (fd >= 0)
		close(fd);
	if (err)
		nvl_conn_break(conn, err);
}

static int map_peer_inbox(struct nvl_conn *conn, const struct nvl_frame *f,
			  int fd)
{
	if (f->type != NVL_FRAME_INBOX || f->size != NVL_INBOX_SIZE)
		return -EPROTO;
	return nvl_inbox_map(&conn->tx, fd);
}

static unsigned int receive_inbox(struct nvl_conn *conn)
{
	struct nvl_frame f;
	int fd, err;

	err = nvl_sock_recv(conn, &f, &fd);
	if (!err)
		return 0;
	if (err > 0)
		err = map_peer_inbox(conn, &f, fd);
	if (fd >= 0)
		close(fd);
	if (err) {
		nvl_conn_break(conn, err);
		return 1;
	}
	weft_conn_set_state(&conn->base, WEFT_CONN_OPEN);
	return 1;
}

unsigned int nvl_conn_step(struct nvl_conn *conn)
{
	unsigned int n = 0;

	if (conn->base.state == WEFT_CONN_JOINING)
		n += receive_inbox(conn);
	if (conn->base.state == WEFT_CONN_OPEN)
		n += nvl_ring_read_frames(conn);
	return n;
}

static unsigned int handle_socket(struct weft_source *src, uint32_t events)
{
	(void)events;
	return nvl_conn_step(container_of(src, struct nvl_conn, src));
}

static void join_socket(struct weft_handshake *hs, int fd)
{
	struct nvl_conn *conn = nvl_conn(hs->conn);

	conn->fd = fd;
	conn->src.handle = handle_socket;
	if (weft_events_add(&conn->iface->base.events, fd, &conn->src,
			    EPOLLIN | EPOLLRDHUP))
		nvl_conn_break(conn, weft_fail(errno, "cannot watch a socket"));
	else
		send_inbox(conn);
}

static struct weft_conn *new_conn(struct weft_session *s,
				  const struct weft_address *remote,
				  uint64_t peer_id, uint32_t number,
				  const char *where)
{
	struct nvl_conn *conn =
		nvl_conn_new(container_of(s, struct nvl_iface, base.session),
			     remote, peer_id, number);

	(void)where;
	return conn ? &conn->base : NULL;
}

static void lose_dial(struct weft_conn *base, uint32_t kind, int err,
		      const char *where)
{
	(void)kind;
	(void)where;
	nvl_conn_break(nvl_conn(base), err);
}

const struct weft_session_ops nvl_session_ops = {
	.open_socket = open_socket,
	.new_conn = new_conn,
	.joined = join_socket,
	.lost = lose_dial,
};

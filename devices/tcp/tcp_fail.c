/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/tcp/tcp_fail.h"
#include "devices/common/forked.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "util/bytes.h"
#include "util/log.h"

void tcp_conn_fail(struct tcp_conn *conn, const struct tcp_failure *f)
{
	uint8_t body[TCP_FAIL_LEN];
	const struct iovec iov = { body, sizeof(body) };

	if (conn->base.state != WEFT_CONN_OPEN || conn->base.err)
		return;
	weft_error(
		"a %s of %llu bytes with peer %016llx failed: the memory here cannot be %s (%s?); the connection is closed",
		f->what, (unsigned long long)f->len,
		(unsigned long long)conn->base.peer_id,
		f->written ? "written" : "read",
		f->written
			? "released, unmapped, read-only, or its file system is full"
			: "released, unmapped, or its file was truncated");
	if (f->told) {
		weft_put_le64(body, f->id);
		weft_put_le32(body + 8, f->written ? 0 : TCP_FAIL_GET);
		weft_put_le32(body + 12, (uint32_t)f->status);
		tcp_conn_gather(conn, TCP_FRAME_FAIL, &iov, 1, sizeof(body));
	}
	tcp_conn_failed(conn);
}

void tcp_conn_failed(struct tcp_conn *conn)
{
	conn->failed = true;
	weft_list_del(&conn->rx_pending_link);
	tcp_conn_break(conn, -ECONNRESET);
}

/* The socket of a connection that has ended. */
struct tcp_leaving {
	struct weft_source src;
	struct weft_list link; /* iface->leaving */
	struct tcp_iface *iface;
	int fd;
	uint8_t *tx; /* bytes to send */
	size_t off, len;
	bool shut; /* all are sent */
};

static void free_leaving(struct tcp_leaving *l)
{
	weft_list_del(&l->link);
	weft_events_close_fd(&l->iface->base.events, l->fd);
	free(l->tx);
	free(l);
}

/* Sends the rest and discards input; false: the socket has ended. */
static bool move(struct tcp_leaving *l)
{
	unsigned int rounds = 64;
	ssize_t n;

	while (l->len) {
		n = send(l->fd, l->tx + l->off, l->len,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			return false;
		if (n < 0)
			break;
		l->off += n;
		l->len -= n;
	}
	if (!l->len && !l->shut) {
		l->shut = true;
		shutdown(l->fd, SHUT_WR);
		if (weft_events_change(&l->iface->base.events, l->fd, &l->src,
				       EPOLLIN))
			return false;
	}
	do
		n = recv(l->fd, NULL, TCP_RX_BUF, MSG_DONTWAIT | MSG_TRUNC);
	while (n > 0 && rounds--);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static unsigned int handle_leaving(struct weft_source *src, uint32_t events)
{
	struct tcp_leaving *l = container_of(src, struct tcp_leaving, src);

	if (!move(l))
		free_leaving(l);
	return 1;
}

void tcp_conn_leave(struct tcp_conn *conn)
{
	struct tcp_leaving *l = calloc(1, sizeof(*l));
	struct weft_events *events = &conn->iface->base.events;

	if (!l) {
		weft_events_close_fd(events, conn->fd);
		return;
	}
	l->src.handle = handle_leaving;
	l->iface = conn->iface;
	l->fd = conn->fd;
	l->tx = conn->tx;
	l->off = conn->tx_off;
	l->len = conn->tx_len;
	conn->tx = NULL;
	conn->tx_off = conn->tx_len = conn->tx_cap = 0;
	weft_list_add_tail(&conn->iface->leaving, &l->link);
	if (weft_events_change(events, l->fd, &l->src, EPOLLIN | EPOLLOUT) ||
	    !move(l))
		free_leaving(l);
}

bool tcp_leaving_busy(struct tcp_iface *iface)
{
	struct tcp_leaving *l, *tl;
	bool busy = false;
	int unacked;

	weft_list_for_each (l, tl, &iface->leaving, link) {
		unacked = 0;
		if (!move(l))
			free_leaving(l);
		else
			busy |= l->len ||
				(!ioctl(l->fd, SIOCOUTQ, &unacked) && unacked);
	}
	return busy;
}

void tcp_leaving_close(struct tcp_iface *iface)
{
	struct tcp_leaving *l, *tl;

	weft_list_for_each (l, tl, &iface->leaving, link)
		free_leaving(l);
}

void tcp_leaving_forget(struct tcp_iface *iface)
{
	struct tcp_leaving *l, *tl;

	weft_list_for_each (l, tl, &iface->leaving, link)
		weft_forked_close(&l->fd);
}

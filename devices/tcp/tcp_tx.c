/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends frames on the message stream.  A frame is written at once, and what the
 * socket does not take is copied (tx).  No further message is taken until that
 * is empty; only control frames queue up behind, and the window of puts bounds
 * those.
 *
 * Small puts, and what answers the peer's frames, are gathered in tx instead,
 * if it is empty: they are written with the next message, at the end of a read,
 * or when progress() or arm() begins.
 */
#include "devices/tcp/tcp_tx.h"
#include "devices/tcp/bulk/tcp_bulk.h"
#include "devices/tcp/bulk/tcp_event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "util/bytes.h"
#include "util/log.h"
#include "util/util.h"

#define SMALL_FRAME 512 /* gathered on the stack, sent by send() */
/*
 * A peer that sends requests but reads no replies breaks the protocol.  Gets
 * are answered only when the socket has taken everything, and all other frames
 * that may be due are less.
 */
#define MAX_CONTROL (2u << 20)

static bool is_gathering(const struct tcp_conn *conn)
{
	return !weft_list_empty(&conn->gather_link);
}

bool tcp_conn_drained(const struct tcp_conn *conn)
{
	return !conn->tx_len || is_gathering(conn);
}

bool tcp_conn_is_busy(const struct tcp_conn *conn)
{
	return conn->nputs + conn->ngets > 1;
}

/*
 * Messages that the peer may have to keep until puts are placed: no more than
 * TCP_MAX_UNPLACED, since it never stops reading (tcp_rx.c).  The
 * acknowledgement of the last of those puts says that all were delivered.
 */
static bool unplaced_full(struct tcp_conn *conn)
{
	struct tcp_unplaced *u = conn->unplaced;
	uint64_t acked;

	if (!conn->bulk)
		return false;
	acked = atomic_load(&conn->bulk->acked);
	while (u[0].bytes && u[0].fence <= acked) {
		u[0] = u[1];
		u[1] = (struct tcp_unplaced){ 0 };
	}
	return u[0].bytes + u[1].bytes >= TCP_MAX_UNPLACED;
}

void tcp_conn_count_message(struct tcp_conn *conn, size_t len)
{
	struct tcp_unplaced *u = conn->unplaced;

	conn->sent++;
	weft_count(conn->stats, tx_messages, 1);
	weft_count(conn->stats, tx_message_bytes, len);
	if (!conn->bulk || conn->fence <= atomic_load(&conn->bulk->acked))
		return;
	/* keep the older entry, so that its fence can be reached */
	u += u[0].bytes != 0;
	u->fence = conn->fence;
	u->bytes += TCP_FRAME_LEN + len + TCP_KEPT;
}

bool tcp_conn_is_ready(struct weft_conn *base)
{
	struct tcp_conn *conn = tcp_conn(base);

	return conn->base.state == WEFT_CONN_OPEN && !conn->base.err &&
	       !conn->rx_ended && tcp_conn_drained(conn) &&
	       !tcp_bulk_full(conn) && !unplaced_full(conn) &&
	       conn->ngets < TCP_WINDOW &&
	       !(conn->bulk && conn->bulk->no_streams &&
		 (!weft_list_empty(&conn->bulk->queue) ||
		  !weft_list_empty(&conn->bulk->resend)));
}

/* Room for @n bytes more; NULL: no memory. */
static uint8_t *extend_tx(struct tcp_conn *conn, size_t n)
{
	size_t cap;
	uint8_t *t;

	if (conn->tx_off && conn->tx_off + conn->tx_len + n > conn->tx_cap) {
		memmove(conn->tx, conn->tx + conn->tx_off, conn->tx_len);
		conn->tx_off = 0;
	}
	if (conn->tx_len + n > conn->tx_cap) {
		cap = weft_max(conn->tx_len + n, 2 * conn->tx_cap);
		t = realloc(conn->tx, cap);
		if (!t)
			return NULL;
		conn->tx = t;
		conn->tx_cap = cap;
	}
	t = conn->tx + conn->tx_off + conn->tx_len;
	conn->tx_len += n;
	return t;
}

static int append_tx(struct tcp_conn *conn, const void *p, size_t n)
{
	uint8_t *t = extend_tx(conn, n);

	if (!t)
		return -ENOMEM;
	weft_copy(t, p, n);
	return 0;
}

/* Memory that may be gone: *@gone is why it cannot be read, or 0. */
static int append_named(struct tcp_conn *conn, const void *p, size_t n,
			int *gone)
{
	uint8_t *to = extend_tx(conn, n);

	if (!to)
		return -ENOMEM;
	*gone = weft_bounce_in(&conn->iface->base.bounce, to, p, n);
	return 0;
}

/* -EFAULT if memory that write_iov() has refused cannot be read. */
static int append_unsure(struct tcp_conn *conn, const void *p, size_t n)
{
	int gone = 0;
	const int err = append_named(conn, p, n, &gone);

	return gone ? -EFAULT : err;
}

static int append_iov(struct tcp_conn *conn, const struct iovec *iov,
		      unsigned int n, size_t skip,
		      int (*append)(struct tcp_conn *conn, const void *p,
				    size_t n))
{
	unsigned int i;
	int err;

	for (i = 0; i < n; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		err = append(conn, (uint8_t *)iov[i].iov_base + skip,
			     iov[i].iov_len - skip);
		if (err)
			return err;
		skip = 0;
	}
	return 0;
}

static void set_want_write(struct tcp_conn *conn, bool on)
{
	if (conn->want_write == on || conn->base.state != WEFT_CONN_OPEN)
		return;
	conn->want_write = on;
	weft_events_change(&conn->iface->base.events, conn->fd, &conn->src,
			   on ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Bytes written, 0 when full, -errno. */
static ssize_t write_iov(struct tcp_conn *conn, const struct iovec *iov,
			 unsigned int n)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)iov, .msg_iovlen = n };
	ssize_t sent;

	do
		sent = n == 1 ? send(conn->fd, iov->iov_base, iov->iov_len,
				     MSG_DONTWAIT | MSG_NOSIGNAL)
			      : sendmsg(conn->fd, &msg,
					MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return errno == EAGAIN ? 0 : -errno;
	weft_count(conn->stats, wire_tx_bytes, sent);
	/* until it is acknowledged, keepalive does not watch this socket */
	tcp_iface_start_tick(conn->iface);
	return sent;
}

static void encode_head(const struct tcp_conn *conn, uint8_t *p, uint8_t type,
			uint8_t id, size_t len, uint64_t fence)
{
	p[0] = type;
	p[1] = id;
	weft_put_le16(p + 2, conn->taken);
	weft_put_le32(p + 4, len);
	weft_put_le64(p + 8, fence);
}

static int append_frame(struct tcp_conn *conn, const uint8_t *head,
			const struct iovec *iov, unsigned int n)
{
	int err = append_tx(conn, head, TCP_FRAME_LEN);

	return err ? err : append_iov(conn, iov, n, 0, append_tx);
}

/* Nothing is gathered before.  0, or -errno: the connection is broken. */
static int write_frame(struct tcp_conn *conn, const struct iovec *all,
		       unsigned int n, size_t total)
{
	ssize_t sent = write_iov(conn, all, n);
	int err;

	if (sent < 0)
		return sent;
	if ((size_t)sent == total)
		return 0;
	err = append_iov(conn, all, n, sent, append_unsure);
	if (!err)
		set_want_write(conn, true);
	return err;
}

int tcp_conn_send(struct tcp_conn *conn, uint8_t type, uint8_t id,
		  uint64_t fence, const struct iovec *iov, unsigned int n,
		  size_t len)
{
	uint8_t small[SMALL_FRAME + TCP_FRAME_LEN], *p = small;
	struct iovec all[TCP_MAX_IOV + 2];
	unsigned int i;
	int err;

	encode_head(conn, small, type, id, len, fence);
	if (is_gathering(conn) && len > TCP_SMALL)
		tcp_conn_write_gathered(conn);
	if (conn->tx_len) {
		err = append_frame(conn, small, iov, n);
		if (!err)
			tcp_conn_write_gathered(conn);
	} else if (len <= SMALL_FRAME) {
		p += TCP_FRAME_LEN;
		for (i = 0; i < n; i++) {
			/* An empty piece may have no address at all. */
			if (!iov[i].iov_len)
				continue;
			memcpy(p, iov[i].iov_base, iov[i].iov_len);
			p += iov[i].iov_len;
		}
		all[0].iov_base = small;
		all[0].iov_len = TCP_FRAME_LEN + len;
		err = write_frame(conn, all, 1, TCP_FRAME_LEN + len);
	} else {
		all[0].iov_base = small;
		all[0].iov_len = TCP_FRAME_LEN;
		memcpy(all + 1, iov, n * sizeof(*iov));
		err = write_frame(conn, all, n + 1, TCP_FRAME_LEN + len);
	}
	if (!err)
		return 0;
	if (err == -EFAULT) {
		conn->tx_len = 0;
		return err;
	}
	/* the caller tries again, and progress() calls on_error() */
	tcp_conn_break(conn, err);
	conn->base.ready_owed = true;
	return -EAGAIN;
}

/* Appends a frame, whose last @named bytes at @p a peer has named. */
static int gather(struct tcp_conn *conn, uint8_t type, const struct iovec *iov,
		  unsigned int n, const void *p, size_t named, size_t len)
{
	const bool first = tcp_conn_drained(conn) && !is_gathering(conn);
	const size_t before = conn->tx_len;
	uint8_t head[TCP_FRAME_LEN];
	int err = -EPROTO, gone = 0;

	if (conn->base.state != WEFT_CONN_OPEN || conn->base.err ||
	    conn->rx_ended)
		return 0;
	encode_head(conn, head, type, 0, len, 0);
	if (conn->tx_len <= MAX_CONTROL)
		err = append_frame(conn, head, iov, n);
	else
		weft_error(
			"peer %016llx sends requests and reads no replies; the connection is closed",
			(unsigned long long)conn->base.peer_id);
	if (!err && named)
		err = append_named(conn, p, named, &gone);
	if (gone) {
		conn->tx_len = before;
		return gone;
	}
	if (err) {
		tcp_conn_break(conn, err);
		return 0;
	}
	if (first) {
		weft_list_add_tail(&conn->iface->gathering, &conn->gather_link);
		conn->gathered = 0;
	}
	if (++conn->gathered >= TCP_GATHER_FRAMES || conn->tx_len >= TCP_GATHER)
		tcp_conn_write_gathered(conn);
	return 0;
}

void tcp_conn_gather(struct tcp_conn *conn, uint8_t type,
		     const struct iovec *iov, unsigned int n, size_t len)
{
	gather(conn, type, iov, n, NULL, 0, len);
}

int tcp_conn_gather_named(struct tcp_conn *conn, uint8_t type,
			  const struct iovec *own, const void *p, size_t n)
{
	return gather(conn, type, own, 1, p, n, own->iov_len + n);
}

void tcp_conn_write_gathered(struct tcp_conn *conn)
{
	/* the peer reads no more: nothing is lost */
	if (!is_gathering(conn) || conn->rx_ended)
		return;
	weft_list_del(&conn->gather_link);
	tcp_conn_flush(conn);
}

void tcp_conn_send_control(struct tcp_conn *conn, uint8_t type,
			   const void *body, size_t len)
{
	const struct iovec iov = { (void *)body, len };

	tcp_conn_gather(conn, type, &iov, 1, len);
	if (!conn->in_rx)
		tcp_conn_write_gathered(conn);
}

void tcp_conn_ask(struct tcp_conn *conn)
{
	if (conn->asked_of == conn->sent || conn->asks == TCP_MAX_ASKS)
		return;
	conn->asked_of = conn->sent;
	conn->asks++;
	tcp_conn_send_control(conn, TCP_FRAME_ASK, NULL, 0);
}

static int flush_tx(struct tcp_conn *conn)
{
	struct iovec iov;
	ssize_t n;

	weft_list_del(&conn->gather_link);
	while (conn->tx_len) {
		iov.iov_base = conn->tx + conn->tx_off;
		iov.iov_len = conn->tx_len;
		n = write_iov(conn, &iov, 1);
		if (n <= 0)
			return n < 0 ? n : -EAGAIN;
		conn->tx_off += n;
		conn->tx_len -= n;
	}
	/* an idle connection has no buffer */
	free(conn->tx);
	conn->tx = NULL;
	conn->tx_off = conn->tx_cap = 0;
	return 0;
}

void tcp_conn_flush(struct tcp_conn *conn)
{
	int err;

	if (conn->base.state != WEFT_CONN_OPEN || conn->base.err ||
	    conn->rx_ended)
		return;
	err = flush_tx(conn);
	if (err && err != -EAGAIN) {
		tcp_conn_break(conn, err);
	} else if (err) {
		set_want_write(conn, true);
	} else if (conn->want_write) {
		set_want_write(conn, false);
		weft_conn_attend(&conn->base);
	}
}

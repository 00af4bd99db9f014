/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's side of a connection. */
#include "devices/tcp/tcp_ep.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_dial.h"
#include "devices/tcp/tcp_fail.h"
#include "devices/tcp/tcp_get.h"
#include "devices/tcp/tcp_put.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <stdlib.h>

static int tcp_connect_ep(struct weft_iface *base,
			  const struct weft_address *remote, uint32_t number,
			  struct weft_conn **conn)
{
	struct tcp_iface *iface = tcp_iface(base);
	struct weft_address to = *remote;
	int err;

	/* a link-local address is reached by this interface only */
	if (to.sa.sa.sa_family == AF_INET6 &&
	    IN6_IS_ADDR_LINKLOCAL(&to.sa.in6.sin6_addr))
		to.sa.in6.sin6_scope_id = iface->netif.index;
	err = weft_session_connect(&iface->base.session, &to, number, conn);
	weft_wipe(&to, sizeof(to));
	return err;
}

static uint64_t tcp_count_sent(const struct weft_conn *base)
{
	return container_of(base, struct tcp_conn, base)->sent;
}

static bool tcp_is_flushed(struct weft_conn *base, uint64_t sent)
{
	struct tcp_conn *conn = tcp_conn(base);

	if (conn->acked < sent) {
		tcp_conn_ask(conn);
		return false;
	}
	return !conn->ngets && !conn->nputs;
}

static void tcp_cancel_ops(struct weft_conn *base)
{
	struct tcp_conn *conn = tcp_conn(base);

	tcp_puts_cancel(conn, -ECANCELED);
	tcp_gets_cancel(conn, -ECANCELED);
}

static void tcp_leave_conn(struct weft_conn *base)
{
	struct tcp_conn *conn = tcp_conn(base);

	if (weft_conn_give_up(base)) {
		tcp_conn_break(conn, -ECANCELED);
	} else if (base->state == WEFT_CONN_OPEN) {
		tcp_conn_send_bye(conn);
		tcp_streams_give_back(conn);
		tcp_conn_maybe_end(conn);
	}
}

const struct weft_ep_ops tcp_ep_ops = {
	.max_iov = TCP_MAX_IOV,
	.max_message = TCP_MAX_MESSAGE,
	.connect = tcp_connect_ep,
	.is_ready = tcp_conn_is_ready,
	.sent = tcp_count_sent,
	.is_flushed = tcp_is_flushed,
	.cancel = tcp_cancel_ops,
	.leave = tcp_leave_conn,
};

/* The connection of a live endpoint, or NULL. */
static struct tcp_conn *tcp_live_conn(struct weft_ep *ep)
{
	struct weft_conn *conn = weft_ep_conn(ep);

	return conn ? tcp_conn(conn) : NULL;
}

/* A caller that waits for a gathered put or get calls progress(). */
bool tcp_ep_unsent(struct weft_ep *base)
{
	struct tcp_conn *conn = tcp_live_conn(base);

	return conn && conn->base.state == WEFT_CONN_OPEN &&
	       !tcp_conn_drained(conn);
}

int tcp_ep_message(struct weft_ep *base, uint8_t id, const struct iovec *iov,
		   unsigned int iovcnt)
{
	struct tcp_failure unreadable = { .what = "message" };
	struct tcp_conn *conn;
	size_t len;
	int err;

	err = weft_ep_check_message(&tcp_ep_ops, base, iov, iovcnt, &len);
	if (err)
		return err;
	conn = tcp_conn(weft_base_ep(base)->conn);
	err = tcp_conn_send(conn, TCP_FRAME_MESSAGE, id, conn->fence, iov,
			    iovcnt, len);
	if (err == -EFAULT) {
		unreadable.len = len;
		tcp_conn_fail(conn, &unreadable);
		conn->base.ready_owed = true;
		return -EAGAIN;
	}
	if (!err)
		tcp_conn_count_message(conn, len);
	return err;
}

ssize_t tcp_ep_message_pack(struct weft_ep *base, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	int err = weft_ep_check(&tcp_ep_ops, base, 0, 0);
	struct tcp_conn *conn;
	struct iovec iov;

	if (err)
		return err;
	conn = tcp_conn(weft_base_ep(base)->conn);
	iov.iov_base = conn->iface->txbuf;
	iov.iov_len = pack(iov.iov_base, arg);
	err = tcp_conn_send(conn, TCP_FRAME_MESSAGE, id, conn->fence, &iov, 1,
			    iov.iov_len);
	/*
	 * pack() must not run twice for a message: if the connection has just
	 * broken, pretend it was sent; on_error() follows.
	 */
	if (err && err != -EAGAIN)
		return err;
	tcp_conn_count_message(conn, iov.iov_len);
	return iov.iov_len;
}

void tcp_ep_fence(struct weft_ep *base)
{
	struct tcp_conn *conn = tcp_live_conn(base);

	if (conn && conn->bulk)
		conn->fence = atomic_load(&conn->bulk->next_seq);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's side of a connection. */
#include "devices/tcp/tcp_iface.h"
#include "devices/tcp/tcp_bulk.h"
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_event.h"
#include "devices/tcp/tcp_msg.h"
#include "devices/tcp/tcp_rma.h"

#include <errno.h>
#include <stdlib.h>

static struct tcp_conn *live_conn(struct tcp_ep *ep)
{
	return ep->err ? NULL : ep->conn;
}

/* The peer was here first: its connection becomes ours, if it is the peer's. */
static struct tcp_conn *take_accepted_conn(struct tcp_iface *iface,
					   struct tcp_ep *ep,
					   const uint8_t *key)
{
	struct tcp_conn *conn;

	if (ep->peer_id == iface->my_id)
		return NULL;
	conn = tcp_conn_find(iface, ep->peer_id, ep->sn);
	if (!conn || conn->ep || conn->err || !conn->hello ||
	    !weft_hello_owns(conn->hello, key))
		return NULL;
	free(conn->hello);
	conn->hello = NULL;
	return conn;
}

int tcp_ep_create(struct weft_iface *base, const struct weft_address *remote,
		  void *user, struct weft_ep **out)
{
	struct tcp_iface *iface = tcp_iface(base);
	union weft_sockaddr to = remote->sa;
	struct tcp_conn *conn = NULL;
	struct weft_ep_sn *sn;
	struct tcp_ep *ep;
	char where[WEFT_SOCKADDR_STR];

	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -ENOMEM;
	ep->base.iface = base;
	ep->base.user = user;
	/* a link-local address is reached by this interface only */
	if (remote->sa.sa.sa_family == AF_INET6 &&
	    IN6_IS_ADDR_LINKLOCAL(&remote->sa.in6.sin6_addr))
		to.in6.sin6_scope_id = iface->netif.index;
	ep->peer_id = weft_key_id(remote->key);
	weft_flushes_init(&ep->flushes);
	sn = weft_ep_sn_get(&iface->sns, ep->peer_id);
	if (!sn)
		goto free_ep;
	ep->sn = sn->next;
	conn = take_accepted_conn(iface, ep, remote->key);
	if (!conn) {
		conn = tcp_conn_new(
			iface, ep->peer_id, ep->sn,
			weft_sockaddr_str(&to, where, sizeof(where)));
		if (!conn)
			goto free_ep;
		conn->remote = to;
		memcpy(conn->remote_key, remote->key, WEFT_KEY_LEN);
		conn->ep = ep;
		/* a dial that fails at once is reported by progress() */
		tcp_conn_dial(conn);
	}
	conn->ep = ep;
	conn->had_ep = true;
	sn->next++;
	weft_ep_sn_hold(&iface->sns, sn);
	ep->numbers = sn;
	ep->conn = conn;
	*out = &ep->base;
	return 0;

free_ep:
	free(ep);
	return -ENOMEM;
}

static bool is_flushed(const struct tcp_ep *ep)
{
	const struct tcp_conn *conn = ep->conn;

	return tcp_conn_drained(conn) && !conn->ngets && !conn->nputs;
}

void tcp_ep_notify(struct tcp_conn *conn)
{
	struct weft_iface_cb *cb = &conn->iface->base.cb;

	if (conn->ready_owed && conn->ep && tcp_conn_ready(conn)) {
		conn->ready_owed = false;
		cb->on_ready(cb->arg, &conn->ep->base, conn->ep->base.user);
	}
	if (conn->ep && conn->ep->flushes.n && live_conn(conn->ep) &&
	    is_flushed(conn->ep))
		weft_flushes_end(&conn->ep->flushes, 0);
}

void tcp_ep_failed(struct tcp_ep *ep, int err)
{
	struct weft_iface_cb *cb = &ep->base.iface->cb;

	ep->err = err;
	ep->conn = NULL;
	weft_flushes_end(&ep->flushes, err == -ESHUTDOWN ? 0 : err);
	if (!ep->cancelled)
		cb->on_error(cb->arg, &ep->base, ep->base.user, err);
}

void tcp_ep_cancel(struct weft_ep *base)
{
	struct tcp_ep *ep = tcp_ep(base);
	struct tcp_conn *conn = live_conn(ep);
	struct weft_op *op;

	ep->cancelled = true;
	if (!conn)
		return;
	ep->err = -ECANCELED;
	tcp_conn_copy_zc(conn);
	op = conn->zc_op;
	conn->zc_op = NULL;
	if (op)
		op->done(op, -ECANCELED);
	tcp_puts_cancel(conn, -ECANCELED);
	tcp_gets_cancel(conn, -ECANCELED);
	weft_flushes_end(&ep->flushes, -ECANCELED);
}

void tcp_ep_destroy(struct weft_ep *base)
{
	struct tcp_ep *ep = tcp_ep(base);
	struct tcp_conn *conn;

	tcp_ep_cancel(base);
	conn = ep->conn;
	if (conn) {
		conn->ep = NULL;
		if (conn->state != TCP_CONN_OPEN) {
			tcp_conn_break(conn, -ECANCELED);
		} else {
			tcp_conn_send_control(conn, TCP_FRAME_BYE, NULL, 0);
			conn->bye_sent = true;
			tcp_conn_maybe_end(conn);
		}
	}
	weft_ep_sn_release(&tcp_iface(base->iface)->sns, ep->numbers);
	free(ep);
}

void tcp_ep_query(struct weft_ep *base, struct weft_ep_attr *attr)
{
	struct tcp_conn *conn = live_conn(tcp_ep(base));

	attr->connected = conn && conn->state == TCP_CONN_OPEN;
	attr->unsent =
		attr->connected && (conn->tx_len || conn->zc_i != conn->zc_n);
	attr->streams =
		attr->connected && conn->bulk ? conn->bulk->out_streams : 0;
}

bool tcp_ep_ready(struct weft_ep *base)
{
	struct tcp_conn *conn = live_conn(tcp_ep(base));

	/* a dead endpoint takes anything: it answers with its error */
	return !conn || tcp_conn_ready(conn);
}

int tcp_ep_message(struct weft_ep *base, uint8_t id, const struct iovec *iov,
		   unsigned int iovcnt, struct weft_op *op)
{
	struct tcp_ep *ep = tcp_ep(base);
	struct tcp_conn *conn = ep->conn;
	size_t len = 0;
	unsigned int i;
	int err;

	for (i = 0; i < iovcnt; i++)
		len += iov[i].iov_len;
	if (ep->err)
		return ep->err;
	if (len > TCP_MAX_MESSAGE || iovcnt > TCP_MAX_IOV)
		return -EMSGSIZE;
	if (!tcp_conn_ready(conn))
		return -EAGAIN;
	err = tcp_conn_send(conn, TCP_FRAME_MESSAGE, id, conn->fence, iov,
			    iovcnt, len, op);
	if (!err || err == -EINPROGRESS)
		tcp_conn_count_message(conn, len);
	return err;
}

ssize_t tcp_ep_message_pack(struct weft_ep *base, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	struct tcp_ep *ep = tcp_ep(base);
	struct tcp_conn *conn = ep->conn;
	struct iovec iov;
	int err;

	if (ep->err)
		return ep->err;
	if (!tcp_conn_ready(conn))
		return -EAGAIN;
	iov.iov_base = conn->iface->txbuf;
	iov.iov_len = pack(iov.iov_base, arg);
	err = tcp_conn_send(conn, TCP_FRAME_MESSAGE, id, conn->fence, &iov, 1,
			    iov.iov_len, NULL);
	/*
	 * pack() may not be called twice for one message: a connection that
	 * broke just now has taken it, and on_error() follows.
	 */
	if (err && err != -EAGAIN)
		return err;
	tcp_conn_count_message(conn, iov.iov_len);
	return iov.iov_len;
}

void tcp_ep_fence(struct weft_ep *base)
{
	struct tcp_conn *conn = live_conn(tcp_ep(base));

	if (conn && conn->bulk)
		conn->fence = atomic_load(&conn->bulk->next_seq);
}

int tcp_ep_flush(struct weft_ep *base, struct weft_op *op)
{
	struct tcp_ep *ep = tcp_ep(base);

	if (ep->err)
		return ep->err == -ESHUTDOWN || ep->cancelled ? 0 : ep->err;
	if (is_flushed(ep))
		return 0;
	return weft_flushes_add(&ep->flushes, op);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's side of a connection. */
#include "devices/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>

#include "util/log.h"

static struct tcp_conn *live_conn(struct tcp_ep *ep)
{
	return ep->err ? NULL : ep->conn;
}

/* The peer was here first: its connection becomes ours, if it is the peer's. */
static struct tcp_conn *adopt(struct tcp_iface *iface, struct tcp_ep *ep,
			      const uint8_t *key)
{
	struct tcp_conn *conn;

	if (ep->peer_id == iface->my_id)
		return NULL;
	conn = tcp_conn_find(iface, ep->peer_id, ep->sn);
	if (!conn || conn->ep || conn->broken || !conn->hello ||
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
	conn = adopt(iface, ep, remote->key);
	if (!conn) {
		conn = tcp_conn_new(iface, ep->peer_id, ep->sn,
				    weft_sockaddr_str(&to, where,
						      sizeof(where)));
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

static bool flushed(const struct tcp_ep *ep)
{
	const struct tcp_conn *conn = ep->conn;

	return tcp_conn_drained(conn) && !conn->ngets &&
	       !conn->nputs;
}

void tcp_ep_check_flush(struct tcp_ep *ep)
{
	if (ep->flushes.n && live_conn(ep) && flushed(ep))
		weft_flushes_end(&ep->flushes, 0);
}

/* Its connection ended; everything else has been completed. */
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
	tcp_bulk_cancel(conn, -ECANCELED);
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
			tcp_send_control(conn, TCP_FRAME_BYE, NULL, 0);
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
	attr->unsent = attr->connected &&
		       (conn->tx_len || conn->zc_i != conn->zc_n);
	attr->streams = attr->connected && conn->bulk ?
			conn->bulk->out_streams : 0;
}

bool tcp_ep_ready(struct weft_ep *base)
{
	struct tcp_conn *conn = live_conn(tcp_ep(base));

	/* a dead endpoint takes anything: it answers with its error */
	return !conn || tcp_conn_ready(conn);
}

void tcp_ep_notify_ready(struct tcp_conn *conn)
{
	struct weft_iface_cb *cb = &conn->iface->base.cb;

	tcp_get_reply(conn);
	if (!conn->was_full || !conn->ep || !tcp_conn_ready(conn))
		return;
	conn->was_full = false;
	cb->on_ready(cb->arg, &conn->ep->base, conn->ep->base.user);
}

static size_t iov_total(const struct iovec *iov, unsigned int n)
{
	size_t len = 0;

	while (n--)
		len += iov[n].iov_len;
	return len;
}

int tcp_ep_message(struct weft_ep *base, uint8_t id, const struct iovec *iov,
		   unsigned int iovcnt, struct weft_op *op)
{
	struct tcp_ep *ep = tcp_ep(base);
	struct tcp_conn *conn = ep->conn;
	size_t len = iov_total(iov, iovcnt);
	int err;

	if (ep->err)
		return ep->err;
	if (len > TCP_MAX_MESSAGE || iovcnt > TCP_MAX_IOV)
		return -EMSGSIZE;
	if (!tcp_conn_ready(conn))
		return -EAGAIN;
	err = tcp_send_frame(conn, TCP_FRAME_MESSAGE, id, conn->fence, iov,
			     iovcnt, len, op);
	if (!err || err == -EINPROGRESS)
		tcp_conn_sent_message(conn, len);
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
	err = tcp_send_frame(conn, TCP_FRAME_MESSAGE, id, conn->fence, &iov, 1,
			     iov.iov_len, NULL);
	/*
	 * pack() may not be called twice for one message: a connection that
	 * broke just now has taken it, and on_error() follows.
	 */
	if (err && err != -EAGAIN)
		return err;
	tcp_conn_sent_message(conn, iov.iov_len);
	return iov.iov_len;
}

static int put_framed(struct tcp_conn *conn, struct tcp_put *put)
{
	uint8_t head[TCP_CHUNK_LEN];
	struct iovec iov[TCP_MAX_IOV + 1];

	tcp_bulk_submit_framed(conn, put, head);
	iov[0].iov_base = head;
	iov[0].iov_len = TCP_CHUNK_LEN;
	memcpy(iov + 1, put->iov, put->iovcnt * sizeof(*iov));
	/* a connection that breaks here completes it with an error */
	tcp_send_frame(conn, TCP_FRAME_PUT, 0, 0, iov, put->iovcnt + 1,
		       TCP_CHUNK_LEN + put->total, NULL);
	return -EINPROGRESS;
}

int tcp_ep_put(struct weft_ep *base, const struct weft_iov *iov,
	       unsigned int iovcnt, uint64_t remote_addr,
	       const void *rkey, const struct weft_notify *notify,
	       struct weft_op *op)
{
	struct tcp_ep *ep = tcp_ep(base);
	struct tcp_conn *conn = ep->conn;
	struct tcp_put *put;
	size_t max_framed;
	unsigned int i;

	if (ep->err)
		return ep->err;
	if (iovcnt > TCP_MAX_IOV)
		return -EMSGSIZE;
	if (!tcp_conn_ready(conn))
		return -EAGAIN;
	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	put = calloc(1, sizeof(*put));
	if (!put)
		return -ENOMEM;
	weft_list_init(&put->link);
	weft_list_init(&put->done_link);
	put->conn = conn;
	put->op = op;
	put->remote_addr = remote_addr;
	weft_rkey_unpack(rkey, &put->rkey);
	if (notify) {
		put->flags = TCP_CHUNK_NOTIFY;
		put->tag = notify->tag;
	}
	put->iovcnt = iovcnt;
	for (i = 0; i < iovcnt; i++) {
		put->iov[i] = (struct iovec){ iov[i].addr, iov[i].len };
		put->total += iov[i].len;
	}

	conn->nputs++;
	max_framed = weft_min(weft_settings()->tcp_bulk_min,
			      TCP_MAX_MESSAGE / 2);
	if (put->total <= max_framed)
		return put_framed(conn, put);
	tcp_bulk_submit(conn, put);
	tcp_conn_want_streams(conn);
	tcp_engines_kick(conn);
	tcp_conn_pump_frames(conn);
	return -EINPROGRESS;
}

int tcp_ep_get(struct weft_ep *base, const struct weft_iov *iov,
	       unsigned int iovcnt, uint64_t remote_addr,
	       const void *rkey, struct weft_op *op)
{
	struct tcp_ep *ep = tcp_ep(base);

	if (ep->err)
		return ep->err;
	if (iovcnt > TCP_MAX_IOV)
		return -EMSGSIZE;
	if (!tcp_conn_ready(ep->conn))
		return -EAGAIN;
	return tcp_get_start(ep->conn, iov, iovcnt, remote_addr, rkey, op);
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
	if (flushed(ep))
		return 0;
	return weft_flushes_add(&ep->flushes, op);
}

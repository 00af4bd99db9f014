/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's side of a connection. */
#include "devices/ib/ib.h"

#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/log.h"

int ib_ep_create(struct weft_iface *base, const struct weft_address *remote,
		 void *user, struct weft_ep **out)
{
	struct ib_iface *iface = ib_iface(base);
	struct ib_conn *conn;
	struct ib_peer *peer;
	struct weft_ep_sn *sn;
	struct ib_ep *ep;
	int err;

	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -ENOMEM;
	ep->base.iface = base;
	ep->base.user = user;
	weft_flushes_init(&ep->flushes);
	peer = ib_peer_get(iface, remote);
	if (!peer) {
		err = -errno;
		goto free_ep;
	}
	sn = weft_ep_sn_get(&iface->sns, peer->id);
	if (!sn) {
		err = -ENOMEM;
		goto free_ep;
	}
	conn = ib_peer_conn(peer, sn->next);
	if (conn && (conn->ep || conn->broken)) {
		/* the peer's has this number, and ended */
		sn->next++;
		err = -ECONNRESET;
		goto free_ep;
	}
	if (!conn)
		conn = ib_conn_new(peer, sn->next);
	if (!conn) {
		err = -errno;
		goto free_ep;
	}
	sn->next++;
	weft_ep_sn_hold(&iface->sns, sn);
	ep->numbers = sn;
	conn->ep = ep;
	conn->had_ep = true;
	ep->conn = conn;
	*out = &ep->base;
	return 0;

free_ep:
	free(ep);
	return err;
}

static bool flushed(const struct ib_conn *conn)
{
	return !conn->user_used && !conn->nops && !conn->nfinished;
}

/* Behind the completions of what it waited for. */
void ib_ep_check_flush(struct ib_conn *conn)
{
	struct ib_ep *ep = conn->ep;

	if (ep && !ep->err && ep->flushes.n && flushed(conn))
		weft_flushes_end(&ep->flushes, 0);
}

/* Its connection ended; everything else has been completed. */
void ib_ep_failed(struct ib_ep *ep, int err)
{
	struct weft_iface_cb *cb = &ep->base.iface->cb;

	weft_flushes_end(&ep->flushes, err == -ESHUTDOWN ? 0 : err);
	if (!ep->cancelled)
		cb->on_error(cb->arg, &ep->base, ep->base.user, err);
}

void ib_ep_cancel(struct weft_ep *base)
{
	struct ib_ep *ep = ib_ep(base);
	struct ib_conn *conn = ep->err ? NULL : ep->conn;
	uint64_t end;
	bool stopped;

	ep->cancelled = true;
	if (!conn)
		return;
	ep->err = -ECANCELED;
	if (ib_tx_busy(conn)) {
		/* no request is taken back but by giving up its QP */
		ib_conn_renew(conn);
		stopped = ib_qps_flush(conn);
		end = weft_now_ms() + IB_DRAIN_MS;
		while (stopped && ib_tx_busy(conn) && !conn->cq->dead &&
		       weft_now_ms() < end)
			ib_cq_gather(conn->iface);
		if (ib_tx_busy(conn)) {
			weft_warn("'%s' does not flush a queue pair",
				  conn->iface->port.name);
			ib_qps_destroy(conn);
			ib_conn_break(conn, -EIO);
		}
	}
	ib_op_drop_all(conn, -ECANCELED);
	weft_flushes_end(&ep->flushes, -ECANCELED);
	ib_conn_work(conn);
}

void ib_ep_destroy(struct weft_ep *base)
{
	struct ib_ep *ep = ib_ep(base);
	struct ib_conn *conn;

	ib_ep_cancel(base);
	conn = ep->conn;
	if (conn) {
		conn->ep = NULL;
		ib_conn_work(conn);
	}
	weft_ep_sn_release(&ib_iface(base->iface)->sns, ep->numbers);
	free(ep);
}

static unsigned int left_undone(const struct ib_conn *conn)
{
	unsigned int i, n = 0;

	for (i = 0; i < conn->nqps; i++)
		n += conn->q[i].ring_n;
	return n;
}

void ib_ep_query(struct weft_ep *base, struct weft_ep_attr *attr)
{
	struct ib_ep *ep = ib_ep(base);
	struct ib_conn *conn = ep->err ? NULL : ep->conn;

	attr->connected = conn && conn->state == IB_CONN_OPEN &&
			  conn->peer_ready;
	/* and what waits for another queue pair, where the last was given up */
	attr->unsent = conn && (!weft_list_empty(&conn->queue) ||
				conn->nquestions ||
				(!attr->connected && left_undone(conn)));
	attr->streams = attr->connected ? conn->nqps : 0;
}

bool ib_ep_ready(struct weft_ep *base)
{
	struct ib_ep *ep = ib_ep(base);

	/* a dead endpoint takes anything: it answers with its error */
	if (ep->err || ib_conn_ready(ep->conn))
		return true;
	ep->conn->was_full = true;
	return false;
}

/* Why a message is not taken now; 0: it is. */
static int refusal(struct ib_ep *ep, unsigned int iovcnt)
{
	struct ib_conn *conn = ep->conn;

	if (ep->err)
		return ep->err;
	if (iovcnt > IB_MAX_IOV)
		return -EMSGSIZE;
	if (ib_conn_ready(conn))
		return 0;
	/* what gives room may be there already */
	if (conn->state == IB_CONN_OPEN && weft_list_empty(&conn->queue) &&
	    ib_cq_gather(conn->iface) && ib_conn_ready(conn))
		return 0;
	conn->was_full = true;
	return -EAGAIN;
}

void ib_ep_tell_ready(struct ib_conn *conn)
{
	struct weft_iface_cb *cb = &conn->iface->base.cb;

	if (!conn->was_full || !conn->ep || conn->ep->err ||
	    !ib_conn_ready(conn))
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

static int send_message(struct ib_conn *conn, struct ib_tx *tx, uint8_t id,
			size_t len)
{
	int err;

	tx->len = (uint32_t)(IB_HEAD + len);
	err = ib_tx_send(conn, tx, IB_KIND_MESSAGE, id, NULL);
	if (err) {
		ib_tx_give(conn, tx);
		return err;
	}
	weft_count(conn->stats, tx_messages, 1);
	weft_count(conn->stats, tx_message_bytes, len);
	return 0;
}

int ib_ep_message(struct weft_ep *base, uint8_t id, const struct iovec *iov,
		  unsigned int iovcnt, struct weft_op *op)
{
	struct ib_ep *ep = ib_ep(base);
	size_t len = iov_total(iov, iovcnt);
	int err = refusal(ep, iovcnt);
	unsigned int i;
	struct ib_tx *tx;
	uint8_t *p;

	(void)op;	/* always copied */
	if (len > IB_SLOT - IB_HEAD && (!err || err == -EAGAIN))
		return -EMSGSIZE;
	if (err)
		return err;
	tx = ib_tx_take(ep->conn, true);
	p = tx->buf + IB_HEAD;
	for (i = 0; i < iovcnt; p += iov[i++].iov_len)
		if (iov[i].iov_len)
			memcpy(p, iov[i].iov_base, iov[i].iov_len);
	return send_message(ep->conn, tx, id, len);
}

ssize_t ib_ep_message_pack(struct weft_ep *base, uint8_t id,
			   size_t (*pack)(void *dest, void *arg), void *arg)
{
	struct ib_ep *ep = ib_ep(base);
	int err = refusal(ep, 0);
	struct ib_tx *tx;
	size_t len;

	if (err)
		return err;
	tx = ib_tx_take(ep->conn, true);
	len = pack(tx->buf + IB_HEAD, arg);
	/* pack() has run: if the connection broke just now, on_error() follows */
	send_message(ep->conn, tx, id, len);
	return (ssize_t)len;
}

static int start(struct ib_ep *ep, enum ib_op_kind kind,
		 const struct weft_iov *iov, unsigned int iovcnt,
		 uint64_t remote_addr, const void *rkey,
		 const struct weft_notify *notify, struct weft_op *done)
{
	struct ib_conn *conn = ep->conn;
	struct ib_op *op;
	unsigned int i;

	if (ep->err)
		return ep->err;
	if (iovcnt > IB_MAX_IOV)
		return -EMSGSIZE;
	/* these need no room but in the queue: more than ready() promises */
	if (!conn->peer_ready || conn->state != IB_CONN_OPEN || conn->broken ||
	    conn->want_break || conn->nqueued == IB_MAX_QUEUED) {
		conn->was_full = true;
		return -EAGAIN;
	}
	op = calloc(1, sizeof(*op));
	if (!op)
		return -ENOMEM;
	op->kind = kind;
	op->conn = conn;
	op->op = done;
	op->remote_addr = remote_addr;
	weft_rkey_unpack(rkey, &op->rkey);
	op->notify = notify != NULL;
	op->tag = notify ? notify->tag : 0;
	op->iovcnt = iovcnt;
	for (i = 0; i < iovcnt; i++) {
		op->iov[i] = (struct iovec){ iov[i].addr, iov[i].len };
		op->total += iov[i].len;
	}
	conn->nops++;
	ib_op_queue(conn, op);
	return -EINPROGRESS;
}

int ib_ep_put(struct weft_ep *base, const struct weft_iov *iov,
	      unsigned int iovcnt, uint64_t remote_addr,
	      const void *rkey, const struct weft_notify *notify,
	      struct weft_op *op)
{
	return start(ib_ep(base), IB_OP_PUT, iov, iovcnt, remote_addr, rkey,
		     notify, op);
}

int ib_ep_get(struct weft_ep *base, const struct weft_iov *iov,
	      unsigned int iovcnt, uint64_t remote_addr,
	      const void *rkey, struct weft_op *op)
{
	return start(ib_ep(base), IB_OP_GET, iov, iovcnt, remote_addr, rkey,
		     NULL, op);
}

void ib_ep_fence(struct weft_ep *base)
{
	struct ib_ep *ep = ib_ep(base);

	if (!ep->err)
		ib_op_fence(ep->conn);
}

int ib_ep_flush(struct weft_ep *base, struct weft_op *op)
{
	struct ib_ep *ep = ib_ep(base);

	if (ep->err)
		return ep->err == -ESHUTDOWN || ep->cancelled ? 0 : ep->err;
	if (flushed(ep->conn))
		return 0;
	ib_conn_work(ep->conn);
	return weft_flushes_add(&ep->flushes, op);
}

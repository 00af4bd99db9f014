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

/* A broken one has given its messages up: ib_ep_failed() ends its flushes. */
static bool flushed(const struct ib_conn *conn)
{
	return !conn->broken && !conn->user_used && !conn->nops &&
	       !conn->nfinished;
}

void ib_ep_update(struct ib_ep *ep)
{
	struct weft_iface_cb *cb = &ep->base.iface->cb;

	/* behind the completions of what it waited for */
	if (!ep->err && ep->flushes.n && flushed(ep->conn))
		weft_flushes_end(&ep->flushes, 0);
	if (ep->err || !ep->conn->was_full || !ib_xfer_ready(ep->conn))
		return;
	ep->conn->was_full = false;
	cb->on_ready(cb->arg, &ep->base, ep->base.user);
}

void ib_ep_failed(struct ib_ep *ep)
{
	struct weft_iface_cb *cb = &ep->base.iface->cb;

	ep->conn = NULL;
	weft_flushes_end(&ep->flushes, ep->err == -ESHUTDOWN ? 0 : ep->err);
	if (!ep->cancelled)
		cb->on_error(cb->arg, &ep->base, ep->base.user, ep->err);
}

void ib_ep_cancel(struct weft_ep *base)
{
	struct ib_ep *ep = ib_ep(base);
	struct ib_conn *conn = ep->err ? NULL : ep->conn;

	ep->cancelled = true;
	if (!conn)
		return;
	ep->err = -ECANCELED;
	if (ib_xfer_busy(conn)) {
		/* no request is taken back but by giving up its queue pair */
		ib_conn_break(conn, -ECANCELED);
		ib_xfer_stop(conn);
	}
	ib_xfer_drop(conn, -ECANCELED);
	weft_flushes_end(&ep->flushes, -ECANCELED);
	ib_conn_wake(conn);
}

void ib_ep_destroy(struct weft_ep *base)
{
	struct ib_ep *ep = ib_ep(base);
	struct ib_conn *conn;

	ib_ep_cancel(base);
	conn = ep->conn;
	if (conn) {
		conn->ep = NULL;
		ib_conn_wake(conn);
	}
	weft_ep_sn_release(&ib_iface(base->iface)->sns, ep->numbers);
	free(ep);
}

void ib_ep_query(struct weft_ep *base, struct weft_ep_attr *attr)
{
	struct ib_ep *ep = ib_ep(base);
	struct ib_conn *conn = ep->err ? NULL : ep->conn;

	attr->connected =
		conn && conn->state == IB_CONN_OPEN && conn->peer_ready;
	attr->unsent = conn && !weft_list_empty(&conn->queue);
	attr->streams = attr->connected;
}

bool ib_ep_ready(struct weft_ep *base)
{
	struct ib_ep *ep = ib_ep(base);

	/* a dead endpoint takes anything: it answers with its error */
	if (ep->err || ib_xfer_ready(ep->conn))
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
	if (ib_xfer_ready(conn))
		return 0;
	/* what gives room may be there already */
	if (conn->state == IB_CONN_OPEN && weft_list_empty(&conn->queue) &&
	    ib_xfer_gather(conn->iface) && ib_xfer_ready(conn))
		return 0;
	conn->was_full = true;
	return -EAGAIN;
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
	err = ib_xfer_send(conn, tx, IB_KIND_MESSAGE, id, NULL);
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

	(void)op; /* always copied */
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
	/*
	 * pack() has run: if the connection broke just now, on_error() follows
	 */
	send_message(ep->conn, tx, id, len);
	return (ssize_t)len;
}

/* Memory that the caller has not registered is, for this operation alone. */
static int local_memory(struct ib_op *op, const struct weft_iov *iov,
			unsigned int i)
{
	const int access = op->kind == IB_OP_GET ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct ib_iface *iface = op->conn->iface;

	op->iov[i].addr = (uintptr_t)iov->addr;
	op->iov[i].len = iov->len;
	op->total += iov->len;
	/* the processor copies it into the request */
	if (!iov->len ||
	    (op->kind == IB_OP_PUT && iov->len <= op->conn->max_inline))
		return 0;
	if (iov->mem)
		return ib_mem_lkey(iov->mem, iface->dev, &op->iov[i].lkey);
	op->iov[i].mr =
		iface->v->reg_mr(iface->dev->pd, iov->addr, iov->len, access);
	if (!op->iov[i].mr)
		return weft_fail(
			errno,
			"cannot register %zu bytes at %p with '%s' for a transfer",
			iov->len, iov->addr, iface->port.name);
	op->iov[i].lkey = op->iov[i].mr->lkey;
	return 0;
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
	    conn->nqueued == IB_MAX_QUEUED) {
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
	op->notify = notify != NULL;
	op->tag = notify ? notify->tag : 0;
	op->iovcnt = iovcnt;
	for (i = 0; i < iovcnt && !op->status; i++)
		op->status = local_memory(op, &iov[i], i);
	/* no bytes ask for no key */
	if (!ib_key_find(rkey, conn->peer_info.device, &op->rkey) &&
	    op->total && !op->status) {
		weft_warn_once(
			"'%s': a key of peer %016llx has no part for its adapter; it has logged why",
			conn->iface->port.name,
			(unsigned long long)conn->peer->id);
		op->status = -EACCES;
	}
	ib_xfer_queue(conn, op);
	return -EINPROGRESS;
}

int ib_ep_put(struct weft_ep *base, const struct weft_iov *iov,
	      unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
	      const struct weft_notify *notify, struct weft_op *op)
{
	return start(ib_ep(base), IB_OP_PUT, iov, iovcnt, remote_addr, rkey,
		     notify, op);
}

int ib_ep_get(struct weft_ep *base, const struct weft_iov *iov,
	      unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
	      struct weft_op *op)
{
	return start(ib_ep(base), IB_OP_GET, iov, iovcnt, remote_addr, rkey,
		     NULL, op);
}

/* One queue pair executes in order. */
void ib_ep_fence(struct weft_ep *base)
{
	(void)base;
}

int ib_ep_flush(struct weft_ep *base, struct weft_op *op)
{
	struct ib_ep *ep = ib_ep(base);

	if (ep->err)
		return ep->err == -ESHUTDOWN || ep->cancelled ? 0 : ep->err;
	if (flushed(ep->conn))
		return 0;
	ib_conn_wake(ep->conn);
	return weft_flushes_add(&ep->flushes, op);
}

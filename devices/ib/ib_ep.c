/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's side of a connection. */
#include "devices/ib/ib_conn.h"
#include "devices/ib/ib_done.h"
#include "devices/ib/ib_ep.h"
#include "devices/ib/ib_mem.h"
#include "devices/ib/ib_peer.h"
#include "devices/ib/ib_xfer.h"

#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/log.h"

static int ib_connect_ep(struct weft_iface *base,
			 const struct weft_address *remote, uint32_t number,
			 struct weft_conn **out)
{
	struct ib_peer *peer = ib_peer_get(ib_iface(base), remote);
	struct ib_conn *conn;

	if (!peer)
		return -errno;
	conn = ib_peer_conn(peer, number);
	if (conn && (conn->base.ep || conn->base.err))
		return -ECONNRESET;
	if (!conn)
		conn = ib_conn_new(peer, number);
	if (!conn)
		return -errno;
	*out = &conn->base;
	return 0;
}

static bool ib_is_ready(struct weft_conn *base)
{
	return ib_xfer_ready(ib_conn(base));
}

/* A broken connection has lost messages: its flushes fail with the endpoint. */
static bool ib_is_flushed(struct weft_conn *base, uint64_t sent)
{
	struct ib_conn *conn = ib_conn(base);

	return !base->err && !conn->nops && !conn->nfinished &&
	       ib_xfer_is_delivered(conn, sent);
}

static uint64_t ib_count_sent(const struct weft_conn *base)
{
	return container_of(base, const struct ib_conn, base)->sent_message;
}

static void ib_cancel_ops(struct weft_conn *base)
{
	struct ib_conn *conn = ib_conn(base);

	if (ib_done_pending(conn)) {
		/* only ending the queue pair takes a posted request back */
		ib_conn_break(conn, -ECANCELED);
		ib_done_stop(conn);
	}
	ib_done_drop(conn, -ECANCELED);
	weft_conn_attend(&conn->base);
}

static void ib_leave_conn(struct weft_conn *base)
{
	weft_conn_attend(base);
}

const struct weft_ep_ops ib_ep_ops = {
	.max_iov = IB_MAX_IOV,
	.max_message = IB_SLOT - IB_HEAD,
	.connect = ib_connect_ep,
	.is_ready = ib_is_ready,
	.sent = ib_count_sent,
	.is_flushed = ib_is_flushed,
	.cancel = ib_cancel_ops,
	.leave = ib_leave_conn,
};

/* The connection of a live endpoint, or NULL. */
static struct ib_conn *ib_live_conn(struct weft_ep *ep)
{
	struct weft_conn *conn = weft_ep_conn(ep);

	return conn ? ib_conn(conn) : NULL;
}

bool ib_ep_unsent(struct weft_ep *base)
{
	const struct ib_conn *conn = ib_live_conn(base);

	return conn && !weft_list_empty(&conn->queue);
}

static int ib_send_message(struct ib_conn *conn, struct ib_tx *tx, uint8_t id,
			   size_t len)
{
	int err;

	tx->len = (uint32_t)(IB_HEAD + len);
	err = ib_xfer_send(conn, tx, IB_KIND_MESSAGE, id, NULL);
	if (err) {
		ib_tx_put(conn, tx);
		return err;
	}
	weft_count(conn->stats, tx_messages, 1);
	weft_count(conn->stats, tx_message_bytes, len);
	return 0;
}

int ib_ep_message(struct weft_ep *base, uint8_t id, const struct iovec *iov,
		  unsigned int iovcnt)
{
	struct ib_conn *conn;
	struct ib_tx *tx;
	size_t len;
	int err;

	err = weft_ep_check_message(&ib_ep_ops, base, iov, iovcnt, &len);
	if (err)
		return err;
	conn = ib_conn(weft_base_ep(base)->conn);
	tx = ib_tx_get(conn, true);
	weft_iov_copy(tx->buf + IB_HEAD, iov, iovcnt);
	return ib_send_message(conn, tx, id, len);
}

ssize_t ib_ep_message_pack(struct weft_ep *base, uint8_t id,
			   size_t (*pack)(void *dest, void *arg), void *arg)
{
	int err = weft_ep_check(&ib_ep_ops, base, 0, 0);
	struct ib_conn *conn;
	struct ib_tx *tx;
	size_t len;

	if (err)
		return err;
	conn = ib_conn(weft_base_ep(base)->conn);
	tx = ib_tx_get(conn, true);
	len = pack(tx->buf + IB_HEAD, arg);
	/*
	 * pack() has run: if the connection broke just now, on_error() follows
	 */
	ib_send_message(conn, tx, id, len);
	return (ssize_t)len;
}

/* Registers unregistered memory for this operation. */
static int local_memory(struct ib_op *op, const struct weft_iov *iov,
			unsigned int i)
{
	const int access = op->kind == IB_OP_GET ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct ib_iface *iface = op->conn->iface;

	op->iov[i].addr = (uintptr_t)iov->addr;
	op->iov[i].len = iov->len;
	op->total += iov->len;
	/* inline: no registration needed */
	if (!iov->len ||
	    (op->kind == IB_OP_PUT && iov->len <= op->conn->max_inline))
		return 0;
	if (iov->mem)
		return ib_mem_lkey(iov->mem, iface->dev, &op->iov[i].lkey);
	op->iov[i].mr =
		iface->v->reg_mr(iface->dev->pd, iov->addr, iov->len, access);
	if (!op->iov[i].mr)
		return weft_fail(
			-errno,
			"cannot register %zu bytes at %p with '%s' for a transfer",
			iov->len, iov->addr, iface->port.name);
	op->iov[i].lkey = op->iov[i].mr->lkey;
	return 0;
}

static int start_transfer(struct weft_ep *base, enum ib_op_kind kind,
			  const struct weft_iov *iov, unsigned int iovcnt,
			  uint64_t remote_addr, const void *rkey,
			  const struct weft_notify *notify,
			  struct weft_op *done)
{
	struct ib_conn *conn = ib_live_conn(base);
	struct ib_op *op;
	unsigned int i;

	if (!conn)
		return weft_base_ep(base)->err;
	if (iovcnt > IB_MAX_IOV)
		return -EMSGSIZE;
	/* these need only room in the queue, less than ready() checks */
	if (!conn->peer_ready || conn->base.state != WEFT_CONN_OPEN ||
	    conn->base.err || conn->nqueued == IB_MAX_QUEUED) {
		conn->base.ready_owed = true;
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
	/* no bytes need no key */
	if (!ib_key_find(rkey, conn->peer_info.device, &op->rkey) &&
	    op->total && !op->status) {
		weft_warn_once(
			"'%s': a key from peer %016llx does not cover its adapter; the peer has logged why",
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
	return start_transfer(base, IB_OP_PUT, iov, iovcnt, remote_addr, rkey,
			      notify, op);
}

int ib_ep_get(struct weft_ep *base, const struct weft_iov *iov,
	      unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
	      struct weft_op *op)
{
	return start_transfer(base, IB_OP_GET, iov, iovcnt, remote_addr, rkey,
			      NULL, op);
}

/* A queue pair executes in order. */
void ib_ep_fence(struct weft_ep *base)
{
}

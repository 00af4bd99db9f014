/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes to a connection's queue pair: requests, which complete in the order
 * posted, credits, and receives.
 *
 * Puts and gets wait in conn->queue, in order, until the ring has room for
 * their pieces.  Messages never wait there: one is accepted only if it can be
 * posted at once, which is after every earlier put.
 */
#include "devices/ib/ib_xfer.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "util/log.h"

static uint64_t wr_id(const struct ib_conn *conn, unsigned int index)
{
	return (uint64_t)conn->id << 32 | index;
}

/* ---- buffers ------------------------------------------------------------- */

struct ib_tx *ib_tx_get(struct ib_conn *conn, bool user)
{
	struct ib_tx *tx;

	if (weft_list_empty(&conn->tx_free) ||
	    (user && conn->user_used == IB_USER_SLOTS) ||
	    (!user &&
	     conn->tx_used - conn->user_used == IB_TX_SLOTS - IB_USER_SLOTS))
		return NULL;
	tx = weft_list_first(&conn->tx_free, struct ib_tx, link);
	weft_list_del(&tx->link);
	tx->user = user;
	conn->user_used += user;
	conn->tx_used++;
	return tx;
}

void ib_tx_put(struct ib_conn *conn, struct ib_tx *tx)
{
	conn->user_used -= tx->user;
	conn->tx_used--;
	weft_list_add_tail(&conn->tx_free, &tx->link);
}

void ib_xfer_receive_one(struct ib_rx *rx)
{
	struct ib_conn *conn = rx->conn;
	struct ibv_sge sge = { (uintptr_t)rx->buf, IB_SLOT, conn->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int err;

	rx->state = IB_RX_IDLE;
	if (!conn->qp || conn->base.err || conn->base.state == WEFT_CONN_CLOSED)
		return;
	wr.wr_id = wr_id(conn, (unsigned int)(rx - conn->rx)) | IB_WR_RECV;
	err = conn->iface->v->post_recv(conn->qp, &wr, &bad);
	if (err) {
		weft_fail(-err, "cannot post a receive buffer on '%s'",
			  conn->iface->port.name);
		ib_conn_break(conn, -EIO);
		return;
	}
	rx->state = IB_RX_POSTED;
}

void ib_xfer_receive(struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < IB_RX_SLOTS; i++)
		ib_xfer_receive_one(&conn->rx[i]);
}

/* ---- requests ------------------------------------------------------------ */

/* Is there room for one more request, and @spare after it? */
static bool ib_has_room(const struct ib_conn *conn, unsigned int spare)
{
	return conn->tx_out + spare < IB_SQ_DEPTH && !conn->base.err;
}

bool ib_xfer_ready(const struct ib_conn *conn)
{
	return conn->base.state == WEFT_CONN_OPEN && conn->peer_ready &&
	       weft_list_empty(&conn->queue) && ib_conn_credits(conn) &&
	       ib_has_room(conn, 1) && conn->user_used < IB_USER_SLOTS;
}

/* -errno: not posted, and the connection breaks. */
static int post_request(struct ib_conn *conn, struct ibv_send_wr *wr,
			struct ibv_sge *sge, const struct ib_request *req)
{
	const unsigned int at = (conn->ring_head + conn->tx_out) % IB_SQ_DEPTH;
	struct ibv_send_wr *bad;
	int err;

	wr->wr_id = wr_id(conn, at);
	wr->sg_list = sge;
	wr->num_sge = sge->length ? 1 : 0;
	wr->send_flags |= IBV_SEND_SIGNALED;
	err = conn->iface->v->post_send(conn->qp, wr, &bad);
	if (err) {
		weft_fail(-err, "cannot post a request on '%s'",
			  conn->iface->port.name);
		ib_conn_break(conn, -EIO);
		return -EIO;
	}
	conn->ring[at] = *req;
	conn->tx_out++;
	weft_count(conn->stats, wire_tx_bytes,
		   wr->opcode == IBV_WR_RDMA_READ ? 0 : sge->length);
	return 0;
}

int ib_xfer_send(struct ib_conn *conn, struct ib_tx *tx, enum ib_kind kind,
		 uint8_t id, struct ib_op *op)
{
	const struct ib_request req = { .op = op, .tx = tx };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	struct ibv_sge sge = { (uintptr_t)tx->buf, tx->len, conn->mr->lkey };
	int err;

	ib_head_pack(tx->buf, kind, id, conn->to_return);
	if (tx->len <= conn->max_inline)
		wr.send_flags = IBV_SEND_INLINE;
	err = post_request(conn, &wr, &sge, &req);
	if (err)
		return err;
	conn->to_return = 0;
	conn->answer_due = false;
	conn->sent += kind != IB_KIND_CREDIT;
	if (kind == IB_KIND_MESSAGE)
		conn->sent_message = conn->sent;
	else if (kind == IB_KIND_ASK)
		conn->sent_ask = conn->sent;
	return 0;
}

int ib_xfer_probe(struct ib_conn *conn)
{
	const struct ib_request req = { .op = NULL };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_sge sge = { 0 };

	return ib_has_room(conn, 1) ? post_request(conn, &wr, &sge, &req) : 0;
}

/*
 * If there is no room, the completion that makes some calls weft_conn_attend().
 */
static void send_head(struct ib_conn *conn, enum ib_kind kind)
{
	struct ib_tx *tx;

	if (!ib_has_room(conn, kind == IB_KIND_ASK))
		return;
	tx = ib_tx_get(conn, false);
	if (!tx)
		return;
	tx->len = IB_HEAD;
	if (ib_xfer_send(conn, tx, kind, 0, NULL))
		ib_tx_put(conn, tx);
}

/* Returns credits before the peer runs out of them, or as it asks. */
static void return_credits(struct ib_conn *conn)
{
	if (conn->answer_due || conn->to_return >= IB_CREDITS / 2)
		send_head(conn, IB_KIND_CREDIT);
}

bool ib_xfer_is_delivered(struct ib_conn *conn, uint64_t sent)
{
	if (conn->delivered >= sent)
		return true;
	/* without credits the peer returns some unasked */
	if (conn->delivered >= conn->sent_ask && ib_conn_credits(conn))
		send_head(conn, IB_KIND_ASK);
	return false;
}

/* ---- the end of a put or get --------------------------------------------- */

static void op_count(const struct ib_op *op)
{
	struct weft_counters *c = op->conn->stats;

	if (op->status == -EACCES) {
		weft_count(c, key_errors, 1);
	} else if (!op->status && op->kind == IB_OP_PUT) {
		weft_count(c, tx_puts, 1);
		weft_count(c, tx_put_bytes, op->total);
	} else if (!op->status) {
		weft_count(c, gets, 1);
		weft_count(c, get_bytes, op->total);
		weft_count(c, wire_rx_bytes, op->total);
	}
}

void ib_op_release(struct ib_op *op)
{
	const struct ib_iface *iface = op->conn->iface;
	unsigned int i;
	int err;

	for (i = 0; i < op->iovcnt; i++) {
		err = op->iov[i].mr ? iface->v->dereg_mr(op->iov[i].mr) : 0;
		if (err)
			weft_fail(
				-err,
				"cannot deregister %zu bytes at 0x%llx from '%s'",
				op->iov[i].len,
				(unsigned long long)op->iov[i].addr,
				iface->port.name);
	}
	if (!op->all_posted)
		op->conn->nqueued--;
	op->conn->nops--;
	weft_list_del(&op->link);
	op_count(op);
}

/* None of its requests is posted any more. */
void ib_op_finish(struct ib_op *op)
{
	struct ib_conn *conn = op->conn;

	ib_op_release(op);
	weft_list_add_tail(&conn->iface->finished, &op->link);
	conn->nfinished++;
	weft_conn_attend(&conn->base);
}

/* Posts nothing more of it. */
static void op_all_posted(struct ib_op *op)
{
	if (!op->all_posted) {
		op->all_posted = true;
		op->conn->nqueued--;
		weft_list_del(&op->link);
		weft_list_add_tail(&op->conn->posted, &op->link);
	}
	if (!op->in_flight)
		ib_op_finish(op);
}

/* ---- posting puts and gets ----------------------------------------------- */

/* The next piece of at most @max bytes; false: all are posted. */
static bool ib_next_piece(struct ib_op *op, size_t max, struct ibv_sge *sge)
{
	while (op->iov_i < op->iovcnt &&
	       op->iov_off == op->iov[op->iov_i].len) {
		op->iov_i++;
		op->iov_off = 0;
	}
	if (op->iov_i == op->iovcnt)
		return false;
	sge->addr = op->iov[op->iov_i].addr + op->iov_off;
	sge->length =
		(uint32_t)weft_min(max, op->iov[op->iov_i].len - op->iov_off);
	sge->lkey = op->iov[op->iov_i].lkey;
	return true;
}

/* Posts a piece, or an empty request if @sge is empty. */
static int post_piece(struct ib_op *op, struct ibv_send_wr *wr,
		      struct ibv_sge *sge)
{
	const struct ib_request req = { .op = op };
	struct ib_conn *conn = op->conn;
	int err;

	wr->wr.rdma.remote_addr = op->remote_addr + op->off;
	wr->wr.rdma.rkey = op->rkey;
	if (wr->opcode != IBV_WR_RDMA_READ && sge->length &&
	    sge->length <= conn->max_inline)
		wr->send_flags = IBV_SEND_INLINE;
	err = post_request(conn, wr, sge, &req);
	if (err)
		return err;
	op->in_flight++;
	op->off += sge->length;
	op->iov_off += sge->length;
	return 0;
}

/* True: all of them. */
static bool post_pieces(struct ib_op *op)
{
	struct ib_conn *conn = op->conn;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	while (ib_next_piece(op, IB_PIECE, &sge)) {
		if (!ib_has_room(conn, IB_SQ_SPARE))
			return false;
		wr = (struct ibv_send_wr){ .opcode =
						   op->kind == IB_OP_PUT
							   ? IBV_WR_RDMA_WRITE
							   : IBV_WR_RDMA_READ };
		if (post_piece(op, &wr, &sge))
			return false;
	}
	return true;
}

static bool post_notify(struct ib_op *op)
{
	struct ib_conn *conn = op->conn;
	struct ib_tx *tx;

	if (!ib_conn_credits(conn) || !ib_has_room(conn, 1))
		return false;
	tx = ib_tx_get(conn, false);
	if (!tx)
		return false;
	tx->len = IB_HEAD + 16;
	weft_put_le64(tx->buf + IB_HEAD, op->tag);
	weft_put_le64(tx->buf + IB_HEAD + 8, op->total);
	if (ib_xfer_send(conn, tx, IB_KIND_NOTIFY, 0, op)) {
		ib_tx_put(conn, tx);
		return false;
	}
	op->in_flight++;
	return true;
}

/* Do size and tag fit an immediate? */
static bool fits_immediate(const struct ib_op *op)
{
	return op->notify && op->tag <= UINT32_MAX && op->iovcnt <= 1 &&
	       op->total <= op->conn->iface->max_imm;
}

/* All of it in one request. */
static bool post_immediate(struct ib_op *op)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				  .imm_data = htobe32((uint32_t)op->tag) };
	struct ib_conn *conn = op->conn;
	struct ibv_sge sge = { 0 };

	if (!ib_conn_credits(conn) || !ib_has_room(conn, IB_SQ_SPARE))
		return false;
	ib_next_piece(op, op->total, &sge);
	if (post_piece(op, &wr, &sge))
		return false;
	conn->sent++;
	op_all_posted(op);
	return true;
}

/* True: go on with the next operation. */
static bool post_op(struct ib_op *op)
{
	struct ib_conn *conn = op->conn;

	if (op->status) { /* it failed before it was posted */
		op_all_posted(op);
		ib_conn_break(conn, -ECONNRESET);
		return false;
	}
	if (fits_immediate(op))
		return post_immediate(op);
	if (!post_pieces(op) || (op->notify && !post_notify(op)))
		return false;
	op_all_posted(op);
	return true;
}

void ib_xfer_pump(struct ib_conn *conn)
{
	bool more = true;

	if (conn->base.state != WEFT_CONN_OPEN || !conn->peer_ready ||
	    conn->base.err)
		return;
	while (more && !weft_list_empty(&conn->queue))
		more = post_op(
			weft_list_first(&conn->queue, struct ib_op, link));
	return_credits(conn);
}

bool ib_xfer_closes(struct ib_conn *conn)
{
	if (conn->base.state != WEFT_CONN_OPEN || !conn->peer_ready ||
	    conn->base.err)
		return false;
	if (conn->to_return)
		send_head(conn, IB_KIND_CREDIT);
	return conn->tx_out && (conn->tx_used || conn->to_return);
}

void ib_xfer_queue(struct ib_conn *conn, struct ib_op *op)
{
	weft_list_add_tail(&conn->queue, &op->link);
	conn->nqueued++;
	conn->nops++;
	ib_xfer_pump(conn);
}

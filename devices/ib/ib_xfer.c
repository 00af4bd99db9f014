/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traffic of a connection's queue pair: requests, which complete in the order
 * posted, credits, and receives.
 *
 * Puts and gets wait in conn->queue, in order, until their pieces have room in
 * the ring.  Messages never wait there: one is accepted only if it can be
 * posted at once, and so goes behind every earlier put.
 *
 * Gathering sorts completions into received and finished, without callbacks;
 * delivering calls back.
 */
#include "devices/ib/ib.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/log.h"

#define BATCH  32
#define ROUNDS 8 /* batches per call, so that others can run */

/* wr_id: connection | receive? | index */
#define WR_RECV	 BIT(31)
#define WR_INDEX 0xffffu
static_assert(IB_SQ_DEPTH <= WR_INDEX && IB_RX_SLOTS <= WR_INDEX, "wr_id");

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

static void post_receive(struct ib_rx *rx)
{
	struct ib_conn *conn = rx->conn;
	struct ibv_sge sge = { (uintptr_t)rx->buf, IB_SLOT, conn->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int err;

	rx->state = IB_RX_IDLE;
	if (!conn->qp || conn->base.err || conn->base.state == WEFT_CONN_CLOSED)
		return;
	wr.wr_id = wr_id(conn, (unsigned int)(rx - conn->rx)) | WR_RECV;
	err = conn->iface->v->post_recv(conn->qp, &wr, &bad);
	if (err) {
		weft_fail(err, "cannot post a receive buffer on '%s'",
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
		post_receive(&conn->rx[i]);
}

/* ---- requests ------------------------------------------------------------ */

bool ib_xfer_room(const struct ib_conn *conn, unsigned int spare)
{
	return conn->tx_out + spare < IB_SQ_DEPTH && !conn->base.err;
}

bool ib_xfer_ready(const struct ib_conn *conn)
{
	return conn->base.state == WEFT_CONN_OPEN && conn->peer_ready &&
	       weft_list_empty(&conn->queue) && ib_conn_credits(conn) &&
	       ib_xfer_room(conn, 1) && conn->user_used < IB_USER_SLOTS;
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
		weft_fail(err, "cannot post a request on '%s'",
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

	return ib_xfer_room(conn, 1) ? post_request(conn, &wr, &sge, &req) : 0;
}

/* Without room, what makes some attends to the connection again. */
static void send_head(struct ib_conn *conn, enum ib_kind kind)
{
	struct ib_tx *tx;

	if (!ib_xfer_room(conn, kind == IB_KIND_ASK))
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

static void op_release(struct ib_op *op)
{
	const struct ib_iface *iface = op->conn->iface;
	unsigned int i;
	int err;

	for (i = 0; i < op->iovcnt; i++) {
		err = op->iov[i].mr ? iface->v->dereg_mr(op->iov[i].mr) : 0;
		if (err)
			weft_fail(
				err,
				"cannot deregister %zu bytes at 0x%llx from '%s'",
				op->iov[i].len,
				(unsigned long long)op->iov[i].addr,
				iface->port.name);
	}
	if (!op->all_posted)
		op->conn->nqueued--;
	op->conn->nops--;
	weft_list_del(&op->link);
}

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

/* None of its requests is posted any more. */
static void op_finish(struct ib_op *op)
{
	struct ib_conn *conn = op->conn;

	op_release(op);
	op_count(op);
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
		op_finish(op);
}

/* ---- posting puts and gets ----------------------------------------------- */

/* The next piece of at most @max bytes; false: all are posted. */
static bool next_piece(struct ib_op *op, size_t max, struct ibv_sge *sge)
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

	while (next_piece(op, IB_PIECE, &sge)) {
		if (!ib_xfer_room(conn, IB_SQ_SPARE))
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

	if (!ib_conn_credits(conn) || !ib_xfer_room(conn, 1))
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

	if (!ib_conn_credits(conn) || !ib_xfer_room(conn, IB_SQ_SPARE))
		return false;
	next_piece(op, op->total, &sge);
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

	if (op->status) { /* it failed before the adapter saw it */
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

/* ---- giving up ----------------------------------------------------------- */

bool ib_xfer_busy(const struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < conn->tx_out; i++)
		if (conn->ring[(conn->ring_head + i) % IB_SQ_DEPTH].op)
			return true;
	return false;
}

void ib_xfer_stop(struct ib_conn *conn)
{
	const uint64_t end = weft_now_ms() + weft_settings()->peer_timeout_ms;
	bool flushed;

	if (!conn->qp)
		return;
	flushed = ib_qp_flush(conn);
	ib_xfer_gather(conn->iface);
	while (flushed && ib_xfer_busy(conn) && !conn->cq->dead &&
	       weft_now_ms() < end)
		ib_xfer_gather(conn->iface);
	/* once flushed it does nothing; destroying it may take seconds */
	if (!flushed || conn->tx_out)
		ib_qp_destroy(conn);
}

static struct ib_op *first_op(struct weft_list *list,
			      const struct ib_conn *conn)
{
	struct ib_op *op, *tmp;

	weft_list_for_each (op, tmp, list, link)
		if (op->conn == conn)
			return op;
	return NULL;
}

static void end_op(struct ib_op *op, int status)
{
	struct weft_op *done = op->op;

	free(op);
	if (done)
		done->done(done, status);
}

static void drop_list(struct ib_conn *conn, struct weft_list *list, int status)
{
	struct ib_op *op;

	/* restart each time: done() may drop others */
	while ((op = first_op(list, conn))) {
		op_release(op);
		op_count(op);
		end_op(op, op->status ? op->status : status);
	}
}

static void drop_received(struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < IB_RX_SLOTS; i++) {
		if (conn->rx[i].state != IB_RX_PENDING)
			continue;
		weft_list_del(&conn->rx[i].link);
		conn->rx[i].state = IB_RX_IDLE;
	}
}

void ib_xfer_drop(struct ib_conn *conn, int status)
{
	struct ib_op *op;

	if (conn->base.state == WEFT_CONN_CLOSED)
		drop_received(conn);
	/* finished, but not reported yet */
	while ((op = first_op(&conn->iface->finished, conn))) {
		weft_list_del(&op->link);
		conn->nfinished--;
		end_op(op, op->status);
	}
	drop_list(conn, &conn->posted, status);
	drop_list(conn, &conn->queue, status);
}

bool ib_xfer_undelivered(const struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < IB_RX_SLOTS; i++)
		if (conn->rx[i].state == IB_RX_PENDING)
			return true;
	return false;
}

/* ---- gathering completions ----------------------------------------------- */

/* The -errno of a failed request. */
static int request_error(enum ibv_wc_status status, bool bulk)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		return bulk ? -EACCES : -EIO;
	case IBV_WC_LOC_PROT_ERR:
		return bulk ? -EFAULT : -EIO;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

/* Unexpected: the adapter refused a request of the peer. */
static void handle_flush(struct ib_conn *conn)
{
	if (conn->base.err || conn->base.state != WEFT_CONN_OPEN)
		return;
	weft_warn(
		"'%s' lost its peer %016llx: the adapter refused what the peer asked for",
		conn->iface->port.name, (unsigned long long)conn->peer->id);
	conn->status = IBV_WC_WR_FLUSH_ERR;
	ib_conn_break(conn, -ECONNRESET);
}

/* The first failure has the reason, the rest are flushed. */
static void request_failed(struct ib_conn *conn, const struct ib_request *req,
			   const struct ibv_wc *wc)
{
	int err;

	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		handle_flush(conn);
		return;
	}
	err = request_error(wc->status, req->op && !req->tx);
	/* this one fails with the reason, others lose their connection */
	if (err == -EACCES || err == -EFAULT) {
		req->op->status = err;
		err = -ECONNRESET;
	}
	if (conn->base.err)
		return;
	weft_warn("'%s' lost its peer %016llx: %s (vendor code 0x%x)",
		  conn->iface->port.name, (unsigned long long)conn->peer->id,
		  weft_wc_name(wc->status), wc->vendor_err);
	conn->status = wc->status;
	ib_conn_break(conn, err);
}

static void handle_send(struct ib_conn *conn, unsigned int index,
			const struct ibv_wc *wc)
{
	const struct ib_request req = conn->ring[conn->ring_head];

	if (!conn->tx_out || index != conn->ring_head) {
		weft_warn("'%s' completed request %u before %u",
			  conn->iface->port.name, index, conn->ring_head);
		ib_conn_break(conn, -EIO);
		return;
	}
	conn->ring_head = (conn->ring_head + 1) % IB_SQ_DEPTH;
	conn->tx_out--;
	conn->moved = true;
	weft_conn_attend(&conn->base);
	if (req.tx)
		ib_tx_put(conn, req.tx);
	if (wc->status != IBV_WC_SUCCESS)
		request_failed(conn, &req, wc);
	else if (req.op && !--req.op->in_flight && req.op->all_posted)
		op_finish(req.op);
}

/* A message, or an immediate; -EPROTO: malformed. */
static int parse_receive(struct ib_conn *conn, struct ib_rx *rx,
			 const struct ibv_wc *wc)
{
	rx->len = wc->byte_len;
	rx->immediate = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
	rx->imm = rx->immediate ? be32toh(wc->imm_data) : 0;
	if (!rx->immediate) {
		if (rx->len < IB_HEAD || rx->len > IB_SLOT)
			return -EPROTO;
		/* add credits now: a sender waits for them */
		conn->delivered += ib_head_credits(rx->buf);
		if (conn->delivered > conn->sent)
			return -EPROTO;
	}
	if (!rx->immediate && rx->buf[0] == IB_KIND_CREDIT) {
		/* only credits: repost the buffer at once */
		weft_count(conn->stats, wire_rx_bytes, rx->len);
		post_receive(rx);
	} else {
		rx->state = IB_RX_PENDING;
		weft_list_add_tail(&conn->iface->received, &rx->link);
	}
	return 0;
}

static void handle_receive(struct ib_conn *conn, struct ib_rx *rx,
			   const struct ibv_wc *wc)
{
	rx->state = IB_RX_IDLE;
	weft_conn_attend(&conn->base);
	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		handle_flush(conn);
	} else if (wc->status != IBV_WC_SUCCESS) {
		weft_warn("'%s': receiving failed: %s", conn->iface->port.name,
			  weft_wc_name(wc->status));
		if (!conn->base.err)
			conn->status = wc->status;
		ib_conn_break(conn, -EIO);
	} else if (parse_receive(conn, rx, wc)) {
		weft_warn(
			"a peer on '%s' sent a malformed message; the connection ends",
			conn->iface->port.name);
		ib_conn_break(conn, -EPROTO);
	}
}

static struct ib_conn *find_conn(struct ib_iface *iface, uint32_t id)
{
	struct ib_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->by_id[id % IB_CONN_BUCKETS],
			    id_link)
		if (conn->id == id)
			return conn;
	return NULL;
}

static void handle_completion(struct ib_iface *iface, const struct ibv_wc *wc)
{
	struct ib_conn *conn = find_conn(iface, (uint32_t)(wc->wr_id >> 32));
	const unsigned int index = wc->wr_id & WR_INDEX;

	/*
	 * of a destroyed queue pair, which verbs may leave in the queue; or of
	 * a closed connection, which has dropped what it received
	 */
	if (!conn || !conn->qp || conn->base.state == WEFT_CONN_CLOSED)
		return;
	if (!(wc->wr_id & WR_RECV))
		handle_send(conn, index, wc);
	else if (index < IB_RX_SLOTS && conn->rx[index].state == IB_RX_POSTED)
		handle_receive(conn, &conn->rx[index], wc);
}

/* Ends all users of a failed queue; new ones get another. */
static void end_users(struct ib_iface *iface, struct ib_cq *cq)
{
	struct ib_peer *peer, *tp;
	struct ib_conn *conn, *tc;

	cq->dead = true;
	weft_list_for_each (peer, tp, &iface->peers, link)
		weft_list_for_each (conn, tc, &peer->conns, link)
			if (conn->cq == cq)
				ib_conn_break(conn, -EIO);
}

static void give_up(struct ib_iface *iface, struct ib_cq *cq, const char *what,
		    int err)
{
	weft_warn(
		"cannot %s a completion queue of '%s' (%d); its connections end",
		what, iface->port.name, err);
	end_users(iface, cq);
}

void ib_xfer_check_cqs(struct ib_iface *iface)
{
	struct ib_cq *cq, *tmp;

	weft_list_for_each (cq, tmp, &iface->cqs, link) {
		if (cq->dead || !atomic_load(&cq->failed))
			continue;
		weft_warn(
			"'%s' reports a fatal error of a completion queue; its connections end",
			iface->port.name);
		end_users(iface, cq);
		if (!cq->used)
			ib_cq_destroy(iface, cq);
	}
}

unsigned int ib_xfer_gather(struct ib_iface *iface)
{
	struct ibv_wc wc[BATCH];
	struct ib_cq *cq, *tmp;
	unsigned int count = 0, rounds;
	int i, n;

	weft_list_for_each (cq, tmp, &iface->cqs, link) {
		for (rounds = 0; rounds < ROUNDS && !cq->dead; rounds++) {
			n = iface->v->poll_cq(cq->cq, BATCH, wc);
			if (n < 0)
				give_up(iface, cq, "poll", n);
			for (i = 0; i < n; i++)
				handle_completion(iface, &wc[i]);
			count += n > 0 ? (unsigned int)n : 0;
			if (n < BATCH)
				break;
		}
	}
	return count;
}

int ib_xfer_arm(struct ib_iface *iface)
{
	struct ib_cq *cq, *tmp;
	int err;

	weft_list_for_each (cq, tmp, &iface->cqs, link) {
		err = cq->dead ? 0 : iface->v->req_notify_cq(cq->cq, 0);
		if (err)
			give_up(iface, cq, "ask for events of", err);
	}
	/* what completed before raises no event */
	ib_xfer_gather(iface);
	return weft_list_empty(&iface->received) &&
			       weft_list_empty(&iface->finished) &&
			       weft_list_empty(&iface->base.work)
		       ? 0
		       : -EBUSY;
}

/* ---- delivering ---------------------------------------------------------- */

static void deliver_notify(struct ib_conn *conn, uint64_t tag, uint64_t size)
{
	struct weft_iface_cb *cb = &conn->iface->base.iface.cb;

	weft_count(conn->stats, rx_puts, 1);
	weft_count(conn->stats, rx_put_bytes, size);
	cb->on_notify(cb->arg, tag, size);
}

static int deliver_message(struct ib_conn *conn, struct ib_rx *rx)
{
	struct weft_iface_cb *cb = &conn->iface->base.iface.cb;
	uint8_t *body = rx->buf + IB_HEAD;
	size_t len = rx->len - IB_HEAD;
	const uint8_t id = rx->buf[1];

	weft_count(conn->stats, wire_rx_bytes, rx->len);
	switch (rx->buf[0]) {
	case IB_KIND_MESSAGE:
		if (id >= WEFT_MSG_IDS)
			return -EPROTO;
		weft_count(conn->stats, rx_messages, 1);
		weft_count(conn->stats, rx_message_bytes, len);
		cb->on_message(cb->arg, id, body, len);
		return 0;
	case IB_KIND_NOTIFY:
		if (len != 16)
			return -EPROTO;
		deliver_notify(conn, weft_get_le64(body),
			       weft_get_le64(body + 8));
		return 0;
	case IB_KIND_ASK:
		if (len)
			return -EPROTO;
		conn->answer_due = true;
		return 0;
	}
	return -EPROTO;
}

/* Runs callbacks, which may call in again. */
static void deliver_one(struct ib_rx *rx)
{
	struct ib_conn *conn = rx->conn;
	int err = 0;

	if (rx->immediate)
		deliver_notify(conn, rx->imm, rx->len);
	else
		err = deliver_message(conn, rx);
	if (err) {
		weft_warn(
			"a peer on '%s' sent a malformed message (kind %u); the connection ends",
			conn->iface->port.name, rx->buf[0]);
		ib_conn_break(conn, err);
	}
	conn->to_return++;
	post_receive(rx);
	/* now: the next callback, or the caller of progress(), may end us */
	if (conn->answer_due)
		ib_xfer_pump(conn);
	weft_conn_attend(&conn->base);
}

unsigned int ib_xfer_deliver(struct ib_iface *iface)
{
	unsigned int n = 0;
	struct ib_rx *rx;
	struct ib_op *op;

	for (; iface->budget && !weft_list_empty(&iface->received); n++) {
		iface->budget--;
		rx = weft_list_first(&iface->received, struct ib_rx, link);
		weft_list_del(&rx->link);
		deliver_one(rx);
	}
	for (; !weft_list_empty(&iface->finished); n++) {
		op = weft_list_first(&iface->finished, struct ib_op, link);
		weft_list_del(&op->link);
		op->conn->nfinished--;
		weft_conn_attend(&op->conn->base); /* a flush may wait for it */
		end_op(op, op->status);
	}
	return n;
}

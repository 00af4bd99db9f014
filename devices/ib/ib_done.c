/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What comes from completion queues.  Gathering sorts it into received and
 * finished, without callbacks; delivering calls back.
 */
#include "devices/ib/ib_done.h"
#include "devices/ib/ib_qp.h"
#include "devices/ib/ib_xfer.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/log.h"

#define BATCH  32
#define ROUNDS 8 /* batches per call, so that others can run */

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
		ib_op_finish(req.op);
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
		/* add credits at once: a sender waits for them */
		conn->delivered += ib_head_credits(rx->buf);
		if (conn->delivered > conn->sent)
			return -EPROTO;
	}
	if (!rx->immediate && rx->buf[0] == IB_KIND_CREDIT) {
		/* credits alone: repost the buffer at once */
		weft_count(conn->stats, wire_rx_bytes, rx->len);
		ib_xfer_receive_one(rx);
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

static struct ib_conn *ib_find_conn(struct ib_iface *iface, uint32_t id)
{
	struct weft_entry *e = weft_table_find(&iface->by_id, id);

	return e ? container_of(e, struct ib_conn, by_id) : NULL;
}

static void handle_completion(struct ib_iface *iface, const struct ibv_wc *wc)
{
	struct ib_conn *conn = ib_find_conn(iface, (uint32_t)(wc->wr_id >> 32));
	const unsigned int index = wc->wr_id & IB_WR_INDEX;

	/*
	 * of a destroyed queue pair, which verbs may leave in the queue; or of
	 * a closed connection, which has dropped what it received
	 */
	if (!conn || !conn->qp || conn->base.state == WEFT_CONN_CLOSED)
		return;
	if (!(wc->wr_id & IB_WR_RECV))
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

static void ib_give_up(struct ib_iface *iface, struct ib_cq *cq,
		       const char *what, int err)
{
	weft_warn(
		"cannot %s a completion queue of '%s' (%d); its connections end",
		what, iface->port.name, err);
	end_users(iface, cq);
}

void ib_done_check_cqs(struct ib_iface *iface)
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

unsigned int ib_done_gather(struct ib_iface *iface)
{
	struct ibv_wc wc[BATCH];
	struct ib_cq *cq, *tmp;
	unsigned int count = 0, rounds;
	int i, n;

	weft_list_for_each (cq, tmp, &iface->cqs, link) {
		for (rounds = 0; rounds < ROUNDS && !cq->dead; rounds++) {
			n = iface->v->poll_cq(cq->cq, BATCH, wc);
			if (n < 0)
				ib_give_up(iface, cq, "poll", n);
			for (i = 0; i < n; i++)
				handle_completion(iface, &wc[i]);
			count += n > 0 ? (unsigned int)n : 0;
			if (n < BATCH)
				break;
		}
	}
	return count;
}

int ib_done_arm(struct ib_iface *iface)
{
	struct ib_cq *cq, *tmp;
	int err;

	weft_list_for_each (cq, tmp, &iface->cqs, link) {
		err = cq->dead ? 0 : iface->v->req_notify_cq(cq->cq, 0);
		if (err)
			ib_give_up(iface, cq, "ask for events of", err);
	}
	/* what completed before raises no event */
	ib_done_gather(iface);
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

static int ib_deliver_message(struct ib_conn *conn, struct ib_rx *rx)
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

static void ib_end_op(struct ib_op *op)
{
	struct weft_op *done = op->op;
	const int status = op->status;

	free(op);
	if (done)
		done->done(done, status);
}

/* Runs callbacks, which may call in again. */
static void deliver_one(struct ib_rx *rx)
{
	struct ib_conn *conn = rx->conn;
	int err = 0;

	if (rx->immediate)
		deliver_notify(conn, rx->imm, rx->len);
	else
		err = ib_deliver_message(conn, rx);
	if (err) {
		weft_warn(
			"a peer on '%s' sent a malformed message (kind %u); the connection ends",
			conn->iface->port.name, rx->buf[0]);
		ib_conn_break(conn, err);
	}
	conn->to_return++;
	ib_xfer_receive_one(rx);
	/*
	 * post it now: the next callback, or the caller of progress(), may end
	 * the process
	 */
	if (conn->answer_due)
		ib_xfer_pump(conn);
	weft_conn_attend(&conn->base);
}

unsigned int ib_done_deliver(struct ib_iface *iface)
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
		ib_end_op(op);
	}
	return n;
}

/* ---- giving up ----------------------------------------------------------- */

bool ib_done_pending(const struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < conn->tx_out; i++)
		if (conn->ring[(conn->ring_head + i) % IB_SQ_DEPTH].op)
			return true;
	return false;
}

void ib_done_stop(struct ib_conn *conn)
{
	const uint64_t end = weft_now_ms() + weft_settings()->peer_timeout_ms;
	bool flushed;

	if (!conn->qp)
		return;
	flushed = ib_qp_flush(conn);
	ib_done_gather(conn->iface);
	while (flushed && ib_done_pending(conn) && !conn->cq->dead &&
	       weft_now_ms() < end)
		ib_done_gather(conn->iface);
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

static void drop_list(struct ib_conn *conn, struct weft_list *list, int status)
{
	struct ib_op *op;

	/* restart each time: done() may remove others */
	while ((op = first_op(list, conn))) {
		if (!op->status)
			op->status = status;
		ib_op_release(op);
		ib_end_op(op);
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

void ib_done_drop(struct ib_conn *conn, int status)
{
	struct ib_op *op;

	if (conn->base.state == WEFT_CONN_CLOSED)
		drop_received(conn);
	/* finished, but not reported yet */
	while ((op = first_op(&conn->iface->finished, conn))) {
		weft_list_del(&op->link);
		conn->nfinished--;
		ib_end_op(op);
	}
	drop_list(conn, &conn->posted, status);
	drop_list(conn, &conn->queue, status);
}

bool ib_done_undelivered(const struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < IB_RX_SLOTS; i++)
		if (conn->rx[i].state == IB_RX_PENDING)
			return true;
	return false;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: puts and gets wait in conn->queue, are posted as records of
 * conn->ring, and complete in that order.  Messages never wait there: one is
 * taken only when it leaves at once, and so behind every put taken before.
 * The ring outlives its QP: what a QP left undone is posted on the next.
 */
#include "devices/ib/ib.h"

#include <errno.h>
#include <stdlib.h>

#include "util/log.h"
#include "util/util.h"

/* ---- buffers ------------------------------------------------------------- */

struct ib_tx *ib_tx_take(struct ib_conn *conn, bool user)
{
	struct ib_tx *tx;

	if (weft_list_empty(&conn->tx_free) ||
	    (user && conn->user_used == IB_USER_SLOTS) ||
	    (!user && conn->tx_used - conn->user_used ==
			      IB_TX_SLOTS - IB_USER_SLOTS))
		return NULL;
	tx = weft_list_first(&conn->tx_free, struct ib_tx, link);
	weft_list_del(&tx->link);
	tx->user = user;
	conn->user_used += user;
	conn->tx_used++;
	return tx;
}

void ib_tx_give(struct ib_conn *conn, struct ib_tx *tx)
{
	conn->user_used -= tx->user;
	conn->tx_used--;
	weft_list_add_tail(&conn->tx_free, &tx->link);
}

bool ib_conn_ready(const struct ib_conn *conn)
{
	return conn->state == IB_CONN_OPEN && conn->peer_ready &&
	       !conn->broken && !conn->want_break &&
	       weft_list_empty(&conn->queue) && conn->credits &&
	       conn->ring_n + 1 < IB_SQ_DEPTH &&
	       conn->user_used < IB_USER_SLOTS;
}

/* ---- the end of an operation --------------------------------------------- */

static void op_release(struct ib_op *op)
{
	const struct weft_verbs *v = op->conn->iface->v;
	unsigned int i;

	for (i = 0; i < op->iovcnt; i++)
		if (op->mr[i])
			v->dereg_mr(op->mr[i]);
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

/* Nothing of it is posted any more. */
static void op_finish(struct ib_op *op)
{
	struct ib_conn *conn = op->conn;

	op_release(op);
	op_count(op);
	weft_list_add_tail(&conn->iface->finished, &op->link);
	conn->nfinished++;
	ib_conn_work(conn);
}

/* Nothing of it will be posted any more. */
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

static void op_abort(struct ib_op *op, int status)
{
	if (!op->status)
		op->status = status;
	op_all_posted(op);
}

static void record_done(struct ib_conn *conn, struct ib_record *rec)
{
	struct ib_op *op = rec->op;

	if (rec->kind == IB_REC_SEND)
		ib_tx_give(conn, rec->tx);
	if (op && !--op->in_flight && op->all_posted)
		op_finish(op);
}

/* ---- posting ------------------------------------------------------------- */

static int own_mr(struct ib_op *op, unsigned int i)
{
	struct ib_iface *iface = op->conn->iface;
	const struct iovec *iov = &op->iov[i];

	if (op->mr[i])
		return 0;
	op->mr[i] = iface->v->reg_mr(iface->dev->pd, iov->iov_base,
				     iov->iov_len, op->kind == IB_OP_GET ?
				     IBV_ACCESS_LOCAL_WRITE : 0);
	if (op->mr[i])
		return 0;
	return weft_fail(errno, "cannot register %zu bytes at %p with '%s' for a transfer",
			 iov->iov_len, iov->iov_base, iface->port.name);
}

static int local_key(struct ib_record *rec, uint32_t *lkey)
{
	struct ib_op *op = rec->op;
	int err;

	if (!op->own_mrs && !op->mr[rec->iov_i] &&
	    ib_mem_lkey(op->conn->iface->dev, rec->laddr, rec->len, lkey))
		return 0;
	err = own_mr(op, rec->iov_i);
	if (!err)
		*lkey = op->mr[rec->iov_i]->lkey;
	return err;
}

static int fill_request(struct ib_conn *conn, struct ib_record *rec,
			struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	int err;

	wr->send_flags = IBV_SEND_SIGNALED;
	wr->sg_list = sge;
	wr->num_sge = rec->len ? 1 : 0;
	sge->addr = rec->laddr;
	sge->length = rec->len;
	wr->wr.rdma.remote_addr = rec->raddr;
	wr->wr.rdma.rkey = rec->rkey;
	wr->opcode = rec->kind == IB_REC_SEND ? IBV_WR_SEND :
		     rec->kind == IB_REC_READ ? IBV_WR_RDMA_READ :
						IBV_WR_RDMA_WRITE;
	if (!rec->len)
		return 0;
	if (rec->kind != IB_REC_READ && rec->len <= conn->max_inline) {
		wr->send_flags |= IBV_SEND_INLINE;
		return 0;
	}
	if (rec->kind == IB_REC_SEND) {
		sge->lkey = conn->mr->lkey;
		return 0;
	}
	err = local_key(rec, &sge->lkey);
	return err;
}

/*
 * Puts a record at the end of the ring and posts it.  -errno: it is not in
 * the ring, and its operation cannot go on.
 */
static int post(struct ib_conn *conn, struct ib_record *rec)
{
	const unsigned int at = (conn->ring_head + conn->ring_n) % IB_SQ_DEPTH;
	struct ibv_send_wr wr = { 0 }, *bad;
	struct ibv_sge sge = { 0 };
	int err;

	err = fill_request(conn, rec, &wr, &sge);
	if (err)
		return err;
	wr.wr_id = ib_wr_id_send(conn, at);
	err = conn->iface->v->post_send(conn->qp, &wr, &bad);
	if (err) {
		err = weft_fail(err, "cannot post a request on '%s'",
				conn->iface->port.name);
		ib_conn_break(conn, -EIO);
		return -EIO;
	}
	conn->ring[at] = *rec;
	conn->ring_n++;
	conn->tx_out++;
	weft_count(conn->stats, wire_tx_bytes,
		   rec->kind == IB_REC_READ ? 0 : rec->len);
	return 0;
}

static bool room(const struct ib_conn *conn, unsigned int spare)
{
	return conn->ring_n + spare < IB_SQ_DEPTH && !conn->broken &&
	       !conn->want_break;
}

int ib_tx_send(struct ib_conn *conn, struct ib_tx *tx, enum ib_kind kind,
	       uint8_t id, struct ib_op *op)
{
	struct ib_record rec = {
		.kind = IB_REC_SEND, .op = op, .tx = tx, .seq = conn->tx_next,
		.laddr = (uintptr_t)tx->buf, .len = tx->len,
	};
	int err;

	ib_head_pack(tx->buf, (uint8_t)kind, id, conn->to_return,
		     conn->tx_next);
	err = post(conn, &rec);
	if (err)
		return err;
	conn->to_return = 0;
	conn->tx_next++;
	conn->credits -= kind != IB_KIND_CREDIT;
	return 0;
}

/* The next piece of a put or get; NULL when all are cut. */
static bool next_piece(struct ib_op *op, struct ib_record *rec)
{
	const struct iovec *iov;

	while (op->iov_i < op->iovcnt &&
	       op->iov_off == op->iov[op->iov_i].iov_len) {
		op->iov_i++;
		op->iov_off = 0;
	}
	if (op->iov_i == op->iovcnt)
		return false;
	iov = &op->iov[op->iov_i];
	memset(rec, 0, sizeof(*rec));
	rec->kind = op->kind == IB_OP_PUT ? IB_REC_WRITE : IB_REC_READ;
	rec->op = op;
	rec->iov_i = op->iov_i;
	rec->laddr = (uintptr_t)iov->iov_base + op->iov_off;
	rec->raddr = op->remote_addr + op->off;
	rec->len = (uint32_t)weft_min(IB_PIECE, iov->iov_len - op->iov_off);
	return true;
}

/* True: go on with the next operation. */
static bool post_pieces(struct ib_conn *conn, struct ib_op *op, uint32_t rkey)
{
	struct ib_record rec;
	int err;

	while (next_piece(op, &rec)) {
		if (!room(conn, IB_SQ_SPARE))
			return false;
		rec.rkey = rkey;
		err = post(conn, &rec);
		if (err) {
			op_abort(op, err);
			return !conn->broken;
		}
		op->in_flight++;
		op->off += rec.len;
		op->iov_off += rec.len;
	}
	return true;
}

static bool post_notify(struct ib_conn *conn, struct ib_op *op)
{
	struct ib_tx *tx;

	if (!conn->credits || !room(conn, 1))
		return false;
	tx = ib_tx_take(conn, false);
	if (!tx)
		return false;
	tx->len = IB_HEAD + 16;
	weft_put_le64(tx->buf + IB_HEAD, op->tag);
	weft_put_le64(tx->buf + IB_HEAD + 8, op->total);
	if (ib_tx_send(conn, tx, IB_KIND_NOTIFY, 0, op)) {
		ib_tx_give(conn, tx);
		return false;
	}
	op->in_flight++;
	return true;
}

static bool post_bulk(struct ib_conn *conn, struct ib_op *op)
{
	struct ib_key *key = ib_key_get(conn, &op->rkey);

	if (!key) {
		op_abort(op, -ENOMEM);
		return true;
	}
	if (key->state == IB_KEY_ASK || key->state == IB_KEY_ASKED)
		return false;
	if (key->state == IB_KEY_REFUSED ||
	    !ib_key_allows(key, op->remote_addr, op->total)) {
		if (key->state == IB_KEY_REFUSED)
			ib_key_forget(conn, key);
		op_abort(op, -EACCES);
		return true;
	}
	if (!post_pieces(conn, op, key->rkey))
		return false;
	if (op->all_posted)	/* given up on the way */
		return true;
	if (op->notify && !post_notify(conn, op))
		return false;
	op_all_posted(op);
	return true;
}

/* Gives credits back before the peer runs out of them. */
static void return_credits(struct ib_conn *conn)
{
	struct ib_tx *tx;

	if (conn->to_return < IB_CREDITS / 2 || !room(conn, 0))
		return;
	tx = ib_tx_take(conn, false);
	if (!tx)
		return;
	tx->len = IB_HEAD;
	if (ib_tx_send(conn, tx, IB_KIND_CREDIT, 0, NULL))
		ib_tx_give(conn, tx);
}

void ib_tx_pump(struct ib_conn *conn)
{
	struct ib_op *op;
	bool more = true;

	if (conn->state != IB_CONN_OPEN || !conn->peer_ready || conn->broken ||
	    conn->want_break)
		return;
	ib_key_pump(conn);
	while (more && !weft_list_empty(&conn->queue)) {
		op = weft_list_first(&conn->queue, struct ib_op, link);
		more = post_bulk(conn, op);
	}
	if (conn->nasks)	/* the queue's head may have a question */
		ib_key_pump(conn);
	return_credits(conn);
}

void ib_tx_queue(struct ib_conn *conn, struct ib_op *op)
{
	weft_list_add_tail(&conn->queue, &op->link);
	conn->nqueued++;
	ib_tx_pump(conn);
}

int ib_tx_probe(struct ib_conn *conn)
{
	struct ib_record rec = { .kind = IB_REC_PROBE };

	return room(conn, 1) ? post(conn, &rec) : 0;
}

/* ---- completions --------------------------------------------------------- */

/* What an error of the adapter means; 0: another QP mends it. */
static int judge(struct ib_conn *conn, struct ib_record *rec,
		 enum ibv_wc_status status)
{
	struct ib_op *op = rec->op;
	const bool bulk = op && rec->kind != IB_REC_SEND;

	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		if (!bulk)
			return -EIO;
		/* revoked since we asked what it stands for */
		ib_key_drop(conn, &op->rkey);
		op_abort(op, -EACCES);
		return 0;
	case IBV_WC_LOC_PROT_ERR:
		if (!bulk)
			return -EIO;
		/* the registration that covered it was released */
		if (op->own_mrs)
			op_abort(op, -EFAULT);
		op->own_mrs = true;
		return 0;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

void ib_tx_completed(struct ib_conn *conn, unsigned int index,
		     const struct ibv_wc *wc)
{
	struct ib_record *rec, copy;
	int err;

	if (!conn->tx_out)
		return;
	conn->tx_out--;
	conn->moved = true;
	ib_conn_work(conn);
	if (wc->status == IBV_WC_SUCCESS) {
		if (index != conn->ring_head) {
			weft_warn("'%s' completed request %u before %u",
				  conn->iface->port.name, index,
				  conn->ring_head);
			ib_conn_break(conn, -EIO);
			return;
		}
		copy = conn->ring[index];
		conn->ring_head = (conn->ring_head + 1) % IB_SQ_DEPTH;
		conn->ring_n--;
		conn->breaks = 0;
		if (!copy.dropped)
			record_done(conn, &copy);
		else if (copy.kind == IB_REC_SEND)
			ib_tx_give(conn, copy.tx);
		return;
	}
	conn->want_break |= conn->state == IB_CONN_OPEN;
	/*
	 * The first tells the reason, the rest are flushed.  The peer's side
	 * of it may have been here before.
	 */
	if (wc->status == IBV_WC_WR_FLUSH_ERR || conn->judged || conn->broken ||
	    index >= IB_SQ_DEPTH)
		return;
	conn->judged = true;
	rec = &conn->ring[index];
	err = rec->dropped ? 0 : judge(conn, rec, wc->status);
	if (!err)
		return;
	weft_warn("'%s' lost its peer %016llx: %s (vendor code 0x%x)",
		  conn->iface->port.name, (unsigned long long)conn->peer->id,
		  weft_wc_name(wc->status), wc->vendor_err);
	ib_conn_break(conn, err);
}

/* ---- another QP ---------------------------------------------------------- */

/* Was everything up to this one executed?  The peer had read a later message. */
static unsigned int executed(const struct ib_record *ring, unsigned int n,
			     uint32_t received)
{
	unsigned int i, done = 0;

	for (i = 0; i < n; i++)
		if (ring[i].kind == IB_REC_SEND &&
		    (int32_t)(ring[i].seq - received) < 0)
			done = i + 1;
	return done;
}

static void drop_record(struct ib_conn *conn, struct ib_record *rec)
{
	if (rec->kind == IB_REC_SEND) {
		/* a notification: its buffer and its credit are free again */
		conn->credits++;
		if (rec->dropped)
			ib_tx_give(conn, rec->tx);
	}
	if (!rec->dropped)
		record_done(conn, rec);
}

void ib_tx_resume(struct ib_conn *conn)
{
	const uint32_t received = conn->peer_info.received;
	struct ib_record ring[IB_SQ_DEPTH], *rec;
	unsigned int i, n = conn->ring_n, done;
	bool given_up;

	for (i = 0; i < n; i++)
		ring[i] = conn->ring[(conn->ring_head + i) % IB_SQ_DEPTH];
	conn->ring_head = conn->ring_n = conn->tx_out = 0;
	done = executed(ring, n, received);
	/* what is not there yet is numbered anew: some of it may be dropped */
	conn->tx_next = received;
	for (i = 0; i < n && !conn->broken; i++) {
		rec = &ring[i];
		given_up = rec->dropped || (rec->op && rec->op->status);
		if (i < done && rec->dropped) {
			if (rec->kind == IB_REC_SEND)
				ib_tx_give(conn, rec->tx);
		} else if (i < done && rec->kind != IB_REC_READ) {
			record_done(conn, rec);
		} else if (given_up || rec->kind == IB_REC_PROBE) {
			drop_record(conn, rec);
		} else {
			if (rec->kind == IB_REC_SEND) {
				rec->seq = conn->tx_next++;
				weft_put_le32(rec->tx->buf + 4, rec->seq);
			}
			if (post(conn, rec)) {
				if (rec->op)
					rec->op->status = -EIO;
				record_done(conn, rec);
			}
		}
	}
}

bool ib_tx_busy(const struct ib_conn *conn)
{
	const struct ib_record *rec;
	unsigned int i;

	if (!conn->qp || !conn->tx_out)
		return false;
	for (i = 0; i < conn->ring_n; i++) {
		rec = &conn->ring[(conn->ring_head + i) % IB_SQ_DEPTH];
		if (!rec->dropped && (rec->kind == IB_REC_WRITE ||
				      rec->kind == IB_REC_READ))
			return true;
	}
	return false;
}

static struct ib_op *first_op(struct weft_list *list,
			      const struct ib_conn *conn)
{
	struct ib_op *op, *tmp;

	weft_list_for_each(op, tmp, list, link)
		if (op->conn == conn)
			return op;
	return NULL;
}

static void drop_list(struct ib_conn *conn, struct weft_list *list, int status)
{
	struct weft_op *done;
	struct ib_op *op;

	/* from the start each time: done() may drop others */
	while ((op = first_op(list, conn))) {
		done = op->op;
		op_release(op);
		free(op);
		if (done)
			done->done(done, status);
	}
}

void ib_tx_drop_ops(struct ib_conn *conn, int status)
{
	struct weft_list *finished = &conn->iface->finished;
	struct ib_record *rec;
	struct weft_op *done;
	struct ib_op *op;
	unsigned int i;
	int end;

	for (i = 0; i < conn->ring_n; i++) {
		rec = &conn->ring[(conn->ring_head + i) % IB_SQ_DEPTH];
		if (!rec->op)
			continue;
		rec->dropped = true;
		rec->op = NULL;
	}
	/* finished, but not told yet */
	while ((op = first_op(finished, conn))) {
		weft_list_del(&op->link);
		conn->nfinished--;
		done = op->op;
		end = op->status;
		free(op);
		if (done)
			done->done(done, end);
	}
	drop_list(conn, &conn->posted, status);
	drop_list(conn, &conn->queue, status);
}

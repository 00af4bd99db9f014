/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and gets wait in conn->queue, in order, until their pieces have room on
 * a QP.  Messages never wait there: one is taken only when it leaves at once,
 * and so behind every put taken before.
 */
#include "devices/ib/ib.h"

#include <errno.h>
#include <stdlib.h>

#include "util/log.h"
#include "util/util.h"

/* Does something on another QP than the first have to come before a message? */
static bool fenced(const struct ib_conn *conn)
{
	unsigned int i;

	for (i = 1; i < conn->nqps; i++)
		if (conn->q[i].fenced)
			return true;
	return conn->fence_due;
}

bool ib_conn_ready(const struct ib_conn *conn)
{
	return conn->state == IB_CONN_OPEN && conn->peer_ready &&
	       !conn->broken && !conn->want_break &&
	       weft_list_empty(&conn->queue) && conn->q[0].credits &&
	       conn->q[0].ring_n + 1 < IB_SQ_DEPTH &&
	       conn->user_used < IB_USER_SLOTS && !fenced(conn);
}

/* What it waits for is known once nothing is queued any more. */
static void mark_fence(struct ib_conn *conn)
{
	unsigned int i;

	if (!conn->fence_due || !weft_list_empty(&conn->queue))
		return;
	conn->fence_due = false;
	for (i = 1; i < conn->nqps; i++)
		conn->q[i].fenced = conn->q[i].ring_n;
}

void ib_op_fence(struct ib_conn *conn)
{
	conn->fence_due = conn->nqps > 1;
	mark_fence(conn);
}

/* ---- the end of an operation --------------------------------------------- */

static void op_release(struct ib_op *op)
{
	const struct ib_iface *iface = op->conn->iface;
	unsigned int i;
	int err;

	for (i = 0; i < op->iovcnt; i++) {
		err = op->mr[i] ? iface->v->dereg_mr(op->mr[i]) : 0;
		if (err)
			weft_fail(err, "cannot deregister %zu bytes at %p from '%s'",
				  op->iov[i].iov_len, op->iov[i].iov_base,
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

void ib_op_abort(struct ib_op *op, int status)
{
	if (!op->status)
		op->status = status;
	op_all_posted(op);
}

void ib_op_record_done(struct ib_op *op)
{
	if (!--op->in_flight && op->all_posted)
		op_finish(op);
}

/* ---- posting ------------------------------------------------------------- */

/* Whose turn it is, of those with room; @told: and with a credit. */
static struct ib_qp *pick(struct ib_conn *conn, bool told)
{
	struct ib_qp *q;
	unsigned int i;

	for (i = 0; i < conn->nqps; i++) {
		q = &conn->q[(conn->next_q + i) % conn->nqps];
		if (!ib_tx_room(q, q->index ? 0 : IB_SQ_SPARE) ||
		    (told && !q->credits))
			continue;
		conn->next_q = q->index + 1;
		return q;
	}
	return NULL;
}

/* The next piece of a put or get; false: all are cut. */
static bool next_piece(struct ib_op *op, size_t most, struct ib_record *rec)
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
	rec->len = (uint32_t)weft_min(most, iov->iov_len - op->iov_off);
	return true;
}

static void posted(struct ib_op *op, const struct ib_record *rec)
{
	op->in_flight++;
	op->off += rec->len;
	op->iov_off += rec->len;
}

/* True: go on with the next operation. */
static bool post_pieces(struct ib_conn *conn, struct ib_op *op, uint32_t rkey)
{
	struct ib_record rec;
	struct ib_qp *q;
	int err;

	while (next_piece(op, IB_PIECE, &rec)) {
		/* a notification follows them, and goes by the first QP */
		if (!op->notify)
			q = pick(conn, false);
		else
			q = ib_tx_room(&conn->q[0], IB_SQ_SPARE) ? &conn->q[0]
								 : NULL;
		if (!q)
			return false;
		rec.rkey = rkey;
		err = ib_tx_post(q, &rec);
		if (err) {
			ib_op_abort(op, err);
			return !conn->broken;
		}
		posted(op, &rec);
	}
	return true;
}

static bool post_notify(struct ib_conn *conn, struct ib_op *op)
{
	struct ib_tx *tx;

	if (!conn->q[0].credits || !ib_tx_room(&conn->q[0], 1))
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

/* Can an immediate tell of it? */
static bool fits_tell(const struct ib_op *op)
{
	return op->notify && op->tag <= UINT32_MAX && op->iovcnt <= 1 &&
	       op->total <= op->conn->iface->told_most;
}

/* All of it in one request; true: go on with the next operation. */
static bool post_told(struct ib_conn *conn, struct ib_op *op, uint32_t rkey)
{
	struct ib_qp *q = pick(conn, true);
	struct ib_record rec;
	int err;

	if (!q)
		return false;
	if (!next_piece(op, op->total, &rec))
		rec = (struct ib_record){ .op = op };
	rec.kind = IB_REC_TELL;
	rec.rkey = rkey;
	rec.imm = (uint32_t)op->tag;
	rec.seq = q->tx_next;
	err = ib_tx_post(q, &rec);
	if (err) {
		ib_op_abort(op, err);
		return !conn->broken;
	}
	q->tx_next++;
	q->credits--;
	posted(op, &rec);
	op_all_posted(op);
	return true;
}

static bool post_bulk(struct ib_conn *conn, struct ib_op *op)
{
	struct ib_key *key = ib_key_get(conn, &op->rkey);

	if (!key) {
		ib_op_abort(op, -ENOMEM);
		return true;
	}
	if (key->state == IB_KEY_ASK || key->state == IB_KEY_ASKED)
		return false;
	if (key->state == IB_KEY_REFUSED) {
		ib_op_abort(op, key->err);
		ib_key_forget(conn, key);
		return true;
	}
	if (!ib_key_allows(key, op->remote_addr, op->total)) {
		ib_op_abort(op, -EACCES);
		return true;
	}
	if (fits_tell(op))
		return post_told(conn, op, key->rkey);
	if (!post_pieces(conn, op, key->rkey))
		return false;
	if (op->all_posted)	/* given up on the way */
		return true;
	if (op->notify && !post_notify(conn, op))
		return false;
	op_all_posted(op);
	return true;
}

static bool owes_credits(const struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < conn->nqps; i++)
		if (conn->q[i].to_return >= IB_CREDITS / 2)
			return true;
	return false;
}

/* Gives credits back before the peer runs out of them. */
static void return_credits(struct ib_conn *conn)
{
	struct ib_tx *tx;
	unsigned int i;

	if (!owes_credits(conn) || !ib_tx_room(&conn->q[0], 0))
		return;
	tx = ib_tx_take(conn, false);
	if (!tx)
		return;
	tx->len = IB_HEAD + conn->nqps - 1;
	for (i = 1; i < conn->nqps; i++)
		tx->buf[IB_HEAD + i - 1] = (uint8_t)conn->q[i].to_return;
	if (ib_tx_send(conn, tx, IB_KIND_CREDIT, 0, NULL)) {
		ib_tx_give(conn, tx);
		return;
	}
	for (i = 1; i < conn->nqps; i++)
		conn->q[i].to_return = 0;
}

void ib_op_pump(struct ib_conn *conn)
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
	mark_fence(conn);
	return_credits(conn);
}

void ib_op_queue(struct ib_conn *conn, struct ib_op *op)
{
	weft_list_add_tail(&conn->queue, &op->link);
	conn->nqueued++;
	ib_op_pump(conn);
}

/* ---- giving up ----------------------------------------------------------- */

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

/* The adapter may still tell of their requests: nobody listens. */
static void forget_records(struct ib_qp *q)
{
	struct ib_record *rec;
	unsigned int i;

	for (i = 0; i < q->ring_n; i++) {
		rec = &q->ring[(q->ring_head + i) % IB_SQ_DEPTH];
		if (!rec->op)
			continue;
		rec->dropped = true;
		rec->op = NULL;
	}
}

void ib_op_drop_all(struct ib_conn *conn, int status)
{
	struct weft_list *finished = &conn->iface->finished;
	struct weft_op *done;
	struct ib_op *op;
	unsigned int i;
	int end;

	for (i = 0; i < conn->nqps; i++)
		forget_records(&conn->q[i]);
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

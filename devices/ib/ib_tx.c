/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: each is a record in the ring of its QP, and they complete in the
 * order posted.  The ring outlives the adapter's QP: what one left undone is
 * posted on the next (ib_resume.c).
 */
#include "devices/ib/ib.h"

#include <endian.h>
#include <errno.h>

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

/* ---- posting ------------------------------------------------------------- */

static int own_mr(struct ib_op *op, unsigned int i)
{
	const int access = op->kind == IB_OP_GET ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct ib_iface *iface = op->conn->iface;
	const struct iovec *iov = &op->iov[i];

	if (op->mr[i])
		return 0;
	op->mr[i] = iface->v->reg_mr(iface->dev->pd, iov->iov_base,
				     iov->iov_len, access);
	if (op->mr[i])
		return 0;
	return weft_fail(errno, "cannot register %zu bytes at %p with '%s' for a transfer",
			 iov->iov_len, iov->iov_base, iface->port.name);
}

static int local_key(const struct ib_record *rec, uint32_t *lkey)
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

static const enum ibv_wr_opcode opcodes[] = {
	[IB_REC_SEND] = IBV_WR_SEND,
	[IB_REC_WRITE] = IBV_WR_RDMA_WRITE,
	[IB_REC_TELL] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[IB_REC_READ] = IBV_WR_RDMA_READ,
	[IB_REC_PROBE] = IBV_WR_RDMA_WRITE,
};

/* May the adapter forget where it came from? */
static bool fits_inline(const struct ib_qp *q, const struct ib_record *rec)
{
	return rec->kind != IB_REC_READ && rec->len <= q->max_inline;
}

static int fill_request(const struct ib_qp *q, const struct ib_record *rec,
			struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->sg_list = sge;
	wr->num_sge = rec->len ? 1 : 0;
	sge->addr = rec->laddr;
	sge->length = rec->len;
	wr->wr.rdma.remote_addr = rec->raddr;
	wr->wr.rdma.rkey = rec->rkey;
	wr->opcode = opcodes[rec->kind];
	if (rec->kind == IB_REC_TELL)
		wr->imm_data = htobe32(rec->imm);
	if (!rec->len)
		return 0;
	if (fits_inline(q, rec)) {
		wr->send_flags |= IBV_SEND_INLINE;
		return 0;
	}
	if (rec->kind == IB_REC_SEND) {
		sge->lkey = q->conn->mr->lkey;
		return 0;
	}
	return local_key(rec, &sge->lkey);
}

int ib_tx_post(struct ib_qp *q, const struct ib_record *rec)
{
	const unsigned int at = (q->ring_head + q->ring_n) % IB_SQ_DEPTH;
	struct ib_conn *conn = q->conn;
	struct ibv_send_wr wr = { 0 }, *bad;
	struct ibv_sge sge = { 0 };
	int err;

	err = fill_request(q, rec, &wr, &sge);
	if (err)
		return err;
	wr.wr_id = ib_wr_id_send(q, at);
	err = conn->iface->v->post_send(q->qp, &wr, &bad);
	if (err) {
		err = weft_fail(err, "cannot post a request on '%s'",
				conn->iface->port.name);
		ib_conn_break(conn, -EIO);
		return -EIO;
	}
	q->ring[at] = *rec;
	q->ring_n++;
	q->tx_out++;
	weft_count(conn->stats, wire_tx_bytes,
		   rec->kind == IB_REC_READ ? 0 : rec->len);
	return 0;
}

bool ib_tx_room(const struct ib_qp *q, unsigned int spare)
{
	return q->ring_n + spare < IB_SQ_DEPTH && !q->conn->broken &&
	       !q->conn->want_break;
}

int ib_tx_send(struct ib_conn *conn, struct ib_tx *tx, enum ib_kind kind,
	       uint8_t id, struct ib_op *op)
{
	struct ib_qp *q = &conn->q[0];
	struct ib_record rec = {
		.kind = IB_REC_SEND, .op = op, .tx = tx, .seq = q->tx_next,
		.laddr = (uintptr_t)tx->buf, .len = tx->len,
	};
	int err;

	ib_head_pack(tx->buf, (uint8_t)kind, id, q->to_return, q->tx_next);
	err = ib_tx_post(q, &rec);
	if (err)
		return err;
	q->to_return = 0;
	q->tx_next++;
	q->credits -= kind != IB_KIND_CREDIT;
	return 0;
}

int ib_tx_probe(struct ib_qp *q)
{
	struct ib_record rec = { .kind = IB_REC_PROBE };

	return ib_tx_room(q, 1) ? ib_tx_post(q, &rec) : 0;
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
		conn->refused = true;
		conn->refused_key = op->rkey;
		ib_op_abort(op, -EACCES);
		return 0;
	case IBV_WC_LOC_PROT_ERR:
		if (!bulk)
			return -EIO;
		/* the registration that covered it was released */
		if (op->own_mrs)
			ib_op_abort(op, -EFAULT);
		op->own_mrs = true;
		return 0;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

void ib_tx_record_done(struct ib_conn *conn, struct ib_record *rec)
{
	if (rec->kind == IB_REC_SEND)
		ib_tx_give(conn, rec->tx);
	if (rec->op)
		ib_op_record_done(rec->op);
}

/* A QP that the peer has given up answers nothing either. */
static bool is_silence(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR ||
	       status == IBV_WC_RESP_TIMEOUT_ERR;
}

void ib_tx_completed(struct ib_qp *q, unsigned int index,
		     const struct ibv_wc *wc)
{
	struct ib_conn *conn = q->conn;
	const bool ending = conn->want_break || conn->state != IB_CONN_OPEN;
	struct ib_record *rec, copy;
	int err;

	if (!q->tx_out)
		return;
	q->tx_out--;
	q->moved = true;
	ib_conn_work(conn);
	if (wc->status == IBV_WC_SUCCESS) {
		if (index != q->ring_head) {
			weft_warn("'%s' completed request %u before %u",
				  conn->iface->port.name, index,
				  q->ring_head);
			ib_conn_break(conn, -EIO);
			return;
		}
		copy = q->ring[index];
		q->ring_head = (q->ring_head + 1) % IB_SQ_DEPTH;
		q->ring_n--;
		q->fenced -= q->fenced > 0;
		conn->breaks = 0;
		ib_tx_record_done(conn, &copy);
		return;
	}
	conn->want_break |= conn->state == IB_CONN_OPEN;
	/*
	 * The first tells the reason, the rest are flushed.  The peer's side
	 * of it may have been here before.
	 */
	if (wc->status == IBV_WC_WR_FLUSH_ERR || conn->judged || conn->broken ||
	    index >= IB_SQ_DEPTH || (ending && is_silence(wc->status)))
		return;
	conn->judged = true;
	rec = &q->ring[index];
	err = rec->dropped ? 0 : judge(conn, rec, wc->status);
	if (!err)
		return;
	weft_warn("'%s' lost its peer %016llx: %s (vendor code 0x%x)",
		  conn->iface->port.name, (unsigned long long)conn->peer->id,
		  weft_wc_name(wc->status), wc->vendor_err);
	conn->status = wc->status;
	ib_conn_break(conn, err);
}

static bool qp_busy(const struct ib_qp *q)
{
	const struct ib_record *rec;
	unsigned int i;

	if (!q->qp || !q->tx_out)
		return false;
	for (i = 0; i < q->ring_n; i++) {
		rec = &q->ring[(q->ring_head + i) % IB_SQ_DEPTH];
		if (!rec->dropped && (rec->kind == IB_REC_WRITE ||
				      rec->kind == IB_REC_TELL ||
				      rec->kind == IB_REC_READ))
			return true;
	}
	return false;
}

bool ib_tx_busy(const struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < conn->nqps; i++)
		if (qp_busy(&conn->q[i]))
			return true;
	return false;
}


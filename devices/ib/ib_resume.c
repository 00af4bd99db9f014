/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * After the next QPs were connected: the peer has said which messages of each
 * it had received, so what the last ones left undone is known, and is posted
 * once more.
 */
#include "devices/ib/ib.h"

#include <errno.h>

/* Was everything up to this one executed?  The peer had read a later message. */
static unsigned int executed(const struct ib_record *ring, unsigned int n,
			     uint32_t received)
{
	unsigned int i, done = 0;

	for (i = 0; i < n; i++)
		if (ib_rec_counts(&ring[i]) &&
		    (int32_t)(ring[i].seq - received) < 0)
			done = i + 1;
	return done;
}

/* A notification that is given up: what it took is free again. */
static void drop_record(struct ib_qp *q, struct ib_record *rec)
{
	q->credits += ib_rec_counts(rec);
	if (rec->kind == IB_REC_SEND)
		q->to_return += ib_head_credits(rec->tx->buf);
	ib_tx_record_done(q->conn, rec);
}

/* What is not there yet is numbered anew: some of it may be dropped. */
static void repeat(struct ib_qp *q, struct ib_record *rec)
{
	int err;

	if (ib_rec_counts(rec))
		rec->seq = q->tx_next++;
	if (rec->kind == IB_REC_SEND)
		weft_put_le32(rec->tx->buf + 4, rec->seq);
	err = ib_tx_post(q, rec);
	if (!err)
		return;
	/* no hole in the numbers, and no notification behind what is missing */
	if (ib_rec_counts(rec)) {
		q->tx_next--;
		q->credits++;
	}
	if (rec->op)
		ib_op_abort(rec->op, err);
	ib_tx_record_done(q->conn, rec);
}

/*
 * The adapter tells of one refused request per epoch; the others that use the
 * same key would be refused one by one.
 */
static void refuse(struct ib_conn *conn, struct ib_record *rec)
{
	if (conn->refused && rec->op && rec->kind != IB_REC_SEND &&
	    weft_rkey_same(&rec->op->rkey, &conn->refused_key))
		ib_op_abort(rec->op, -EACCES);
}

static void resume(struct ib_qp *q, uint32_t received)
{
	struct ib_record ring[IB_SQ_DEPTH], *rec;
	const unsigned int n = q->ring_n;
	unsigned int i, done;

	for (i = 0; i < n; i++)
		ring[i] = q->ring[(q->ring_head + i) % IB_SQ_DEPTH];
	q->ring_head = q->ring_n = q->tx_out = 0;
	done = executed(ring, n, received);
	q->tx_next = received;
	for (i = 0; i < n && !q->conn->broken; i++) {
		rec = &ring[i];
		if (i >= done)
			refuse(q->conn, rec);
		if (i < done && (rec->dropped || rec->kind != IB_REC_READ)) {
			ib_tx_record_done(q->conn, rec);
		} else if (rec->dropped || rec->kind == IB_REC_PROBE ||
			   (rec->op && rec->op->status)) {
			drop_record(q, rec);
		} else {
			repeat(q, rec);
		}
	}
	if (q->fenced)
		q->fenced = q->ring_n;
}

void ib_resume(struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < conn->nqps; i++)
		resume(&conn->q[i], conn->peer_info.qp[i].received);
	conn->refused = false;
}

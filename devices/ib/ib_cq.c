/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completions.  Gathering sorts them into what arrived and what is finished,
 * and calls nobody back; delivering does.
 */
#include "devices/ib/ib.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/log.h"

#define BATCH	32
#define ROUNDS	8	/* batches of one gathering: others want to run too */
/* A QP's share: all it can have posted. */
#define SHARE	(IB_SQ_DEPTH + IB_RX_SLOTS(IB_MAX_QPS))

/* wr_id: connection | epoch's low bits | receive? | QP | index */
#define WR_RECV		BIT(15)
#define WR_QP_SHIFT	12
#define WR_QP		7u
#define WR_INDEX	0xfffu
static_assert(IB_MAX_QPS <= WR_QP + 1 && IB_SQ_DEPTH <= WR_INDEX, "wr_id");

static uint64_t wr_id(const struct ib_qp *q, bool recv, unsigned int index)
{
	return (uint64_t)q->conn->id << 32 |
	       (uint64_t)(q->conn->epoch & 0xffff) << 16 |
	       (recv ? WR_RECV : 0) | q->index << WR_QP_SHIFT | index;
}

uint64_t ib_wr_id_send(const struct ib_qp *q, unsigned int index)
{
	return wr_id(q, false, index);
}

struct ib_cq *ib_cq_take(struct ib_iface *iface, unsigned int nqps)
{
	const unsigned int share = nqps * SHARE;
	struct ib_cq *cq, *tmp;

	weft_list_for_each(cq, tmp, &iface->cqs, link)
		if (!cq->dead && cq->used + share <= cq->size) {
			cq->used += share;
			return cq;
		}
	cq = calloc(1, sizeof(*cq));
	if (!cq) {
		errno = ENOMEM;
		return NULL;
	}
	cq->size = (unsigned int)weft_min(IB_CQ_SIZE,
					  (size_t)iface->dev->attr.max_cqe);
	cq->cq = iface->v->create_cq(iface->dev->ctx, (int)cq->size, cq,
				     iface->channel, 0);
	if (!cq->cq) {
		errno = -weft_fail(errno, "cannot make a completion queue on '%s'",
				   iface->port.name);
		free(cq);
		return NULL;
	}
	cq->used = share;
	weft_list_add_tail(&iface->cqs, &cq->link);
	return cq;
}

static void cq_destroy(struct ib_iface *iface, struct ib_cq *cq)
{
	int err = iface->v->destroy_cq(cq->cq);

	if (err)
		weft_fail(err, "cannot destroy a completion queue of '%s'",
			  iface->port.name);
	weft_list_del(&cq->link);
	free(cq);
}

void ib_cq_give(struct ib_iface *iface, struct ib_cq *cq, unsigned int nqps)
{
	cq->used -= nqps * SHARE;
	/* others stay for those that come */
	if (cq->dead && !cq->used)
		cq_destroy(iface, cq);
}

void ib_cqs_close(struct ib_iface *iface)
{
	struct ib_cq *cq, *tmp;

	weft_list_for_each(cq, tmp, &iface->cqs, link)
		cq_destroy(iface, cq);
}

void ib_rx_post(struct ib_rx *rx)
{
	struct ib_qp *q = rx->q;
	struct ib_conn *conn = q->conn;
	struct ibv_sge sge = { (uintptr_t)rx->buf, IB_SLOT, conn->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = rx->buf ? 1 : 0 };
	struct ibv_recv_wr *bad;
	int err;

	rx->state = IB_RX_IDLE;
	if (!q->qp || conn->state == IB_CONN_DRAINING || conn->broken)
		return;
	wr.wr_id = wr_id(q, true, (unsigned int)(rx - q->rx));
	err = conn->iface->v->post_recv(q->qp, &wr, &bad);
	if (err) {
		weft_fail(err, "cannot post a receive buffer on '%s'",
			  conn->iface->port.name);
		ib_conn_break(conn, -EIO);
		return;
	}
	rx->state = IB_RX_POSTED;
	q->rx_posted++;
}

/* Credits are read here already: a sender waits for them. */
static int take_credits(struct ib_conn *conn, const struct ib_rx *rx)
{
	const bool alone = rx->buf[0] == IB_KIND_CREDIT;
	unsigned int i;

	if (alone && rx->len != IB_HEAD + conn->nqps - 1)
		return -EPROTO;
	conn->q[0].credits += ib_head_credits(rx->buf);
	for (i = 1; alone && i < conn->nqps; i++)
		conn->q[i].credits += rx->buf[IB_HEAD + i - 1];
	for (i = 0; i < conn->nqps; i++)
		if (conn->q[i].credits > IB_CREDITS)
			return -EPROTO;
	return 0;
}

/* A message, whole and the next one, or an immediate. */
static int arrived(struct ib_rx *rx, const struct ibv_wc *wc)
{
	struct ib_qp *q = rx->q;
	int err = 0;

	rx->len = wc->byte_len;
	rx->told = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
	rx->imm = rx->told ? be32toh(wc->imm_data) : 0;
	if (!rx->told) {
		if (!rx->buf || rx->len < IB_HEAD || rx->len > IB_SLOT ||
		    weft_get_le32(rx->buf + 4) != q->rx_next)
			return -EPROTO;
		err = take_credits(q->conn, rx);
	}
	if (err)
		return err;
	q->rx_next++;
	if (!rx->told && rx->buf[0] == IB_KIND_CREDIT) {
		/* nothing else in it: its buffer is free at once */
		weft_count(q->conn->stats, wire_rx_bytes, rx->len);
		ib_rx_post(rx);
	} else {
		rx->state = IB_RX_PENDING;
		weft_list_add_tail(&q->conn->iface->received, &rx->link);
	}
	return 0;
}

static void received(struct ib_conn *conn, struct ib_rx *rx,
		     const struct ibv_wc *wc)
{
	rx->q->rx_posted--;
	rx->state = IB_RX_IDLE;
	if (wc->status == IBV_WC_SUCCESS) {
		if (arrived(rx, wc)) {
			weft_warn("a peer on '%s' sent a malformed message; the connection ends",
				  conn->iface->port.name);
			ib_conn_break(conn, -EPROTO);
			return;
		}
	} else if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		/* refused the peer something; else this is our own doing */
		conn->want_break |= conn->state == IB_CONN_OPEN;
	} else {
		weft_warn("'%s': receiving failed: %s", conn->iface->port.name,
			  weft_wc_name(wc->status));
		if (!conn->broken)
			conn->status = wc->status;
		ib_conn_break(conn, -EIO);
	}
	ib_conn_work(conn);
}

static void complete(struct ib_iface *iface, const struct ibv_wc *wc)
{
	struct ib_conn *conn = ib_conn_find(iface, (uint32_t)(wc->wr_id >> 32));
	const unsigned int index = wc->wr_id & WR_INDEX;
	const unsigned int which = (wc->wr_id >> WR_QP_SHIFT) & WR_QP;
	struct ib_qp *q;

	/* of a QP that is gone: verbs may leave those in the queue */
	if (!conn || conn->state == IB_CONN_DEAD || which >= conn->nqps ||
	    !conn->q[which].qp ||
	    ((wc->wr_id >> 16) & 0xffff) != (conn->epoch & 0xffff))
		return;
	q = &conn->q[which];
	if (wc->wr_id & WR_RECV) {
		if (index < q->nrx && q->rx[index].state == IB_RX_POSTED)
			received(conn, &q->rx[index], wc);
	} else {
		ib_tx_completed(q, index, wc);
	}
}

/* Nothing more is learnt from it: what uses it ends, others get another. */
static void end_users(struct ib_iface *iface, struct ib_cq *cq)
{
	struct ib_peer *peer, *tp;
	struct ib_conn *conn, *tc;

	cq->dead = true;
	weft_list_for_each(peer, tp, &iface->peers, link)
		weft_list_for_each(conn, tc, &peer->conns, link)
			if (conn->cq == cq)
				ib_conn_break(conn, -EIO);
}

static void give_up(struct ib_iface *iface, struct ib_cq *cq, const char *what,
		    int err)
{
	weft_warn("cannot %s a completion queue of '%s' (%d); its connections end",
		  what, iface->port.name, err);
	end_users(iface, cq);
}

void ib_cqs_check(struct ib_iface *iface)
{
	struct ib_cq *cq, *tmp;

	weft_list_for_each(cq, tmp, &iface->cqs, link) {
		if (cq->dead || !atomic_load(&cq->failed))
			continue;
		weft_warn("'%s' reports a fatal error of a completion queue; its connections end",
			  iface->port.name);
		end_users(iface, cq);
		/* one that nobody used goes at once */
		ib_cq_give(iface, cq, 0);
	}
}

unsigned int ib_cq_gather(struct ib_iface *iface)
{
	struct ibv_wc wc[BATCH];
	struct ib_cq *cq, *tmp;
	unsigned int count = 0, rounds;
	int i, n;

	weft_list_for_each(cq, tmp, &iface->cqs, link) {
		for (rounds = 0; rounds < ROUNDS && !cq->dead; rounds++) {
			n = iface->v->poll_cq(cq->cq, BATCH, wc);
			if (n < 0)
				give_up(iface, cq, "poll", n);
			for (i = 0; i < n; i++)
				complete(iface, &wc[i]);
			count += n > 0 ? (unsigned int)n : 0;
			if (n < BATCH)
				break;
		}
	}
	return count;
}

static int deliver_notify(struct ib_conn *conn, uint64_t tag, uint64_t size)
{
	struct weft_iface_cb *cb = &conn->iface->base.cb;

	weft_count(conn->stats, rx_puts, 1);
	weft_count(conn->stats, rx_put_bytes, size);
	cb->on_notify(cb->arg, tag, size);
	return 0;
}

static int deliver_message(struct ib_conn *conn, struct ib_rx *rx)
{
	struct weft_iface_cb *cb = &conn->iface->base.cb;
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
		return len != 16 ? -EPROTO :
		       deliver_notify(conn, weft_get_le64(body),
				      weft_get_le64(body + 8));
	case IB_KIND_ASK:
		return ib_key_question(conn, body, len);
	case IB_KIND_ANSWER:
		return ib_key_answer(conn, body, len);
	}
	return -EPROTO;
}

/* May call back, and be called back into. */
static int deliver_one(struct ib_conn *conn, struct ib_rx *rx)
{
	return rx->told ? deliver_notify(conn, rx->imm, rx->len)
			: deliver_message(conn, rx);
}

static unsigned int deliver_received(struct ib_iface *iface)
{
	struct ib_conn *conn;
	unsigned int n = 0;
	struct ib_rx *rx;
	int err;

	while (iface->budget && !weft_list_empty(&iface->received)) {
		iface->budget--;
		rx = weft_list_first(&iface->received, struct ib_rx, link);
		weft_list_del(&rx->link);
		conn = rx->q->conn;
		err = deliver_one(conn, rx);
		n++;
		if (err) {
			weft_warn("a peer on '%s' sent a malformed message (kind %u); the connection ends",
				  iface->port.name, rx->buf[0]);
			ib_conn_break(conn, err);
		}
		rx->q->to_return++;
		ib_rx_post(rx);
		ib_conn_work(conn);
	}
	return n;
}

unsigned int ib_cq_deliver(struct ib_iface *iface)
{
	unsigned int n = deliver_received(iface);
	struct weft_op *done;
	struct ib_op *op;
	int status;

	while (!weft_list_empty(&iface->finished)) {
		op = weft_list_first(&iface->finished, struct ib_op, link);
		weft_list_del(&op->link);
		op->conn->nfinished--;
		ib_conn_work(op->conn);	/* a flush may wait for it */
		done = op->op;
		status = op->status;
		free(op);
		n++;
		if (done)
			done->done(done, status);
	}
	return n;
}

bool ib_rx_waits(const struct ib_conn *conn)
{
	unsigned int i, k;

	for (k = 0; k < conn->nqps; k++)
		for (i = 0; i < conn->q[k].nrx; i++)
			if (conn->q[k].rx[i].state == IB_RX_PENDING)
				return true;
	return false;
}

/* What arrived on a connection that is closed for good. */
void ib_rx_drop(struct ib_conn *conn)
{
	unsigned int i, k;
	struct ib_rx *rx;

	for (k = 0; k < conn->nqps; k++)
		for (i = 0; i < conn->q[k].nrx; i++) {
			rx = &conn->q[k].rx[i];
			if (rx->state != IB_RX_PENDING)
				continue;
			weft_list_del(&rx->link);
			rx->state = IB_RX_IDLE;
		}
}

int ib_cq_arm(struct ib_iface *iface)
{
	struct ib_cq *cq, *tmp;
	int err;

	weft_list_for_each(cq, tmp, &iface->cqs, link) {
		err = cq->dead ? 0 : iface->v->req_notify_cq(cq->cq, 0);
		if (err)
			give_up(iface, cq, "ask for events of", err);
	}
	/* what completed before it was asked for rings nobody */
	ib_cq_gather(iface);
	return weft_list_empty(&iface->received) &&
	       weft_list_empty(&iface->finished) &&
	       weft_list_empty(&iface->work) ? 0 : -EBUSY;
}

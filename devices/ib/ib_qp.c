/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue pair of a connection: made, connected, flushed, destroyed. */
#include "devices/ib/ib.h"

#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/util.h"

#define MIN_RNR_TIMER	12	/* 0.64 ms; credits make it rare */
#define RNR_RETRIES	6	/* 7 would be for ever */
#define HOP_LIMIT	64

int ib_qp_create(struct ib_qp *q)
{
	struct ib_iface *iface = q->conn->iface;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int err;

	init.send_cq = init.recv_cq = q->conn->cq->cq;
	init.cap.max_send_wr = IB_SQ_DEPTH;
	init.cap.max_recv_wr = q->nrx;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	init.cap.max_inline_data = IB_INLINE;
	q->qp = iface->v->create_qp(iface->dev->pd, &init);
	if (!q->qp) {
		/* not every adapter has inline data */
		init.cap.max_inline_data = 0;
		q->qp = iface->v->create_qp(iface->dev->pd, &init);
	}
	if (!q->qp) {
		return weft_fail(errno, "cannot make a queue pair on '%s'",
				 iface->port.name);
	}
	q->max_inline = init.cap.max_inline_data;
	attr.pkey_index = (uint16_t)iface->pkey_index;
	attr.port_num = (uint8_t)iface->port.port;
	attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
			       IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	err = iface->v->modify_qp(q->qp, &attr, IBV_QP_STATE |
				  IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				  IBV_QP_ACCESS_FLAGS);
	if (err) {
		err = weft_fail(err, "cannot initialise a queue pair on '%s' (port %u, entry %u of its partition keys)",
				iface->port.name, iface->port.port,
				attr.pkey_index);
		iface->v->destroy_qp(q->qp);
		q->qp = NULL;
	}
	return err;
}

static enum ibv_mtu mtu_of(unsigned int bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && (256u << mtu) <= bytes)
		mtu++;
	return mtu;
}

static enum ibv_mtu path_mtu(const struct ib_iface *iface,
			     const struct ib_conn_info *peer)
{
	const unsigned int asked = (unsigned int)weft_settings()->ib_mtu;
	enum ibv_mtu mtu = iface->port_attr.active_mtu;

	if (peer->mtu < (uint32_t)mtu)
		mtu = (enum ibv_mtu)peer->mtu;
	if (asked && mtu_of(asked) < mtu)
		mtu = mtu_of(asked);
	return mtu;
}

static void fill_path(const struct ib_iface *iface,
		      const struct ib_conn_info *peer, struct ibv_ah_attr *ah)
{
	ah->port_num = (uint8_t)iface->port.port;
	ah->sl = (uint8_t)weft_settings()->ib_sl;
	ah->dlid = peer->lid;
	/* InfiniBand within a subnet does without, but where its port says */
	ah->is_global = iface->port.roce ||
			iface->port_attr.flags & IBV_QPF_GRH_REQUIRED;
	if (!ah->is_global)
		return;
	memcpy(ah->grh.dgid.raw, peer->gid, 16);
	ah->grh.sgid_index = (uint8_t)iface->gid_index;
	ah->grh.hop_limit = HOP_LIMIT;
	ah->grh.traffic_class = (uint8_t)iface->traffic_class;
}

int ib_qp_connect(struct ib_qp *q)
{
	const struct ib_conn_info *peer = &q->conn->peer_info;
	const struct ib_qp_info *theirs = &peer->qp[q->index];
	struct ib_iface *iface = q->conn->iface;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int err;

	attr.path_mtu = path_mtu(iface, peer);
	attr.dest_qp_num = theirs->qpn;
	attr.rq_psn = theirs->psn;
	attr.max_dest_rd_atomic = (uint8_t)weft_min(16,
				(size_t)iface->dev->attr.max_qp_rd_atom);
	attr.min_rnr_timer = MIN_RNR_TIMER;
	fill_path(iface, peer, &attr.ah_attr);
	err = iface->v->modify_qp(q->qp, &attr, IBV_QP_STATE | IBV_QP_AV |
				  IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_MIN_RNR_TIMER);
	if (err)
		return weft_fail(err, "'%s' cannot receive from its peer (queue pair %u, GID index %u); is the peer on the same fabric?",
				 iface->port.name, theirs->qpn,
				 iface->gid_index);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = (uint8_t)weft_settings()->ib_timeout;
	attr.retry_cnt = (uint8_t)weft_settings()->ib_retries;
	attr.rnr_retry = RNR_RETRIES;
	attr.sq_psn = q->psn;
	attr.max_rd_atomic = (uint8_t)weft_min(peer->reads,
			weft_min(16, (size_t)iface->dev->attr.max_qp_init_rd_atom));
	err = iface->v->modify_qp(q->qp, &attr, IBV_QP_STATE |
				  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC);
	if (err)
		return weft_fail(err, "'%s' cannot send to its peer (queue pair %u)",
				 iface->port.name, theirs->qpn);
	return 0;
}

bool ib_qp_flush(struct ib_qp *q)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	const struct ib_iface *iface = q->conn->iface;
	int err;

	err = q->qp ? iface->v->modify_qp(q->qp, &attr, IBV_QP_STATE) : 0;
	if (err)
		weft_fail(err, "cannot end a queue pair of '%s'",
			  iface->port.name);
	return !err;
}

bool ib_qps_flush(struct ib_conn *conn)
{
	bool all = true;
	unsigned int i;

	for (i = 0; i < conn->nqps; i++)
		all &= ib_qp_flush(&conn->q[i]);
	return all;
}

void ib_qp_destroy(struct ib_qp *q)
{
	struct ib_iface *iface;
	unsigned int i;
	int err;

	if (!q->qp)
		return;
	iface = q->conn->iface;
	err = iface->v->destroy_qp(q->qp);
	if (err)
		weft_fail(err, "cannot destroy a queue pair of '%s'",
			  iface->port.name);
	q->qp = NULL;
	q->tx_out = 0;
	q->rx_posted = 0;
	for (i = 0; i < q->nrx; i++)
		if (q->rx[i].state == IB_RX_POSTED)
			q->rx[i].state = IB_RX_IDLE;
}

void ib_qps_destroy(struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < conn->nqps; i++)
		ib_qp_destroy(&conn->q[i]);
	if (conn->cq)
		ib_cq_give(conn->iface, conn->cq, conn->nqps);
	conn->cq = NULL;
}

unsigned int ib_qps_out(const struct ib_conn *conn)
{
	unsigned int i, n = 0;

	for (i = 0; i < conn->nqps; i++)
		n += conn->q[i].tx_out;
	return n;
}

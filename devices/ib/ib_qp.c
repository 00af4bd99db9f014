/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs, each of a connection, and the completion queues they share. */
#include "devices/ib/ib_conn.h"
#include "devices/ib/ib_qp.h"

#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/util.h"

#define MIN_RNR_TIMER 12 /* 0.64 ms; credits make it rare */
#define RNR_RETRIES   6	 /* 7 would mean forever */
#define HOP_LIMIT     64
#define CQ_SIZE	      16384u

/* Entries of a completion queue for all that a queue pair can post. */
#define SHARE (IB_SQ_DEPTH + IB_RX_SLOTS)

static struct ib_cq *cq_take(struct ib_iface *iface)
{
	struct ib_cq *cq, *tmp;

	weft_list_for_each (cq, tmp, &iface->cqs, link)
		if (!cq->dead && cq->used + SHARE <= cq->size) {
			cq->used += SHARE;
			return cq;
		}
	cq = calloc(1, sizeof(*cq));
	if (!cq) {
		errno = ENOMEM;
		return NULL;
	}
	cq->size = (unsigned int)weft_min(CQ_SIZE,
					  (size_t)iface->dev->attr.max_cqe);
	cq->cq = iface->v->create_cq(iface->dev->ctx, (int)cq->size, cq,
				     iface->channel, 0);
	if (!cq->cq) {
		errno = -weft_fail(-errno,
				   "cannot create a completion queue on '%s'",
				   iface->port.name);
		free(cq);
		return NULL;
	}
	cq->used = SHARE;
	weft_list_add_tail(&iface->cqs, &cq->link);
	return cq;
}

void ib_cq_destroy(struct ib_iface *iface, struct ib_cq *cq)
{
	int err = iface->v->destroy_cq(cq->cq);

	if (err)
		weft_fail(-err, "cannot destroy a completion queue of '%s'",
			  iface->port.name);
	weft_list_del(&cq->link);
	free(cq);
}

static void cq_give(struct ib_iface *iface, struct ib_cq *cq)
{
	cq->used -= SHARE;
	/* keep the queue for further connections */
	if (cq->dead && !cq->used)
		ib_cq_destroy(iface, cq);
}

static struct ibv_qp *create_qp(struct ib_conn *conn)
{
	struct ib_iface *iface = conn->iface;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = conn->cq->cq, .recv_cq = conn->cq->cq,
		.cap = {
			.max_send_wr = IB_SQ_DEPTH, .max_recv_wr = IB_RX_SLOTS,
			.max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = IB_INLINE,
		},
	};
	struct ibv_qp *qp;

	qp = iface->v->create_qp(iface->dev->pd, &init);
	if (!qp) {
		/* not every adapter has inline data */
		init.cap.max_inline_data = 0;
		qp = iface->v->create_qp(iface->dev->pd, &init);
	}
	conn->max_inline = init.cap.max_inline_data;
	return qp;
}

int ib_qp_create(struct ib_conn *conn)
{
	struct ib_iface *iface = conn->iface;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int err;

	err = weft_random(&conn->psn, sizeof(conn->psn));
	if (err)
		return err;
	conn->psn &= 0xffffff; /* 24 bits */
	conn->cq = cq_take(iface);
	if (!conn->cq)
		return -errno;
	conn->qp = create_qp(conn);
	if (!conn->qp)
		return weft_fail(-errno, "cannot create a queue pair on '%s'",
				 iface->port.name);
	attr.pkey_index = (uint16_t)iface->pkey_index;
	attr.port_num = (uint8_t)iface->port.port;
	attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
			       IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	err = iface->v->modify_qp(conn->qp, &attr,
				  IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					  IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (err)
		return weft_fail(
			-err,
			"cannot initialise a queue pair on '%s' (port %u, entry %u of its partition keys)",
			iface->port.name, iface->port.port, attr.pkey_index);
	return 0;
}

static void fill_path(const struct ib_iface *iface,
		      const struct ib_conn_info *peer, struct ibv_ah_attr *ah)
{
	ah->port_num = (uint8_t)iface->port.port;
	ah->sl = (uint8_t)weft_settings()->ib_sl;
	ah->dlid = peer->lid;
	/* not needed within an InfiniBand subnet unless the port says so */
	ah->is_global = iface->port.roce ||
			iface->port_attr.flags & IBV_QPF_GRH_REQUIRED;
	if (!ah->is_global)
		return;
	memcpy(ah->grh.dgid.raw, peer->gid, 16);
	ah->grh.sgid_index = (uint8_t)iface->gid_index;
	ah->grh.hop_limit = HOP_LIMIT;
	ah->grh.traffic_class = (uint8_t)iface->traffic_class;
}

int ib_qp_connect(struct ib_conn *conn)
{
	const struct ib_conn_info *peer = &conn->peer_info;
	struct ib_iface *iface = conn->iface;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int err;

	attr.path_mtu = (enum ibv_mtu)weft_min(
		peer->mtu, (uint32_t)iface->port_attr.active_mtu);
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = peer->psn;
	attr.max_dest_rd_atomic =
		(uint8_t)weft_min(16, (size_t)iface->dev->attr.max_qp_rd_atom);
	attr.min_rnr_timer = MIN_RNR_TIMER;
	fill_path(iface, peer, &attr.ah_attr);
	err = iface->v->modify_qp(conn->qp, &attr,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					  IBV_QP_MAX_DEST_RD_ATOMIC |
					  IBV_QP_MIN_RNR_TIMER);
	if (err)
		return weft_fail(
			-err,
			"'%s' cannot receive from its peer (queue pair %u, GID index %u); is the peer on the same fabric?",
			iface->port.name, peer->qpn, iface->gid_index);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = (uint8_t)weft_settings()->ib_timeout;
	attr.retry_cnt = (uint8_t)weft_settings()->ib_retries;
	attr.rnr_retry = RNR_RETRIES;
	attr.sq_psn = conn->psn;
	attr.max_rd_atomic = (uint8_t)weft_min(
		peer->reads,
		weft_min(16, (size_t)iface->dev->attr.max_qp_init_rd_atom));
	err = iface->v->modify_qp(conn->qp, &attr,
				  IBV_QP_STATE | IBV_QP_TIMEOUT |
					  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_SQ_PSN |
					  IBV_QP_MAX_QP_RD_ATOMIC);
	if (err)
		return weft_fail(-err,
				 "'%s' cannot send to its peer (queue pair %u)",
				 iface->port.name, peer->qpn);
	return 0;
}

bool ib_qp_flush(struct ib_conn *conn)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int err;

	err = conn->iface->v->modify_qp(conn->qp, &attr, IBV_QP_STATE);
	if (err)
		weft_fail(-err,
			  "cannot move a queue pair of '%s' to the error state",
			  conn->iface->port.name);
	return !err;
}

void ib_qp_destroy(struct ib_conn *conn)
{
	struct ib_iface *iface = conn->iface;
	unsigned int i;
	int err;

	err = conn->qp ? iface->v->destroy_qp(conn->qp) : 0;
	if (err)
		weft_fail(-err, "cannot destroy a queue pair of '%s'",
			  iface->port.name);
	conn->qp = NULL;
	conn->tx_out = 0;
	for (i = 0; i < IB_RX_SLOTS; i++)
		if (conn->rx[i].state == IB_RX_POSTED)
			conn->rx[i].state = IB_RX_IDLE;
	if (conn->cq)
		cq_give(iface, conn->cq);
	conn->cq = NULL;
}

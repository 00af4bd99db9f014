/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection: its QPs meet the peer's, work, are given up where the adapter
 * refused something, and others follow in the next epoch.
 *
 * Each side sends its half (struct ib_conn_info) of an epoch; who has the
 * peer's half connects its QPs, which from then on receive, and says so by
 * sending its half once more, "ready"; who has read that may send.  A half of
 * a later epoch tells that the peer gave its QPs up.  The first halves also
 * settle how many QPs there are: as many as both sides want.
 */
#include "devices/ib/ib.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "util/clock.h"
#include "util/log.h"

static const struct {
	const char *name;
	unsigned int next;
} states[] = {
	[IB_CONN_MEETING] = { "meeting", BIT(IB_CONN_OPEN) |
			      BIT(IB_CONN_DRAINING) | BIT(IB_CONN_DEAD) },
	[IB_CONN_OPEN] = { "open", BIT(IB_CONN_DRAINING) | BIT(IB_CONN_DEAD) },
	[IB_CONN_DRAINING] = { "draining", BIT(IB_CONN_MEETING) |
			       BIT(IB_CONN_DEAD) },
	[IB_CONN_DEAD] = { "dead", 0 },
};

static void move(struct ib_conn *conn, enum ib_conn_state to)
{
	if (!(states[conn->state].next & BIT(to)))
		weft_error("connection %u: %s cannot become %s", conn->id,
			   states[conn->state].name, states[to].name);
	weft_debug("connection %u, epoch %u: %s -> %s", conn->id, conn->epoch,
		   states[conn->state].name, states[to].name);
	conn->state = to;
}

void ib_conn_work(struct ib_conn *conn)
{
	if (conn->work_link.next == &conn->work_link &&
	    conn->state != IB_CONN_DEAD)
		weft_list_add_tail(&conn->iface->work, &conn->work_link);
}

struct ib_conn *ib_conn_find(struct ib_iface *iface, uint32_t id)
{
	struct ib_conn *conn, *tmp;

	weft_list_for_each(conn, tmp, &iface->by_id[id % IB_CONN_BUCKETS],
			   id_link)
		if (conn->id == id)
			return conn;
	return NULL;
}

/* What was posted and received on it; nothing of the adapter's yet. */
static int make_q(struct ib_conn *conn, unsigned int index)
{
	struct ib_qp *q = &conn->q[index];
	unsigned int i;

	q->conn = conn;
	q->index = index;
	q->credits = IB_CREDITS;
	q->nrx = index ? IB_CREDITS : IB_RX_SLOTS(conn->nqps);
	q->rx = calloc(q->nrx, sizeof(*q->rx));
	if (!q->rx)
		return -ENOMEM;
	for (i = 0; i < q->nrx; i++) {
		q->rx[i].q = q;
		weft_list_init(&q->rx[i].link);
	}
	return 0;
}

static int make_qs(struct ib_conn *conn)
{
	const unsigned int nqps = weft_settings()->ib_qps;
	unsigned int i;
	int err = 0;

	conn->q = calloc(nqps, sizeof(*conn->q));
	if (!conn->q)
		return -ENOMEM;
	conn->nqps = nqps;
	for (i = 0; i < conn->nqps && !err; i++)
		err = make_q(conn, i);
	return err;
}

static size_t buffers_len(const struct ib_conn *conn)
{
	return (conn->q[0].nrx + IB_TX_SLOTS) * (size_t)IB_SLOT;
}

/* One mapping for all its buffers, which costs one registration. */
static int make_buffers(struct ib_conn *conn)
{
	const size_t len = buffers_len(conn);
	struct ib_iface *iface = conn->iface;
	uint8_t *p;
	unsigned int i;

	p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	conn->map = p;
	conn->mr = iface->v->reg_mr(iface->dev->pd, p, len,
				    IBV_ACCESS_LOCAL_WRITE);
	if (!conn->mr)
		return weft_fail(errno, "cannot register %zu bytes of buffers with '%s'; raise the limit with 'ulimit -l'",
				 len, iface->port.name);
	for (i = 0; i < conn->q[0].nrx; i++, p += IB_SLOT)
		conn->q[0].rx[i].buf = p;
	for (i = 0; i < IB_TX_SLOTS; i++, p += IB_SLOT) {
		conn->tx[i].buf = p;
		weft_list_add_tail(&conn->tx_free, &conn->tx[i].link);
	}
	return 0;
}

static void conn_free(struct ib_conn *conn)
{
	struct ib_iface *iface = conn->iface;
	unsigned int i;
	int err;

	ib_qps_destroy(conn);
	ib_keys_free(conn);
	err = conn->mr ? iface->v->dereg_mr(conn->mr) : 0;
	if (err)
		weft_fail(err, "cannot deregister the buffers of a connection from '%s'",
			  iface->port.name);
	if (conn->map)
		munmap(conn->map, buffers_len(conn));
	for (i = 0; i < conn->nqps; i++)
		free(conn->q[i].rx);
	free(conn->q);
	weft_list_del(&conn->link);
	weft_list_del(&conn->id_link);
	weft_list_del(&conn->work_link);
	weft_stats_peer_ended(iface->stats, conn->stats);
	free(conn);
}

static int make_qp(struct ib_qp *q)
{
	unsigned int i;
	int err;

	err = weft_random(&q->psn, sizeof(q->psn));
	if (err)
		return err;
	q->psn &= 0xffffff;	/* 24 bits */
	err = ib_qp_create(q);
	if (err)
		return err;
	for (i = 0; i < q->nrx; i++)
		if (q->rx[i].state == IB_RX_IDLE)
			ib_rx_post(&q->rx[i]);
	return 0;
}

/* The QPs of the epoch, with what they receive into. */
static int make_qps(struct ib_conn *conn)
{
	unsigned int i;
	int err = 0;

	conn->cq = ib_cq_take(conn->iface, conn->nqps);
	if (!conn->cq)
		return -errno;
	for (i = 0; i < conn->nqps && !err; i++)
		err = make_qp(&conn->q[i]);
	if (err)
		return err;
	conn->peer_ready = false;
	conn->want_break = conn->judged = false;
	conn->say_info = true;
	conn->deadline_ms = weft_now_ms() + weft_settings()->connect_timeout_ms;
	return conn->broken;
}

struct ib_conn *ib_conn_new(struct ib_peer *peer, uint32_t sn)
{
	struct ib_iface *iface = peer->iface;
	struct ib_conn *conn = calloc(1, sizeof(*conn));
	char where[WEFT_SOCKADDR_STR];
	int err;

	if (!conn) {
		errno = ENOMEM;
		return NULL;
	}
	conn->iface = iface;
	conn->peer = peer;
	conn->sn = sn;
	conn->id = iface->next_id++;
	weft_list_init(&conn->link);
	weft_list_init(&conn->id_link);
	weft_list_init(&conn->work_link);
	weft_list_init(&conn->tx_free);
	weft_list_init(&conn->queue);
	weft_list_init(&conn->posted);
	weft_list_init(&conn->keys_age);
	weft_list_init(&conn->questions);
	err = make_qs(conn);
	if (!err)
		err = make_buffers(conn);
	if (!err)
		err = make_qps(conn);
	if (err) {
		conn_free(conn);
		errno = -err;
		return NULL;
	}
	conn->stats = weft_stats_peer(iface->stats, peer->id,
				      weft_sockaddr_str(&peer->addr.sa, where,
							sizeof(where)));
	weft_list_add_tail(&peer->conns, &conn->link);
	weft_list_add_tail(&iface->by_id[conn->id % IB_CONN_BUCKETS],
			   &conn->id_link);
	ib_conn_work(conn);
	ib_watch_start(iface);
	return conn;
}

void ib_conn_fill_info(const struct ib_conn *conn, struct ib_conn_info *info)
{
	const struct ib_iface *iface = conn->iface;
	unsigned int i;

	memset(info, 0, sizeof(*info));
	info->epoch = conn->epoch;
	info->nqps = (uint8_t)conn->nqps;
	for (i = 0; i < conn->nqps; i++) {
		info->qp[i].qpn = conn->q[i].qp->qp_num;
		info->qp[i].psn = conn->q[i].psn;
		info->qp[i].received = conn->q[i].rx_next;
	}
	info->mtu = iface->port_attr.active_mtu;
	info->reads = (uint32_t)iface->dev->attr.max_qp_rd_atom;
	info->lid = iface->port_attr.lid;
	info->ready = conn->state == IB_CONN_OPEN;
	memcpy(info->gid, iface->gid, sizeof(info->gid));
}

void ib_conn_break(struct ib_conn *conn, int err)
{
	if (!conn->broken)
		conn->broken = err;
	conn->iface->failing = true;
	ib_conn_work(conn);
}

void ib_conn_renew(struct ib_conn *conn)
{
	if (conn->state == IB_CONN_DRAINING || conn->state == IB_CONN_DEAD)
		return;
	if (++conn->breaks > IB_MAX_BREAKS) {
		weft_warn("'%s': queue pairs to peer %016llx failed %u times in a row",
			  conn->iface->port.name,
			  (unsigned long long)conn->peer->id, conn->breaks);
		ib_conn_break(conn, -EIO);
		return;
	}
	if (!ib_qps_flush(conn)) {
		ib_conn_break(conn, -EIO);
		return;
	}
	move(conn, IB_CONN_DRAINING);
	conn->deadline_ms = weft_now_ms() + IB_DRAIN_MS;
	conn->say_info = false;
	ib_conn_work(conn);
}

/*
 * Peers met by a socket address come without reaches(), and the prefix of a
 * subnet is a digest there.
 */
static bool cannot_meet(const struct ib_conn *conn,
			const struct ib_conn_info *info)
{
	const struct ib_iface *iface = conn->iface;
	const uint8_t theirs = weft_verbs_fabric(&iface->port, info->gid);
	const char *why = "it is on another InfiniBand subnet";

	if (weft_verbs_reachable(iface->addr.fabric, theirs, &why) &&
	    (iface->port.roce || !memcmp(iface->gid, info->gid, 8)))
		return false;
	weft_warn("'%s' cannot reach peer %016llx: %s", iface->port.name,
		  (unsigned long long)conn->peer->id, why);
	return true;
}

/* All that the old QPs had is accounted for: the next ones. */
static void next_epoch(struct ib_conn *conn)
{
	int err;

	ib_qps_destroy(conn);
	conn->epoch++;
	move(conn, IB_CONN_MEETING);
	conn->got_info = conn->got_info &&
			 conn->peer_info.epoch == conn->epoch;
	err = make_qps(conn);
	if (err)
		ib_conn_break(conn, err);
}

static void open_it(struct ib_conn *conn)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < conn->nqps && !err; i++)
		err = ib_qp_connect(&conn->q[i]);
	if (err) {
		ib_conn_break(conn, err);
		return;
	}
	move(conn, IB_CONN_OPEN);
	/* their silence is counted from here on */
	for (i = 0; i < conn->nqps; i++)
		conn->q[i].moved = true;
	conn->peer_ready = conn->peer_info.ready;
	conn->say_info = true;
	if (conn->peer_ready)
		ib_resume(conn);
}

/* Which of our messages arrived: none that we did not send, or know to have. */
static bool plausible(const struct ib_conn *conn,
		      const struct ib_conn_info *info)
{
	const struct ib_qp *q;
	unsigned int i;

	for (i = 0; i < conn->nqps && i < info->nqps; i++) {
		q = &conn->q[i];
		if (info->qp[i].received - (q->tx_next - q->ring_n) > q->ring_n)
			return false;
	}
	return info->mtu >= IBV_MTU_256 && info->mtu <= IBV_MTU_4096;
}

/* As many QPs as both sides want; false: the peer changed its mind. */
static bool settle(struct ib_conn *conn, unsigned int theirs)
{
	unsigned int i;

	if (theirs >= conn->nqps)
		return true;
	if (conn->epoch || conn->state != IB_CONN_MEETING)
		return false;
	for (i = theirs; i < conn->nqps; i++) {
		ib_qp_destroy(&conn->q[i]);
		free(conn->q[i].rx);
	}
	ib_cq_give(conn->iface, conn->cq, conn->nqps - theirs);
	conn->nqps = theirs;
	return true;
}

void ib_conn_info(struct ib_conn *conn, const struct ib_conn_info *info)
{
	const int32_t ahead = (int32_t)(info->epoch - conn->epoch);

	ib_conn_work(conn);
	if (ahead < 0 || (!ahead && conn->peer_ready))
		return;		/* of a QP that is gone, or nothing new */
	if (ahead > 1 || !plausible(conn, info) || !settle(conn, info->nqps)) {
		weft_warn("a peer on '%s' sent a malformed half of a connection",
			  conn->iface->port.name);
		ib_conn_break(conn, -EPROTO);
		return;
	}
	if (cannot_meet(conn, info)) {
		ib_conn_break(conn, -EHOSTUNREACH);
		return;
	}
	if (ahead == 1 && conn->state != IB_CONN_DRAINING)
		ib_conn_renew(conn);
	if (ahead == 0 && conn->got_info && conn->state == IB_CONN_OPEN &&
	    info->ready && !conn->peer_ready) {
		conn->peer_ready = true;
		ib_resume(conn);
		return;
	}
	conn->peer_info = *info;
	conn->got_info = true;
}

/* Ended for good: quiet where nobody has an endpoint. */
void ib_conn_fail(struct ib_conn *conn, int err)
{
	struct ib_iface *iface = conn->iface;
	struct ib_ep *ep = conn->ep;
	uint64_t end = weft_now_ms() + IB_DRAIN_MS;
	bool stopped;

	if (conn->state == IB_CONN_DEAD)
		return;
	/* flushed where possible, so that its end is orderly for the adapter */
	stopped = ib_qps_flush(conn);
	while (stopped && ib_qps_out(conn) && !conn->cq->dead &&
	       weft_now_ms() < end) {
		if (!ib_cq_gather(iface) && !ib_tx_busy(conn))
			break;
	}
	/*
	 * An orderly end of the peer's, but not of these.  Messages that the
	 * adapter has count as gone, as with a socket.
	 */
	if (err == -ESHUTDOWN && conn->nops)
		err = -ECONNRESET;
	move(conn, IB_CONN_DEAD);
	if (err != -ESHUTDOWN)
		ib_peer_say_gone(conn->peer, conn->sn, err, conn->status);
	weft_list_del(&conn->work_link);
	/* a flushed one does nothing more; destroying it may take seconds */
	if (ib_qps_out(conn) || !stopped)
		ib_qps_destroy(conn);
	ib_rx_drop(conn);
	weft_list_del(&conn->link);
	weft_list_add_tail(&iface->dead, &conn->link);
	conn->ep = NULL;
	if (ep)
		ep->err = err;
	ib_op_drop_all(conn, err);
	if (ep) {
		ep->conn = NULL;
		ib_ep_failed(ep, err);
	}
}

void ib_conn_reap(struct ib_iface *iface)
{
	while (!weft_list_empty(&iface->dead))
		conn_free(weft_list_first(&iface->dead, struct ib_conn, link));
}

/* Nothing of the last epoch is to come any more. */
static bool drained(const struct ib_conn *conn)
{
	unsigned int i;

	for (i = 0; i < conn->nqps; i++)
		if (conn->q[i].tx_out || conn->q[i].rx_posted)
			return false;
	return true;
}

/* Both sides have given their endpoint up, or never had one. */
static bool is_over(const struct ib_conn *conn)
{
	return !conn->ep && conn->bye_seen && conn->bye_sent;
}

static void say_bye(struct ib_conn *conn)
{
	/* what was taken reaches the peer first */
	if (conn->ep || conn->bye_sent || conn->user_used ||
	    !(conn->had_ep || conn->bye_seen))
		return;
	/* where it cannot be said now, ib_peer_say() comes back to it */
	conn->bye_sent = ib_peer_say_kind(conn->peer, conn->sn,
					  IB_CTL_BYE);
}

unsigned int ib_conn_step(struct ib_conn *conn)
{
	if (conn->broken && ib_rx_waits(conn)) {
		ib_conn_work(conn);	/* what came before its end is told first */
		return 1;
	}
	if (conn->broken) {
		ib_conn_fail(conn, conn->broken);
		return 1;
	}
	if (conn->want_break)
		ib_conn_renew(conn);
	if (conn->state == IB_CONN_DRAINING && drained(conn))
		next_epoch(conn);
	if (conn->state == IB_CONN_MEETING && conn->got_info && !conn->broken)
		open_it(conn);
	if (conn->say_info && conn->state != IB_CONN_DRAINING)
		ib_peer_say(conn->peer);
	ib_op_pump(conn);
	if (conn->broken) {
		ib_conn_work(conn);
		return 1;
	}
	say_bye(conn);
	if (is_over(conn)) {
		ib_conn_fail(conn, -ESHUTDOWN);
		return 1;
	}
	ib_ep_check_flush(conn);
	ib_ep_tell_ready(conn);
	return 0;
}

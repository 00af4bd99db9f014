/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection, from exchanging queue pairs to its end.
 *
 * Each side sends its half (struct ib_conn_info).  A side that has the peer's
 * half connects its queue pair, which receives from then on, and sends its half
 * again with "ready" set.  A side that has read that may send.
 */
#include "devices/ib/ib_conn.h"
#include "devices/ib/ib_done.h"
#include "devices/ib/ib_peer.h"
#include "devices/ib/ib_qp.h"
#include "devices/ib/ib_xfer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "util/log.h"

#define BUFFERS_LEN ((IB_RX_SLOTS + IB_TX_SLOTS) * (size_t)IB_SLOT)

/* One mapping for all its buffers, which costs one registration. */
static int make_buffers(struct ib_conn *conn)
{
	struct ib_iface *iface = conn->iface;
	uint8_t *p;
	unsigned int i;

	p = mmap(NULL, BUFFERS_LEN, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	conn->map = p;
	conn->mr = iface->v->reg_mr(iface->dev->pd, p, BUFFERS_LEN,
				    IBV_ACCESS_LOCAL_WRITE);
	if (!conn->mr)
		return weft_fail(
			-errno,
			"cannot register %zu bytes of buffers with '%s'; raise the limit with 'ulimit -l'",
			BUFFERS_LEN, iface->port.name);
	for (i = 0; i < IB_RX_SLOTS; i++, p += IB_SLOT)
		conn->rx[i].buf = p;
	for (i = 0; i < IB_TX_SLOTS; i++, p += IB_SLOT) {
		conn->tx[i].buf = p;
		weft_list_add_tail(&conn->tx_free, &conn->tx[i].link);
	}
	return 0;
}

void ib_conn_free(struct ib_conn *conn)
{
	struct ib_iface *iface = conn->iface;
	int err;

	ib_qp_destroy(conn);
	err = conn->mr ? iface->v->dereg_mr(conn->mr) : 0;
	if (err)
		weft_fail(
			-err,
			"cannot deregister the buffers of a connection from '%s'",
			iface->port.name);
	if (conn->map)
		munmap(conn->map, BUFFERS_LEN);
	weft_list_del(&conn->link);
	weft_table_del(&iface->by_id, &conn->by_id);
	weft_list_del(&conn->base.work_link);
	weft_stats_peer_ended(iface->base.stats, conn->stats);
	free(conn);
}

static struct ib_conn *conn_alloc(struct ib_peer *peer, uint32_t number)
{
	struct ib_conn *conn = calloc(1, sizeof(*conn));
	unsigned int i;

	if (!conn)
		return NULL;
	conn->iface = peer->iface;
	conn->peer = peer;
	weft_conn_begin(&conn->base, &peer->iface->base, peer->id, number);
	conn->base.state = WEFT_CONN_JOINING;
	conn->id = conn->iface->next_id++;
	weft_list_init(&conn->link);
	weft_list_init(&conn->tx_free);
	weft_list_init(&conn->queue);
	weft_list_init(&conn->posted);
	for (i = 0; i < IB_RX_SLOTS; i++) {
		conn->rx[i].conn = conn;
		weft_list_init(&conn->rx[i].link);
	}
	return conn;
}

static int make_ready(struct ib_conn *conn)
{
	int err;

	err = make_buffers(conn);
	if (!err)
		err = ib_qp_create(conn);
	if (err)
		return err;
	ib_xfer_receive(conn);
	return conn->base.err;
}

struct ib_conn *ib_conn_new(struct ib_peer *peer, uint32_t number)
{
	struct ib_conn *conn = conn_alloc(peer, number);
	struct ib_iface *iface = peer->iface;
	char where[WEFT_SOCKADDR_STR];
	int err;

	if (!conn) {
		errno = ENOMEM;
		return NULL;
	}
	err = weft_table_add(&iface->by_id, &conn->by_id, conn->id);
	if (!err)
		err = make_ready(conn);
	if (err) {
		ib_conn_free(conn);
		errno = -err;
		return NULL;
	}
	conn->info_due = true;
	conn->stats = weft_stats_peer(
		iface->base.stats, peer->id,
		weft_sockaddr_str(&peer->addr.sa, where, sizeof(where)));
	weft_list_add_tail(&peer->conns, &conn->link);
	weft_conn_attend(&conn->base);
	return conn;
}

void ib_conn_fill_info(const struct ib_conn *conn, struct ib_conn_info *info)
{
	const struct ib_iface *iface = conn->iface;

	info->qpn = conn->qp->qp_num;
	info->psn = conn->psn;
	info->mtu = iface->port_attr.active_mtu;
	info->reads = (uint32_t)iface->dev->attr.max_qp_rd_atom;
	info->lid = iface->port_attr.lid;
	info->device = (uint8_t)iface->dev->number;
	info->ready = conn->base.state == WEFT_CONN_OPEN;
	memcpy(info->gid, iface->gid, sizeof(info->gid));
}

/*
 * Not all peers were checked by reaches(): a socket address carries only a
 * digest of the subnet prefix.
 */
static bool cannot_meet(const struct ib_conn *conn,
			const struct ib_conn_info *info)
{
	const struct ib_iface *iface = conn->iface;
	const uint8_t theirs = weft_verbs_fabric(&iface->port, info->gid);
	const char *why = "it is on another InfiniBand subnet";

	if (weft_verbs_reachable(iface->base.addr->fabric, theirs, &why) &&
	    (iface->port.roce || !memcmp(iface->gid, info->gid, 8)))
		return false;
	weft_warn("'%s' cannot reach peer %016llx: %s", iface->port.name,
		  (unsigned long long)conn->peer->id, why);
	return true;
}

void ib_conn_info(struct ib_conn *conn, const struct ib_conn_info *info)
{
	weft_conn_attend(&conn->base);
	if (conn->got_info) {
		/* only that is new in it */
		conn->peer_info.ready |= info->ready;
		conn->peer_ready = conn->base.state == WEFT_CONN_OPEN &&
				   conn->peer_info.ready;
		return;
	}
	if (info->mtu < IBV_MTU_256 || info->mtu > IBV_MTU_4096 ||
	    info->device >= IB_MAX_DEVICES) {
		weft_warn(
			"a peer on '%s' sent a malformed half of a connection",
			conn->iface->port.name);
		ib_conn_break(conn, -EPROTO);
		return;
	}
	if (cannot_meet(conn, info)) {
		ib_conn_break(conn, -EHOSTUNREACH);
		return;
	}
	conn->peer_info = *info;
	conn->got_info = true;
}

static void open_it(struct ib_conn *conn)
{
	int err = ib_qp_connect(conn);

	if (err) {
		ib_conn_break(conn, err);
		return;
	}
	weft_conn_set_state(&conn->base, WEFT_CONN_OPEN);
	conn->moved = true; /* start of the time in which nothing completes */
	conn->peer_ready = conn->peer_info.ready;
	conn->info_due = true;
}

/* Was something accepted that the peer does not have? */
static bool ib_has_lost(const struct ib_conn *conn)
{
	/* if the interface closes, what the adapter has still arrives */
	return conn->nops || (conn->base.ep && !conn->iface->closing &&
			      conn->delivered < conn->sent_message);
}

void ib_conn_fail(struct ib_conn *conn, int err)
{
	/* an orderly close of the peer's, but it lacks messages of this side */
	const bool lost = err == -ESHUTDOWN && ib_has_lost(conn);

	if (conn->base.state == WEFT_CONN_CLOSED)
		return;
	err = lost ? -ECONNRESET : err;
	conn->base.err = err;
	/* flush it if possible, so that it ends in order for the adapter */
	ib_done_stop(conn);
	weft_conn_set_state(&conn->base, WEFT_CONN_CLOSED);
	if (err != -ESHUTDOWN)
		ib_peer_send_gone(conn->peer, conn->base.number, err,
				  conn->status);
	weft_list_del(&conn->base.work_link);
	weft_list_del(&conn->link);
	weft_list_add_tail(&conn->iface->dead, &conn->link);
	weft_ep_fail(&conn->base, err);
	ib_done_drop(conn, err);
}

/* Neither side has an endpoint, and everything received was delivered. */
static bool is_over(const struct ib_conn *conn)
{
	return !conn->base.ep && conn->base.bye_received &&
	       conn->base.bye_sent && !ib_done_undelivered(conn);
}

/*
 * The peer's endpoint ended before there was one here.  A new one of that
 * number would accept halves that are still on their way to the old one.
 */
static void skip_number(const struct ib_conn *conn)
{
	struct weft_ep_number *n =
		weft_ep_number_get(&conn->iface->base.numbers, conn->peer->id);

	if (n && n->next <= conn->base.number)
		n->next = conn->base.number + 1;
}

static void send_bye(struct ib_conn *conn)
{
	/* pending operations reach the peer first */
	if (conn->base.ep || conn->base.bye_sent || conn->user_used ||
	    !(conn->base.had_ep || conn->base.bye_received))
		return;
	/* if there is no room, ib_peer_send() retries */
	conn->base.bye_sent = ib_peer_send_bye(conn->peer, conn->base.number);
	if (conn->base.bye_sent && !conn->base.had_ep)
		skip_number(conn);
}

bool ib_conn_step(struct ib_conn *conn)
{
	if (conn->base.err && ib_done_undelivered(conn)) {
		weft_conn_attend(&conn->base); /* first deliver what came before
						  its end */
		return false;
	}
	if (!conn->base.err && conn->base.state == WEFT_CONN_JOINING &&
	    conn->got_info)
		open_it(conn);
	if (!conn->base.err && conn->info_due)
		ib_peer_send(conn->peer);
	ib_xfer_pump(conn);
	if (!conn->base.err)
		send_bye(conn);
	if (conn->base.err)
		ib_conn_fail(conn, conn->base.err);
	else if (is_over(conn))
		ib_conn_fail(conn, -ESHUTDOWN);
	return conn->base.state == WEFT_CONN_CLOSED;
}

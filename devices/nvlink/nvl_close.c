/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a connection: in order, by the peer's death, by an error. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/nvlink/nvl_close.h"
#include "devices/engine/copy.h"
#include "devices/nvlink/nvl_direct.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_rx.h"
#include "devices/nvlink/nvl_sock.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/clock.h"
#include "util/log.h"

/* ---- the orderly end ----------------------------------------------------- */

static void send_control(struct nvl_conn *conn, uint8_t kind)
{
	nvl_msg_begin(conn, 0);
	nvl_msg_end(conn, kind, 0, 0);
}

static bool is_idle(struct nvl_conn *conn)
{
	return !conn->ntransfers && !conn->deferred_n && !conn->copies &&
	       !conn->ngets && !conn->ndirects &&
	       conn->put_acked == conn->put_next;
}

/* Our endpoint is gone; the connection ends when the peer's is, too. */
unsigned int nvl_conn_maybe_end(struct nvl_conn *conn)
{
	if (conn->base.state != WEFT_CONN_OPEN || conn->base.ep)
		return 0;
	if (!conn->base.bye_sent &&
	    (conn->base.had_ep || conn->base.bye_received) && is_idle(conn) &&
	    nvl_msg_room(conn, 0)) {
		send_control(conn, NVL_MSG_BYE);
		conn->base.bye_sent = true;
	}
	if (!conn->base.bye_received || !conn->base.bye_sent || !is_idle(conn))
		return 0;
	nvl_conn_break(conn, 0);
	return 1;
}

void nvl_conn_say_close(struct nvl_conn *conn)
{
	if (conn->base.state == WEFT_CONN_OPEN && nvl_msg_room(conn, 0))
		send_control(conn, NVL_MSG_CLOSE);
}

/* ---- death --------------------------------------------------------------- */

/* Was something taken that the peer may not have got? */
static bool has_lost(struct nvl_conn *conn)
{
	return !is_idle(conn) ||
	       (conn->tx.head &&
		conn->msg_tail != atomic_load(&conn->tx.head->msg_head));
}

/* The socket has ended and the inbox is empty: why, and is anything lost? */
void nvl_conn_on_hangup(struct nvl_conn *conn)
{
	bool lost = has_lost(conn);

	if (nvl_msg_has_failed(conn))
		nvl_conn_told(conn);
	else if (!conn->base.ep)
		nvl_conn_break(conn, 0);
	else if (conn->close_received && !lost)
		nvl_conn_break(conn, -ESHUTDOWN);
	else
		nvl_conn_break(conn, -ECONNRESET);
}

/* The peer drops the messages behind them: it is told before they end. */
static void cancel_copies(struct nvl_conn *conn)
{
	nvl_msg_cut(conn);
	nvl_direct_cancel(conn);
	weft_copy_cancel(&conn->iface->engines, conn,
			 conn->base.state != WEFT_CONN_OPEN);
}

void nvl_conn_stop_copies(struct nvl_conn *conn)
{
	uint64_t end = weft_now_ms() + WEFT_COPY_WATCHDOG_MS;

	cancel_copies(conn);
	while (conn->copies && weft_now_ms() < end) {
		/* the peer's go on */
		weft_copy_submit(&conn->iface->engines);
		if (!weft_copy_poll(&conn->iface->engines))
			sched_yield();
	}
	if (conn->copies)
		weft_error("%u copies for a peer did not end within %u s",
			   conn->copies, WEFT_COPY_WATCHDOG_MS / 1000);
}

/* Puts that have ended, but whose op has not completed yet. */
static void complete_ended(struct nvl_conn *conn, int status)
{
	struct nvl_transfer *transfer, *tmp;
	struct weft_op *op;
	bool again = true;
	int result;

	while (again) {
		again = false;
		weft_list_for_each (transfer, tmp, &conn->iface->done,
				    done_link) {
			if (transfer->conn != conn)
				continue;
			weft_list_del(&transfer->done_link);
			op = transfer->op;
			result = transfer->status ? status : 0;
			free(transfer);
			if (op)
				op->done(op, result);
			again = true; /* the list may have changed */
			break;
		}
	}
}

static void drop_put(struct nvl_conn *conn, struct nvl_transfer *transfer,
		     int status)
{
	struct weft_op *op = transfer->op;

	transfer->op = NULL;
	/* why it failed, not that its copies were taken back after that */
	if (transfer->status && transfer->status != -ECANCELED)
		status = transfer->status;
	if (conn->base.state == WEFT_CONN_OPEN)
		nvl_tx_give_up(transfer, status);
	else if (!transfer->in_flight) /* else it stays for the engine's end of
					  it */
		nvl_tx_finish(transfer, status);
	if (op)
		op->done(op, status);
}

static void drop_gets(struct nvl_conn *conn, int status)
{
	struct nvl_get_parent *p;
	struct weft_op *op;
	unsigned int i;
	int result;

	for (i = 0; i < NVL_GETS; i++) {
		p = conn->gets[i].parent;
		if (!p)
			continue;
		conn->gets[i].parent = NULL;
		if (--p->left)
			continue;
		op = p->op;
		result = p->status ? p->status : status;
		free(p);
		if (op)
			op->done(op, result);
	}
}

void nvl_conn_drop_ops(struct nvl_conn *conn, int status)
{
	unsigned int i;

	complete_ended(conn, status);
	for (i = 0; i < NVL_PUTS; i++)
		if (conn->puts[i])
			drop_put(conn, conn->puts[i], status);
	drop_gets(conn, status);
	nvl_direct_drop(conn, status);
}

void nvl_conn_forget(struct nvl_conn *conn)
{
	struct nvl_iface *iface = conn->iface;
	struct nvl_landing *l, *tmp;
	struct nvl_get *g, *next;
	unsigned int i;

	weft_list_for_each (l, tmp, &iface->landed, link)
		if (l->conn == conn)
			weft_list_del(&l->link);
	weft_list_for_each (g, next, &iface->done_gets, done_link)
		if (g->conn == conn)
			weft_list_del(&g->done_link);
	for (i = 0; i < NVL_GETS; i++)
		if (conn->replies[i] && !conn->replies[i]->in_flight)
			nvl_tx_finish(conn->replies[i], -ECANCELED);
	/* cancelled before; the peer's reply does not come any more */
	for (i = 0; i < NVL_PUTS; i++)
		if (conn->puts[i] && !conn->puts[i]->in_flight)
			nvl_tx_finish(conn->puts[i], -ECANCELED);
}

/* Copies of both sides; the driver ends those of a process that is gone. */
static bool has_stopped(struct nvl_conn *conn, uint64_t now)
{
	const uint64_t gone = conn->watchdog_ms - WEFT_COPY_WATCHDOG_MS +
			      WEFT_COPY_SUSPECT_MS;

	if (conn->copies && now < conn->watchdog_ms)
		return false;
	return nvl_export_revoke(conn) || now >= conn->watchdog_ms ||
	       (conn->hung_up && now >= gone);
}

bool nvl_conn_finish_close(struct nvl_conn *conn)
{
	struct nvl_iface *iface = conn->iface;
	const int err = conn->base.err ? conn->base.err : -ECONNRESET;

	cancel_copies(conn);
	if (!has_stopped(conn, weft_now_ms()))
		return false;
	weft_conn_set_state(&conn->base, WEFT_CONN_CLOSED);
	weft_list_del(&conn->link);
	weft_list_add_tail(&iface->dead, &conn->link);
	weft_ep_fail(&conn->base, err);
	nvl_conn_drop_ops(conn, err);
	nvl_conn_forget(conn);
	weft_ep_failed(&conn->base);
	return true;
}

void nvl_conn_free(struct nvl_conn *conn)
{
	weft_list_del(&conn->link);
	nvl_export_close(conn);
	weft_events_close_fd(&conn->iface->base.events, conn->fd);
	nvl_sock_drop(conn);
	weft_conn_fini(&conn->base);
	if (conn->copies)
		return; /* an engine never came back: its
			   memory stays */
	nvl_ring_close_all(conn);
	nvl_import_close_all(conn);
	nvl_inbox_close(&conn->rx);
	nvl_inbox_close(&conn->tx);
	weft_stats_peer_ended(conn->iface->base.stats, conn->stats);
	free(conn->deferred);
	free(conn);
}

void nvl_conn_reap(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->dead, link)
		nvl_conn_free(conn);
}

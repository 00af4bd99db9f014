/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deadlines, keep-alive and watchdog.
 *
 * An adapter reports a dead path only to a sender, and only when its retries
 * are used up, which for some adapters is never.  So an idle queue pair is
 * probed by an empty WRITE four times per WEFT_PEER_TIMEOUT, and one with
 * posted requests fails when none has completed for that time.  Busy is not
 * dead: the peer's adapter answers without its program.
 */
#include "devices/ib/ib_done.h"
#include "devices/ib/ib_iface.h"
#include "devices/ib/ib_peer.h"
#include "devices/ib/ib_xfer.h"

#include <errno.h>

#include "devices/common/events.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/util.h"

void ib_timer_start(struct ib_iface *iface)
{
	if (iface->timer_on)
		return;
	iface->timer_on = true;
	iface->tick_ms = weft_now_ms();
	weft_events_wake_at(&iface->base.events, iface->tick_ms + WEFT_TICK_MS);
}

static void check_open(struct ib_conn *conn, unsigned int elapsed)
{
	const unsigned int limit =
		(unsigned int)weft_settings()->peer_timeout_ms;

	/* count from the first request without a completion, not from before */
	if (conn->moved || !conn->peer_ready || conn->waits != !!conn->tx_out)
		conn->silent_ms = 0;
	else
		conn->silent_ms += elapsed;
	conn->moved = false;
	conn->waits = conn->tx_out;
	if (conn->tx_out &&
	    conn->silent_ms >= weft_max(limit, 2 * WEFT_TICK_MS)) {
		weft_warn(
			"'%s' lost its peer %016llx: no answer for %u ms (WEFT_PEER_TIMEOUT is %u ms)",
			conn->iface->port.name,
			(unsigned long long)conn->peer->id, conn->silent_ms,
			limit);
		ib_conn_break(conn, -ETIMEDOUT);
	} else if (!conn->tx_out && conn->silent_ms >= limit / 4 &&
		   conn->peer_ready) {
		ib_xfer_probe(conn);
	}
}

static void fail_all(struct ib_iface *iface, int err)
{
	struct ib_peer *peer, *tp;
	struct ib_conn *conn, *tc;

	weft_list_for_each (peer, tp, &iface->peers, link)
		weft_list_for_each (conn, tc, &peer->conns, link)
			ib_conn_break(conn, err);
}

/* Handles what the device's thread reported. */
void ib_timer_alarm(struct ib_iface *iface)
{
	const int what = atomic_exchange(&iface->alarm.port_event, 0) - 1;

	if (atomic_exchange(&iface->alarm.cq_failed, false))
		ib_done_check_cqs(iface);
	if (atomic_exchange(&iface->alarm.fatal, false)) {
		weft_warn("'%s' reports a fatal error", iface->port.name);
		fail_all(iface, -EIO);
	}
	if (what == IBV_EVENT_PORT_ACTIVE) {
		iface->port_down_ms = 0;
	} else if (what == IBV_EVENT_PORT_ERR) {
		iface->port_down_ms = weft_now_ms();
		ib_timer_start(iface);
	}
}

unsigned int ib_timer_tick(struct weft_events *ev, uint64_t now, uint64_t stood)
{
	struct ib_iface *iface = container_of(ev, struct ib_iface, base.events);
	struct ib_peer *peer, *tp;
	struct ib_conn *conn, *tc;
	unsigned int elapsed;
	bool any = false;

	/* do not blame the peer for this process's stall */
	elapsed =
		(unsigned int)weft_min(now - iface->tick_ms, 2 * WEFT_TICK_MS);
	iface->tick_ms = now;
	/* a link may come back at once */
	if (iface->port_down_ms &&
	    now - iface->port_down_ms >= weft_settings()->peer_timeout_ms / 4) {
		weft_warn("port '%s' is down", iface->port.name);
		iface->port_down_ms = 0;
		fail_all(iface, -ENETDOWN);
	}
	weft_list_for_each (peer, tp, &iface->peers, link) {
		ib_peer_send(peer);
		any |= !weft_list_empty(&peer->conns);
		weft_list_for_each (conn, tc, &peer->conns, link) {
			/*
			 * a peer that was not met yet ends with its TCP
			 * connection
			 */
			if (!conn->base.err &&
			    conn->base.state == WEFT_CONN_OPEN)
				check_open(conn, elapsed);
		}
	}
	iface->timer_on = false;
	if (any || iface->port_down_ms)
		ib_timer_start(iface);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deadlines, and the watchdog.
 *
 * Busy is not dead: a peer that reads nothing for minutes is alive as long as
 * its kernel answers.  A stream with nothing to send is watched by the kernel's
 * own keepalive (tcp_dial.c), so its last answer is recent.  Where data is
 * under way, keepalive is silent, so this looks at what the kernel knows
 * (TCP_INFO, linux/tcp.h): segments that were sent again and never acknowledged
 * for the whole of WEFT_PEER_TIMEOUT mean that no kernel is there; a window
 * that is closed but acknowledged means a busy one.
 *
 * The time counts from the first unanswered segment to the last one: the kernel
 * retransmits at growing intervals, and only the next one shows that an outage
 * has ended.
 */
#include "devices/tcp/tcp_timer.h"
#include "devices/tcp/bulk/tcp_engine.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/tcp_dial.h"
#include "devices/tcp/tcp_stall.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

#define RETRANSMITS 3u /* must be unanswered, too */

/* Reads TCP_INFO; false: not available. */
static bool socket_info(int fd, struct tcp_info *ti)
{
	socklen_t len = sizeof(*ti);

	memset(ti, 0, sizeof(*ti)); /* an older kernel knows less */
	return fd >= 0 && !getsockopt(fd, IPPROTO_TCP, TCP_INFO, ti, &len);
}

/* Has the peer's kernel stopped answering segments?  Call it once per tick. */
static bool kernel_silent(const struct tcp_info *ti, struct weft_watch *w,
			  uint64_t now)
{
	/* time for an answer: delayed acknowledgements included */
	const uint64_t answer = 2 * WEFT_TICK_MS + 2 * ti->tcpi_rtt / 1000;
	bool silent;

	if (!ti->tcpi_unacked && !ti->tcpi_probes) {
		w->since_ms = 0;
		return false;
	}
	if (!w->since_ms || now - w->since_ms >= ti->tcpi_last_ack_recv) {
		*w = (struct weft_watch){ now, now, 0, ti->tcpi_probes,
					  ti->tcpi_backoff };
		return false;
	}
	/*
	 * a live kernel answers probes, those of a closed window, too; what an
	 * interface that is down here does not take was tried nevertheless
	 */
	if (ti->tcpi_probes != w->probes || ti->tcpi_backoff > w->backoff)
		w->tried_ms = now;
	w->probes = ti->tcpi_probes;
	w->backoff = ti->tcpi_backoff;
	if (ti->tcpi_unacked)
		w->tried_ms =
			weft_max(w->tried_ms, now - ti->tcpi_last_data_sent);
	if (!w->asked_ms)
		w->asked_ms = w->tried_ms;
	if (now - w->asked_ms < answer)
		return false;
	silent = w->asked_ms - w->since_ms >= weft_settings()->peer_timeout_ms;
	/* a host that is cut off may go on writing, so take the last one */
	w->asked_ms = w->tried_ms;
	return silent && (ti->tcpi_probes >= RETRANSMITS ||
			  ti->tcpi_backoff >= RETRANSMITS);
}

/*
 * A hello waits for a busy peer, but not for a kernel that is gone.  One that
 * fails may end others of its connection.
 */
static struct weft_handshake *find_silent(struct tcp_iface *iface, uint64_t now)
{
	struct weft_handshake *hs, *th;
	struct tcp_info ti;

	weft_list_for_each (hs, th, &iface->base.session.handshakes, link)
		if (hs->dialer && !hs->connecting && socket_info(hs->fd, &ti) &&
		    kernel_silent(&ti, &hs->watch, now))
			return hs;
	return NULL;
}

/*
 * Does it wait for the peer?  There is no keepalive while bytes are
 * unacknowledged.
 */
static bool expects_answer(const struct tcp_conn *conn)
{
	const struct tcp_bulk *b = conn->bulk;
	int unacked = 0;

	if (!ioctl(conn->fd, SIOCOUTQ, &unacked) && unacked)
		return true;
	return conn->tx_len || conn->ngets ||
	       (b && (b->lost_err ||
		      atomic_load(&b->acked) != atomic_load(&b->next_seq) ||
		      !weft_list_empty(&b->streams)));
}

static void check_streams(struct tcp_conn *conn, uint64_t now)
{
	struct tcp_bulk *b = conn->bulk;
	struct tcp_stream *s, *ts;
	struct tcp_stall seen = { 0 };
	struct tcp_info ti;
	bool idle = atomic_load(&b->acked) == atomic_load(&b->next_seq);
	bool known;

	weft_list_for_each (s, ts, &b->streams, link) {
		if (s->abandoned) {
			seen.busy |= s->out;
			continue;
		}
		known = socket_info(s->fd, &ti);
		if (known && kernel_silent(&ti, &s->watch, now)) {
			tcp_stream_lost(conn, s, -ETIMEDOUT);
			continue;
		}
		if (s->out && idle && now - s->used_ms > TCP_STREAM_IDLE_MS)
			tcp_stream_detach(s);
		else if (known)
			tcp_stall_check(s, &ti, &seen);
	}
	tcp_stall_end(conn, &seen);
}

static bool check_conn(struct tcp_conn *conn, uint64_t now)
{
	struct tcp_info ti;

	if (conn->base.state != WEFT_CONN_OPEN)
		return false;
	if (conn->rx_ended || conn->suspect_err)
		weft_conn_attend(&conn->base);
	if (conn->rx_ended || conn->base.err)
		return true;
	/* unacknowledged bytes may be in the kernel only */
	if (socket_info(conn->fd, &ti) &&
	    kernel_silent(&ti, &conn->watch, now)) {
		tcp_conn_break(conn, -ETIMEDOUT);
		return true;
	}
	if (!expects_answer(conn))
		return false;
	if (conn->bulk && conn->bulk->lost_err && now >= conn->warn_at_ms) {
		weft_warn(
			"cannot open a further connection to peer %016llx (%s); bulk goes over its message stream, which is slower",
			(unsigned long long)conn->base.peer_id,
			strerror(-conn->bulk->lost_err));
		conn->bulk->lost_err = 0;
	}
	if (conn->bulk) {
		check_streams(conn, now);
		tcp_streams_open(conn);
		/* for chunks of a stream that was closed or suspended now */
		tcp_engines_wake(conn);
	}
	return true;
}

unsigned int tcp_iface_on_timer(struct weft_events *ev, uint64_t now,
				uint64_t stood)
{
	struct tcp_iface *iface =
		container_of(ev, struct tcp_iface, base.events);
	struct weft_handshake *hs;
	struct tcp_conn *c, *tc;
	bool needed = false;

	weft_session_tick(&iface->base.session, now, stood);
	while ((hs = find_silent(iface, now)))
		weft_handshake_fail(hs, -ETIMEDOUT);
	if (!iface->tick_ms)
		return 0;
	if (now < iface->tick_ms) {
		weft_events_wake_at(ev, iface->tick_ms);
		return 0;
	}
	iface->tick_ms = 0;
	weft_list_for_each (c, tc, &iface->conns, link) {
		c->warn_at_ms += stood;
		c->end_ms += stood;
		c->suspect_until_ms += stood;
		needed |= check_conn(c, now);
	}
	if (needed)
		tcp_iface_start_tick(iface);
	return 0;
}

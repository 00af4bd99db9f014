/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deadlines, and the watchdog.
 *
 * Busy is not dead: a peer that reads nothing for minutes is alive as long as
 * its kernel answers.  A stream with nothing to send is watched by the kernel's
 * own keepalive (tcp_handshake.c), so that its last answer is never old.  Where
 * data is under way, keepalive is silent, so this looks at what the kernel
 * knows (TCP_INFO, linux/tcp.h): segments that were sent again and never
 * acknowledged for the whole of WEFT_PEER_TIMEOUT mean that no kernel is there;
 * a window that is closed but acknowledged means a busy one.
 */
#include "devices/tcp/tcp_iface.h"
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_engine.h"
#include "devices/tcp/tcp_event.h"
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

#define RETRANSMITS 3u /* so many unanswered, besides the time */

/* What the kernel knows of a socket; false: nothing. */
static bool socket_info(int fd, struct tcp_info *ti)
{
	socklen_t len = sizeof(*ti);

	memset(ti, 0, sizeof(*ti)); /* an older kernel knows less */
	return fd >= 0 && !getsockopt(fd, IPPROTO_TCP, TCP_INFO, ti, &len);
}

/* Does the peer's kernel leave our segments without an answer? */
static bool kernel_silent(const struct tcp_info *ti)
{
	if (ti->tcpi_last_ack_recv < weft_settings()->peer_timeout_ms)
		return false;
	/* probes of a closed window are answered by a kernel that lives */
	if (ti->tcpi_probes >= RETRANSMITS)
		return true;
	return ti->tcpi_unacked && ti->tcpi_backoff >= RETRANSMITS;
}

/* Has it anything to wait for?  Keepalive is silent while bytes are unacked. */
static bool expects_answer(const struct tcp_conn *conn)
{
	const struct tcp_bulk *b = conn->bulk;
	int unacked = 0;

	if (!ioctl(conn->fd, SIOCOUTQ, &unacked) && unacked)
		return true;
	return conn->tx_len || conn->zc_i != conn->zc_n || conn->ngets ||
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
			seen.busy = true;
			continue;
		}
		known = socket_info(s->fd, &ti);
		if (known && kernel_silent(&ti)) {
			tcp_conn_break(conn, -ETIMEDOUT);
			return;
		}
		if (s->out && idle && now - s->used_ms > TCP_STREAM_IDLE_MS)
			tcp_stream_detach(s);
		else if (known)
			tcp_stall_check(b, s, &ti, &seen);
	}
	tcp_stall_end(conn, &seen);
}

static bool check_conn(struct tcp_conn *conn, uint64_t now)
{
	struct tcp_info ti;

	if (conn->state != TCP_CONN_OPEN) {
		if (now < conn->deadline_ms)
			return true;
		if (conn->state == TCP_CONN_WAITING && conn->ep) {
			/* the peer gave its endpoint up before it met ours */
			tcp_conn_set_state(conn, TCP_CONN_DIALING);
			tcp_conn_dial(conn);
		} else {
			tcp_conn_break(conn, -ETIMEDOUT);
		}
		return true;
	}
	if (conn->rx_ended || conn->suspect_err)
		tcp_conn_attend(conn);
	if (conn->rx_ended || conn->err)
		return true;
	/* unacknowledged bytes may be the kernel's alone */
	if (socket_info(conn->fd, &ti) && kernel_silent(&ti)) {
		tcp_conn_break(conn, -ETIMEDOUT);
		return true;
	}
	if (!expects_answer(conn))
		return false;
	if (conn->bulk && conn->bulk->lost_err && now >= conn->deadline_ms) {
		weft_warn(
			"no further connection with peer %016llx can be had (%s); bulk goes over its message stream, which is slower",
			(unsigned long long)conn->peer_id,
			strerror(-conn->bulk->lost_err));
		conn->bulk->lost_err = 0;
	}
	if (conn->bulk) {
		check_streams(conn, now);
		tcp_streams_open(conn);
		/* what went to one that is closed or parked now */
		tcp_engines_wake(conn);
	}
	return true;
}

unsigned int tcp_iface_tick(struct tcp_iface *iface)
{
	struct tcp_handshake *hs, *th;
	struct tcp_conn *c, *tc;
	uint64_t now = weft_now_ms(), since = now - iface->tick_ms, stood,
		 fires;
	uint64_t latest;
	bool needed = iface->accept_paused;

	if (read(iface->timer_fd, &fires, sizeof(fires)) < 0)
		return 0;
	/* a program that stood still has let its peers wait, not they it */
	stood = since - weft_min(since, 2 * TCP_TICK_MS);
	latest = now + weft_settings()->connect_timeout_ms;
	iface->tick_ms = now;
	tcp_handshake_resume_accept(iface);
	weft_list_for_each (hs, th, &iface->handshakes, link) {
		hs->deadline_ms = weft_min(hs->deadline_ms + stood, latest);
		if (now >= hs->deadline_ms)
			tcp_handshake_expire(hs);
		needed = true;
	}
	weft_list_for_each (c, tc, &iface->conns, link) {
		c->deadline_ms = weft_min(c->deadline_ms + stood, latest);
		c->end_ms += stood;
		c->suspect_until_ms += stood;
		needed |= check_conn(c, now);
	}
	tcp_iface_set_tick(iface, needed);
	return 0;
}

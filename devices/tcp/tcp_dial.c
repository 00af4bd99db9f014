/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets of connections: their options, and how many carry bulk. */
#include "devices/tcp/tcp_dial.h"
#include "devices/tcp/bulk/tcp_bulk.h"
#include "devices/tcp/bulk/tcp_engine.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

#define IDLE_CONNS  4	/* of one peer that keep their bulk streams */
#define FIRST_DIALS 2	/* at a time; the first that is open carries */
#define DIAL_US	    200 /* of each side's processor */
#define MAX_PROBES  127 /* Linux, include/net/tcp.h: MAX_TCP_KEEPCNT */

/*
 * Enables keepalive, which the peer's kernel answers, however busy its program
 * is.  A peer is dead if it answers none of the probes of @sec, the first and
 * the last of them included; so a shorter outage does no harm, whenever it
 * begins.  An idle connection costs a probe per eighth of it.
 */
static void set_keepalive(int fd, unsigned int sec)
{
	unsigned int idle = weft_max(sec / 8, sec > 4 ? 2 : 1);
	unsigned int intvl = sec / (MAX_PROBES - 1) + 1;
	unsigned int cnt = weft_max((sec + intvl - 1) / intvl + 1, 3);
	int one = 1;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &intvl, sizeof(intvl));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &cnt, sizeof(cnt));
}

static void set_options(int fd)
{
	const struct weft_settings *set = weft_settings();
	int one = 1, size;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	set_keepalive(fd, (set->peer_timeout_ms + 999) / 1000);
	if (set->tcp_sndbuf) {
		size = set->tcp_sndbuf;
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	}
	if (set->tcp_rcvbuf) {
		size = set->tcp_rcvbuf;
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	}
}

bool tcp_streams_drop_dial(struct tcp_conn *conn, uint32_t id)
{
	struct weft_handshake *hs, *th;

	weft_list_for_each (hs, th, &conn->iface->base.session.handshakes, link)
		if (hs->conn == &conn->base && hs->dialer &&
		    hs->kind == TCP_PURPOSE_BULK_IN && hs->number == id) {
			weft_handshake_free(hs);
			return true;
		}
	return false;
}

/* A bulk stream that was dialled or requested cannot be opened. */
static void lose_stream(struct tcp_conn *conn, bool out, int err,
			const char *where)
{
	struct tcp_bulk *b = conn->bulk;
	uint8_t none[4] = { 0 };

	if (!out) { /* the peer waits for it */
		tcp_conn_send_control(conn, TCP_FRAME_STREAMS, none,
				      sizeof(none));
		return;
	}
	if (tcp_bulk_lose_dial(b))
		return;
	weft_info("no further connection to %s can be opened: %s", where,
		  strerror(-err));
	b->no_streams = true;
	conn->warn_at_ms = weft_now_ms() + TCP_LOST_STREAM_MS;
	b->lost_err = err; /* reported only if the peer lives on: tcp_timer.c */
	tcp_iface_start_tick(conn->iface);
	weft_conn_attend(&conn->base); /* puts go in frames from now on */
}

/* Reports that a dial failed. */
static void tcp_lose_dial(struct weft_conn *base, uint32_t kind, int err,
			  const char *where)
{
	struct tcp_conn *conn = tcp_conn(base);

	if (kind == TCP_PURPOSE_MESSAGES)
		tcp_conn_break(conn, err);
	else
		lose_stream(conn, kind == TCP_PURPOSE_BULK_OUT, err, where);
}

/* Binds to the interface's address, which reaches() has checked. */
static int tcp_open_socket(struct weft_conn *base, bool *connecting)
{
	const struct tcp_iface *iface = tcp_conn(base)->iface;
	const union weft_sockaddr *to = &base->remote->sa;
	const union weft_sockaddr *from = &iface->netif.addr;
	int fd, err, one = 1;

	fd = socket(to->sa.sa_family,
		    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		err = -errno;
		weft_warn_once(
			"cannot open a socket: %m; raise the limit with 'ulimit -n'");
		return err;
	}
	set_options(fd);
	if (from->sa.sa_family == to->sa.sa_family) {
		setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one,
			   sizeof(one));
		if (bind(fd, &from->sa, weft_sockaddr_len(from)))
			weft_debug("cannot bind to '%s': %m",
				   iface->netif.name);
	}
	*connecting = true;
	if (!connect(fd, &to->sa, weft_sockaddr_len(to)) ||
	    errno == EINPROGRESS)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/* Bulk streams of @conn one way, those whose hello is not done included. */
static unsigned int count_streams(const struct tcp_conn *conn, bool out)
{
	const enum tcp_purpose ours =
		out ? TCP_PURPOSE_BULK_OUT : TCP_PURPOSE_BULK_IN;
	const enum tcp_purpose theirs =
		out ? TCP_PURPOSE_BULK_IN : TCP_PURPOSE_BULK_OUT;
	struct weft_handshake *hs, *th;
	struct tcp_stream *s, *ts;
	unsigned int n = 0;

	weft_list_for_each (hs, th, &conn->iface->base.session.handshakes, link)
		n += hs->conn == &conn->base &&
		     hs->kind == (hs->dialer ? ours : theirs);
	if (conn->bulk)
		weft_list_for_each (s, ts, &conn->bulk->streams, link)
			n += s->out == out && !s->abandoned;
	return n;
}

/*
 * May a bulk stream take a descriptor?  The kernel assigns the lowest free
 * number, so about as many are in use.  The last quarter is for the program
 * (devices/common/unproven.h), the one before for peers that have no stream.
 */
static bool has_descriptors(const struct tcp_conn *conn, bool out)
{
	const int fd = fcntl(conn->fd, F_DUPFD_CLOEXEC, 0);
	struct rlimit lim;

	if (fd >= 0) {
		close(fd);
		if (getrlimit(RLIMIT_NOFILE, &lim) ||
		    (rlim_t)fd < lim.rlim_cur / 2)
			return true;
		if (count_streams(conn, out))
			return false;
		if ((rlim_t)fd < lim.rlim_cur / 4 * 3)
			return true;
	}
	weft_warn_once(
		"no further connections for bulk: three quarters of the descriptors of this process are in use; raise the limit with 'ulimit -n'");
	return false;
}

static int dial_stream(struct tcp_conn *conn, enum tcp_purpose purpose)
{
	const bool out = purpose == TCP_PURPOSE_BULK_OUT;
	int err = has_descriptors(conn, out) ? 0 : -EMFILE;

	conn->bulk->out_dialing += out;
	if (!err)
		err = tcp_engines_need(conn->iface);
	if (!err)
		return weft_conn_dial_more(&conn->base, purpose,
					   ++conn->bulk->streams_made,
					   conn->token);
	lose_stream(conn, out, err, "the peer");
	return err;
}

/* Does it have streams for sending, all idle since @ms? */
static bool has_idle_streams(const struct tcp_conn *conn, uint64_t ms)
{
	const struct tcp_bulk *b = conn->bulk;
	struct tcp_stream *s, *ts;
	bool any = false;

	if (!b || atomic_load(&b->acked) != atomic_load(&b->next_seq))
		return false;
	weft_list_for_each (s, ts, &b->streams, link) {
		if (s->abandoned || (s->out && s->used_ms > ms))
			return false;
		any |= s->out;
	}
	return any;
}

void tcp_streams_give_back(struct tcp_conn *conn)
{
	struct tcp_stream *s, *ts;

	if (has_idle_streams(conn, UINT64_MAX))
		weft_list_for_each (s, ts, &conn->bulk->streams, link)
			if (s->out)
				tcp_stream_detach(s);
}

/*
 * UCP keeps its endpoints after a rendezvous although the program has closed
 * its own: a program that creates one per transfer would pile up their streams.
 * Let a few connections per peer keep theirs.
 */
static void spare_streams(const struct tcp_conn *conn)
{
	const uint64_t ms = weft_now_ms() - TCP_STREAM_SPARE_MS;
	struct tcp_conn *c, *tc;
	unsigned int idle = 0;

	weft_list_for_each (c, tc, &conn->iface->conns, link)
		idle += c->base.peer_id == conn->base.peer_id &&
			has_idle_streams(c, ms);
	weft_list_for_each (c, tc, &conn->iface->conns, link) {
		if (idle <= IDLE_CONNS)
			return;
		if (c->base.peer_id != conn->base.peer_id ||
		    !has_idle_streams(c, ms))
			continue;
		tcp_streams_give_back(c);
		idle--;
	}
}

/*
 * How many streams may be dialled at a time.  Transfers wait while a side
 * handles a dial, so those to a peer nearby are dialled one by one.  A dial
 * takes three round trips, so on a long path more of them are under way.
 */
static unsigned int most_dials(const struct tcp_conn *conn)
{
	struct tcp_info ti = { 0 };
	socklen_t len = sizeof(ti);

	if (weft_settings()->tcp_streams)
		return TCP_MAX_STREAMS;
	if (!conn->bulk->out_streams)
		return FIRST_DIALS;
	getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &ti, &len);
	return 1 + weft_min(ti.tcpi_min_rtt / DIAL_US, TCP_MAX_STREAMS);
}

void tcp_streams_open(struct tcp_conn *conn)
{
	struct tcp_bulk *b = conn->bulk;
	unsigned int missing, most;
	uint8_t body[4];

	if (!b || conn->base.state != WEFT_CONN_OPEN || conn->base.err ||
	    conn->rx_ended || b->no_streams)
		return;
	/* not for streams that will soon be closed as idle */
	if (atomic_load(&b->acked) == atomic_load(&b->next_seq))
		return;
	missing = tcp_bulk_missing_streams(b);
	if (!missing)
		return;
	most = most_dials(conn);
	if (b->out_dialing >= most)
		return;
	missing = weft_min(missing, most - b->out_dialing);
	if (!b->out_streams && !b->out_dialing)
		spare_streams(conn);
	if (!conn->base.dialer) {
		if (b->asked_streams)
			return;
		b->asked_streams = true;
		b->out_dialing += missing;
		weft_put_le32(body, missing);
		tcp_conn_send_control(conn, TCP_FRAME_STREAMS, body,
				      sizeof(body));
		return;
	}
	if (!conn->token) /* WELCOME will call this again */
		return;
	while (missing--)
		if (dial_stream(conn, TCP_PURPOSE_BULK_OUT))
			break;
}

int tcp_streams_asked(struct tcp_conn *conn, uint32_t n)
{
	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	if (!conn->base.dialer) { /* one that we requested cannot be opened */
		if (n)
			return -EPROTO;
		if (conn->bulk->asked_streams)
			lose_stream(conn, true, -ECONNREFUSED, "the peer");
		return 0;
	}
	if (n > TCP_MAX_STREAMS ||
	    n + count_streams(conn, false) > TCP_MAX_STREAMS_IN)
		return -EPROTO;
	while (n--) /* try each one: the peer waits for each */
		dial_stream(conn, TCP_PURPOSE_BULK_IN);
	return 0;
}

static struct weft_conn *tcp_new_conn(struct weft_session *s,
				      const struct weft_address *remote,
				      uint64_t peer_id, uint32_t number,
				      const char *where)
{
	struct tcp_iface *iface =
		container_of(s, struct tcp_iface, base.session);
	struct tcp_conn *conn =
		tcp_conn_new(iface, remote, peer_id, number, where);

	return conn ? &conn->base : NULL;
}

/* Is there room for the bulk stream that the peer dials? */
static bool tcp_has_room(const struct tcp_conn *conn, bool out)
{
	const struct tcp_bulk *b = conn->bulk;
	unsigned int max = TCP_MAX_STREAMS_IN;

	if (out) /* those that we have requested */
		max = b ? b->out_streams + b->out_dialing : 0;
	return count_streams(conn, out) < max && has_descriptors(conn, out);
}

/* Allocate what may fail before the dialer relies on it. */
static struct weft_conn *tcp_find_conn(struct weft_handshake *hs)
{
	struct tcp_iface *iface =
		container_of(hs->session, struct tcp_iface, base.session);
	struct tcp_conn *conn;

	if (hs->kind != TCP_PURPOSE_BULK_OUT && hs->kind != TCP_PURPOSE_BULK_IN)
		return NULL;
	conn = tcp_conn_by_token(iface, hs->token);
	return conn && tcp_has_room(conn, hs->kind == TCP_PURPOSE_BULK_IN) &&
			       tcp_bulk_get(conn) && !tcp_engines_need(iface)
		       ? &conn->base
		       : NULL;
}

static void join_stream(struct tcp_conn *conn, const struct weft_handshake *hs,
			int fd)
{
	const bool out = hs->dialer == (hs->kind == TCP_PURPOSE_BULK_OUT);
	int err;

	if (out && conn->bulk->out_dialing)
		conn->bulk->out_dialing--;
	if (out && !conn->bulk->out_dialing)
		conn->bulk->asked_streams = false;
	err = tcp_stream_attach(conn, fd, out, hs->number);
	if (err) {
		close(fd);
		tcp_conn_break(conn, err);
		return;
	}
	tcp_iface_start_tick(conn->iface); /* it closes idle streams, too */
	tcp_engines_wake(conn);
	tcp_streams_open(conn);
}

static void tcp_join_socket(struct weft_handshake *hs, int fd)
{
	struct tcp_conn *conn = tcp_conn(hs->conn);

	if (hs->kind == TCP_PURPOSE_MESSAGES) {
		tcp_conn_open(conn, fd);
		tcp_streams_open(conn);
	} else {
		join_stream(conn, hs, fd);
	}
}

const struct weft_session_ops tcp_session_ops = {
	.open_socket = tcp_open_socket,
	.set_options = set_options,
	.new_conn = tcp_new_conn,
	.find_conn = tcp_find_conn,
	.joined = tcp_join_socket,
	.lost = tcp_lose_dial,
};

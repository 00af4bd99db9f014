/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets before their hello is done: dialled ones and accepted ones.  A
 * stranger costs one small object until its deadline, and no line in a log.
 */
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_engine.h"
#include "devices/tcp/tcp_event.h"
#include "devices/tcp/tcp_msg.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

#define ACCEPT_BATCH 64
#define MAX_PROBES   127 /* Linux, include/net/tcp.h: MAX_TCP_KEEPCNT */
#define REDIALS	     3

/*
 * Keepalive, which the peer's kernel answers, however busy its program is.  A
 * peer is dead when none of the probes that fill @sec was answered, so that an
 * outage shorter than nearly all of it does no harm; resting connections cost a
 * probe per eighth of it.  Whole seconds and three probes make 4 s the least.
 */
static void set_keepalive(int fd, unsigned int sec)
{
	unsigned int idle = weft_max(sec / 8, sec > 4 ? 2 : 1);
	unsigned int rest = weft_max(sec - idle, 3);
	unsigned int intvl = (rest + MAX_PROBES - 1) / MAX_PROBES;
	unsigned int cnt = rest / intvl;
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

static struct tcp_handshake *new_handshake(struct tcp_iface *iface, int fd)
{
	struct tcp_handshake *hs = calloc(1, sizeof(*hs));

	if (!hs)
		return NULL;
	hs->src.kind = TCP_SOURCE_HANDSHAKE;
	hs->iface = iface;
	hs->fd = fd;
	hs->deadline_ms = weft_now_ms() + weft_settings()->connect_timeout_ms;
	weft_list_add_tail(&iface->handshakes, &hs->link);
	tcp_iface_set_tick(iface, true);
	return hs;
}

/* Its socket too, unless it was handed on (fd -1). */
void tcp_handshake_free(struct tcp_handshake *hs)
{
	if (hs->fd >= 0)
		close(hs->fd);
	if (!hs->conn)
		weft_stranger_del(&hs->iface->strangers, &hs->stranger);
	if (hs->target && hs->fd >= 0 && hs->target->state != TCP_CONN_OPEN)
		tcp_conn_break(hs->target, -ECONNRESET);
	weft_list_del(&hs->link);
	/* an epoll event for it may already have been fetched */
	hs->dead = true;
	weft_list_add_tail(&hs->iface->dead_handshakes, &hs->link);
}

void tcp_handshakes_reap(struct tcp_iface *iface)
{
	struct tcp_handshake *hs, *th;

	weft_list_for_each (hs, th, &iface->dead_handshakes, link) {
		weft_list_del(&hs->link);
		free(hs);
	}
}

void tcp_handshakes_drop(struct tcp_conn *conn)
{
	struct tcp_handshake *hs, *th;

	weft_list_for_each (hs, th, &conn->iface->handshakes, link)
		if (hs->conn == conn || hs->target == conn) {
			hs->target = NULL;
			tcp_handshake_free(hs);
		}
}

bool tcp_handshake_drop_stream(struct tcp_conn *conn, uint32_t id)
{
	struct tcp_handshake *hs, *th;

	weft_list_for_each (hs, th, &conn->iface->handshakes, link)
		if (hs->conn == conn && hs->stream == id) {
			tcp_handshake_free(hs);
			return true;
		}
	return false;
}

static int update_epoll(struct tcp_handshake *hs, int op, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = &hs->src };

	return epoll_ctl(hs->iface->epfd, op, hs->fd, &ev) ? -errno : 0;
}

/* One bulk stream that was dialled or asked for cannot be had. */
static void lose_stream(struct tcp_conn *conn, bool out, int err,
			const char *where)
{
	struct tcp_bulk *b = conn->bulk;
	uint8_t none[4] = { 0 };
	unsigned int left;

	if (!out) { /* the peer waits for it */
		tcp_conn_send_control(conn, TCP_FRAME_STREAMS, none,
				      sizeof(none));
		return;
	}
	pthread_mutex_lock(&b->lock);
	if (b->out_dialing)
		b->out_dialing--;
	if (!b->out_dialing)
		b->asked_streams = false;
	left = b->out_streams + b->out_dialing;
	b->out_limit = weft_max(1, left);
	tcp_tune_stream_lost(b);
	pthread_mutex_unlock(&b->lock);
	if (left)
		return;
	weft_info("no further connection to %s can be opened: %s", where,
		  strerror(-err));
	b->no_streams = true;
	conn->deadline_ms = weft_now_ms() + TCP_LOST_STREAM_MS;
	b->lost_err = err; /* news only if the peer lives on: tcp_timer.c */
	tcp_iface_set_tick(conn->iface, true);
	tcp_conn_attend(conn); /* puts go by frame from now on */
}

/* Whoever waits for this dial hears that it came to nothing. */
static void lose_dial(struct tcp_conn *conn, enum tcp_purpose purpose, int err,
		      const char *where)
{
	if (purpose == TCP_PURPOSE_MESSAGES)
		tcp_conn_break(conn, err);
	else
		lose_stream(conn, purpose == TCP_PURPOSE_BULK_OUT, err, where);
}

/*
 * A listener whose places were all taken, or for whom this program was too busy
 * to speak in time, hangs up before it has said a word.
 */
static bool retry_dial(struct tcp_handshake *hs, int err)
{
	struct tcp_conn *conn = hs->conn;

	if (hs->purpose != TCP_PURPOSE_MESSAGES || hs->connecting ||
	    hs->hello.peer_max || (err != -ECONNRESET && err != -EPIPE) ||
	    conn->redials == REDIALS)
		return false;
	conn->redials++;
	tcp_handshake_free(hs);
	tcp_conn_set_state(conn, TCP_CONN_WAITING);
	conn->deadline_ms = weft_now_ms() + TCP_REDIAL_MS;
	return true;
}

/* A dial ended without a connection. */
static void fail_dial(struct tcp_handshake *hs, int err)
{
	struct tcp_conn *conn = hs->conn;
	enum tcp_purpose purpose = hs->purpose;
	char where[WEFT_SOCKADDR_STR];

	if (retry_dial(hs, err))
		return;
	weft_sockaddr_str(&hs->peer, where, sizeof(where));
	if (purpose == TCP_PURPOSE_MESSAGES) {
		if (err == -EACCES)
			weft_error(
				"peer at %s does not have the key of its own address, or another WEFT_SECRET_FILE; not connecting",
				where);
		else if (err == -EPROTONOSUPPORT)
			weft_error(
				"peer at %s speaks wire versions %u to %u, this weft %u to %u; install the same release on both",
				where, hs->hello.peer_min, hs->hello.peer_max,
				WEFT_WIRE_MIN, WEFT_WIRE_MAX);
		else
			weft_info("connecting to %s from '%s' failed: %s",
				  where, hs->iface->netif.name, strerror(-err));
	}
	tcp_handshake_free(hs);
	lose_dial(conn, purpose, err, where);
}

/* A socket that leaves by the interface's address; -errno. */
static int open_socket(const struct tcp_conn *conn)
{
	union weft_sockaddr from = conn->iface->netif.addr;
	int fd, one = 1;

	fd = socket(conn->remote.sa.sa_family,
		    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		fd = -errno;
		weft_warn_once(
			"cannot open a socket: %m; raise the limit with 'ulimit -n'");
		return fd;
	}
	set_options(fd);
	/* that is what reaches() promised */
	if (from.sa.sa_family == conn->remote.sa.sa_family) {
		setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one,
			   sizeof(one));
		if (bind(fd, &from.sa, weft_sockaddr_len(&from)))
			weft_debug("cannot bind to '%s': %m",
				   conn->iface->netif.name);
	}
	return fd;
}

static int dial_socket(struct tcp_conn *conn, enum tcp_purpose purpose)
{
	uint8_t bytes[WEFT_HELLO_PURPOSE] = { purpose };
	char where[WEFT_SOCKADDR_STR];
	struct tcp_handshake *hs = NULL;
	int fd, err = 0;

	if (purpose == TCP_PURPOSE_BULK_OUT)
		conn->bulk->out_dialing++;
	if (purpose != TCP_PURPOSE_MESSAGES)
		err = tcp_engines_need(conn->iface);
	fd = err ? err : open_socket(conn);
	if (fd >= 0)
		hs = new_handshake(conn->iface, fd);
	if (!hs) {
		err = fd < 0 ? fd : -ENOMEM;
		if (fd >= 0)
			close(fd);
		lose_dial(
			conn, purpose, err,
			weft_sockaddr_str(&conn->remote, where, sizeof(where)));
		return err;
	}
	hs->conn = conn;
	hs->purpose = purpose;
	hs->peer = conn->remote;
	if (purpose == TCP_PURPOSE_MESSAGES) {
		weft_put_le32(bytes + 4, conn->sn);
	} else {
		hs->stream = ++conn->bulk->streams_made;
		weft_put_le32(bytes + 4, hs->stream);
		weft_put_le64(bytes + 8, conn->token);
	}
	weft_hello_dial(&hs->hello, conn->remote_key, hs->iface->addr->key,
			bytes);
	hs->connecting = true;
	if (connect(fd, &conn->remote.sa, weft_sockaddr_len(&conn->remote)) &&
	    errno != EINPROGRESS)
		err = -errno;
	else
		err = update_epoll(hs, EPOLL_CTL_ADD, EPOLLOUT);
	if (err)
		fail_dial(hs, err);
	return err;
}

int tcp_conn_dial(struct tcp_conn *conn)
{
	conn->deadline_ms = weft_now_ms() + weft_settings()->connect_timeout_ms;
	return dial_socket(conn, TCP_PURPOSE_MESSAGES);
}

void tcp_streams_open(struct tcp_conn *conn)
{
	struct tcp_bulk *b = conn->bulk;
	unsigned int have, limit, i = 0;
	struct tcp_stream *s, *ts;
	uint8_t body[4];
	bool work;

	if (!b || conn->state != TCP_CONN_OPEN || conn->err || conn->rx_ended ||
	    b->no_streams)
		return;
	pthread_mutex_lock(&b->lock);
	have = b->out_streams + b->out_dialing;
	limit = b->out_limit;
	work = !weft_list_empty(&b->queue) || !weft_list_empty(&b->resend) ||
	       b->out_streams;
	weft_list_for_each (s, ts, &b->streams, link)
		if (s->out && !s->abandoned)
			s->suspended = ++i > limit;
	pthread_mutex_unlock(&b->lock);
	if (!work || have >= limit)
		return;
	if (!conn->dialer) {
		if (b->asked_streams)
			return;
		b->asked_streams = true;
		b->out_dialing += limit - have;
		weft_put_le32(body, limit - have);
		tcp_conn_send_control(conn, TCP_FRAME_STREAMS, body,
				      sizeof(body));
		return;
	}
	if (!conn->token) /* WELCOME is on its way and calls again */
		return;
	while (have++ < limit)
		if (dial_socket(conn, TCP_PURPOSE_BULK_OUT))
			break;
}

/* Bulk streams of @conn one way, whose hello is not done. */
static unsigned int count_under_way(const struct tcp_conn *conn,
				    enum tcp_purpose dialed,
				    enum tcp_purpose accepted)
{
	struct tcp_handshake *hs, *th;
	unsigned int n = 0;

	weft_list_for_each (hs, th, &conn->iface->handshakes, link)
		n += (hs->conn == conn && hs->purpose == dialed) ||
		     (hs->target == conn && hs->hello.purpose[0] == accepted);
	return n;
}

/* What the peer sends bulk on, or will when its hello is done. */
static unsigned int count_streams_in(const struct tcp_conn *conn)
{
	unsigned int n = count_under_way(conn, TCP_PURPOSE_BULK_IN,
					 TCP_PURPOSE_BULK_OUT);
	struct tcp_stream *s, *ts;

	if (conn->bulk)
		weft_list_for_each (s, ts, &conn->bulk->streams, link)
			n += !s->out;
	return n;
}

int tcp_streams_asked(struct tcp_conn *conn, uint32_t n)
{
	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	if (!conn->dialer) { /* one of those we asked for cannot be had */
		if (n)
			return -EPROTO;
		if (conn->bulk->asked_streams)
			lose_stream(conn, true, -ECONNREFUSED, "the peer");
		return 0;
	}
	if (n > TCP_MAX_STREAMS ||
	    n + count_streams_in(conn) > TCP_MAX_STREAMS_IN)
		return -EPROTO;
	while (n--) /* the peer waits for each, so each is tried */
		dial_socket(conn, TCP_PURPOSE_BULK_IN);
	return 0;
}

/*
 * A pair may dial from both sides at once: the dial of the smaller id is kept.
 * A peer that is this very interface (a program talking to itself) is no pair.
 */
static struct tcp_conn *decide_message_stream(struct tcp_handshake *hs,
					      enum weft_hello_verdict *verdict)
{
	struct tcp_iface *iface = hs->iface;
	uint32_t sn = weft_get_le32(hs->hello.purpose + 4);
	struct tcp_conn *conn = NULL;
	char where[WEFT_SOCKADDR_STR];

	if (hs->hello.peer_id != iface->my_id)
		conn = tcp_conn_find(iface, hs->hello.peer_id, sn);
	if (conn) {
		if (conn->state == TCP_CONN_OPEN ||
		    !weft_hello_owns(&hs->hello, conn->remote_key)) {
			*verdict = WEFT_HELLO_BUSY;
			return NULL;
		}
		if (conn->state == TCP_CONN_DIALING &&
		    iface->my_id < hs->hello.peer_id) {
			*verdict = WEFT_HELLO_YIELD;
			return NULL;
		}
		tcp_handshakes_drop(conn);
	} else if (weft_peer_has_room(iface->by_id.n, iface->netif.name)) {
		weft_sockaddr_str(&hs->peer, where, sizeof(where));
		conn = tcp_conn_new(iface, hs->hello.peer_id, sn, where);
	}
	if (!conn) {
		*verdict = WEFT_HELLO_BUSY;
		return NULL;
	}
	if (tcp_conn_make_token(conn)) {
		tcp_conn_break(conn, -ENOMEM);
		*verdict = WEFT_HELLO_BUSY;
		return NULL;
	}
	return conn;
}

/* Is there a place for the bulk stream that the peer brings? */
static bool has_room(const struct tcp_conn *conn, enum tcp_purpose purpose)
{
	if (purpose == TCP_PURPOSE_BULK_OUT)
		return count_streams_in(conn) < TCP_MAX_STREAMS_IN;
	return conn->bulk &&
	       count_under_way(conn, TCP_PURPOSE_BULK_OUT,
			       TCP_PURPOSE_BULK_IN) < conn->bulk->out_dialing;
}

static void decide_verdict(struct tcp_handshake *hs)
{
	enum weft_hello_verdict verdict = WEFT_HELLO_ACCEPTED;
	struct tcp_conn *conn = NULL;

	switch (hs->hello.purpose[0]) {
	case TCP_PURPOSE_MESSAGES:
		conn = decide_message_stream(hs, &verdict);
		break;
	case TCP_PURPOSE_BULK_OUT:
	case TCP_PURPOSE_BULK_IN:
		conn = tcp_conn_by_token(hs->iface,
					 weft_get_le64(hs->hello.purpose + 8));
		/* what may be lacking is seen before the dialer counts on it */
		if (conn &&
		    (!has_room(conn, hs->hello.purpose[0]) ||
		     !tcp_bulk_get(conn) || tcp_engines_need(hs->iface)))
			conn = NULL;
		if (!conn)
			verdict = WEFT_HELLO_BUSY;
		break;
	default:
		verdict = WEFT_HELLO_BUSY;
	}
	hs->target = conn;
	weft_hello_verdict(&hs->hello, verdict);
}

/* Both sides are proven and agree. */
static void finish_handshake(struct tcp_handshake *hs)
{
	bool dialer = hs->conn != NULL;
	struct tcp_conn *conn = dialer ? hs->conn : hs->target;
	uint8_t kind = dialer ? hs->purpose : hs->hello.purpose[0];
	uint32_t stream =
		dialer ? hs->stream : weft_get_le32(hs->hello.purpose + 4);
	int fd = hs->fd, err;
	bool out;

	if (hs->hello.verdict == WEFT_HELLO_YIELD && dialer &&
	    kind == TCP_PURPOSE_MESSAGES) {
		tcp_handshake_free(hs);
		tcp_conn_set_state(conn, TCP_CONN_WAITING);
		conn->deadline_ms = weft_now_ms() + TCP_YIELD_MS;
		return;
	}
	if (hs->hello.verdict != WEFT_HELLO_ACCEPTED || !conn) {
		if (dialer)
			fail_dial(hs, -ECONNREFUSED);
		else
			tcp_handshake_free(hs);
		return;
	}
	epoll_ctl(hs->iface->epfd, EPOLL_CTL_DEL, fd, NULL);
	hs->fd = -1;
	if (kind == TCP_PURPOSE_MESSAGES) {
		if (!dialer) {
			conn->hello = malloc(sizeof(*conn->hello));
			if (conn->hello)
				*conn->hello = hs->hello;
			conn->remote = hs->peer;
		}
		tcp_handshake_free(hs);
		tcp_conn_open(conn, fd, dialer);
		tcp_streams_open(conn);
		return;
	}
	out = dialer == (kind == TCP_PURPOSE_BULK_OUT);
	if (out) {
		if (conn->bulk->out_dialing)
			conn->bulk->out_dialing--;
		if (!conn->bulk->out_dialing)
			conn->bulk->asked_streams = false;
	}
	tcp_handshake_free(hs);
	err = tcp_stream_attach(conn, fd, out, stream);
	if (err) {
		close(fd);
		tcp_conn_break(conn, err);
		return;
	}
	tcp_engines_wake(conn);
}

static void fail_handshake(struct tcp_handshake *hs, int err)
{
	if (hs->conn) {
		fail_dial(hs, err);
		return;
	}
	/* a stranger's mistake is nobody's news here; a relative's is */
	if (err == -EACCES)
		weft_warn_once(
			"a peer connected to '%s' with a wrong key or another WEFT_SECRET_FILE and was turned away",
			hs->iface->netif.name);
	else if (err == -EPROTONOSUPPORT)
		weft_warn_once(
			"a peer that speaks wire versions %u to %u was turned away; this weft speaks %u to %u",
			hs->hello.peer_min, hs->hello.peer_max, WEFT_WIRE_MIN,
			WEFT_WIRE_MAX);
	tcp_handshake_free(hs);
}

void tcp_handshake_expire(struct tcp_handshake *hs)
{
	fail_handshake(hs, -ETIMEDOUT);
}

/* 1: goes on; 0: would block; -errno */
static int move_hello(struct tcp_handshake *hs)
{
	struct weft_hello *h = &hs->hello;
	ssize_t n;
	bool reading;

	if (h->state == WEFT_HELLO_SENDING)
		n = send(hs->fd, h->out + h->out_done, h->out_len - h->out_done,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		n = recv(hs->fd, h->in + h->have, h->want - h->have,
			 MSG_DONTWAIT);
	if (n < 0)
		return errno == EINTR ? 1 : errno == EAGAIN ? 0 : -errno;
	if (!n)
		return -ECONNRESET;
	reading = h->state == WEFT_HELLO_READING;
	weft_hello_moved(h, n);
	if (reading && !hs->conn && h->state != WEFT_HELLO_READING)
		hs->deadline_ms = weft_stranger_spoke(&hs->iface->strangers,
						      &hs->stranger);
	return 1;
}

unsigned int tcp_handshake_io(struct tcp_handshake *hs)
{
	socklen_t len = sizeof(int);
	int err = 0, ret;

	if (hs->dead)
		return 0;
	if (hs->connecting) {
		getsockopt(hs->fd, SOL_SOCKET, SO_ERROR, &err, &len);
		if (err) {
			fail_handshake(hs, -err);
			return 1;
		}
		hs->connecting = false;
	}
	for (;;) {
		switch (hs->hello.state) {
		case WEFT_HELLO_DECIDE:
			decide_verdict(hs);
			continue;
		case WEFT_HELLO_DONE:
			finish_handshake(hs);
			return 1;
		case WEFT_HELLO_FAILED:
			fail_handshake(hs, hs->hello.err);
			return 1;
		default:
			ret = move_hello(hs);
			if (ret > 0)
				continue;
			if (ret < 0) {
				fail_handshake(hs, ret);
				return 1;
			}
			update_epoll(hs, EPOLL_CTL_MOD,
				     hs->hello.state == WEFT_HELLO_SENDING
					     ? EPOLLOUT
					     : EPOLLIN);
			return 1;
		}
	}
}

/* Out of room: the backlog keeps the peers till the next tick. */
static void pause_accept(struct tcp_iface *iface)
{
	iface->accept_paused = true;
	epoll_ctl(iface->epfd, EPOLL_CTL_DEL, iface->listen_fd, NULL);
	tcp_iface_set_tick(iface, true);
}

void tcp_handshake_resume_accept(struct tcp_iface *iface)
{
	struct epoll_event ev = { .events = EPOLLIN,
				  .data.ptr = &iface->listen_src };

	if (!iface->accept_paused)
		return;
	iface->accept_paused = false;
	epoll_ctl(iface->epfd, EPOLL_CTL_ADD, iface->listen_fd, &ev);
}

/* What more tries will not change at once makes a pause. */
static void fail_accept(struct tcp_iface *iface, int err)
{
	if (err == EMFILE || err == ENFILE)
		weft_warn_once(
			"cannot accept a peer on '%s': %s; raise the limit with 'ulimit -n'",
			iface->netif.name, strerror(err));
	else if (err == ENOBUFS || err == ENOMEM)
		weft_warn_once("cannot accept a peer on '%s': %s; trying again",
			       iface->netif.name, strerror(err));
	else
		return;
	pause_accept(iface);
}

static void read_stranger(struct weft_stranger *st)
{
	tcp_handshake_io(container_of(st, struct tcp_handshake, stranger));
}

static void end_stranger(struct weft_stranger *st)
{
	tcp_handshake_free(container_of(st, struct tcp_handshake, stranger));
}

void tcp_handshake_accept(struct tcp_iface *iface)
{
	struct tcp_handshake *hs;
	unsigned int i;
	union weft_sockaddr peer;
	socklen_t len;
	int fd;

	for (i = 0; i < ACCEPT_BATCH; i++) {
		if (!weft_strangers_make_room(&iface->strangers,
					      iface->listen_fd, read_stranger,
					      end_stranger)) {
			pause_accept(iface);
			return;
		}
		len = sizeof(peer);
		fd = accept4(iface->listen_fd, &peer.sa, &len,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			fail_accept(iface, errno);
			return;
		}
		set_options(fd);
		hs = new_handshake(iface, fd);
		if (!hs) {
			close(fd);
			return;
		}
		hs->deadline_ms =
			weft_stranger_add(&iface->strangers, &hs->stranger, fd);
		hs->peer = peer;
		weft_hello_listen(&hs->hello, iface->addr->key);
		if (update_epoll(hs, EPOLL_CTL_ADD, EPOLLIN))
			tcp_handshake_free(hs);
		else
			tcp_handshake_io(hs);
	}
}

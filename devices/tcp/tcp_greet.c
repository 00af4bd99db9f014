/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets before their hello is done: dialled ones and accepted ones.  A
 * stranger costs one small object until its deadline, and no line in a log.
 */
#include "devices/tcp/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

#define ACCEPT_BATCH	64
#define MAX_PROBES	127	/* Linux, include/net/tcp.h: MAX_TCP_KEEPCNT */
#define REDIALS		3

/*
 * Keepalive, which the peer's kernel answers, however busy its program is.  A
 * peer is dead when none of the probes that fill @sec was answered, so that an
 * outage shorter than nearly all of it does no harm; resting connections cost a
 * probe per eighth of it.  Whole seconds and three probes make 4 s the least.
 */
static void watch_idle(int fd, unsigned int sec)
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
	watch_idle(fd, (set->peer_timeout_ms + 999) / 1000);
	if (set->tcp_sndbuf) {
		size = set->tcp_sndbuf;
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	}
	if (set->tcp_rcvbuf) {
		size = set->tcp_rcvbuf;
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	}
}

static struct tcp_greet *greet_new(struct tcp_iface *iface, int fd)
{
	struct tcp_greet *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->src.kind = TCP_SOURCE_GREET;
	g->iface = iface;
	g->fd = fd;
	g->deadline_ms = weft_now_ms() + weft_settings()->connect_timeout_ms;
	weft_list_add_tail(&iface->greets, &g->link);
	tcp_watch_start(iface);
	return g;
}

/* Its socket too, unless it was handed on (fd -1). */
void tcp_greet_free(struct tcp_greet *g)
{
	if (g->fd >= 0)
		close(g->fd);
	if (!g->conn)
		weft_stranger_del(&g->iface->strangers, &g->stranger);
	if (g->target && g->fd >= 0 && g->target->state != TCP_CONN_OPEN)
		tcp_conn_break(g->target, -ECONNRESET);
	weft_list_del(&g->link);
	/* an epoll event for it may already have been fetched */
	g->dead = true;
	weft_list_add_tail(&g->iface->dead_greets, &g->link);
}

void tcp_greet_reap(struct tcp_iface *iface)
{
	struct tcp_greet *g, *tg;

	weft_list_for_each(g, tg, &iface->dead_greets, link) {
		weft_list_del(&g->link);
		free(g);
	}
}

void tcp_greet_drop_for(struct tcp_conn *conn)
{
	struct tcp_greet *g, *tg;

	weft_list_for_each(g, tg, &conn->iface->greets, link)
		if (g->conn == conn || g->target == conn) {
			g->target = NULL;
			tcp_greet_free(g);
		}
}

bool tcp_greet_drop_stream(struct tcp_conn *conn, uint32_t id)
{
	struct tcp_greet *g, *tg;

	weft_list_for_each(g, tg, &conn->iface->greets, link)
		if (g->conn == conn && g->stream == id) {
			tcp_greet_free(g);
			return true;
		}
	return false;
}

static int watch(struct tcp_greet *g, int op, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = &g->src };

	return epoll_ctl(g->iface->epfd, op, g->fd, &ev) ? -errno : 0;
}

/* Whoever waits for this dial hears that it came to nothing. */
static void dial_lost(struct tcp_conn *conn, enum tcp_purpose purpose, int err,
		      const char *where)
{
	if (purpose == TCP_PURPOSE_MESSAGES)
		tcp_conn_break(conn, err);
	else
		tcp_bulk_stream_lost(conn, purpose == TCP_PURPOSE_BULK_OUT, err,
				     where);
}

/*
 * A listener whose places were all taken, or for whom this program was too busy
 * to speak in time, hangs up before it has said a word.
 */
static bool dial_again(struct tcp_greet *g, int err)
{
	struct tcp_conn *conn = g->conn;

	if (g->purpose != TCP_PURPOSE_MESSAGES || g->connecting ||
	    g->hello.peer_max || (err != -ECONNRESET && err != -EPIPE) ||
	    conn->redials == REDIALS)
		return false;
	conn->redials++;
	tcp_greet_free(g);
	tcp_conn_set_state(conn, TCP_CONN_WAITING);
	conn->deadline_ms = weft_now_ms() + TCP_REDIAL_MS;
	return true;
}

/* A dial ended without a connection. */
static void dial_failed(struct tcp_greet *g, int err)
{
	struct tcp_conn *conn = g->conn;
	enum tcp_purpose purpose = g->purpose;
	char where[WEFT_SOCKADDR_STR];

	if (dial_again(g, err))
		return;
	weft_sockaddr_str(&g->peer, where, sizeof(where));
	if (purpose == TCP_PURPOSE_MESSAGES) {
		if (err == -EACCES)
			weft_error("peer at %s does not have the key of its own address, or another WEFT_SECRET_FILE; not connecting",
				   where);
		else if (err == -EPROTONOSUPPORT)
			weft_error("peer at %s speaks wire versions %u to %u, this weft %u to %u; install the same release on both",
				   where, g->hello.peer_min, g->hello.peer_max,
				   WEFT_WIRE_MIN, WEFT_WIRE_MAX);
		else
			weft_info("connecting to %s from '%s' failed: %s",
				  where, g->iface->netif.name, strerror(-err));
	}
	tcp_greet_free(g);
	dial_lost(conn, purpose, err, where);
}

/* A socket that leaves by the interface's address; -errno. */
static int dial_socket(const struct tcp_conn *conn)
{
	union weft_sockaddr from = conn->iface->netif.addr;
	int fd, one = 1;

	fd = socket(conn->remote.sa.sa_family,
		    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		fd = -errno;
		weft_warn_once("cannot open a socket: %m; raise the limit with 'ulimit -n'");
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

int tcp_greet_dial(struct tcp_conn *conn, enum tcp_purpose purpose)
{
	uint8_t bytes[WEFT_HELLO_PURPOSE] = { purpose };
	char where[WEFT_SOCKADDR_STR];
	struct tcp_greet *g = NULL;
	int fd, err = 0;

	if (purpose == TCP_PURPOSE_BULK_OUT)
		conn->bulk->out_dialing++;
	if (purpose != TCP_PURPOSE_MESSAGES)
		err = tcp_engines_need(conn->iface);
	fd = err ? err : dial_socket(conn);
	if (fd >= 0)
		g = greet_new(conn->iface, fd);
	if (!g) {
		err = fd < 0 ? fd : -ENOMEM;
		if (fd >= 0)
			close(fd);
		dial_lost(conn, purpose, err,
			  weft_sockaddr_str(&conn->remote, where,
					    sizeof(where)));
		return err;
	}
	g->conn = conn;
	g->purpose = purpose;
	g->peer = conn->remote;
	if (purpose == TCP_PURPOSE_MESSAGES) {
		weft_put_le32(bytes + 4, conn->sn);
	} else {
		g->stream = ++conn->bulk->streams_made;
		weft_put_le32(bytes + 4, g->stream);
		weft_put_le64(bytes + 8, conn->token);
	}
	weft_hello_dial(&g->hello, conn->remote_key, g->iface->addr->key, bytes);
	g->connecting = true;
	if (connect(fd, &conn->remote.sa, weft_sockaddr_len(&conn->remote)) &&
	    errno != EINPROGRESS)
		err = -errno;
	else
		err = watch(g, EPOLL_CTL_ADD, EPOLLOUT);
	if (err)
		dial_failed(g, err);
	return err;
}

/*
 * A pair may dial from both sides at once: the dial of the smaller id is kept.
 * A peer that is this very interface (a program talking to itself) is no pair.
 */
static struct tcp_conn *judge_messages(struct tcp_greet *g,
				       enum weft_hello_verdict *verdict)
{
	struct tcp_iface *iface = g->iface;
	uint32_t sn = weft_get_le32(g->hello.purpose + 4);
	struct tcp_conn *conn = NULL;
	char where[WEFT_SOCKADDR_STR];

	if (g->hello.peer_id != iface->my_id)
		conn = tcp_conn_find(iface, g->hello.peer_id, sn);
	if (conn) {
		if (conn->state == TCP_CONN_OPEN ||
		    !weft_hello_owns(&g->hello, conn->remote_key)) {
			*verdict = WEFT_HELLO_BUSY;
			return NULL;
		}
		if (conn->state == TCP_CONN_DIALING &&
		    iface->my_id < g->hello.peer_id) {
			*verdict = WEFT_HELLO_YIELD;
			return NULL;
		}
		tcp_greet_drop_for(conn);
	} else if (weft_peer_has_room(iface->by_id.n, iface->netif.name)) {
		weft_sockaddr_str(&g->peer, where, sizeof(where));
		conn = tcp_conn_new(iface, g->hello.peer_id, sn, where);
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

static void judge(struct tcp_greet *g)
{
	enum weft_hello_verdict verdict = WEFT_HELLO_ACCEPTED;
	struct tcp_conn *conn = NULL;

	switch (g->hello.purpose[0]) {
	case TCP_PURPOSE_MESSAGES:
		conn = judge_messages(g, &verdict);
		break;
	case TCP_PURPOSE_BULK_OUT:
	case TCP_PURPOSE_BULK_IN:
		conn = tcp_conn_by_token(g->iface,
					 weft_get_le64(g->hello.purpose + 8));
		/* what may be lacking is seen before the dialer counts on it */
		if (conn &&
		    (!tcp_conn_has_room(conn, g->hello.purpose[0]) ||
		     !tcp_bulk_get(conn) || tcp_engines_need(g->iface)))
			conn = NULL;
		if (!conn)
			verdict = WEFT_HELLO_BUSY;
		break;
	default:
		verdict = WEFT_HELLO_BUSY;
	}
	g->target = conn;
	weft_hello_verdict(&g->hello, verdict);
}

/* Both sides are proven and agree. */
static void finish(struct tcp_greet *g)
{
	bool dialer = g->conn != NULL;
	struct tcp_conn *conn = dialer ? g->conn : g->target;
	uint8_t kind = dialer ? g->purpose : g->hello.purpose[0];
	uint32_t stream = dialer ? g->stream :
				   weft_get_le32(g->hello.purpose + 4);
	int fd = g->fd, err;
	bool out;

	if (g->hello.verdict == WEFT_HELLO_YIELD && dialer &&
	    kind == TCP_PURPOSE_MESSAGES) {
		tcp_greet_free(g);
		tcp_conn_set_state(conn, TCP_CONN_WAITING);
		conn->deadline_ms = weft_now_ms() + TCP_YIELD_MS;
		return;
	}
	if (g->hello.verdict != WEFT_HELLO_ACCEPTED || !conn) {
		if (dialer)
			dial_failed(g, -ECONNREFUSED);
		else
			tcp_greet_free(g);
		return;
	}
	epoll_ctl(g->iface->epfd, EPOLL_CTL_DEL, fd, NULL);
	g->fd = -1;
	if (kind == TCP_PURPOSE_MESSAGES) {
		if (!dialer) {
			conn->hello = malloc(sizeof(*conn->hello));
			if (conn->hello)
				*conn->hello = g->hello;
			conn->remote = g->peer;
		}
		tcp_greet_free(g);
		tcp_conn_open(conn, fd, dialer);
		return;
	}
	out = dialer == (kind == TCP_PURPOSE_BULK_OUT);
	if (out) {
		if (conn->bulk->out_dialing)
			conn->bulk->out_dialing--;
		if (!conn->bulk->out_dialing)
			conn->bulk->asked_streams = false;
	}
	tcp_greet_free(g);
	err = tcp_stream_attach(conn, fd, out, stream);
	if (err) {
		close(fd);
		tcp_conn_break(conn, err);
		return;
	}
	tcp_engines_kick(conn);
}

static void greet_failed(struct tcp_greet *g, int err)
{
	if (g->conn) {
		dial_failed(g, err);
		return;
	}
	/* a stranger's mistake is nobody's news here; a relative's is */
	if (err == -EACCES)
		weft_warn_once("a peer connected to '%s' with a wrong key or another WEFT_SECRET_FILE and was turned away",
			       g->iface->netif.name);
	else if (err == -EPROTONOSUPPORT)
		weft_warn_once("a peer that speaks wire versions %u to %u was turned away; this weft speaks %u to %u",
			       g->hello.peer_min, g->hello.peer_max,
			       WEFT_WIRE_MIN, WEFT_WIRE_MAX);
	tcp_greet_free(g);
}

void tcp_greet_expire(struct tcp_greet *g)
{
	greet_failed(g, -ETIMEDOUT);
}

/* 1: goes on; 0: would block; -errno */
static int hello_io(struct tcp_greet *g)
{
	struct weft_hello *h = &g->hello;
	ssize_t n;

	if (h->state == WEFT_HELLO_SENDING)
		n = send(g->fd, h->out + h->out_done, h->out_len - h->out_done,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		n = recv(g->fd, h->in + h->have, h->want - h->have,
			 MSG_DONTWAIT);
	if (n < 0)
		return errno == EINTR ? 1 : errno == EAGAIN ? 0 : -errno;
	if (!n)
		return -ECONNRESET;
	if (h->state == WEFT_HELLO_SENDING) {
		h->out_done += n;
		if (h->out_done == h->out_len)
			weft_hello_step(h);
	} else {
		h->have += n;
		if (h->have == h->want)
			weft_hello_step(h);
		if (!g->conn && h->state != WEFT_HELLO_READING)
			g->deadline_ms = weft_stranger_spoke(
				&g->iface->strangers, &g->stranger);
	}
	return 1;
}

unsigned int tcp_greet_io(struct tcp_greet *g)
{
	socklen_t len = sizeof(int);
	int err = 0, ret;

	if (g->dead)
		return 0;
	if (g->connecting) {
		getsockopt(g->fd, SOL_SOCKET, SO_ERROR, &err, &len);
		if (err) {
			greet_failed(g, -err);
			return 1;
		}
		g->connecting = false;
	}
	for (;;) {
		switch (g->hello.state) {
		case WEFT_HELLO_JUDGE:
			judge(g);
			continue;
		case WEFT_HELLO_DONE:
			finish(g);
			return 1;
		case WEFT_HELLO_FAILED:
			greet_failed(g, g->hello.err);
			return 1;
		default:
			ret = hello_io(g);
			if (ret > 0)
				continue;
			if (ret < 0) {
				greet_failed(g, ret);
				return 1;
			}
			watch(g, EPOLL_CTL_MOD,
			      g->hello.state == WEFT_HELLO_SENDING ? EPOLLOUT :
								     EPOLLIN);
			return 1;
		}
	}
}

/* What more tries will not change at once makes a pause. */
static void accept_failed(struct tcp_iface *iface, int err)
{
	if (err == EMFILE || err == ENFILE)
		weft_warn_once("cannot accept a peer on '%s': %s; raise the limit with 'ulimit -n'",
			       iface->netif.name, strerror(err));
	else if (err == ENOBUFS || err == ENOMEM)
		weft_warn_once("cannot accept a peer on '%s': %s; trying again",
			       iface->netif.name, strerror(err));
	else
		return;
	tcp_iface_pause_accept(iface);
}

static void read_stranger(struct weft_stranger *st)
{
	tcp_greet_io(container_of(st, struct tcp_greet, stranger));
}

static void end_stranger(struct weft_stranger *st)
{
	tcp_greet_free(container_of(st, struct tcp_greet, stranger));
}

void tcp_greet_accept(struct tcp_iface *iface)
{
	struct tcp_greet *g;
	unsigned int i;
	union weft_sockaddr peer;
	socklen_t len;
	int fd;

	for (i = 0; i < ACCEPT_BATCH; i++) {
		if (!weft_strangers_make_room(&iface->strangers,
					      iface->listen_fd, read_stranger,
					      end_stranger)) {
			tcp_iface_pause_accept(iface);
			return;
		}
		len = sizeof(peer);
		fd = accept4(iface->listen_fd, &peer.sa, &len,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			accept_failed(iface, errno);
			return;
		}
		set_options(fd);
		g = greet_new(iface, fd);
		if (!g) {
			close(fd);
			return;
		}
		g->deadline_ms = weft_stranger_add(&iface->strangers,
						   &g->stranger, fd);
		g->peer = peer;
		weft_hello_listen(&g->hello, iface->addr->key);
		if (watch(g, EPOLL_CTL_ADD, EPOLLIN))
			tcp_greet_free(g);
		else
			tcp_greet_io(g);
	}
}

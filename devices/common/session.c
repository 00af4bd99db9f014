/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "settings/settings.h"
#include "stats/neighbour.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"

#define MAX_UNPROVEN 4096 /* at a time; more wait in the backlog */
/*
 * How often one of these answers is accepted in a row.  A correct peer gives it
 * once or twice, however busy it is; one that repeats it is broken or is not
 * weft.
 */
#define HANGUPS 3  /* it closed, though this side was quick */
#define YIELDS	15 /* it prefers a dial of its own, which does not come */

enum {
	/* pause if the backlog of a listener on this host is full */
	BACKLOG_MS = 5,
	BACKLOG_MOST_MS = 250, /* if it stays full */
	/* pause after a listener closed: a place may be free then */
	REDIAL_MS = 250,
	REDIAL_MOST_MS = 4000,
	/* wait for the peer's own dial, which was preferred; then dial again */
	YIELD_MS = 2000,
};

/* ---- handshakes ---------------------------------------------------------- */

static unsigned int handle_socket(struct weft_source *src, uint32_t events);

static struct weft_handshake *new_handshake(struct weft_session *s, int fd)
{
	struct weft_handshake *hs = calloc(1, sizeof(*hs));
	const uint64_t now = weft_now_ms();

	if (!hs)
		return NULL;
	hs->src.handle = handle_socket;
	hs->session = s;
	hs->fd = fd;
	hs->deadline_ms = now + weft_settings()->connect_timeout_ms;
	hs->moved_ms = now;
	weft_list_add_tail(&s->handshakes, &hs->link);
	weft_events_wake_at(s->events, now + WEFT_TICK_MS);
	return hs;
}

/* Closes its socket, unless passed on (fd -1). */
void weft_handshake_free(struct weft_handshake *hs)
{
	weft_events_close_fd(hs->session->events, hs->fd);
	if (!hs->dialer)
		weft_unproven_del(&hs->session->unproven, &hs->unproven);
	weft_list_del(&hs->link);
	/* an event of it may already have been fetched */
	hs->dead = true;
	weft_list_add_tail(&hs->session->dead, &hs->link);
}

void weft_session_reap(struct weft_session *s)
{
	struct weft_handshake *hs, *th;

	weft_list_for_each (hs, th, &s->dead, link) {
		weft_list_del(&hs->link);
		free(hs);
	}
}

void weft_conn_drop_handshakes(struct weft_conn *conn)
{
	struct weft_handshake *hs, *th;

	weft_list_for_each (hs, th, &conn->session->handshakes, link)
		if (hs->conn == conn)
			weft_handshake_free(hs);
}

static const char *peer_name(const struct weft_session *s,
			     const union weft_sockaddr *sa,
			     char buf[WEFT_SOCKADDR_STR])
{
	return s->where ? s->where
			: weft_sockaddr_str(sa, buf, WEFT_SOCKADDR_STR);
}

/* ---- dialling ------------------------------------------------------------ */

static void log_dial(const struct weft_session *s, const struct weft_hello *h,
		     bool connecting, int err, const char *where)
{
	if (err == -EACCES && h)
		weft_error(
			"the peer at %s does not know the key in its own address, or has another WEFT_SECRET_FILE; not connecting",
			where);
	else if (err == -EPROTONOSUPPORT && h)
		weft_error(
			"peer at %s speaks wire versions %u to %u, this weft %u to %u; install the same release on both",
			where, h->peer_min, h->peer_max, WEFT_WIRE_MIN,
			WEFT_WIRE_MAX);
	else if (err == -ETIMEDOUT && connecting)
		weft_error(
			"host %s did not answer within WEFT_CONNECT_TIMEOUT (%" PRIu64
			" ms)",
			where, weft_settings()->connect_timeout_ms);
	else
		weft_info("connecting to a peer at %s from '%s' failed: %s",
			  where, s->name, strerror(-err));
}

static void redial_at(struct weft_conn *conn, unsigned int ms)
{
	conn->retry_ms = weft_now_ms() + ms;
	weft_events_wake_at(conn->session->events, conn->retry_ms);
}

/* Meanwhile accept the peer's own dial. */
static void wait_to_dial(struct weft_conn *conn, unsigned int ms)
{
	if (conn->state == WEFT_CONN_DIALING)
		weft_conn_set_state(conn, WEFT_CONN_WAITING);
	redial_at(conn, ms);
}

/* Each time twice as long. */
static unsigned int next_pause(unsigned int *pause, unsigned int least,
			       unsigned int most)
{
	*pause = weft_min(weft_max(2 * *pause, least), most);
	return *pause;
}

/*
 * The listener closed during the hello.  It closes silent connections: if this
 * process was too busy to answer, dial again, as often as that happens.  Else
 * all places were taken: dial again a few times.
 */
static bool is_dialled_again(const struct weft_handshake *hs, int err)
{
	if (hs->kind != hs->session->kind || hs->connecting ||
	    (err != -ECONNRESET && err != -EPIPE))
		return false;
	return hs->late ||
	       (!hs->hello.peer_max && hs->conn->hangups++ < HANGUPS);
}

/* A dial ended without a connection. */
static void fail_dial(struct weft_handshake *hs, int err)
{
	struct weft_session *s = hs->session;
	struct weft_conn *conn = hs->conn;
	char buf[WEFT_SOCKADDR_STR];
	const char *where = peer_name(s, &hs->peer, buf);

	weft_handshake_free(hs);
	if (is_dialled_again(hs, err)) {
		wait_to_dial(conn, next_pause(&conn->pause_ms, REDIAL_MS,
					      REDIAL_MOST_MS));
		return;
	}
	if (hs->kind == s->kind)
		log_dial(s, &hs->hello, hs->connecting, err, where);
	s->ops->lost(conn, hs->kind, err, where);
}

int weft_conn_dial_more(struct weft_conn *conn, uint32_t kind, uint32_t number,
			uint64_t token)
{
	uint8_t purpose[WEFT_HELLO_PURPOSE];
	struct weft_session *s = conn->session;
	char buf[WEFT_SOCKADDR_STR];
	struct weft_handshake *hs = NULL;
	bool connecting = false;
	int fd, err;

	fd = s->ops->open_socket(conn, &connecting);
	if (fd == -EAGAIN && kind == s->kind) {
		redial_at(conn, next_pause(&conn->pause_ms, BACKLOG_MS,
					   BACKLOG_MOST_MS));
		return 0;
	}
	if (fd >= 0)
		hs = new_handshake(s, fd);
	if (!hs) {
		const char *where = peer_name(s, &conn->remote->sa, buf);

		err = fd < 0 ? fd : -ENOMEM;
		if (fd >= 0)
			close(fd);
		if (kind == s->kind)
			log_dial(s, NULL, false, err, where);
		s->ops->lost(conn, kind, err, where);
		return err;
	}
	hs->conn = conn;
	hs->dialer = true;
	hs->connecting = connecting;
	hs->peer = conn->remote->sa;
	hs->kind = kind;
	hs->number = number;
	hs->token = token;
	weft_put_le32(purpose, kind);
	weft_put_le32(purpose + 4, number);
	weft_put_le64(purpose + 8, token);
	weft_hello_dial(&hs->hello, conn->remote->key, s->addr->key, purpose);
	err = weft_events_add(s->events, fd, &hs->src, EPOLLOUT);
	if (err)
		fail_dial(hs, err);
	return err;
}

static int dial(struct weft_conn *conn)
{
	if (conn->state == WEFT_CONN_WAITING)
		weft_conn_set_state(conn, WEFT_CONN_DIALING);
	conn->retry_ms = 0;
	return weft_conn_dial_more(
		conn, conn->session->kind, conn->number,
		weft_neighbour_word(conn->session->addr->ns_id));
}

/* Was no dial made because this process or host lacks a resource? */
static bool lacks_resources(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM ||
	       err == -ENOBUFS || err == -ENOSPC;
}

int weft_session_connect(struct weft_session *s,
			 const struct weft_address *remote, uint32_t number,
			 struct weft_conn **conn)
{
	char buf[WEFT_SOCKADDR_STR];
	int err;

	*conn = weft_conn_adopt(s, remote->key, number);
	if (*conn)
		return 0;
	*conn = s->ops->new_conn(s, remote, weft_key_id(remote->key), number,
				 peer_name(s, &remote->sa, buf));
	if (!*conn)
		return -ENOMEM;
	err = dial(*conn);
	/* progress() reports errors that concern the peer */
	return lacks_resources(err) ? err : 0;
}

/* ---- the hello ----------------------------------------------------------- */

bool weft_conn_give_up(struct weft_conn *conn)
{
	struct weft_handshake *hs, *th;

	if (conn->state >= WEFT_CONN_JOINING)
		return false;
	weft_list_for_each (hs, th, &conn->session->handshakes, link) {
		if (hs->conn != conn)
			continue;
		/* the peer may have accepted it for an endpoint */
		if (hs->dialer && hs->hello.peer_max)
			return false;
		if (hs->dialer)
			continue;
		weft_secret_free(conn->remote, sizeof(*conn->remote));
		conn->remote = NULL;
		conn->had_ep = false;
		return false;
	}
	weft_conn_drop_handshakes(conn);
	return true;
}

static struct weft_conn *decide_first(struct weft_handshake *hs,
				      enum weft_hello_verdict *verdict)
{
	struct weft_session *s = hs->session;
	const uint64_t peer_id = hs->hello.peer_id;
	struct weft_conn *conn = weft_conn_find_rival(s, peer_id, hs->number);
	char buf[WEFT_SOCKADDR_STR];

	if (!conn)
		return weft_peer_has_room(s->conns.n, s->name)
			       ? s->ops->new_conn(s, NULL, peer_id, hs->number,
						  peer_name(s, &hs->peer, buf))
			       : NULL;
	if (conn->state >= WEFT_CONN_JOINING || !conn->remote ||
	    !weft_hello_owns(&hs->hello, conn->remote->key))
		return NULL;
	if (conn->state == WEFT_CONN_DIALING && s->id < peer_id) {
		*verdict = WEFT_HELLO_YIELD;
		return NULL;
	}
	/* the peer's dial is preferred: move what waited for ours to it */
	weft_conn_drop_handshakes(conn);
	conn->retry_ms = 0;
	return conn;
}

static void decide_verdict(struct weft_handshake *hs)
{
	struct weft_session *s = hs->session;
	enum weft_hello_verdict verdict = WEFT_HELLO_BUSY;

	hs->kind = weft_get_le32(hs->hello.purpose);
	hs->number = weft_get_le32(hs->hello.purpose + 4);
	hs->token = weft_get_le64(hs->hello.purpose + 8);
	if (hs->kind == s->kind)
		hs->conn = decide_first(hs, &verdict);
	else if (s->ops->find_conn)
		hs->conn = s->ops->find_conn(hs);
	weft_hello_verdict(&hs->hello,
			   hs->conn ? WEFT_HELLO_ACCEPTED : verdict);
}

static void fail_accepted(struct weft_handshake *hs, int err)
{
	struct weft_session *s = hs->session;
	struct weft_conn *conn = hs->conn;

	/* log only failures of peers that speak the protocol */
	if (err == -EACCES)
		weft_warn_once(
			"a peer connected to '%s' with a wrong key or another WEFT_SECRET_FILE and was turned away",
			s->name);
	else if (err == -EPROTONOSUPPORT)
		weft_warn_once(
			"a peer that speaks wire versions %u to %u was turned away; this weft speaks %u to %u",
			hs->hello.peer_min, hs->hello.peer_max, WEFT_WIRE_MIN,
			WEFT_WIRE_MAX);
	weft_handshake_free(hs);
	if (!conn || hs->kind != s->kind)
		return;
	if (conn->remote) /* our dial was dropped for it */
		wait_to_dial(conn, REDIAL_MS);
	else
		s->ops->lost(conn, hs->kind, -ECONNRESET, NULL);
}

void weft_handshake_fail(struct weft_handshake *hs, int err)
{
	if (hs->dialer)
		fail_dial(hs, err);
	else
		fail_accepted(hs, err);
}

/* Both sides are proven: what did the listener say? */
static void finish_handshake(struct weft_handshake *hs)
{
	struct weft_session *s = hs->session;
	struct weft_conn *conn = hs->conn;
	const bool first = hs->kind == s->kind;
	const int fd = hs->fd;

	if (hs->hello.verdict == WEFT_HELLO_YIELD && hs->dialer && first &&
	    conn->yields++ < YIELDS) {
		weft_handshake_free(hs);
		wait_to_dial(conn, YIELD_MS);
		return;
	}
	if (hs->hello.verdict != WEFT_HELLO_ACCEPTED) {
		weft_handshake_fail(hs, -ECONNREFUSED);
		return;
	}
	weft_events_del(s->events, fd);
	hs->fd = -1;
	weft_handshake_free(hs);
	if (first) {
		conn->dialer = hs->dialer;
		conn->neighbour = hs->dialer ? 0 : hs->token;
		if (!conn->remote) {
			conn->hello = malloc(sizeof(*conn->hello));
			if (conn->hello)
				*conn->hello = hs->hello;
		}
		weft_conn_set_state(conn, WEFT_CONN_JOINING);
	}
	s->ops->joined(hs, fd);
}

/* If this side was late in sending, the listener may have closed. */
static void note_silence(struct weft_handshake *hs)
{
	const uint64_t now = weft_now_ms();

	hs->late |= now - hs->moved_ms >= WEFT_UNPROVEN_SPARED_MS;
	hs->moved_ms = now;
}

/* 1: goes on; 0: would block; -errno */
static int move_hello(struct weft_handshake *hs)
{
	struct weft_hello *h = &hs->hello;
	const bool reading = h->state == WEFT_HELLO_READING;
	ssize_t n;

	if (reading)
		n = recv(hs->fd, h->in + h->have, h->want - h->have,
			 MSG_DONTWAIT);
	else
		n = send(hs->fd, h->out + h->out_done, h->out_len - h->out_done,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
	if (!reading)
		note_silence(hs);
	if (n < 0)
		return errno == EINTR ? 1 : errno == EAGAIN ? 0 : -errno;
	if (!n)
		return -ECONNRESET;
	weft_hello_moved(h, n);
	if (reading && !hs->dialer && h->state != WEFT_HELLO_READING)
		hs->deadline_ms = weft_unproven_received(&hs->session->unproven,
							 &hs->unproven);
	return 1;
}

static unsigned int handle_socket(struct weft_source *src, uint32_t events)
{
	struct weft_handshake *hs =
		container_of(src, struct weft_handshake, src);
	socklen_t len = sizeof(int);
	int err = 0;

	if (hs->dead)
		return 0;
	if (hs->connecting)
		getsockopt(hs->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err) {
		weft_handshake_fail(hs, -err);
		return 1;
	}
	hs->connecting = false;
	do {
		switch (hs->hello.state) {
		case WEFT_HELLO_SENDING:
		case WEFT_HELLO_READING:
			err = move_hello(hs);
			break;
		case WEFT_HELLO_DECIDE:
			decide_verdict(hs);
			err = 1;
			break;
		case WEFT_HELLO_DONE:
			finish_handshake(hs);
			return 1;
		case WEFT_HELLO_FAILED:
			err = hs->hello.err;
			break;
		}
	} while (err > 0);
	if (err)
		weft_handshake_fail(hs, err);
	else
		weft_events_change(hs->session->events, hs->fd, &hs->src,
				   hs->hello.state == WEFT_HELLO_SENDING
					   ? EPOLLOUT
					   : EPOLLIN);
	return 1;
}

int weft_handshake_accept(struct weft_session *s, int fd,
			  const union weft_sockaddr *peer)
{
	struct weft_handshake *hs = new_handshake(s, fd);

	if (!hs) {
		close(fd);
		return -ENOMEM;
	}
	if (s->ops->set_options)
		s->ops->set_options(fd);
	hs->deadline_ms = weft_unproven_add(&s->unproven, &hs->unproven, fd);
	hs->peer = *peer;
	weft_hello_listen(&hs->hello, s->addr->key);
	if (weft_events_add(s->events, fd, &hs->src, EPOLLIN))
		weft_handshake_free(hs);
	else
		handle_socket(&hs->src, EPOLLIN);
	return 0;
}

/* ---- the session --------------------------------------------------------- */

void weft_session_init(struct weft_session *s, struct weft_events *events)
{
	s->events = events;
	weft_list_init(&s->handshakes);
	weft_list_init(&s->dead);
	weft_list_init(&s->meeting);
	weft_unproven_init(&s->unproven, MAX_UNPROVEN);
}

void weft_session_close(struct weft_session *s)
{
	while (!weft_list_empty(&s->handshakes))
		weft_handshake_free(weft_list_first(
			&s->handshakes, struct weft_handshake, link));
	weft_session_reap(s);
	weft_table_free(&s->conns);
}

/*
 * One at a time: ending it may end others of its connection.  A listener whose
 * kernel has accepted may be busy for as long as it lives.
 */
static struct weft_handshake *find_expired(struct weft_session *s, uint64_t now)
{
	struct weft_handshake *hs, *th;

	weft_list_for_each (hs, th, &s->handshakes, link)
		if ((!hs->dialer || hs->connecting) && now >= hs->deadline_ms)
			return hs;
	return NULL;
}

void weft_session_tick(struct weft_session *s, uint64_t now, uint64_t stood)
{
	const uint64_t latest = now + weft_settings()->connect_timeout_ms;
	struct weft_handshake *hs, *th;
	struct weft_conn *conn, *tc;
	uint64_t next = now + WEFT_TICK_MS;

	weft_session_resume_accept(s, now);
	weft_list_for_each (hs, th, &s->handshakes, link)
		hs->deadline_ms = weft_min(hs->deadline_ms + stood, latest);
	while ((hs = find_expired(s, now)))
		weft_handshake_fail(hs, -ETIMEDOUT);
	weft_list_for_each (conn, tc, &s->meeting, meet_link) {
		if (conn->err)
			continue; /* progress() will end it */
		if (conn->retry_ms && now >= conn->retry_ms)
			dial(conn);
		if (conn->retry_ms)
			next = weft_min(next, conn->retry_ms);
	}
	if (weft_session_busy(s))
		weft_events_wake_at(s->events, next);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections: one message stream per pair of endpoints, found by (key, n-th).
 * It outlives an endpoint as long as the peer still uses it: destroying one
 * only says BYE, and the stream ends when both sides have said so.
 */
#include "devices/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"

/* The moves that are legal; CLOSED is the last one. */
static const struct {
	const char *name;
	unsigned int next;
} states[] = {
	[TCP_CONN_DIALING] = { "dialing", BIT(TCP_CONN_WAITING) |
			       BIT(TCP_CONN_OPEN) | BIT(TCP_CONN_CLOSED) },
	[TCP_CONN_WAITING] = { "waiting", BIT(TCP_CONN_DIALING) |
			       BIT(TCP_CONN_OPEN) | BIT(TCP_CONN_CLOSED) },
	[TCP_CONN_OPEN] = { "open", BIT(TCP_CONN_CLOSED) },
	[TCP_CONN_CLOSED] = { "closed", 0 },
};

void tcp_conn_set_state(struct tcp_conn *conn, enum tcp_conn_state to)
{
	if (!(states[conn->state].next & BIT(to))) {
		weft_error("internal: the connection to peer %016llx is %s and cannot become %s; please report this",
			   (unsigned long long)conn->peer_id,
			   states[conn->state].name, states[to].name);
		return;
	}
	weft_debug("peer %016llx/%u: %s -> %s",
		   (unsigned long long)conn->peer_id, conn->sn,
		   states[conn->state].name, states[to].name);
	conn->state = to;
}

static uint64_t id_key(uint64_t peer_id, uint32_t sn)
{
	return peer_id + sn * 0x9e3779b97f4a7c15;
}

struct tcp_conn *tcp_conn_new(struct tcp_iface *iface, uint64_t peer_id,
			      uint32_t sn, const char *where)
{
	struct tcp_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->remote_key = weft_secret_alloc(WEFT_KEY_LEN);
	if (!conn->remote_key ||
	    weft_table_add(&iface->by_id, &conn->by_id,
			   id_key(peer_id, sn))) {
		weft_secret_free(conn->remote_key, WEFT_KEY_LEN);
		free(conn);
		return NULL;
	}
	conn->src.kind = TCP_SOURCE_CONN;
	conn->iface = iface;
	conn->state = TCP_CONN_DIALING;
	conn->fd = -1;
	conn->peer_id = peer_id;
	conn->sn = sn;
	conn->stats = weft_stats_peer(iface->stats, peer_id, where);
	conn->deadline_ms = weft_now_ms() + weft_settings()->connect_timeout_ms;
	weft_list_init(&conn->held_link);
	weft_list_init(&conn->more_link);
	weft_list_init(&conn->held_messages);
	weft_list_init(&conn->gets);
	weft_list_init(&conn->replies);
	weft_list_add_tail(&iface->conns, &conn->link);
	tcp_watch_start(iface);
	return conn;
}

struct tcp_conn *tcp_conn_find(struct tcp_iface *iface, uint64_t peer_id,
			       uint32_t sn)
{
	struct weft_entry *e = weft_table_find(&iface->by_id,
					       id_key(peer_id, sn));
	struct tcp_conn *c;

	for (; e; e = weft_table_next(e)) {
		c = container_of(e, struct tcp_conn, by_id);
		if (c->peer_id == peer_id && c->sn == sn)
			return c;
	}
	return NULL;
}

int tcp_conn_make_token(struct tcp_conn *conn)
{
	if (conn->token)
		return 0;
	while (!conn->token && !weft_random(&conn->token, sizeof(conn->token)))
		;
	return weft_table_add(&conn->iface->by_token, &conn->by_token,
			      conn->token);
}

struct tcp_conn *tcp_conn_by_token(struct tcp_iface *iface, uint64_t token)
{
	struct weft_entry *e = weft_table_find(&iface->by_token, token);
	struct tcp_conn *c = e ? container_of(e, struct tcp_conn, by_token) :
			     NULL;

	return c && c->state == TCP_CONN_OPEN && !c->dialer && !c->broken ?
	       c : NULL;
}

void tcp_conn_interest(struct tcp_conn *conn)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &conn->src };

	if (conn->state != TCP_CONN_OPEN)
		return;
	if (conn->want_out)
		ev.events |= EPOLLOUT;
	epoll_ctl(conn->iface->epfd, EPOLL_CTL_MOD, conn->fd, &ev);
}

/* Streams that just spoke are polled directly: one system call less. */
void tcp_conn_heat(struct tcp_conn *conn)
{
	struct tcp_conn **hot = conn->iface->hot;
	unsigned int i;

	conn->idle_polls = 0;
	if (hot[0] == conn)
		return;
	for (i = 1; i < TCP_HOT - 1 && hot[i] != conn; i++)
		;
	memmove(hot + 1, hot, i * sizeof(*hot));
	hot[0] = conn;
}

static void cool(struct tcp_conn *conn)
{
	unsigned int i;

	for (i = 0; i < TCP_HOT; i++)
		if (conn->iface->hot[i] == conn)
			conn->iface->hot[i] = NULL;
}

void tcp_conn_open(struct tcp_conn *conn, int fd, bool dialer)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &conn->src };
	uint8_t body[8];

	conn->fd = fd;
	conn->dialer = dialer;
	tcp_conn_set_state(conn, TCP_CONN_OPEN);
	if (epoll_ctl(conn->iface->epfd, EPOLL_CTL_ADD, fd, &ev)) {
		tcp_conn_break(conn, -errno);
		return;
	}
	if (!dialer) {
		weft_put_le64(body, conn->token);
		tcp_send_control(conn, TCP_FRAME_WELCOME, body, sizeof(body));
	}
	tcp_conn_want_streams(conn);
	tcp_ep_notify_ready(conn);
}

void tcp_conn_break(struct tcp_conn *conn, int err)
{
	if (conn->broken || conn->state == TCP_CONN_CLOSED)
		return;
	conn->broken = err;
	conn->iface->failing = true;
	tcp_cq_ring(conn->iface);
}

/* What it has to say may take longer than the end of that stream did. */
void tcp_conn_doubt(struct tcp_conn *conn, int err)
{
	if (conn->doubt)
		return;
	conn->doubt = err;
	conn->doubt_seq = atomic_load(&conn->bulk->next_seq);
	conn->doubt_ms = weft_now_ms() + weft_settings()->peer_timeout_ms;
	tcp_watch_start(conn->iface);
}

static bool awaits_bulk(const struct tcp_conn *conn)
{
	struct tcp_stream *s, *ts;

	if (tcp_rx_waits(conn))
		return true;
	if (!conn->bulk || (!conn->nputs && !conn->ngets &&
			    weft_list_empty(&conn->held_messages)))
		return false;
	weft_list_for_each(s, ts, &conn->bulk->streams, link)
		if (!s->given_up)
			return true;
	return false;
}

void tcp_conn_check_end(struct tcp_conn *conn, uint64_t now)
{
	if (conn->doubt &&
	    atomic_load(&conn->bulk->acked) >= conn->doubt_seq)
		conn->doubt = 0;
	if (conn->ended && (now >= conn->end_ms || !awaits_bulk(conn)))
		tcp_conn_break(conn, -ESHUTDOWN);
	else if (conn->doubt && now >= conn->doubt_ms)
		tcp_conn_break(conn, conn->doubt);
}

static void end_streams(struct tcp_conn *conn)
{
	struct tcp_bulk *b = conn->bulk;

	tcp_greet_drop_for(conn);
	while (b && !weft_list_empty(&b->streams))
		tcp_stream_detach(weft_list_first(&b->streams,
						  struct tcp_stream, link));
}

/* Completes everything that waits on @conn with @err. */
static void fail_pending(struct tcp_conn *conn, int err)
{
	struct weft_op *op = conn->zc_op;
	struct tcp_put *put, *tput;

	conn->zc_op = NULL;
	conn->zc_i = conn->zc_n = 0;
	if (op)
		op->done(op, err);
	tcp_bulk_cancel(conn, err);
	tcp_gets_cancel(conn, err);
	weft_list_for_each(put, tput, &conn->replies, link)
		free(put);
	weft_list_init(&conn->replies);
}

void tcp_conn_end(struct tcp_conn *conn)
{
	const uint64_t now = weft_now_ms();

	if (!conn->ended) {
		conn->ended = true;
		conn->end_ms = now + weft_settings()->peer_timeout_ms;
		cool(conn);
		epoll_ctl(conn->iface->epfd, EPOLL_CTL_DEL, conn->fd, NULL);
	}
	tcp_conn_check_end(conn, now);
}

/* Did this side lose anything by an orderly end? */
static bool nothing_lost(const struct tcp_conn *conn)
{
	return !conn->zc_op && !conn->tx_len && !conn->ngets && !conn->nputs;
}

void tcp_conn_close(struct tcp_conn *conn, int err)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_ep *ep;

	if (conn->state == TCP_CONN_CLOSED)
		return;
	if (err == -ESHUTDOWN && !nothing_lost(conn))
		err = -ECONNRESET;
	cool(conn);
	end_streams(conn);
	/* deliver what engines had finished before the end */
	tcp_cq_deliver(iface, true);
	if (conn->state == TCP_CONN_CLOSED)
		return;
	tcp_conn_set_state(conn, TCP_CONN_CLOSED);
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
	weft_list_del(&conn->link);
	weft_table_del(&iface->by_id, &conn->by_id);
	weft_table_del(&iface->by_token, &conn->by_token);
	weft_list_del(&conn->held_link);
	weft_list_del(&conn->more_link);
	weft_list_add_tail(&iface->dead, &conn->link);
	fail_pending(conn, err);
	ep = conn->ep;		/* not before: the callbacks may destroy it */
	conn->ep = NULL;
	tcp_cq_forget(conn);
	if (ep)
		tcp_ep_failed(ep, err);
}

/* Frees what ended; nobody is inside those connections any more. */
void tcp_conn_reap(struct tcp_iface *iface)
{
	struct tcp_conn *conn, *tc;

	weft_list_for_each(conn, tc, &iface->dead, link) {
		weft_list_del(&conn->link);
		tcp_bulk_drop(conn);
		tcp_rx_drop(conn);
		weft_secret_free(conn->remote_key, WEFT_KEY_LEN);
		weft_stats_peer_ended(iface->stats, conn->stats);
		free(conn->hello);
		free(conn->tx);
		free(conn);
	}
}

/* Neither side has an endpoint on it, and nothing is on the way. */
void tcp_conn_maybe_end(struct tcp_conn *conn)
{
	if (conn->state == TCP_CONN_OPEN && !conn->ep && conn->bye_seen &&
	    !conn->broken && weft_list_empty(&conn->held_messages) &&
	    tcp_conn_drained(conn) &&
	    (conn->bye_sent || !conn->had_ep))
		tcp_conn_break(conn, -ESHUTDOWN);
}

int tcp_conn_dial(struct tcp_conn *conn)
{
	conn->deadline_ms = weft_now_ms() + weft_settings()->connect_timeout_ms;
	return tcp_greet_dial(conn, TCP_PURPOSE_MESSAGES);
}

void tcp_conn_want_streams(struct tcp_conn *conn)
{
	struct tcp_bulk *b = conn->bulk;
	unsigned int have, limit, i = 0;
	struct tcp_stream *s, *ts;
	uint8_t body[4];
	bool work;

	if (!b || conn->state != TCP_CONN_OPEN || conn->broken ||
	    conn->ended || b->no_streams)
		return;
	pthread_mutex_lock(&b->lock);
	have = b->out_streams + b->out_dialing;
	limit = b->out_limit;
	work = !weft_list_empty(&b->queue) || b->out_streams;
	weft_list_for_each(s, ts, &b->streams, link)
		if (s->out && !s->given_up)
			s->parked = ++i > limit;
	pthread_mutex_unlock(&b->lock);
	if (!work || have >= limit)
		return;
	if (!conn->dialer) {
		if (b->asked_streams)
			return;
		b->asked_streams = true;
		b->out_dialing += limit - have;
		weft_put_le32(body, limit - have);
		tcp_send_control(conn, TCP_FRAME_STREAMS, body, sizeof(body));
		return;
	}
	if (!conn->token)	/* WELCOME is on its way and calls again */
		return;
	while (have++ < limit)
		if (tcp_greet_dial(conn, TCP_PURPOSE_BULK_OUT))
			break;
}

/* Bulk streams of @conn one way, whose hello is not done. */
static unsigned int under_way(const struct tcp_conn *conn,
			      enum tcp_purpose dialed,
			      enum tcp_purpose accepted)
{
	struct tcp_greet *g, *tg;
	unsigned int n = 0;

	weft_list_for_each(g, tg, &conn->iface->greets, link)
		n += (g->conn == conn && g->purpose == dialed) ||
		     (g->target == conn && g->hello.purpose[0] == accepted);
	return n;
}

unsigned int tcp_conn_streams_in(const struct tcp_conn *conn)
{
	unsigned int n = under_way(conn, TCP_PURPOSE_BULK_IN,
				   TCP_PURPOSE_BULK_OUT);
	struct tcp_stream *s, *ts;

	if (conn->bulk)
		weft_list_for_each(s, ts, &conn->bulk->streams, link)
			n += !s->out;
	return n;
}

bool tcp_conn_has_room(const struct tcp_conn *conn, enum tcp_purpose purpose)
{
	if (purpose == TCP_PURPOSE_BULK_OUT)
		return tcp_conn_streams_in(conn) < TCP_MAX_STREAMS_IN;
	return conn->bulk &&
	       under_way(conn, TCP_PURPOSE_BULK_OUT, TCP_PURPOSE_BULK_IN) <
	       conn->bulk->out_dialing;
}

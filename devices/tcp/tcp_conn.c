/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_bulk.h"
#include "devices/tcp/tcp_event.h"
#include "devices/tcp/tcp_msg.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "devices/conn_state.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"

/* The moves that are legal; CLOSED is the last one. */
static const struct weft_conn_state states[] = {
	[TCP_CONN_DIALING] = { "dialing", BIT(TCP_CONN_WAITING) |
						  BIT(TCP_CONN_OPEN) |
						  BIT(TCP_CONN_CLOSED) },
	[TCP_CONN_WAITING] = { "waiting", BIT(TCP_CONN_DIALING) |
						  BIT(TCP_CONN_OPEN) |
						  BIT(TCP_CONN_CLOSED) },
	[TCP_CONN_OPEN] = { "open", BIT(TCP_CONN_CLOSED) },
	[TCP_CONN_CLOSED] = { "closed", 0 },
};

void tcp_conn_set_state(struct tcp_conn *conn, enum tcp_conn_state to)
{
	if (weft_conn_may_move(states, conn->state, to, conn->peer_id,
			       conn->sn))
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
	    weft_table_add(&iface->by_id, &conn->by_id, id_key(peer_id, sn))) {
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
	weft_list_init(&conn->deferred_link);
	weft_list_init(&conn->rx_pending_link);
	weft_list_init(&conn->attend_link);
	weft_list_init(&conn->deferred_messages);
	weft_list_init(&conn->gets);
	weft_list_init(&conn->replies);
	weft_list_add_tail(&iface->conns, &conn->link);
	tcp_iface_set_tick(iface, true);
	return conn;
}

struct tcp_conn *tcp_conn_find(struct tcp_iface *iface, uint64_t peer_id,
			       uint32_t sn)
{
	struct weft_entry *e =
		weft_table_find(&iface->by_id, id_key(peer_id, sn));
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
	struct tcp_conn *c =
		e ? container_of(e, struct tcp_conn, by_token) : NULL;

	return c && c->state == TCP_CONN_OPEN && !c->dialer && !c->err ? c
								       : NULL;
}

void tcp_conn_poll_add(struct tcp_conn *conn)
{
	struct tcp_conn **polled = conn->iface->polled;
	unsigned int i;

	conn->idle_polls = 0;
	if (polled[0] == conn)
		return;
	for (i = 1; i < TCP_POLLED - 1 && polled[i] != conn; i++)
		;
	memmove(polled + 1, polled, i * sizeof(*polled));
	polled[0] = conn;
}

void tcp_conn_poll_del(struct tcp_conn *conn)
{
	unsigned int i;

	for (i = 0; i < TCP_POLLED; i++)
		if (conn->iface->polled[i] == conn)
			conn->iface->polled[i] = NULL;
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
		tcp_conn_send_control(conn, TCP_FRAME_WELCOME, body,
				      sizeof(body));
	}
	tcp_conn_attend(conn);
}

void tcp_conn_suspect(struct tcp_conn *conn, int err)
{
	if (conn->suspect_err)
		return;
	conn->suspect_err = err;
	conn->suspect_seq = atomic_load(&conn->bulk->next_seq);
	conn->suspect_until_ms =
		weft_now_ms() + weft_settings()->peer_timeout_ms;
	tcp_iface_set_tick(conn->iface, true);
}

void tcp_conn_end(struct tcp_conn *conn)
{
	if (!conn->rx_ended) {
		conn->rx_ended = true;
		conn->end_ms = weft_now_ms() + weft_settings()->peer_timeout_ms;
		tcp_conn_poll_del(conn);
		epoll_ctl(conn->iface->epfd, EPOLL_CTL_DEL, conn->fd, NULL);
	}
	tcp_conn_attend(conn);
}

void tcp_conn_maybe_end(struct tcp_conn *conn)
{
	if (conn->state == TCP_CONN_OPEN && !conn->ep && conn->bye_seen &&
	    !conn->err && weft_list_empty(&conn->deferred_messages) &&
	    tcp_conn_drained(conn) && (conn->bye_sent || !conn->had_ep))
		tcp_conn_break(conn, -ESHUTDOWN);
}

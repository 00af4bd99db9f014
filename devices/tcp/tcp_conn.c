/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/bulk/tcp_bulk.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "stats/neighbour.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

struct tcp_conn *tcp_conn_new(struct tcp_iface *iface,
			      const struct weft_address *remote,
			      uint64_t peer_id, uint32_t number,
			      const char *where)
{
	struct tcp_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	if (weft_conn_init(&conn->base, &iface->base.session, remote, peer_id,
			   number)) {
		free(conn);
		return NULL;
	}
	conn->src.handle = iface->handle_conn;
	conn->iface = iface;
	conn->fd = -1;
	conn->stats = weft_stats_peer(iface->base.stats, peer_id, where);
	weft_list_init(&conn->deferred_link);
	weft_list_init(&conn->gather_link);
	weft_list_init(&conn->rx_pending_link);
	weft_list_init(&conn->deferred_messages);
	conn->cut = UINT64_MAX;
	weft_list_init(&conn->gets);
	weft_list_init(&conn->asked);
	weft_list_add_tail(&iface->conns, &conn->link);
	return conn;
}

static int make_token(struct tcp_conn *conn)
{
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

	return c && c->base.state == WEFT_CONN_OPEN && !c->base.dialer &&
			       !c->base.err
		       ? c
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

/* The listener alone has the dialer's word, so one of the two says it. */
static void note_neighbour(struct tcp_conn *conn)
{
	bool chosen;
	const enum weft_barrier barrier = weft_neighbour_barrier(
		weft_neighbour_word(conn->iface->base.addr->ns_id),
		conn->base.neighbour, &chosen);

	if (barrier && !conn->iface->base.session.aside &&
	    conn->base.peer_id != conn->iface->base.id)
		weft_stats_detour(conn->stats, barrier, chosen);
}

void tcp_conn_open(struct tcp_conn *conn, int fd)
{
	uint8_t body[8];
	int err;

	conn->fd = fd;
	weft_conn_set_state(&conn->base, WEFT_CONN_OPEN);
	err = weft_events_add(&conn->iface->base.events, fd, &conn->src,
			      EPOLLIN);
	if (!err && !conn->base.dialer)
		err = make_token(conn);
	if (err) {
		tcp_conn_break(conn, err);
		return;
	}
	if (!conn->base.dialer) {
		note_neighbour(conn);
		weft_put_le64(body, conn->token);
		tcp_conn_send_control(conn, TCP_FRAME_WELCOME, body,
				      sizeof(body));
	}
	if (!conn->base.ep && conn->base.had_ep) /* given up meanwhile */
		tcp_conn_send_bye(conn);
	tcp_iface_start_tick(conn->iface);
	weft_conn_attend(&conn->base);
}

void tcp_conn_send_bye(struct tcp_conn *conn)
{
	tcp_conn_send_control(conn, TCP_FRAME_BYE, NULL, 0);
	conn->base.bye_sent = true;
}

void tcp_conn_suspect(struct tcp_conn *conn, int err)
{
	if (conn->suspect_err)
		return;
	conn->suspect_err = err;
	conn->suspect_seq = atomic_load(&conn->bulk->next_seq);
	conn->suspect_until_ms =
		weft_now_ms() + weft_settings()->peer_timeout_ms;
	tcp_iface_start_tick(conn->iface);
}

void tcp_conn_end(struct tcp_conn *conn)
{
	if (!conn->rx_ended) {
		conn->rx_ended = true;
		conn->end_ms = weft_now_ms() + weft_settings()->peer_timeout_ms;
		tcp_conn_poll_del(conn);
		weft_events_del(&conn->iface->base.events, conn->fd);
	}
	weft_conn_attend(&conn->base);
}

void tcp_conn_maybe_end(struct tcp_conn *conn)
{
	if (conn->base.state == WEFT_CONN_OPEN && !conn->base.ep &&
	    conn->base.bye_received && !conn->base.err &&
	    weft_list_empty(&conn->deferred_messages) &&
	    tcp_conn_drained(conn) && weft_list_empty(&conn->gather_link) &&
	    (conn->base.bye_sent || !conn->base.had_ep))
		tcp_conn_break(conn, -ESHUTDOWN);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One progress(): reads the message streams, moves what has no thread, delivers
 * what engines have found, and at last looks at each connection that something
 * happened to.  All callbacks but those of messages run from here.
 */
#include "devices/tcp/tcp_iface.h"
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_engine.h"
#include "devices/tcp/tcp_event.h"
#include "devices/tcp/tcp_msg.h"
#include "devices/tcp/tcp_rma.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"

#define EVENTS	    32
#define POLL_EVERY  16	 /* progress calls between looks at epoll */
#define POLLED_IDLE 4096 /* fruitless polls before a stream is not hot */

/* A stream ended, and with it puts, perhaps: the message stream tells why. */
static void end_stream(struct tcp_stream *s)
{
	struct tcp_conn *conn = s->conn;
	struct tcp_bulk *b = conn->bulk;
	struct tcp_put *put = s->out_chunk ? s->out_chunk->put : NULL;
	bool out = s->out, busy = put != NULL;
	int err = s->err;

	if (s->abandoned) /* meanwhile: the peer's answer ends it */
		return;
	if (err == -ECANCELED) { /* its source was taken away */
		tcp_put_source_gone(conn, put);
		tcp_engines_wake(conn);
		return;
	}
	tcp_stream_detach(s);
	busy = busy ||
	       (out && atomic_load(&b->next_seq) != atomic_load(&b->acked));
	if (err == -EPROTO)
		weft_error(
			"peer %016llx sent a bulk chunk that breaks the protocol; the connection is closed",
			(unsigned long long)conn->peer_id);
	if (err != -ECONNRESET && err != -EPIPE)
		tcp_conn_break(conn, err);
	else if (busy)
		tcp_conn_suspect(conn, -ECONNRESET);
	else
		tcp_engines_wake(conn);
	if (conn->rx_ended)
		tcp_conn_end(conn);
}

unsigned int tcp_iface_deliver(struct tcp_iface *iface, bool all)
{
	struct weft_iface_cb *cb = &iface->base.cb;
	struct tcp_stream *s;
	struct tcp_event *e;
	struct tcp_conn *c, *tc;
	struct tcp_put *put;
	unsigned int n = 0, events = 0;

	if (!atomic_load(&iface->events.any))
		return 0;
	atomic_store(&iface->events.any, false);
	for (;;) {
		put = NULL;
		e = NULL;
		s = NULL;
		pthread_mutex_lock(&iface->events.lock);
		if (!weft_list_empty(&iface->events.landings) &&
		    (all || events++ < WEFT_PROGRESS_MAX)) {
			e = weft_list_first(&iface->events.landings,
					    struct tcp_event, link);
			weft_list_del(&e->link);
		} else if (!weft_list_empty(&iface->events.puts)) {
			put = weft_list_first(&iface->events.puts,
					      struct tcp_put, done_link);
			weft_list_del(&put->done_link);
		} else if (!weft_list_empty(&iface->events.streams)) {
			s = weft_list_first(&iface->events.streams,
					    struct tcp_stream, report_link);
			weft_list_del(&s->report_link);
		} else if (!weft_list_empty(&iface->events.landings)) {
			atomic_store(&iface->events.any, true);
		}
		pthread_mutex_unlock(&iface->events.lock);
		if (e) {
			if (e->flags & TCP_CHUNK_GET)
				tcp_get_done(e->conn, e->tag, e->status);
			else if (!iface->closing)
				cb->on_notify(cb->arg, e->tag, e->size);
			free(e);
		} else if (put) {
			tcp_put_done(put);
		} else if (s) {
			end_stream(s);
		} else {
			break;
		}
		n++;
	}
	weft_list_for_each (c, tc, &iface->deferred, deferred_link)
		if (weft_list_empty(&c->rx_pending_link))
			n += tcp_conn_receive(c);
	return n;
}

static void end_streams(struct tcp_conn *conn)
{
	struct tcp_bulk *b = conn->bulk;

	tcp_handshakes_drop(conn);
	while (b && !weft_list_empty(&b->streams))
		tcp_stream_detach(
			weft_list_first(&b->streams, struct tcp_stream, link));
}

/* Did this side lose anything by an orderly end? */
static bool nothing_lost(const struct tcp_conn *conn)
{
	return !conn->zc_op && !conn->tx_len && !conn->ngets && !conn->nputs;
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
	tcp_puts_cancel(conn, err);
	tcp_gets_cancel(conn, err);
	weft_list_for_each (put, tput, &conn->replies, link)
		free(put);
	weft_list_init(&conn->replies);
}

void tcp_conn_close(struct tcp_conn *conn, int err)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_ep *ep;

	if (conn->state == TCP_CONN_CLOSED)
		return;
	if (err == -ESHUTDOWN && !nothing_lost(conn))
		err = -ECONNRESET;
	tcp_conn_poll_del(conn);
	end_streams(conn);
	/* deliver what engines had finished before the end */
	tcp_iface_deliver(iface, true);
	if (conn->state == TCP_CONN_CLOSED)
		return;
	tcp_conn_set_state(conn, TCP_CONN_CLOSED);
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
	weft_list_del(&conn->link);
	weft_table_del(&iface->by_id, &conn->by_id);
	weft_table_del(&iface->by_token, &conn->by_token);
	weft_list_del(&conn->deferred_link);
	weft_list_del(&conn->rx_pending_link);
	weft_list_del(&conn->attend_link);
	weft_list_add_tail(&iface->dead, &conn->link);
	fail_pending(conn, err);
	ep = conn->ep; /* not before: the callbacks may destroy it */
	conn->ep = NULL;
	tcp_events_forget(conn);
	if (ep)
		tcp_ep_failed(ep, err);
}

void tcp_conns_reap(struct tcp_iface *iface)
{
	struct tcp_conn *conn, *tc;

	weft_list_for_each (conn, tc, &iface->dead, link) {
		weft_list_del(&conn->link);
		tcp_bulk_free(conn);
		tcp_conn_drop_received(conn);
		weft_secret_free(conn->remote_key, WEFT_KEY_LEN);
		weft_stats_peer_ended(iface->stats, conn->stats);
		free(conn->hello);
		free(conn->tx);
		free(conn);
	}
}

static bool waits_for_bulk(const struct tcp_conn *conn)
{
	struct tcp_stream *s, *ts;

	if (tcp_conn_has_pending(conn))
		return true;
	if (!conn->bulk || (!conn->nputs && !conn->ngets &&
			    weft_list_empty(&conn->deferred_messages)))
		return false;
	weft_list_for_each (s, ts, &conn->bulk->streams, link)
		if (!s->abandoned)
			return true;
	return false;
}

static void check_end(struct tcp_conn *conn)
{
	const uint64_t now = weft_now_ms();

	if (conn->suspect_err &&
	    atomic_load(&conn->bulk->acked) >= conn->suspect_seq)
		conn->suspect_err = 0;
	if (conn->rx_ended && (now >= conn->end_ms || !waits_for_bulk(conn)))
		tcp_conn_break(conn, -ESHUTDOWN);
	else if (conn->suspect_err && now >= conn->suspect_until_ms)
		tcp_conn_break(conn, conn->suspect_err);
}

/*
 * A write that fails says less than what the peer wrote before it went: data,
 * and whether it went in order.
 */
static void drain_socket(struct tcp_conn *conn)
{
	const int err = conn->err;
	unsigned int rounds = 64;

	if (conn->state != TCP_CONN_OPEN ||
	    (err != -EPIPE && err != -ECONNRESET && err != -ETIMEDOUT))
		return;
	conn->err = 0;
	while (rounds-- && tcp_conn_receive(conn) &&
	       conn->state == TCP_CONN_OPEN && !conn->err)
		;
	if (!conn->err && !conn->rx_ended)
		conn->err = err;
}

/* Something happened to @conn; false: it is to be looked at again. */
static bool settle_conn(struct tcp_conn *conn)
{
	if (conn->state == TCP_CONN_OPEN && !conn->err) {
		tcp_gets_answer(conn);
		tcp_ep_notify(conn);
		tcp_conn_maybe_end(conn);
	}
	if (conn->rx_ended || conn->suspect_err)
		check_end(conn);
	if (!conn->err)
		return true;
	drain_socket(conn);
	if (!conn->err)
		return true;
	if (!weft_list_empty(&conn->rx_pending_link))
		return false; /* it has more than may be told now */
	tcp_conn_close(conn, conn->err);
	return true;
}

/*
 * Those that something happens to meanwhile have their turn with the next call.
 */
static unsigned int settle_conns(struct tcp_iface *iface)
{
	struct weft_list now;
	struct tcp_conn *conn;
	unsigned int n = 0;

	if (weft_list_empty(&iface->attend))
		return 0;
	now = iface->attend;
	now.next->prev = now.prev->next = &now;
	weft_list_init(&iface->attend);
	while (!weft_list_empty(&now)) {
		conn = weft_list_first(&now, struct tcp_conn, attend_link);
		weft_list_del(&conn->attend_link);
		if (!settle_conn(conn))
			tcp_conn_attend(conn);
		n++;
	}
	return n;
}

static unsigned int handle_conn(struct tcp_conn *conn, uint32_t events)
{
	unsigned int n = 1;

	if (conn->state != TCP_CONN_OPEN)
		return 0;
	if (events & EPOLLOUT)
		tcp_conn_flush(conn);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		tcp_conn_poll_add(conn);
		if (weft_list_empty(&conn->rx_pending_link))
			n += tcp_conn_receive(conn);
	}
	return n;
}

static unsigned int poll_events(struct tcp_iface *iface)
{
	struct epoll_event ev[EVENTS];
	struct tcp_source *src;
	unsigned int count = 0;
	uint64_t drop;
	int i, n;

	n = epoll_wait(iface->epfd, ev, EVENTS, 0);
	for (i = 0; i < n; i++) {
		src = ev[i].data.ptr;
		switch (src->kind) {
		case TCP_SOURCE_LISTEN:
			tcp_handshake_accept(iface);
			count++;
			break;
		case TCP_SOURCE_CONN:
			count += handle_conn(
				container_of(src, struct tcp_conn, src),
				ev[i].events);
			break;
		case TCP_SOURCE_HANDSHAKE:
			count += tcp_handshake_io(
				container_of(src, struct tcp_handshake, src));
			break;
		case TCP_SOURCE_WAKE:
			while (read(iface->wake_fd, &drop, sizeof(drop)) < 0 &&
			       errno == EINTR)
				;
			break;
		case TCP_SOURCE_TIMER:
			count += tcp_iface_tick(iface);
			break;
		case TCP_SOURCE_ENGINE:
			break; /* run below */
		}
	}
	return count;
}

/* A turn for each that had more than its share, as far as it goes. */
static unsigned int serve_pending(struct tcp_iface *iface)
{
	struct tcp_conn *c, *last;
	unsigned int n = 0;

	if (weft_list_empty(&iface->rx_pending))
		return 0;
	last = container_of(iface->rx_pending.prev, struct tcp_conn,
			    rx_pending_link);
	do {
		c = weft_list_first(&iface->rx_pending, struct tcp_conn,
				    rx_pending_link);
		weft_list_del(&c->rx_pending_link);
		n += tcp_conn_receive(c);
	} while (c != last && iface->budget &&
		 !weft_list_empty(&iface->rx_pending));
	return n;
}

unsigned int tcp_iface_progress(struct weft_iface *base)
{
	struct tcp_iface *iface = tcp_iface(base);
	struct tcp_conn *conn;
	unsigned int n, i, got;

	iface->budget = WEFT_PROGRESS_MAX;
	n = serve_pending(iface);
	for (i = 0; i < TCP_POLLED && iface->budget; i++) {
		conn = iface->polled[i];
		if (!conn || !weft_list_empty(&conn->rx_pending_link))
			continue;
		got = tcp_conn_receive(conn);
		n += got;
		if (got)
			conn->idle_polls = 0;
		else if (++conn->idle_polls > POLLED_IDLE)
			iface->polled[i] = NULL;
	}
	if (++iface->polls >= POLL_EVERY || !iface->polled[0]) {
		iface->polls = 0;
		n += poll_events(iface);
	}
	for (i = 0; i < iface->nengines; i++)
		if (iface->engines[i].nstreams && !iface->engines[i].has_thread)
			n += tcp_engine_run(&iface->engines[i]);
	n += tcp_iface_deliver(iface, false);
	n += settle_conns(iface);
	tcp_conns_reap(iface);
	tcp_handshakes_reap(iface);
	return n;
}

int tcp_iface_arm(struct weft_iface *base)
{
	struct tcp_iface *iface = tcp_iface(base);
	struct epoll_event ev;
	unsigned int i;
	bool more;

	iface->polls = POLL_EVERY; /* the next progress() looks at epoll */
	if (!weft_list_empty(&iface->attend) ||
	    !weft_list_empty(&iface->rx_pending))
		return -EBUSY;
	atomic_store(&iface->events.armed, true);
	if (atomic_load(&iface->events.any))
		goto busy;
	tcp_engines_sleep(iface);
	for (i = 0; i < iface->nengines; i++) {
		struct tcp_engine *eng = &iface->engines[i];

		if (eng->has_thread)
			continue;
		pthread_mutex_lock(&eng->lock);
		more = !weft_list_empty(&eng->ready) ||
		       atomic_load(&eng->has_work);
		pthread_mutex_unlock(&eng->lock);
		if (more)
			goto busy;
	}
	/* UCP may watch edge-triggered: what is readable now is not an edge */
	if (epoll_wait(iface->epfd, &ev, 1, 0) <= 0)
		return 0;
busy:
	atomic_store(&iface->events.armed, false);
	return -EBUSY;
}

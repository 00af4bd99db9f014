/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One progress(): reads the message streams, runs engines without a thread,
 * delivers their events, and finally handles connections that need attention.
 * All callbacks run from here but on_message() and the completions of gathered
 * gets, which tcp_rx.c makes as it reads the answers.
 */
#include "devices/tcp/tcp_progress.h"
#include "devices/tcp/bulk/tcp_bulk.h"
#include "devices/tcp/bulk/tcp_engine.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_fail.h"
#include "devices/tcp/tcp_get.h"
#include "devices/tcp/tcp_place.h"
#include "devices/tcp/tcp_put.h"
#include "devices/tcp/tcp_rx.h"
#include "devices/tcp/tcp_stall.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

#define POLL_EVERY  16	 /* progress calls between epoll_wait() */
#define POLLED_IDLE 4096 /* idle polls before a stream is cold */

/* A stream ended, perhaps during a put: the message stream will tell why. */
static void tcp_end_stream(struct tcp_stream *s)
{
	struct tcp_conn *conn = s->conn;
	struct tcp_bulk *b = conn->bulk;
	struct tcp_put *put = s->out_chunk ? s->out_chunk->put : NULL;
	bool out = s->out, busy = put != NULL;
	int err = s->err;

	if (s->abandoned) /* the peer's reply will end it */
		return;
	if (err == -ECANCELED) {
		tcp_put_source_gone(conn, put);
		return;
	}
	if (err == -EACCES) {
		weft_count(conn->stats, key_errors, 1);
		tcp_place_failed(conn, &s->chunk, err);
		return;
	}
	if (!conn->rx_ended && (err == -ETIMEDOUT || err == -EHOSTUNREACH ||
				err == -ENETUNREACH)) {
		tcp_stream_lost(conn, s, err);
		return;
	}
	tcp_stream_detach(s);
	busy = busy ||
	       (out && atomic_load(&b->next_seq) != atomic_load(&b->acked));
	if (err == -EPROTO)
		weft_error(
			"peer %016llx sent a bulk chunk that breaks the protocol; the connection is closed",
			(unsigned long long)conn->base.peer_id);
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
	struct weft_iface_cb *cb = &iface->base.iface.cb;
	struct tcp_stream *s;
	struct tcp_event *e;
	struct tcp_conn *c, *tc;
	struct tcp_put *put;
	unsigned int n = 0, events = 0;

	if (!atomic_load(&iface->found.any))
		return 0;
	atomic_store(&iface->found.any, false);
	for (;;) {
		put = NULL;
		e = NULL;
		s = NULL;
		pthread_mutex_lock(&iface->found.lock);
		if (!weft_list_empty(&iface->found.landings) &&
		    (all || events++ < WEFT_PROGRESS_MAX)) {
			e = weft_list_first(&iface->found.landings,
					    struct tcp_event, link);
			tcp_events_take_landing(e);
		} else if (!weft_list_empty(&iface->found.puts)) {
			put = weft_list_first(&iface->found.puts,
					      struct tcp_put, done_link);
			weft_list_del(&put->done_link);
		} else if (!weft_list_empty(&iface->found.streams)) {
			s = weft_list_first(&iface->found.streams,
					    struct tcp_stream, report_link);
			weft_list_del(&s->report_link);
		} else if (!weft_list_empty(&iface->found.landings)) {
			atomic_store(&iface->found.any, true);
		}
		pthread_mutex_unlock(&iface->found.lock);
		if (e) {
			if (e->ack)
				tcp_place_ack(e->conn, e->seq, e->status);
			if (e->flags & TCP_CHUNK_GET)
				tcp_get_done(e->conn, e->tag, e->status);
			else if (!iface->closing)
				cb->on_notify(cb->arg, e->tag, e->size);
			free(e);
		} else if (put) {
			tcp_put_done(put);
		} else if (s) {
			tcp_end_stream(s);
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

	weft_conn_drop_handshakes(&conn->base);
	while (b && !weft_list_empty(&b->streams))
		tcp_stream_detach(
			weft_list_first(&b->streams, struct tcp_stream, link));
}

/* Did this side lose anything in an orderly close? */
static bool nothing_lost(const struct tcp_conn *conn)
{
	return conn->acked == conn->sent && !conn->ngets && !conn->nputs;
}

/* Completes everything pending on @conn with @err. */
static void fail_pending(struct tcp_conn *conn, int err)
{
	tcp_puts_cancel(conn, err);
	tcp_gets_cancel(conn, err);
	tcp_gets_forget(conn);
}

void tcp_conn_close(struct tcp_conn *conn, int err)
{
	struct tcp_iface *iface = conn->iface;

	if (conn->base.state == WEFT_CONN_CLOSED)
		return;
	if (err == -ESHUTDOWN && !nothing_lost(conn))
		err = -ECONNRESET;
	tcp_conn_poll_del(conn);
	end_streams(conn);
	/* deliver what engines had finished before the end */
	tcp_iface_deliver(iface, true);
	if (conn->base.state == WEFT_CONN_CLOSED)
		return;
	weft_conn_set_state(&conn->base, WEFT_CONN_CLOSED);
	if (conn->failed && !conn->rx_ended)
		tcp_conn_leave(conn);
	else
		weft_events_close_fd(&iface->base.events, conn->fd);
	conn->fd = -1;
	weft_list_del(&conn->link);
	weft_conn_fini(&conn->base);
	weft_table_del(&iface->by_token, &conn->by_token);
	weft_list_del(&conn->deferred_link);
	weft_list_del(&conn->gather_link);
	weft_list_del(&conn->rx_pending_link);
	weft_list_add_tail(&iface->dead, &conn->link);
	weft_ep_fail(&conn->base, err);
	fail_pending(conn, err);
	tcp_events_forget(conn);
	weft_ep_failed(&conn->base);
}

void tcp_conns_reap(struct tcp_iface *iface)
{
	struct tcp_conn *conn, *tc;

	weft_list_for_each (conn, tc, &iface->dead, link) {
		weft_list_del(&conn->link);
		tcp_bulk_free(conn);
		tcp_conn_drop_received(conn);
		weft_stats_peer_ended(iface->base.stats, conn->stats);
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
 * After a failed write reads what the peer sent before that: data, and perhaps
 * an orderly close.
 */
static void drain_socket(struct tcp_conn *conn)
{
	const int err = conn->base.err;
	unsigned int rounds = 64;

	if (conn->base.state != WEFT_CONN_OPEN || conn->failed ||
	    (err != -EPIPE && err != -ECONNRESET && err != -ETIMEDOUT))
		return;
	conn->base.err = 0;
	while (rounds-- && tcp_conn_receive(conn) &&
	       conn->base.state == WEFT_CONN_OPEN && !conn->base.err)
		;
	if (!conn->base.err && !conn->rx_ended)
		conn->base.err = err;
}

/* Handles a connection that needs attention. */
static unsigned int settle_conn(struct weft_conn *base)
{
	struct tcp_conn *conn = tcp_conn(base);
	bool asked;

	if (base->state == WEFT_CONN_OPEN && !base->err) {
		asked = !weft_list_empty(&conn->asked);
		tcp_get_answer(conn);
		if (asked) /* else an acknowledgement may wait */
			tcp_conn_write_gathered(conn);
		weft_ep_notify(base);
		tcp_conn_maybe_end(conn);
	}
	if (conn->rx_ended || conn->suspect_err)
		check_end(conn);
	if (base->err)
		drain_socket(conn);
	if (!base->err)
		return 1;
	if (weft_list_empty(&conn->rx_pending_link))
		tcp_conn_close(conn, base->err);
	else /* it has more input than may be delivered now */
		weft_conn_attend(base);
	return 1;
}

unsigned int tcp_conn_handle(struct weft_source *src, uint32_t events)
{
	struct tcp_conn *conn = container_of(src, struct tcp_conn, src);
	unsigned int n = 1;

	if (conn->base.state != WEFT_CONN_OPEN)
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

/* Gives connections with more input another turn, within the budget. */
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

/*
 * UCP's connection manager tells it that a peer has closed an endpoint, and
 * from then on UCP drops its messages.  So what the peer sent before on a
 * connection that is not polled must not wait for a later call.
 */
static bool must_poll_events(struct tcp_iface *iface)
{
	const struct weft_session *session = &iface->base.session;
	unsigned int i, polled = 0;

	for (i = 0; i < TCP_POLLED; i++)
		polled += iface->polled[i] != NULL;
	return !polled || polled < session->conns.n ||
	       !weft_list_empty(&session->handshakes);
}

static void write_gathered(struct tcp_iface *iface)
{
	struct tcp_conn *c, *tc;

	weft_list_for_each (c, tc, &iface->gathering, gather_link)
		tcp_conn_write_gathered(c);
}

unsigned int tcp_iface_progress(struct weft_iface *base)
{
	struct tcp_iface *iface = tcp_iface(base);
	struct tcp_conn *conn;
	unsigned int n, i, got;

	iface->budget = TCP_BUDGET;
	write_gathered(iface);
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
	if (++iface->polls >= POLL_EVERY || must_poll_events(iface)) {
		iface->polls = 0;
		n += weft_events_handle(&iface->base.events);
	}
	for (i = 0; i < iface->nengines; i++)
		if (iface->engines[i].nstreams && !iface->engines[i].has_thread)
			n += tcp_engine_run(&iface->engines[i]);
	n += tcp_iface_deliver(iface, false);
	n += weft_base_work(&iface->base, settle_conn);
	if (iface->found.room)
		tcp_engines_resume(iface);
	tcp_conns_reap(iface);
	weft_session_reap(&iface->base.session);
	return n;
}

int tcp_iface_arm(struct weft_iface *base)
{
	struct tcp_iface *iface = tcp_iface(base);
	unsigned int i;
	bool more;

	iface->polls = POLL_EVERY; /* the next progress() calls epoll_wait() */
	write_gathered(iface);
	if (weft_events_arm(&iface->base.events) ||
	    !weft_list_empty(&iface->base.work) ||
	    !weft_list_empty(&iface->rx_pending))
		return -EBUSY;
	atomic_store(&iface->found.armed, true);
	if (atomic_load(&iface->found.any))
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
	/* UCP may watch edge-triggered: being readable already is no edge */
	if (!weft_events_pending(&iface->base.events))
		return 0;
busy:
	atomic_store(&iface->found.armed, false);
	return -EBUSY;
}

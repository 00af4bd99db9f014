/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What engines tell the owner of an iface.  The event fd is rung only when the
 * owner may be asleep, and once: a program that is woken pays dearly for it
 * (a Python callback each time), so it is woken per completed put, never per
 * read.
 */
#include "devices/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/log.h"

void tcp_cq_init(struct tcp_iface *iface)
{
	pthread_mutex_init(&iface->cq.lock, NULL);
	weft_list_init(&iface->cq.puts);
	weft_list_init(&iface->cq.events);
	weft_list_init(&iface->cq.broken);
}

/* any before armed here, armed before any in arm(): one of them sees it. */
void tcp_cq_ring(struct tcp_iface *iface)
{
	uint64_t one = 1;
	ssize_t n;

	atomic_store(&iface->cq.any, true);
	if (atomic_exchange(&iface->cq.armed, false)) {
		do
			n = write(iface->wake_fd, &one, sizeof(one));
		while (n < 0 && errno == EINTR);
	}
}

void tcp_cq_put_done(struct tcp_iface *iface, struct tcp_put *put)
{
	pthread_mutex_lock(&iface->cq.lock);
	weft_list_add_tail(&iface->cq.puts, &put->done_link);
	pthread_mutex_unlock(&iface->cq.lock);
	tcp_cq_ring(iface);
}

int tcp_cq_event(struct tcp_conn *conn, uint32_t flags, uint64_t tag,
		 uint64_t size, int status)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_event *e = malloc(sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->conn = conn;
	e->flags = flags;
	e->tag = tag;
	e->size = size;
	e->status = status;
	pthread_mutex_lock(&iface->cq.lock);
	weft_list_add_tail(&iface->cq.events, &e->link);
	pthread_mutex_unlock(&iface->cq.lock);
	tcp_cq_ring(iface);
	return 0;
}

/* Taken from the queue; NULL: none. */
static struct tcp_event *first_notify(struct tcp_conn *conn)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_event *e, *te, *found = NULL;

	pthread_mutex_lock(&iface->cq.lock);
	weft_list_for_each(e, te, &iface->cq.events, link)
		if (e->conn == conn && !(e->flags & TCP_CHUNK_GET)) {
			weft_list_del(&e->link);
			found = e;
			break;
		}
	pthread_mutex_unlock(&iface->cq.lock);
	return found;
}

void tcp_cq_notify(struct tcp_conn *conn)
{
	struct tcp_iface *iface = conn->iface;
	struct weft_iface_cb *cb = &iface->base.cb;
	struct tcp_event *e;

	while (!iface->closing && (e = first_notify(conn))) {
		cb->on_notify(cb->arg, e->tag, e->size);
		free(e);
	}
}

void tcp_cq_broken(struct tcp_stream *s)
{
	struct tcp_iface *iface = s->conn->iface;

	pthread_mutex_lock(&iface->cq.lock);
	weft_list_add_tail(&iface->cq.broken, &s->report_link);
	pthread_mutex_unlock(&iface->cq.lock);
	tcp_cq_ring(iface);
}

void tcp_cq_forget(struct tcp_conn *conn)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_event *e, *te;

	pthread_mutex_lock(&iface->cq.lock);
	weft_list_for_each(e, te, &iface->cq.events, link) {
		if (e->conn != conn)
			continue;
		weft_list_del(&e->link);
		free(e);
	}
	pthread_mutex_unlock(&iface->cq.lock);
}

/* A stream ended, and with it puts, perhaps: the message stream tells why. */
static void stream_broke(struct tcp_stream *s)
{
	struct tcp_conn *conn = s->conn;
	struct tcp_bulk *b = conn->bulk;
	struct tcp_put *put = s->out_chunk ? s->out_chunk->put : NULL;
	bool out = s->out, busy = put != NULL;
	int err = s->err;

	tcp_stream_detach(s);
	if (err == -ECANCELED) {	/* its source was taken away */
		tcp_bulk_give_up(conn, put, -EACCES);
		tcp_engines_kick(conn);
		return;
	}
	busy = busy || (out && atomic_load(&b->next_seq) !=
				       atomic_load(&b->acked));
	if (err == -EPROTO)
		weft_error("peer %016llx sent a bulk chunk that breaks the protocol; the connection is closed",
			   (unsigned long long)conn->peer_id);
	if (err != -ECONNRESET && err != -EPIPE)
		tcp_conn_break(conn, err);
	else if (busy)
		tcp_conn_doubt(conn, -ECONNRESET);
	else
		tcp_engines_kick(conn);
	if (conn->ended)
		tcp_conn_end(conn);
}

static void put_done(struct tcp_put *put)
{
	struct tcp_conn *conn = put->conn;
	struct weft_op *op = put->op;
	int status = put->status;

	if (op && !status) {
		weft_count(conn->stats, tx_puts, 1);
		weft_count(conn->stats, tx_put_bytes, put->total);
	}
	if ((put->flags & TCP_CHUNK_GET) && !status && !put->aborted) {
		weft_count(conn->stats, tx_gets, 1);
		weft_count(conn->stats, tx_get_bytes, put->total);
	}
	free(put);
	if (op) {
		conn->nputs--;
		op->done(op, status);
	}
	tcp_ep_notify_ready(conn);
	if (conn->ep)
		tcp_ep_check_flush(conn->ep);
	if (conn->ended)
		tcp_conn_end(conn);
}

unsigned int tcp_cq_deliver(struct tcp_iface *iface, bool all)
{
	struct weft_iface_cb *cb = &iface->base.cb;
	struct tcp_stream *s;
	struct tcp_event *e;
	struct tcp_conn *c, *tc;
	struct tcp_put *put;
	unsigned int n = 0, events = 0;

	if (!atomic_load(&iface->cq.any))
		return 0;
	atomic_store(&iface->cq.any, false);
	for (;;) {
		put = NULL;
		e = NULL;
		s = NULL;
		pthread_mutex_lock(&iface->cq.lock);
		if (!weft_list_empty(&iface->cq.events) &&
		    (all || events++ < WEFT_PROGRESS_MAX)) {
			e = weft_list_first(&iface->cq.events,
					    struct tcp_event, link);
			weft_list_del(&e->link);
		} else if (!weft_list_empty(&iface->cq.puts)) {
			put = weft_list_first(&iface->cq.puts, struct tcp_put,
					      done_link);
			weft_list_del(&put->done_link);
		} else if (!weft_list_empty(&iface->cq.broken)) {
			s = weft_list_first(&iface->cq.broken,
					    struct tcp_stream, report_link);
			weft_list_del(&s->report_link);
		} else if (!weft_list_empty(&iface->cq.events)) {
			atomic_store(&iface->cq.any, true);
		}
		pthread_mutex_unlock(&iface->cq.lock);
		if (e) {
			if (e->flags & TCP_CHUNK_GET)
				tcp_get_done(e->conn, e->tag, e->status);
			else if (!iface->closing)
				cb->on_notify(cb->arg, e->tag, e->size);
			free(e);
		} else if (put) {
			put_done(put);
		} else if (s) {
			stream_broke(s);
		} else {
			break;
		}
		n++;
	}
	weft_list_for_each(c, tc, &iface->held, held_link)
		if (weft_list_empty(&c->more_link))
			n += tcp_conn_rx(c);
	return n;
}

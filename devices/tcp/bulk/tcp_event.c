/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events that engines and lower layers of the owner leave for progress().  The
 * event fd is written only if the owner may be asleep, and once: a wakeup is
 * expensive (a Python callback each time), so wake per completed put, never per
 * read.
 */
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/bulk/tcp_stream.h"

#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"

void tcp_events_init(struct tcp_iface *iface)
{
	pthread_mutex_init(&iface->found.lock, NULL);
	weft_list_init(&iface->found.puts);
	weft_list_init(&iface->found.landings);
	weft_list_init(&iface->found.streams);
}

/*
 * Pairs with arm(): here `any` is set before `armed` is read, there `armed`
 * before `any`, so that one side sees the other.
 */
void tcp_events_wake(struct tcp_iface *iface)
{
	atomic_store(&iface->found.any, true);
	if (atomic_exchange(&iface->found.armed, false))
		weft_events_wake(&iface->base.events);
}

void tcp_events_add_put(struct tcp_iface *iface, struct tcp_put *put)
{
	pthread_mutex_lock(&iface->found.lock);
	weft_list_add_tail(&iface->found.puts, &put->done_link);
	pthread_mutex_unlock(&iface->found.lock);
	tcp_events_wake(iface);
}

struct weft_op *tcp_events_take_op(struct tcp_conn *conn)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_put *put, *tput;
	struct weft_op *op = NULL;

	pthread_mutex_lock(&iface->found.lock);
	weft_list_for_each (put, tput, &iface->found.puts, done_link) {
		if (put->conn != conn || !put->op)
			continue;
		op = put->op;
		put->op = NULL;
		break;
	}
	pthread_mutex_unlock(&iface->found.lock);
	return op;
}

/*
 * The window does not bound these: a put is acknowledged when it is placed, so
 * the next one may come before progress() has told the caller.
 */
bool tcp_events_full(const struct tcp_conn *conn)
{
	return atomic_load(&conn->nlandings) >= 4 * TCP_WINDOW;
}

void tcp_events_take_landing(struct tcp_event *e)
{
	weft_list_del(&e->link);
	if (atomic_fetch_sub(&e->conn->nlandings, 1) == 2 * TCP_WINDOW)
		e->conn->iface->found.room = true;
}

int tcp_events_add_landing(struct tcp_conn *conn,
			   const struct tcp_chunk_head *c, int status, bool ack)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_event *e = malloc(sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->conn = conn;
	e->flags = c->flags;
	e->tag = c->tag;
	e->size = c->total;
	e->status = status;
	e->seq = c->seq;
	e->ack = ack;
	pthread_mutex_lock(&iface->found.lock);
	weft_list_add_tail(&iface->found.landings, &e->link);
	atomic_fetch_add(&conn->nlandings, 1);
	pthread_mutex_unlock(&iface->found.lock);
	tcp_events_wake(iface);
	return 0;
}

void tcp_events_add_stream(struct tcp_stream *s)
{
	struct tcp_iface *iface = s->conn->iface;

	pthread_mutex_lock(&iface->found.lock);
	weft_list_add_tail(&iface->found.streams, &s->report_link);
	pthread_mutex_unlock(&iface->found.lock);
	tcp_events_wake(iface);
}

/* Takes an event from the queue, or NULL. */
static struct tcp_event *first_notify(struct tcp_conn *conn)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_event *e, *te, *found = NULL;

	pthread_mutex_lock(&iface->found.lock);
	weft_list_for_each (e, te, &iface->found.landings, link)
		if (e->conn == conn && !(e->flags & TCP_CHUNK_GET)) {
			tcp_events_take_landing(e);
			found = e;
			break;
		}
	pthread_mutex_unlock(&iface->found.lock);
	return found;
}

void tcp_events_notify(struct tcp_conn *conn)
{
	struct tcp_iface *iface = conn->iface;
	struct weft_iface_cb *cb = &iface->base.iface.cb;
	struct tcp_event *e;

	while (!iface->closing && (e = first_notify(conn))) {
		cb->on_notify(cb->arg, e->tag, e->size);
		free(e);
	}
}

void tcp_events_forget(struct tcp_conn *conn)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_event *e, *te;

	pthread_mutex_lock(&iface->found.lock);
	weft_list_for_each (e, te, &iface->found.landings, link) {
		if (e->conn != conn)
			continue;
		weft_list_del(&e->link);
		free(e);
	}
	pthread_mutex_unlock(&iface->found.lock);
}

void tcp_conn_break(struct tcp_conn *conn, int err)
{
	if (conn->base.err || conn->base.state == WEFT_CONN_CLOSED)
		return;
	conn->base.err = err;
	weft_conn_attend(&conn->base);
	tcp_events_wake(conn->iface);
}

void tcp_iface_start_tick(struct tcp_iface *iface)
{
	if (iface->tick_ms)
		return;
	iface->tick_ms = weft_now_ms() + WEFT_TICK_MS;
	weft_events_wake_at(&iface->base.events, iface->tick_ms);
}

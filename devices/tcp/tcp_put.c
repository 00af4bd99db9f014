/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, from the call to the completion. */
#include "devices/tcp/tcp_put.h"
#include "devices/tcp/bulk/tcp_engine.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/bulk/tcp_pool.h"
#include "devices/tcp/tcp_dial.h"
#include "devices/tcp/tcp_fail.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <stdlib.h>

#include "util/bytes.h"
#include "util/log.h"

/* How a put goes. */
enum way {
	GATHERED, /* small, and others wait to be written: gather it */
	FRAMED,	  /* in a frame of its own */
	STREAMED, /* larger: in chunks over bulk streams */
	PIECEWISE /* no stream can be opened: in frames, between messages */
};

static enum way choose_way(const struct tcp_conn *conn,
			   const struct tcp_put *put)
{
	const size_t max_framed =
		weft_min(weft_settings()->tcp_bulk_min, TCP_MAX_MESSAGE / 2);

	/* what a peer's get names is checked again chunk by chunk */
	if (put->total > max_framed || put->source_checked)
		return conn->bulk->no_streams ? PIECEWISE : STREAMED;
	return put->total <= TCP_SMALL && tcp_conn_is_busy(conn) ? GATHERED
								 : FRAMED;
}

/* If the connection breaks here, the put completes with an error. */
static void send_framed(struct tcp_conn *conn, struct tcp_put *put, bool gather)
{
	uint8_t head[TCP_CHUNK_LEN];
	struct iovec iov[TCP_MAX_IOV + 1] = { { head, sizeof(head) } };

	tcp_bulk_submit_framed(conn->bulk, put, head);
	memcpy(iov + 1, put->iov, put->iovcnt * sizeof(*iov));
	if (gather)
		tcp_conn_gather(conn, TCP_FRAME_PUT, iov, put->iovcnt + 1,
				sizeof(head) + put->total);
	else if (tcp_conn_send(conn, TCP_FRAME_PUT, 0, 0, iov, put->iovcnt + 1,
			       sizeof(head) + put->total) == -EFAULT)
		tcp_put_source_gone(conn, put);
}

static void send_streamed(struct tcp_conn *conn, struct tcp_put *put)
{
	const struct tcp_queued q = tcp_bulk_submit(conn->bulk, put);

	if (q.few_streams)
		tcp_streams_open(conn);
	tcp_engines_give(conn, q.chunks);
}

void tcp_put_send(struct tcp_conn *conn, struct tcp_put *put)
{
	const enum way way = choose_way(conn, put);

	switch (way) {
	case GATHERED:
	case FRAMED:
		send_framed(conn, put, way == GATHERED);
		break;
	case STREAMED:
		send_streamed(conn, put);
		break;
	case PIECEWISE:
		tcp_bulk_submit(conn->bulk, put);
		tcp_puts_post_waiting(conn);
		break;
	}
}

int tcp_put_start(struct weft_ep *base, const struct weft_iov *iov,
		  unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
		  const struct weft_notify *notify, struct weft_op *op)
{
	int err = weft_ep_check(weft_ep_ops_of(weft_base_ep(base)), base,
				iovcnt, 0);
	struct tcp_conn *conn;
	struct tcp_put *put;
	unsigned int i;

	if (err)
		return err;
	conn = tcp_conn(weft_base_ep(base)->conn);
	put = tcp_bulk_get(conn) ? tcp_put_new(conn) : NULL;
	if (!put)
		return -ENOMEM;
	put->op = op;
	put->remote_addr = remote_addr;
	weft_rkey_unpack(rkey, &put->rkey);
	if (notify) {
		put->flags = TCP_CHUNK_NOTIFY;
		put->tag = notify->tag;
	}
	put->iovcnt = iovcnt;
	for (i = 0; i < iovcnt; i++) {
		put->iov[i] = (struct iovec){ iov[i].addr, iov[i].len };
		put->total += iov[i].len;
	}
	conn->nputs++;
	tcp_put_send(conn, put);
	return -EINPROGRESS;
}

/*
 * Copy out what a peer's get names before sending, with its key and mapping
 * checked: the memory must not vanish in the middle of a frame.
 */
static int copy_source(struct tcp_conn *conn, const struct tcp_put *put,
		       size_t off, size_t len, struct iovec *out)
{
	const uint8_t *src = (uint8_t *)put->iov[0].iov_base + off;
	int err;

	if (!weft_region_get(&put->source_key, (uintptr_t)src, len))
		return -EACCES;
	*out = (struct iovec){ conn->iface->txbuf, len };
	err = weft_bounce_in(&conn->iface->base.bounce, out->iov_base, src,
			     len);
	weft_region_put(&put->source_key);
	return err;
}

/* Without a bulk stream, puts go in pieces between the messages. */
void tcp_puts_post_waiting(struct tcp_conn *conn)
{
	struct tcp_bulk *b = conn->bulk;
	uint8_t head[TCP_CHUNK_LEN];
	struct iovec iov[TCP_MAX_IOV + 1];
	unsigned int parts;
	struct tcp_put *put;
	size_t off, len;
	int err = 0;
	bool gone;

	if (!b || !b->no_streams || conn->rx_ended)
		return;
	while (tcp_conn_drained(conn) && !err && !conn->base.err) {
		put = tcp_bulk_next_frame(b, TCP_MAX_MESSAGE / 4, &off, &len,
					  head);
		if (!put)
			return;
		iov[0].iov_base = head;
		iov[0].iov_len = TCP_CHUNK_LEN;
		if (put->source_checked) {
			parts = 1;
			gone = copy_source(conn, put, off, len, iov + 1) != 0;
		} else {
			gone = false;
			parts = tcp_iov_slice(put->iov, put->iovcnt, off, len,
					      iov + 1);
		}
		if (!gone) {
			err = tcp_conn_send(conn, TCP_FRAME_PUT, 0, 0, iov,
					    parts + 1, TCP_CHUNK_LEN + len);
			gone = err == -EFAULT;
		}
		if (gone) {
			tcp_bulk_release(conn, put, true);
			tcp_put_source_gone(conn, put);
			return;
		}
		tcp_bulk_release(conn, put, false);
	}
}

void tcp_put_send_abort(struct tcp_conn *conn, const struct tcp_put *put)
{
	uint8_t body[8];

	weft_put_le64(body, put->seq);
	tcp_conn_send_control(conn, TCP_FRAME_PUT_ABORT, body, sizeof(body));
}

/* Ends @put, between chunks, with @status or its own error. */
static void tcp_give_up(struct tcp_conn *conn, struct tcp_put *put, int status)
{
	struct weft_op *op;
	bool abort;

	op = tcp_bulk_give_up(conn->bulk, put, &abort);
	if (abort && conn->base.state == WEFT_CONN_OPEN)
		tcp_put_send_abort(conn, put);
	if (op) {
		conn->nputs--;
		op->done(op, put->status ? put->status : status);
	}
}

void tcp_stream_abandon(struct tcp_conn *conn, struct tcp_stream *s)
{
	struct tcp_put *put;
	uint8_t body[4];

	put = tcp_stream_stop(s);
	if (put)
		tcp_bulk_release(conn, put, false);
	tcp_bulk_abandon_stream(conn->bulk, s);
	weft_put_le32(body, s->id);
	tcp_conn_send_control(conn, TCP_FRAME_DROP, body, sizeof(body));
}

/*
 * A stream in the middle of a withdrawn put's chunk can carry nothing more.  It
 * also carries acknowledgements of other puts, so abandon it, do not close it.
 * A broken one is reported anyway.
 */
static void abandon_senders(struct tcp_conn *conn)
{
	struct tcp_stream *s, *ts;
	bool amid;

	weft_list_for_each (s, ts, &conn->bulk->streams, link) {
		pthread_mutex_lock(&s->engine->lock);
		amid = s->out_chunk && s->out_chunk->put->aborted &&
		       (!s->err || s->err == -ECANCELED);
		pthread_mutex_unlock(&s->engine->lock);
		if (amid)
			tcp_stream_abandon(conn, s);
	}
}

void tcp_put_source_gone(struct tcp_conn *conn, struct tcp_put *put)
{
	const bool get = put->flags & TCP_CHUNK_GET;
	const struct tcp_failure f = {
		.what = get ? "get" : "put",
		.len = put->total,
		.told = get,
		.id = put->tag,
		.status = -EACCES,
	};

	put->status = f.status;
	tcp_conn_fail(conn, &f);
}

void tcp_put_failed(struct tcp_conn *conn, uint64_t seq, int status)
{
	struct tcp_put *put =
		conn->bulk ? tcp_bulk_pending(conn->bulk, seq) : NULL;

	if (put)
		put->status = status;
}

void tcp_put_done(struct tcp_put *put)
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
	tcp_put_free(put);
	if (op) {
		conn->nputs--;
		op->done(op, status);
	}
	weft_conn_attend(&conn->base);
}

/* Completes the ops of acknowledged puts that wait for delivery. */
static void cancel_settled(struct tcp_conn *conn, int status)
{
	struct weft_op *op;

	tcp_engines_sync(conn->iface);
	while ((op = tcp_events_take_op(conn))) {
		conn->nputs--;
		op->done(op, status);
	}
}

/*
 * Withdraw all before stopping the first stream, or another one would take
 * over, and stop all streams before the first callback.
 */
void tcp_puts_cancel(struct tcp_conn *conn, int status)
{
	struct tcp_bulk *b = conn->bulk;
	struct tcp_put *put;
	uint64_t seq;

	if (!b)
		return;
	for (seq = atomic_load(&b->acked); seq != atomic_load(&b->next_seq);
	     seq++) {
		put = tcp_bulk_pending(b, seq);
		if (put)
			tcp_bulk_withdraw(b, put);
	}
	abandon_senders(conn);
	for (seq = atomic_load(&b->acked); seq != atomic_load(&b->next_seq);
	     seq++) {
		put = tcp_bulk_pending(b, seq);
		if (put)
			tcp_give_up(conn, put, status);
	}
	cancel_settled(conn, status);
}

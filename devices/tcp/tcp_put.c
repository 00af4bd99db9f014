/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts, from the call to the completion.  Small ones go whole in a frame,
 * larger ones in chunks over bulk streams, or in frames if the process or its
 * peer has no descriptor left for a stream.
 */
#include "devices/tcp/tcp_rma.h"
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_copy.h"
#include "devices/tcp/tcp_engine.h"
#include "devices/tcp/tcp_event.h"
#include "devices/tcp/tcp_fail.h"
#include "devices/tcp/tcp_msg.h"

#include <errno.h>
#include <stdlib.h>

#include "util/bytes.h"
#include "util/log.h"

/* A connection that breaks here completes it with an error. */
static void send_framed(struct tcp_conn *conn, struct tcp_put *put)
{
	uint8_t head[TCP_CHUNK_LEN];
	struct iovec iov[TCP_MAX_IOV + 1] = { { head, sizeof(head) } };

	tcp_bulk_submit_framed(conn, put, head);
	memcpy(iov + 1, put->iov, put->iovcnt * sizeof(*iov));
	if (put->total <= TCP_SMALL && tcp_conn_is_busy(conn))
		tcp_conn_gather(conn, TCP_FRAME_PUT, iov, put->iovcnt + 1,
				sizeof(head) + put->total);
	else if (tcp_conn_send(conn, TCP_FRAME_PUT, 0, 0, iov, put->iovcnt + 1,
			       sizeof(head) + put->total, NULL) == -EFAULT)
		tcp_put_source_gone(conn, put);
}

int tcp_put_start(struct weft_ep *base, const struct weft_iov *iov,
		  unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
		  const struct weft_notify *notify, struct weft_op *op)
{
	int err = weft_ep_check(weft_base_ep(base), iovcnt, 0);
	struct tcp_conn *conn;
	struct tcp_put *put;
	size_t max_framed;
	unsigned int i;

	if (err)
		return err;
	conn = tcp_conn(weft_ep_conn(base));
	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	put = calloc(1, sizeof(*put));
	if (!put)
		return -ENOMEM;
	weft_list_init(&put->link);
	weft_list_init(&put->done_link);
	put->conn = conn;
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
	max_framed =
		weft_min(weft_settings()->tcp_bulk_min, TCP_MAX_MESSAGE / 2);
	if (put->total <= max_framed) {
		send_framed(conn, put);
	} else {
		tcp_put_carry(conn, put);
		tcp_puts_post_waiting(conn);
	}
	return -EINPROGRESS;
}

void tcp_put_carry(struct tcp_conn *conn, struct tcp_put *put)
{
	tcp_bulk_submit(conn, put);
	tcp_streams_open(conn);
	tcp_engines_wake(conn);
}

/*
 * Copy out what a peer's get names before sending, with its key and mapping
 * checked: the memory must not vanish in the middle of a frame.
 */
static int copy_source(struct tcp_conn *conn, const struct tcp_put *put,
		       size_t off, size_t len, struct iovec *out)
{
	const struct iovec src = { (uint8_t *)put->iov[0].iov_base + off, len };
	int err;

	if (!weft_region_get(&put->source_key, (uintptr_t)src.iov_base, len))
		return -EACCES;
	*out = (struct iovec){ conn->iface->txbuf, len };
	tcp_copy(conn->iface, out, &src, 1, &err);
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
			err = copy_source(conn, put, off, len, iov + 1);
			if (err) {
				tcp_bulk_stream_stopped(conn, put, false);
				tcp_put_source_gone(conn, put);
				return;
			}
		} else {
			tcp_iov_slice(put->iov, put->iovcnt, off, len, iov + 1,
				      &parts);
		}
		err = tcp_conn_send(conn, TCP_FRAME_PUT, 0, 0, iov, parts + 1,
				    TCP_CHUNK_LEN + len, NULL);
		if (err == -EFAULT) {
			tcp_bulk_stream_stopped(conn, put, false);
			tcp_put_source_gone(conn, put);
			return;
		}
		tcp_bulk_chunk_sent(conn, put, len);
	}
}

void tcp_put_send_abort(struct tcp_conn *conn, const struct tcp_put *put)
{
	uint8_t body[8];

	weft_put_le64(body, put->seq);
	tcp_conn_send_control(conn, TCP_FRAME_PUT_ABORT, body, sizeof(body));
}

/* Ends @put, between chunks, with @status or why it has failed itself. */
static void give_up(struct tcp_conn *conn, struct tcp_put *put, int status)
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
	struct tcp_bulk *b = conn->bulk;
	struct tcp_put *put;
	uint8_t body[4];

	put = tcp_stream_stop(s);
	if (put)
		tcp_bulk_stream_stopped(conn, put, true);
	pthread_mutex_lock(&b->lock);
	s->abandoned = true;
	b->out_streams--;
	pthread_mutex_unlock(&b->lock);
	weft_put_le32(body, s->id);
	tcp_conn_send_control(conn, TCP_FRAME_DROP, body, sizeof(body));
}

void tcp_stream_lost(struct tcp_conn *conn, struct tcp_stream *s, int err)
{
	weft_info("a connection to peer %016llx is lost: %s",
		  (unsigned long long)conn->base.peer_id, strerror(-err));
	if (s->out) {
		tcp_stream_abandon(conn, s);
	} else {
		tcp_stream_stop(s);
		s->abandoned = true;
	}
}

/*
 * A stream in the middle of a withdrawn put's chunk can carry nothing more.  It
 * also carries acknowledgements of other puts, so abandon it, do not close it.
 * Leave a broken one to its report.
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

void tcp_put_target_gone(struct tcp_conn *conn, const struct tcp_chunk_head *c,
			 int status)
{
	const struct tcp_failure f = {
		.what = "put",
		.len = c->total,
		.written = true,
		.told = true,
		.id = c->seq,
		.status = status,
	};

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
	free(put);
	if (op) {
		conn->nputs--;
		op->done(op, status);
	}
	weft_conn_attend(&conn->base);
}

/* Completes the ops of acknowledged puts that wait for delivery. */
static void cancel_settled(struct tcp_conn *conn, int status)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_put *put, *tput;
	struct weft_op *op;

	tcp_engines_sync(iface);
	do {
		op = NULL;
		pthread_mutex_lock(&iface->found.lock);
		weft_list_for_each (put, tput, &iface->found.puts, done_link) {
			if (put->conn != conn || !put->op)
				continue;
			op = put->op;
			put->op = NULL;
			break;
		}
		pthread_mutex_unlock(&iface->found.lock);
		if (op) {
			conn->nputs--;
			op->done(op, status);
		}
	} while (op);
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
			give_up(conn, put, status);
	}
	cancel_settled(conn, status);
}

/* Puts of the peer's that were read, until they are placed together. */
struct tcp_placing {
	unsigned int n, copies;
	size_t bytes;
	struct tcp_chunk_head head[TCP_COPIES];
	int status[TCP_COPIES];
	/* of those that are allowed, each with a reference to its region */
	unsigned int put[TCP_COPIES];
	struct iovec to[TCP_COPIES], from[TCP_COPIES];
};

static void place(struct tcp_conn *conn, struct tcp_placing *p)
{
	int status[TCP_COPIES];
	unsigned int i;

	tcp_copy(conn->iface, p->to, p->from, p->copies, status);
	for (i = 0; i < p->copies; i++) {
		weft_region_put(&p->head[p->put[i]].rkey);
		p->status[p->put[i]] = status[i];
	}
}

int tcp_puts_place(struct tcp_conn *conn)
{
	struct tcp_placing *p = conn->iface->placing;
	uint8_t acks[TCP_COPIES * TCP_ACK_LEN], *ack = acks;
	const struct tcp_chunk_head *failed = NULL;
	int placed, result, status, err = 0;
	unsigned int i;

	if (!p || !p->n)
		return 0;
	place(conn, p);
	for (i = 0; i < p->n && !err; i++) {
		if (p->status[i])
			weft_count(conn->stats, key_errors, 1);
		if (p->status[i] && !(p->head[i].flags & TCP_CHUNK_GET)) {
			failed = &p->head[i];
			status = p->status[i];
			break;
		}
		placed = tcp_bulk_end_chunk(conn, &p->head[i], p->status[i], 0,
					    &result);
		if (placed < 0)
			err = placed;
		if (placed <= 0)
			continue;
		weft_put_le64(ack, p->head[i].seq);
		weft_put_le32(ack + 8, (uint32_t)result);
		weft_put_le32(ack + 12, 0);
		ack += TCP_ACK_LEN;
	}
	p->n = p->copies = 0;
	p->bytes = 0;
	if (ack != acks)
		tcp_conn_send_control(conn, TCP_FRAME_PUT_ACK, acks,
				      ack - acks);
	if (failed)
		tcp_put_target_gone(conn, failed, status);
	return err;
}

/* Adds a put, whose bytes are @data if it may land. */
static void add_placing(struct tcp_placing *p, const struct tcp_chunk_head *c,
			const uint8_t *data)
{
	uint8_t *dest = NULL;

	p->head[p->n] = *c;
	p->status[p->n] = 0;
	if (data && c->total) {
		/* of the whole put */
		dest = weft_region_get(&c->rkey, c->addr, c->total);
		if (!dest)
			p->status[p->n] = -EACCES;
	}
	if (dest) {
		p->put[p->copies] = p->n;
		p->to[p->copies] = (struct iovec){ dest + c->offset, c->len };
		p->from[p->copies++] = (struct iovec){ (void *)data, c->len };
	}
	p->n++;
	p->bytes += c->len;
}

int tcp_put_arrives(struct tcp_conn *conn, const uint8_t *p, size_t len)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_chunk_head c;
	int land;

	if (len < TCP_CHUNK_LEN)
		return -EPROTO;
	tcp_chunk_decode(p, &c);
	if (c.len != len - TCP_CHUNK_LEN)
		return -EPROTO;
	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	if (!iface->placing)
		iface->placing = calloc(1, sizeof(*iface->placing));
	if (!iface->placing)
		return -ENOMEM;
	land = tcp_bulk_begin_chunk(conn, &c);
	if (land < 0)
		return land;
	add_placing(iface->placing, &c, land ? p + TCP_CHUNK_LEN : NULL);
	/* what is left of a put is known when a part of it is placed */
	if (c.len < c.total || iface->placing->n == TCP_COPIES ||
	    iface->placing->bytes >= TCP_GATHER)
		return tcp_puts_place(conn);
	return 0;
}

int tcp_put_aborted(struct tcp_conn *conn, const uint8_t *p)
{
	uint8_t ack[TCP_ACK_LEN] = { 0 };
	uint64_t seq = weft_get_le64(p);

	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	if (!tcp_bulk_abort(conn, seq))
		return 0;
	conn->cut = weft_min(conn->cut, seq);
	memcpy(ack, p, 8);
	weft_put_le32(ack + 8, (uint32_t)-ECANCELED);
	tcp_conn_send_control(conn, TCP_FRAME_PUT_ACK, ack, sizeof(ack));
	return 0;
}

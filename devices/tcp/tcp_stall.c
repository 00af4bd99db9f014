/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream whose path has become far slower than its siblings' is dropped, and
 * the others send what it has not delivered.  One such path of many (a link of
 * a bond, one of several routes) would otherwise hold back the puts that have a
 * chunk on it, and every message after them.
 *
 *  source: detects it, stops the stream, sends TCP_FRAME_DROP
 *  target: reads no more of it and closes it, says TCP_FRAME_DROPPED with the
 *          number of chunks that it took from it, and which puts it has
 *          acknowledged there, since those answers may be stuck as well
 *  source: queues the chunks beyond that number again, closes its end
 *
 * A stream is dropped the same way if its put was withdrawn when half of a
 * chunk was sent (tcp_put.c).
 *
 * So no chunk is ever placed twice, and nothing of the old stream is read after
 * the target has counted.  A chunk is known by its number on its stream, which
 * lists those whose put is not settled.
 */
#include "devices/tcp/tcp_stall.h"
#include "devices/tcp/tcp_dial.h"
#include "devices/tcp/tcp_put.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <linux/tcp.h>
#include <sys/epoll.h>

#include "util/bytes.h"
#include "util/log.h"

#define SLOWER	   16u /* times slower than its siblings */
#define SLOW_TICKS 4u  /* consecutive ticks: a second */

static void give_up_stream(struct tcp_conn *conn, struct tcp_stream *s)
{
	tcp_stream_abandon(conn, s);
	weft_count(conn->stats, streams_given_up, 1);
	weft_info(
		"a connection to peer %016llx has become more than %u times slower than its siblings; its bytes move to those",
		(unsigned long long)conn->base.peer_id, SLOWER);
}

/* Is the stream slow although it has something to deliver? */
static bool is_slow(struct tcp_stream *s, const struct tcp_info *ti,
		    bool *free_path)
{
	struct tcp_bulk *b = s->conn->bulk;
	uint64_t delta = ti->tcpi_bytes_acked - s->seen_acked;
	bool waits = ti->tcpi_unacked || ti->tcpi_notsent_bytes;
	/* the peer reads slowly: the path is not to blame */
	bool window = ti->tcpi_rwnd_limited != s->seen_window;

	s->seen_acked = ti->tcpi_bytes_acked;
	s->seen_window = ti->tcpi_rwnd_limited;
	if (delta > b->best_rate)
		b->best_rate = delta;
	if (!waits || delta >= b->best_rate / SLOWER)
		*free_path = true;
	if (!waits || window || delta >= b->best_rate / SLOWER)
		s->slow_ticks = 0;
	else
		s->slow_ticks++;
	return s->slow_ticks >= SLOW_TICKS;
}

void tcp_stall_check(struct tcp_stream *s, const struct tcp_info *ti,
		     struct tcp_stall *seen)
{
	if (s->out && is_slow(s, ti, &seen->free_path))
		seen->worst = s;
}

void tcp_stall_end(struct tcp_conn *conn, const struct tcp_stall *seen)
{
	struct tcp_bulk *b = conn->bulk;

	b->best_rate -= b->best_rate / 64; /* networks change */
	/* drop one at a time, never the only one */
	if (seen->worst && seen->free_path && !seen->busy &&
	    b->out_streams >= 2)
		give_up_stream(conn, seen->worst);
}

static struct tcp_stream *find_stream(struct tcp_bulk *b, uint32_t id, bool out)
{
	struct tcp_stream *s, *ts;

	weft_list_for_each (s, ts, &b->streams, link)
		if (s->id == id && s->out == out)
			return s;
	return NULL;
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

int tcp_stall_drop(struct tcp_conn *conn, const uint8_t *p)
{
	uint8_t body[TCP_MAX_CONTROL] = { 0 };
	uint32_t id = weft_get_le32(p), n = 0;
	struct tcp_bulk *b = conn->bulk;
	struct tcp_stream *s;
	struct tcp_landing *l;
	uint64_t taken = 0;
	uint8_t *ack;
	unsigned int i;

	if (!b)
		return -EPROTO;
	s = find_stream(b, id, false);
	if (s) {
		tcp_stream_stop(s);
		taken = s->taken;
	} else if (!tcp_streams_drop_dial(conn, id)) {
		return -EPROTO;
	}
	pthread_mutex_lock(&b->lock);
	for (i = 0; i < TCP_WINDOW; i++) {
		l = &b->landing[i];
		if (!l->acked_by || l->acked_by != id)
			continue;
		ack = body + TCP_DROPPED_LEN + n++ * TCP_ACK_LEN;
		weft_put_le64(ack, l->acked_seq);
		weft_put_le32(ack + 8, (uint32_t)l->acked_status);
	}
	pthread_mutex_unlock(&b->lock);
	if (s)
		tcp_stream_detach(s);
	weft_put_le32(body, id);
	weft_put_le32(body + 4, n);
	weft_put_le64(body + 8, taken);
	tcp_conn_send_control(conn, TCP_FRAME_DROPPED, body,
			      TCP_DROPPED_LEN + n * TCP_ACK_LEN);
	return 0;
}

int tcp_stall_dropped(struct tcp_conn *conn, const uint8_t *p, size_t len)
{
	struct tcp_bulk *b = conn->bulk;
	const uint8_t *ack;
	struct tcp_put *put, *tput;
	struct weft_list aborted;
	struct tcp_stream *s;
	uint32_t n, i;
	int err;

	if (!b || len < TCP_DROPPED_LEN)
		return -EPROTO;
	n = weft_get_le32(p + 4);
	if (n > TCP_WINDOW || len != TCP_DROPPED_LEN + n * TCP_ACK_LEN)
		return -EPROTO;
	s = find_stream(b, weft_get_le32(p), true);
	if (!s || !s->abandoned)
		return -EPROTO;
	for (i = 0; i < n; i++) {
		ack = p + TCP_DROPPED_LEN + i * TCP_ACK_LEN;
		err = tcp_bulk_acked(conn, weft_get_le64(ack),
				     (int32_t)weft_get_le32(ack + 8), true);
		if (err)
			return err;
	}
	weft_list_init(&aborted);
	err = tcp_bulk_resend(b, s, weft_get_le64(p + 8), &aborted);
	weft_list_for_each (put, tput, &aborted, link) {
		weft_list_del(&put->link);
		tcp_put_send_abort(conn, put);
	}
	tcp_stream_detach(s);
	if (err)
		return err;
	tcp_streams_open(conn);
	tcp_engines_wake(conn);
	weft_conn_attend(&conn->base); /* without streams puts go in frames */
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/tcp/bulk/tcp_bulk.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/bulk/tcp_pool.h"
#include "devices/tcp/bulk/tcp_stream.h"
#include "devices/tcp/bulk/tcp_tune.h"

#include <errno.h>
#include <stdlib.h>

#include "util/bytes.h"

struct tcp_bulk *tcp_bulk_get(struct tcp_conn *conn)
{
	struct tcp_bulk *b = conn->bulk;

	if (b)
		return b;
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	pthread_mutex_init(&b->lock, NULL);
	weft_list_init(&b->queue);
	weft_list_init(&b->resend);
	weft_list_init(&b->spare);
	weft_list_init(&b->streams);
	b->out_limit = weft_settings()->tcp_streams;
	if (!b->out_limit)
		b->out_limit = 2;
	conn->bulk = b;
	return b;
}

/* Bulk lock held; no stream sends from @put. */
static void free_chunks(struct tcp_bulk *b, struct tcp_put *put)
{
	struct tcp_chunk *c, *tc;

	weft_list_for_each (c, tc, &put->chunks, put_link) {
		weft_list_del(&c->link);
		tcp_chunk_free(b, c);
	}
	weft_list_init(&put->chunks);
}

void tcp_bulk_free(struct tcp_conn *conn)
{
	struct tcp_bulk *b = conn->bulk;
	unsigned int i;

	if (!b)
		return;
	for (i = 0; i < TCP_WINDOW; i++) {
		if (!b->sent[i])
			continue;
		free_chunks(b, b->sent[i]);
		tcp_put_free(b->sent[i]);
	}
	tcp_chunks_spare_free(b);
	pthread_mutex_destroy(&b->lock);
	free(b);
	conn->bulk = NULL;
}

bool tcp_bulk_full(const struct tcp_conn *conn)
{
	const struct tcp_bulk *b = conn->bulk;

	return b &&
	       atomic_load(&b->next_seq) - atomic_load(&b->acked) >= TCP_WINDOW;
}

static void assign_seq(struct tcp_bulk *b, struct tcp_put *put)
{
	put->seq = atomic_load(&b->next_seq);
	b->sent[put->seq % TCP_WINDOW] = put;
	atomic_store(&b->next_seq, put->seq + 1);
}

static void chunk_encode(uint8_t *p, const struct tcp_put *put, size_t off,
			 size_t len)
{
	weft_put_le64(p, put->seq);
	weft_put_le64(p + 8, put->total);
	weft_put_le64(p + 16, off);
	weft_put_le64(p + 24, put->remote_addr);
	weft_rkey_pack(&put->rkey, p + 32);
	weft_put_le64(p + 48, put->tag);
	weft_put_le32(p + 56, len);
	weft_put_le32(p + 60, put->flags);
}

void tcp_bulk_submit_framed(struct tcp_bulk *b, struct tcp_put *put,
			    uint8_t head[TCP_CHUNK_LEN])
{
	pthread_mutex_lock(&b->lock);
	assign_seq(b, put);
	put->assigned = put->total;
	chunk_encode(head, put, 0, put->total);
	pthread_mutex_unlock(&b->lock);
}

/* Bulk lock held. */
static unsigned int count_waiting(struct tcp_bulk *b)
{
	const size_t chunk = weft_settings()->tcp_chunk;
	struct tcp_put *put, *next;
	size_t n = 0;

	if (!weft_list_empty(&b->resend))
		return TCP_MAX_ENGINES;
	weft_list_for_each (put, next, &b->queue, link) {
		if (n >= TCP_MAX_ENGINES)
			break;
		/* an empty put is a chunk, too */
		n += weft_max((put->total - put->assigned + chunk - 1) / chunk,
			      1);
	}
	return weft_min(n, TCP_MAX_ENGINES);
}

unsigned int tcp_bulk_waiting(struct tcp_bulk *b)
{
	unsigned int n;

	pthread_mutex_lock(&b->lock);
	n = count_waiting(b);
	pthread_mutex_unlock(&b->lock);
	return n;
}

/* Bulk lock held. */
static unsigned int count_missing(const struct tcp_bulk *b)
{
	const unsigned int have = b->out_streams + b->out_dialing;

	return have < b->out_limit ? b->out_limit - have : 0;
}

struct tcp_queued tcp_bulk_submit(struct tcp_bulk *b, struct tcp_put *put)
{
	struct tcp_queued q;

	pthread_mutex_lock(&b->lock);
	assign_seq(b, put);
	tcp_tune_busy(b);
	weft_list_add_tail(&b->queue, &put->link);
	q.chunks = count_waiting(b);
	q.few_streams = count_missing(b);
	pthread_mutex_unlock(&b->lock);
	return q;
}

/* Bulk lock held: at most @max bytes of the oldest put; NULL: none. */
static struct tcp_put *split_put(struct tcp_bulk *b, size_t max, size_t *off,
				 size_t *len)
{
	struct tcp_put *put;

	if (weft_list_empty(&b->queue))
		return NULL;
	put = weft_list_first(&b->queue, struct tcp_put, link);
	*off = put->assigned;
	*len = weft_min(max, put->total - put->assigned);
	put->assigned += *len;
	if (put->assigned == put->total)
		weft_list_del(&put->link);
	put->senders++;
	return put;
}

/* Bulk lock held. */
static struct tcp_chunk *take_resend(struct tcp_bulk *b)
{
	struct tcp_chunk *c;

	c = weft_list_first(&b->resend, struct tcp_chunk, link);
	weft_list_del(&c->link);
	c->resend = false;
	c->put->resend--;
	c->put->senders++;
	return c;
}

/* Bulk lock held: the same of b->resend, which is not empty. */
static struct tcp_put *split_resend(struct tcp_bulk *b, size_t max, size_t *off,
				    size_t *len)
{
	struct tcp_chunk *c =
		weft_list_first(&b->resend, struct tcp_chunk, link);

	*off = c->off;
	*len = weft_min(max, c->len);
	c->off += *len;
	c->len -= *len;
	if (!c->len)
		return take_resend(b)->put;
	c->put->senders++;
	return c->put;
}

/* Bulk lock held; NULL: no memory. */
static struct tcp_chunk *split_chunk(struct tcp_bulk *b)
{
	struct tcp_chunk *c = tcp_chunk_new(b);

	if (!c)
		return NULL;
	c->put = split_put(b, weft_settings()->tcp_chunk, &c->off, &c->len);
	weft_list_add_tail(&c->put->chunks, &c->put_link);
	return c;
}

/* Bulk lock held; as tcp_bulk_next_chunk(). */
static struct tcp_chunk *take_chunk(struct tcp_bulk *b, struct tcp_stream *s,
				    int *err)
{
	struct tcp_chunk *c;

	if (!weft_list_empty(&b->resend)) {
		c = take_resend(b);
	} else if (!weft_list_empty(&b->queue)) {
		c = split_chunk(b);
		if (!c) {
			*err = -ENOMEM;
			return NULL;
		}
	} else {
		return NULL;
	}
	c->number = s->nsent++;
	weft_list_add_tail(&s->sent, &c->link);
	return c;
}

struct tcp_put *tcp_bulk_next_frame(struct tcp_bulk *b, size_t max, size_t *off,
				    size_t *len, uint8_t head[TCP_CHUNK_LEN])
{
	struct tcp_put *put;

	pthread_mutex_lock(&b->lock);
	if (!weft_list_empty(&b->resend))
		put = split_resend(b, max, off, len);
	else
		put = split_put(b, max, off, len);
	if (put)
		chunk_encode(head, put, *off, *len);
	pthread_mutex_unlock(&b->lock);
	return put;
}

/* Bulk lock held: drops its chunks from b->resend. */
static void drop_resend(struct tcp_put *put)
{
	struct tcp_chunk *c, *tc;

	weft_list_for_each (c, tc, &put->chunks, put_link) {
		if (!c->resend)
			continue;
		c->resend = false;
		put->resend--;
		weft_list_del(&c->link);
	}
}

int tcp_bulk_resend(struct tcp_bulk *b, struct tcp_stream *s, uint64_t taken,
		    struct weft_list *aborted)
{
	struct tcp_chunk *c, *tc;
	struct tcp_put *put;

	pthread_mutex_lock(&b->lock);
	weft_list_for_each (c, tc, &s->sent, link) {
		put = c->put;
		if (c->number < taken || put->acked || put->aborted)
			continue;
		if (!put->op && !(put->flags & TCP_CHUNK_GET)) {
			/* cancelled: the caller may reuse its memory */
			put->aborted = true;
			drop_resend(put);
			weft_list_del(&put->link);
			weft_list_add_tail(aborted, &put->link);
			continue;
		}
		weft_list_del(&c->link);
		weft_list_add_tail(&b->resend, &c->link);
		c->resend = true;
		put->resend++;
	}
	pthread_mutex_unlock(&b->lock);
	return taken > s->nsent ? -EPROTO : 0;
}

/* Bulk lock held; @put is acknowledged and no stream sends from it. */
static void tcp_finish_put(struct tcp_bulk *b, struct tcp_put *put)
{
	uint64_t acked = atomic_load(&b->acked);

	free_chunks(b, put);
	b->sent[put->seq % TCP_WINDOW] = NULL;
	b->acked_early[put->seq % TCP_WINDOW] = true;
	while (acked < atomic_load(&b->next_seq) &&
	       b->acked_early[acked % TCP_WINDOW]) {
		b->acked_early[acked % TCP_WINDOW] = false;
		acked++;
	}
	atomic_store(&b->acked, acked);
	if (acked == atomic_load(&b->next_seq))
		tcp_tune_idle(b);
}

/* Bulk lock held: a stream stops sending from @put; true: it is complete. */
static bool release_put(struct tcp_bulk *b, struct tcp_put *put)
{
	put->senders--;
	if (!put->acked || put->senders)
		return false;
	tcp_finish_put(b, put);
	return true;
}

/* Bulk lock held: the limit or the number of streams has changed. */
static void suspend_streams(struct tcp_bulk *b)
{
	struct tcp_stream *s, *ts;
	unsigned int i = 0;

	weft_list_for_each (s, ts, &b->streams, link)
		if (s->out && !s->abandoned)
			s->suspended = ++i > b->out_limit;
}

/* Bulk lock held: measures how many streams pay. */
static void measure(struct tcp_conn *conn, size_t sent)
{
	struct tcp_bulk *b = conn->bulk;
	const unsigned int limit = b->out_limit;

	if (weft_settings()->tcp_streams)
		return;
	tcp_tune_bytes(b, sent,
		       conn->iface->spare_cores ? TCP_MAX_STREAMS
						: TCP_FEW_STREAMS);
	if (b->out_limit != limit)
		suspend_streams(b);
}

struct tcp_chunk *tcp_bulk_next_chunk(struct tcp_stream *s,
				      const struct tcp_chunk *sent,
				      uint8_t head[TCP_CHUNK_LEN], int *err)
{
	struct tcp_conn *conn = s->conn;
	struct tcp_put *put = sent ? sent->put : NULL;
	struct tcp_bulk *b = conn->bulk;
	struct tcp_chunk *c = NULL;
	bool done = false;

	*err = 0;
	pthread_mutex_lock(&b->lock);
	if (sent) {
		measure(conn, sent->len);
		done = release_put(b, put); /* with @sent */
	}
	if (!s->suspended)
		c = take_chunk(b, s, err);
	if (c)
		chunk_encode(head, c->put, c->off, c->len);
	pthread_mutex_unlock(&b->lock);
	if (done)
		tcp_events_add_put(conn->iface, put);
	return c;
}

void tcp_bulk_release(struct tcp_conn *conn, struct tcp_put *put, bool cut)
{
	struct tcp_bulk *b = conn->bulk;
	bool done;

	pthread_mutex_lock(&b->lock);
	done = release_put(b, put);
	if (!done && cut)
		put->aborted = true;
	pthread_mutex_unlock(&b->lock);
	if (done)
		tcp_events_add_put(conn->iface, put);
}

int tcp_bulk_acked(struct tcp_conn *conn, uint64_t seq, int status, bool late)
{
	struct tcp_bulk *b = conn->bulk;
	struct tcp_put *put = NULL;
	bool done;

	if (!b)
		return -EPROTO;
	pthread_mutex_lock(&b->lock);
	if (seq >= atomic_load(&b->acked) && seq < atomic_load(&b->next_seq))
		put = b->sent[seq % TCP_WINDOW];
	if (!put || put->seq != seq || put->acked) {
		pthread_mutex_unlock(&b->lock);
		return late ? 0 : -EPROTO;
	}
	/*
	 * An aborted put is acknowledged whatever part of it was sent.  Another
	 * that fails ends the connection instead; a get may have been
	 * cancelled.
	 */
	if (!put->aborted && (put->assigned != put->total || put->resend ||
			      (status && !(put->flags & TCP_CHUNK_GET)))) {
		pthread_mutex_unlock(&b->lock);
		return -EPROTO;
	}
	if (status && !put->status)
		put->status = status;
	put->acked = true;
	/* the stream that sent the last bytes may not have noticed yet */
	done = !put->senders;
	if (done)
		tcp_finish_put(b, put);
	pthread_mutex_unlock(&b->lock);
	if (done)
		tcp_events_add_put(conn->iface, put);
	return 0;
}

struct tcp_put *tcp_bulk_pending(struct tcp_bulk *b, uint64_t seq)
{
	struct tcp_put *put;

	pthread_mutex_lock(&b->lock);
	put = b->sent[seq % TCP_WINDOW];
	if (put && (put->seq != seq || !put->op))
		put = NULL;
	pthread_mutex_unlock(&b->lock);
	return put;
}

/* Bulk lock held. */
static void withdraw_put(struct tcp_put *put)
{
	if (put->assigned == put->total && !put->resend && !put->senders)
		return; /* all of it was sent */
	weft_list_del(&put->link);
	drop_resend(put);
	put->aborted = true;
}

void tcp_bulk_withdraw(struct tcp_bulk *b, struct tcp_put *put)
{
	pthread_mutex_lock(&b->lock);
	withdraw_put(put);
	pthread_mutex_unlock(&b->lock);
}

struct weft_op *tcp_bulk_give_up(struct tcp_bulk *b, struct tcp_put *put,
				 bool *abort)
{
	struct weft_op *op;

	pthread_mutex_lock(&b->lock);
	op = put->op;
	put->op = NULL;
	withdraw_put(put);
	*abort = put->aborted;
	pthread_mutex_unlock(&b->lock);
	return op;
}

/* ---- streams --------------------------------------------------------------
 */

unsigned int tcp_bulk_add_stream(struct tcp_bulk *b, struct tcp_stream *s)
{
	unsigned int n;

	pthread_mutex_lock(&b->lock);
	weft_list_add_tail(&b->streams, &s->link);
	n = b->out_streams += s->out;
	suspend_streams(b);
	pthread_mutex_unlock(&b->lock);
	return n;
}

void tcp_bulk_abandon_stream(struct tcp_bulk *b, struct tcp_stream *s)
{
	pthread_mutex_lock(&b->lock);
	s->abandoned = true;
	b->out_streams--;
	suspend_streams(b);
	pthread_mutex_unlock(&b->lock);
}

void tcp_bulk_forget_stream(struct tcp_bulk *b, struct tcp_stream *s)
{
	struct tcp_chunk *c, *tc;

	pthread_mutex_lock(&b->lock);
	weft_list_for_each (c, tc, &s->sent, link)
		weft_list_del(&c->link);
	weft_list_del(&s->link);
	if (s->out && !s->abandoned)
		b->out_streams--;
	suspend_streams(b);
	pthread_mutex_unlock(&b->lock);
}

unsigned int tcp_bulk_lose_dial(struct tcp_bulk *b)
{
	unsigned int left;

	pthread_mutex_lock(&b->lock);
	if (b->out_dialing)
		b->out_dialing--;
	if (!b->out_dialing)
		b->asked_streams = false;
	left = b->out_streams + b->out_dialing;
	b->out_limit = weft_max(1, left);
	tcp_tune_stream_lost(b);
	suspend_streams(b);
	pthread_mutex_unlock(&b->lock);
	return left;
}

unsigned int tcp_bulk_missing_streams(struct tcp_bulk *b)
{
	unsigned int n;

	pthread_mutex_lock(&b->lock);
	n = count_missing(b);
	pthread_mutex_unlock(&b->lock);
	return n;
}

unsigned int tcp_iov_slice(const struct iovec *iov, unsigned int n, size_t off,
			   size_t len, struct iovec *out)
{
	unsigned int i, parts = 0;
	size_t part;

	for (i = 0; i < n && len; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		part = weft_min(len, iov[i].iov_len - off);
		out[parts].iov_base = (uint8_t *)iov[i].iov_base + off;
		out[parts++].iov_len = part;
		len -= part;
		off = 0;
	}
	return parts;
}

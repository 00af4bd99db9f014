/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/tcp/tcp_bulk.h"
#include "devices/tcp/tcp_engine.h"
#include "devices/tcp/tcp_event.h"

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
	weft_list_init(&b->streams);
	b->out_limit = weft_settings()->tcp_streams;
	if (!b->out_limit)
		b->out_limit = 2;
	conn->bulk = b;
	return b;
}

/* Bulk lock held; no stream sends from @put. */
static void free_chunks(struct tcp_put *put)
{
	struct tcp_chunk *c, *tc;

	weft_list_for_each (c, tc, &put->chunks, put_link) {
		weft_list_del(&c->link);
		free(c);
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
		free_chunks(b->sent[i]);
		free(b->sent[i]);
	}
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
	weft_list_init(&put->chunks);
	b->sent[put->seq % TCP_WINDOW] = put;
	b->acked_early[put->seq % TCP_WINDOW] = false;
	atomic_store(&b->next_seq, put->seq + 1);
}

void tcp_bulk_submit(struct tcp_conn *conn, struct tcp_put *put)
{
	struct tcp_bulk *b = conn->bulk;

	pthread_mutex_lock(&b->lock);
	assign_seq(b, put);
	if (weft_list_empty(&b->queue))
		tcp_tune_busy(b);
	weft_list_add_tail(&b->queue, &put->link);
	pthread_mutex_unlock(&b->lock);
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

void tcp_bulk_submit_framed(struct tcp_conn *conn, struct tcp_put *put,
			    uint8_t head[TCP_CHUNK_LEN])
{
	struct tcp_bulk *b = conn->bulk;

	pthread_mutex_lock(&b->lock);
	assign_seq(b, put);
	put->assigned = put->total;
	chunk_encode(head, put, 0, put->total);
	pthread_mutex_unlock(&b->lock);
}

unsigned int tcp_bulk_waiting(struct tcp_bulk *b)
{
	const size_t chunk = weft_settings()->tcp_chunk;
	struct tcp_put *put, *next;
	size_t n = 0;

	pthread_mutex_lock(&b->lock);
	if (!weft_list_empty(&b->resend))
		n = TCP_MAX_ENGINES;
	weft_list_for_each (put, next, &b->queue, link) {
		if (n >= TCP_MAX_ENGINES)
			break;
		/* an empty put is a chunk, too */
		n += weft_max((put->total - put->assigned + chunk - 1) / chunk,
			      1);
	}
	pthread_mutex_unlock(&b->lock);
	return weft_min(n, TCP_MAX_ENGINES);
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

/* Bulk lock held. */
static struct tcp_chunk *split_chunk(struct tcp_bulk *b)
{
	struct tcp_chunk *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->put = split_put(b, weft_settings()->tcp_chunk, &c->off, &c->len);
	weft_list_add_tail(&c->put->chunks, &c->put_link);
	return c;
}

struct tcp_chunk *tcp_bulk_next_chunk(struct tcp_bulk *b, struct tcp_stream *s,
				      uint8_t head[TCP_CHUNK_LEN], int *err)
{
	struct tcp_chunk *c = NULL;

	*err = 0;
	pthread_mutex_lock(&b->lock);
	if (!weft_list_empty(&b->resend)) {
		c = take_resend(b);
	} else if (!weft_list_empty(&b->queue)) {
		c = split_chunk(b);
		if (!c)
			*err = -ENOMEM;
	}
	if (c) {
		c->number = s->nsent++;
		weft_list_add_tail(&s->sent, &c->link);
		chunk_encode(head, c->put, c->off, c->len);
	}
	pthread_mutex_unlock(&b->lock);
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
			/* cancelled: its memory is the caller's again */
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

void tcp_bulk_forget_stream(struct tcp_bulk *b, struct tcp_stream *s)
{
	struct tcp_chunk *c, *tc;

	pthread_mutex_lock(&b->lock);
	weft_list_for_each (c, tc, &s->sent, link)
		weft_list_del(&c->link);
	weft_list_del(&s->link);
	if (s->out && !s->abandoned)
		b->out_streams--;
	pthread_mutex_unlock(&b->lock);
}

/* Bulk lock held; @put is acknowledged and no stream sends from it. */
static void finish_put(struct tcp_bulk *b, struct tcp_put *put)
{
	uint64_t acked = atomic_load(&b->acked);

	free_chunks(put);
	b->sent[put->seq % TCP_WINDOW] = NULL;
	b->acked_early[put->seq % TCP_WINDOW] = true;
	while (acked < atomic_load(&b->next_seq) &&
	       b->acked_early[acked % TCP_WINDOW]) {
		b->acked_early[acked % TCP_WINDOW] = false;
		acked++;
	}
	atomic_store(&b->acked, acked);
}

/* Bulk lock held: a stream stops sending from @put; true: it is complete. */
static bool release_put(struct tcp_bulk *b, struct tcp_put *put)
{
	put->senders--;
	if (!put->acked || put->senders)
		return false;
	finish_put(b, put);
	return true;
}

void tcp_bulk_chunk_sent(struct tcp_conn *conn, struct tcp_put *put, size_t len)
{
	struct tcp_bulk *b = conn->bulk;
	unsigned int max;
	bool done;

	max = conn->iface->spare_cores ? TCP_MAX_STREAMS : TCP_FEW_STREAMS;
	pthread_mutex_lock(&b->lock);
	done = release_put(b, put);
	if (!weft_settings()->tcp_streams)
		tcp_tune_bytes(b, len, max);
	if (weft_list_empty(&b->queue))
		tcp_tune_idle(b);
	pthread_mutex_unlock(&b->lock);
	if (done)
		tcp_events_add_put(conn->iface, put);
}

void tcp_bulk_stream_stopped(struct tcp_conn *conn, struct tcp_put *put,
			     bool again)
{
	struct tcp_bulk *b = conn->bulk;
	bool done;

	pthread_mutex_lock(&b->lock);
	done = release_put(b, put);
	if (!done && !again)
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
		finish_put(b, put);
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

void tcp_chunk_decode(const uint8_t *p, struct tcp_chunk_head *c)
{
	c->seq = weft_get_le64(p);
	c->total = weft_get_le64(p + 8);
	c->offset = weft_get_le64(p + 16);
	c->addr = weft_get_le64(p + 24);
	weft_rkey_unpack(p + 32, &c->rkey);
	c->tag = weft_get_le64(p + 48);
	c->len = weft_get_le32(p + 56);
	c->flags = weft_get_le32(p + 60);
}

/* Bulk lock held; NULL: outside the window. */
static struct tcp_landing *find_landing(struct tcp_bulk *b, uint64_t seq)
{
	uint64_t placed = atomic_load(&b->placed);

	if (seq < placed || seq - placed >= TCP_WINDOW)
		return NULL;
	return &b->landing[seq % TCP_WINDOW];
}

int tcp_bulk_begin_chunk(struct tcp_conn *conn, const struct tcp_chunk_head *c)
{
	struct tcp_bulk *b = conn->bulk;
	struct tcp_landing *l;
	int land = -EPROTO;

	if (c->offset > c->total || c->len > c->total - c->offset ||
	    (!c->len && c->total) || c->total > UINT64_MAX / 2 ||
	    c->addr > UINT64_MAX - c->total)
		return -EPROTO;
	pthread_mutex_lock(&b->lock);
	l = find_landing(b, c->seq);
	if (!l) {
		/* drain what an abort overtook */
		land = c->seq < atomic_load(&b->placed) ? 0 : -EPROTO;
	} else if (l->done) {
		land = 0;
	} else {
		if (!l->live) {
			l->live = true;
			l->left = c->total;
			l->status = 0;
		}
		if (c->len <= l->left)
			land = l->status ? 0 : 1;
	}
	pthread_mutex_unlock(&b->lock);
	return land;
}

/* Bulk lock held. */
static void advance_placed(struct tcp_conn *conn, struct tcp_bulk *b)
{
	uint64_t placed = atomic_load(&b->placed);
	struct tcp_landing *l;

	for (;;) {
		l = &b->landing[placed % TCP_WINDOW];
		if (!l->done)
			break;
		l->done = l->live = false;
		placed++;
	}
	/* pairs with the owner, which sets deferred, then reads placed */
	atomic_store(&b->placed, placed);
	if (atomic_load(&conn->deferred))
		tcp_events_wake(conn->iface);
}

static bool needs_notification(const struct tcp_chunk_head *c, int status)
{
	return (c->flags & TCP_CHUNK_GET) ||
	       ((c->flags & TCP_CHUNK_NOTIFY) && !status);
}

int tcp_bulk_end_chunk(struct tcp_conn *conn, const struct tcp_chunk_head *c,
		       int status, uint32_t by, int *result)
{
	struct tcp_bulk *b = conn->bulk;
	struct tcp_landing *l;
	int placed = 0, err = 0;

	pthread_mutex_lock(&b->lock);
	l = find_landing(b, c->seq);
	if (l && l->live && !l->done) {
		if (status && !l->status)
			l->status = status;
		l->left -= c->len;
		if (!l->left) {
			placed = 1;
			*result = l->status;
			l->acked_seq = c->seq;
			l->acked_by = by;
			l->acked_status = l->status;
			l->done = true;
			/* notify before a message behind it may be read */
			if (needs_notification(c, l->status))
				err = tcp_events_add_landing(conn, c->flags,
							     c->tag, c->total,
							     l->status);
			advance_placed(conn, b);
		}
	}
	pthread_mutex_unlock(&b->lock);
	if (err || !placed)
		return err;
	/* a get counts where it ends */
	if (!*result && !(c->flags & TCP_CHUNK_GET)) {
		weft_count(conn->stats, rx_puts, 1);
		weft_count(conn->stats, rx_put_bytes, c->total);
	}
	return 1;
}

bool tcp_bulk_abort(struct tcp_conn *conn, uint64_t seq)
{
	struct tcp_bulk *b = conn->bulk;
	struct tcp_landing *l;
	bool ended = false;

	pthread_mutex_lock(&b->lock);
	l = find_landing(b, seq);
	if (l && !l->done) {
		l->live = l->done = true;
		l->status = -ECANCELED;
		advance_placed(conn, b);
		ended = true;
	}
	pthread_mutex_unlock(&b->lock);
	return ended;
}

void tcp_iov_slice(const struct iovec *iov, unsigned int n, size_t off,
		   size_t len, struct iovec *out, unsigned int *out_n)
{
	unsigned int i;
	size_t part;

	*out_n = 0;
	for (i = 0; i < n && len; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		part = weft_min(len, iov[i].iov_len - off);
		out[*out_n].iov_base = (uint8_t *)iov[i].iov_base + off;
		out[*out_n].iov_len = part;
		++*out_n;
		len -= part;
		off = 0;
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/tcp/bulk/tcp_land.h"
#include "devices/tcp/bulk/tcp_event.h"

#include <errno.h>

#include "util/bytes.h"

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

int tcp_land_begin(struct tcp_conn *conn, const struct tcp_chunk_head *c)
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
		/* drain a chunk that an abort has overtaken */
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

int tcp_land_end(struct tcp_conn *conn, const struct tcp_chunk_head *c,
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
			/* notify before a later message can be read */
			if (needs_notification(c, l->status))
				err = tcp_events_add_landing(
					conn, c, l->status,
					!by && c->flags & TCP_CHUNK_GET);
			advance_placed(conn, b);
		}
	}
	pthread_mutex_unlock(&b->lock);
	if (err || !placed)
		return err;
	/* a get is counted where it ends */
	if (!*result && !(c->flags & TCP_CHUNK_GET)) {
		weft_count(conn->stats, rx_puts, 1);
		weft_count(conn->stats, rx_put_bytes, c->total);
	}
	return 1;
}

bool tcp_land_abort(struct tcp_conn *conn, uint64_t seq)
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

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Filling the peer's window: bytes of transfers that wait in the queue are
 * copied there in its order, by an engine or by us, as far as there is room.
 * shm_tx.c sends the records when it is their turn and the copy has ended.
 */
#include <errno.h>

#include "devices/shm/shm_ring.h"
#include "devices/shm/shm_stage.h"
#include "devices/shm/shm_tx.h"
#include "devices/shm/shm_window.h"
#include "util/log.h"
#include "util/util.h"

#define COPIES_AT_ONCE 32u /* per connection, so that others get their turn */

bool shm_stage_waits(const struct shm_transfer *t)
{
	return t->where && t->kind != SHM_TX_GET && !t->status &&
	       t->staged < t->what.len;
}

static struct shm_transfer *first_waiting(const struct shm_conn *conn)
{
	struct shm_transfer *t, *tmp;

	weft_list_for_each (t, tmp, &conn->queue, link)
		if (shm_stage_waits(t))
			return t;
	return NULL;
}

/* The length of the next piece. */
static size_t next_len(const struct shm_window *w, struct shm_transfer *t)
{
	const struct weft_iov *v = &t->iov[t->iov_i];
	size_t n = weft_max((size_t)t->what.len / 8, shm_tune.chunk);

	/* both sides copy at once: a quarter of the window at most */
	n = weft_min(n, w->size / 4);
	if (t->kind == SHM_TX_REPLY)
		return weft_min(n, (size_t)(t->what.len - t->staged));
	while (t->iov_off == v->len) {
		v = &t->iov[++t->iov_i];
		t->iov_off = 0;
	}
	return weft_min(n, v->len - t->iov_off);
}

static void finish_copy(struct weft_copy *copy, int status)
{
	struct shm_chunk *c = container_of(copy, struct shm_chunk, copy);

	c->conn->copies--;
	c->left = 0;
	c->status = status;
	if (c->t)
		c->t->in_flight--;
}

static int copy_by_engine(struct shm_conn *conn, struct shm_transfer *t,
			  struct shm_chunk *c, uint64_t from,
			  const struct weft_cuda_ptr *where)
{
	struct weft_engine *engine;
	int err;

	engine = weft_engine_get(&conn->iface->engines, where, &err);
	if (!engine)
		return err;
	shm_window_pin(conn->out, engine);
	c->copy = (struct weft_copy){
		.done = finish_copy,
		.group = conn,
		.dst = (uintptr_t)shm_chunk_bytes(conn->out, c),
		.src = from,
		.len = c->len,
		/*
		 * the program's memory belongs to this operation until it
		 * completes
		 */
		.guarded = t->kind == SHM_TX_REPLY,
		.key = { t->what.slot, t->what.generation, t->what.token },
		.at = from,
	};
	conn->copies++;
	t->in_flight++;
	c->left = 1;
	weft_copy_queue(&engine->tx_waiting, &c->copy);
	return 0;
}

/* As shm_tx.c does for the ring. */
static int copy_here(struct shm_conn *conn, struct shm_transfer *t,
		     struct shm_chunk *c, void *from)
{
	const struct weft_rkey key = { t->what.slot, t->what.generation,
				       t->what.token };
	uint8_t *to = shm_chunk_bytes(conn->out, c);
	bool ok;

	if (t->kind == SHM_TX_PUT) {
		ok = shm_tx_may_copy(t, from, c->len, false);
		if (ok)
			weft_copy(to, from, c->len);
		return ok ? 0 : -EACCES;
	}
	if (!weft_region_get(&key, (uintptr_t)from, c->len))
		return -EACCES;
	ok = !weft_bounce_in(&conn->iface->base.bounce, to, from, c->len);
	weft_region_put(&key);
	return ok ? 0 : -EACCES;
}

/* False: no room. */
static bool stage_chunk(struct shm_conn *conn, struct shm_transfer *t)
{
	const size_t len = next_len(conn->out, t);
	const struct weft_cuda_ptr *where = &t->where[t->iov_i];
	struct shm_chunk *c = shm_window_take_room(conn, len);
	void *from = (void *)(uintptr_t)(t->what.addr + t->staged);

	if (!c)
		return false;
	if (t->kind == SHM_TX_PUT)
		shm_tx_piece(t, len, &from);
	c->t = t;
	c->conn = conn;
	t->staged += len;
	if (where->where == WEFT_CUDA_DEVICE)
		c->status = copy_by_engine(conn, t, c, (uintptr_t)from, where);
	else
		c->status = copy_here(conn, t, c, from);
	if (t->staged == t->what.len)
		conn->nstaging--;
	return true;
}

static bool can_want(struct shm_conn *conn)
{
	return !conn->out && !conn->wanted && shm_ring_has_room(conn, 0);
}

static unsigned int want(struct shm_conn *conn)
{
	if (!can_want(conn))
		return 0;
	shm_ring_begin(conn, 0);
	shm_ring_end(conn, (struct shm_record){ .kind = SHM_WANT });
	shm_ring_wake(conn);
	conn->wanted = true;
	return 1;
}

unsigned int shm_stage_run(struct shm_conn *conn)
{
	struct shm_transfer *t;
	unsigned int n = 0;

	if (!conn->nstaging)
		return 0;
	if (!conn->out)
		return want(conn);
	while (shm_conn_is_open(conn) && conn->copies < COPIES_AT_ONCE &&
	       (t = first_waiting(conn)) && stage_chunk(conn, t))
		n++;
	return n;
}

bool shm_stage_can_run(struct shm_conn *conn)
{
	struct shm_transfer *t;

	if (!conn->nstaging)
		return false;
	if (!conn->out)
		return can_want(conn);
	t = first_waiting(conn);
	return t && conn->copies < COPIES_AT_ONCE &&
	       shm_window_has_room(conn, next_len(conn->out, t));
}

struct shm_chunk *shm_stage_next(struct shm_conn *conn,
				 const struct shm_transfer *t)
{
	struct shm_window *w = conn->out;
	struct shm_chunk *c;
	uint64_t i;

	for (i = w ? w->sent : 0; w && i != w->in; i++) {
		c = &w->chunks[i % SHM_CHUNKS];
		if (c->t)
			return c->t == t && !c->left ? c : NULL;
	}
	return NULL;
}

void shm_stage_sent(struct shm_conn *conn, struct shm_chunk *c)
{
	struct shm_window *w = conn->out;

	/* the room of those that were dropped comes back with this one's */
	while (&w->chunks[w->sent % SHM_CHUNKS] != c)
		w->sent++;
	w->sent++;
	weft_count_owned(conn->stats, wire_tx_bytes, c->len);
}

void shm_stage_drop(struct shm_conn *conn, const struct shm_transfer *t)
{
	struct shm_window *w = conn->out;
	struct shm_chunk *c;
	uint64_t i;

	if (shm_stage_waits(t))
		conn->nstaging--;
	if (!w)
		return;
	for (i = w->sent; i != w->in; i++) {
		c = &w->chunks[i % SHM_CHUNKS];
		if (c->t == t)
			c->t = NULL;
	}
	/* the last ones' room is free at once, if no engine writes there */
	while (w->in != w->sent) {
		c = &w->chunks[(w->in - 1) % SHM_CHUNKS];
		if (c->t || c->left)
			break;
		w->pos = c->start;
		w->in--;
	}
}

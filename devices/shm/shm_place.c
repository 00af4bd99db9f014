/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Emptying a window: what the peer has put there is copied to its place, by an
 * engine to GPU memory, else as from the ring.
 */
#include <errno.h>
#include <stdlib.h>

#include "devices/shm/shm_place.h"
#include "devices/shm/shm_tx.h"
#include "devices/shm/shm_window.h"
#include "util/log.h"
#include "util/util.h"

/* A copy by an engine; of a chunk that spans several entries there are more. */
struct piece {
	struct weft_copy copy;
	struct shm_conn *conn;
	struct shm_chunk *c;
	struct shm_landing *l; /* either of them */
	struct shm_transfer *t;
};

static void finish_copy(struct weft_copy *copy, int status)
{
	struct piece *p = container_of(copy, struct piece, copy);
	struct shm_conn *conn = p->conn;

	conn->copies--;
	p->c->left--;
	if (p->l)
		p->l->in_flight--;
	else
		p->t->in_flight--;
	if (status && status != -ECANCELED && p->l) {
		shm_landing_fail(conn, p->l, status);
	} else if (status && status != -ECANCELED && !p->t->status) {
		p->t->status = status;
		shm_tx_fail(conn, "write memory of a get");
	}
	free(p);
	shm_window_free(conn);
}

/* @key: of a put's target. */
static int copy_by_engine(struct shm_conn *conn, const struct piece *what,
			  const void *from, void *to, size_t len,
			  const struct weft_cuda_ptr *where,
			  const struct weft_rkey *key)
{
	struct weft_engine *engine;
	struct piece *p;
	int err;

	engine = weft_engine_get(&conn->iface->engines, where, &err);
	if (!engine)
		return err;
	p = malloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	shm_window_pin(conn->in, engine);
	*p = *what;
	p->conn = conn;
	p->copy = (struct weft_copy){
		.done = finish_copy,
		.group = conn,
		.dst = (uintptr_t)to,
		.src = (uintptr_t)from,
		.len = len,
	};
	if (key) {
		p->copy.guarded = true;
		p->copy.key = *key;
		p->copy.at = (uintptr_t)to;
	}
	conn->copies++;
	shm_conn_attend(conn);
	p->c->left++;
	if (p->l)
		p->l->in_flight++;
	else
		p->t->in_flight++;
	weft_copy_queue(&engine->rx_waiting, &p->copy);
	return 0;
}

int shm_place_is_gpu(const void *p, struct weft_cuda_ptr *where)
{
	if (weft_cuda_query(p, where))
		return -EACCES;
	return where->where == WEFT_CUDA_DEVICE && !where->managed;
}

static int put_chunk(struct shm_conn *conn, struct shm_landing *l,
		     struct shm_chunk *c)
{
	const struct weft_rkey key = { l->what.slot, l->what.generation,
				       l->what.token };
	const struct piece what = { .c = c, .l = l };
	const void *from = shm_chunk_bytes(conn->in, c);
	uint8_t *to = weft_region_get(&key, l->what.addr, l->what.len);
	struct weft_cuda_ptr where;
	int gpu;

	if (!to)
		return -EACCES;
	to += l->seen;
	gpu = shm_place_is_gpu(to, &where);
	if (!gpu &&
	    weft_bounce_out(&conn->iface->base.bounce, to, from, c->len))
		gpu = -EACCES;
	weft_region_put(&key);
	if (gpu <= 0)
		return gpu;
	return copy_by_engine(conn, &what, from, to, c->len, &where, &key);
}

int shm_place_put(struct shm_conn *conn, struct shm_landing *l,
		  const struct shm_place *place)
{
	struct shm_chunk *c;
	int err;

	if (place->len > l->what.len - l->seen)
		return -EPROTO;
	c = shm_window_claim(conn, place);
	if (!c)
		return -EPROTO;
	err = put_chunk(conn, l, c);
	l->seen += c->len;
	shm_window_free(conn);
	if (err)
		shm_landing_fail(conn, l, err);
	return 0;
}

static int get_piece(struct shm_conn *conn, struct shm_transfer *t,
		     struct shm_chunk *c, const uint8_t *from, size_t *len)
{
	const struct piece what = { .c = c, .t = t };
	const struct weft_cuda_ptr *where;
	void *to;

	*len = shm_tx_piece(t, *len, &to);
	where = t->where ? &t->where[t->iov_i] : NULL;
	if (where && where->where == WEFT_CUDA_DEVICE)
		return copy_by_engine(conn, &what, from, to, *len, where, NULL);
	if (!shm_tx_may_copy(t, to, *len, true))
		return -EACCES;
	weft_copy(to, from, *len);
	return 0;
}

int shm_place_get(struct shm_conn *conn, struct shm_transfer *t,
		  const struct shm_place *place)
{
	struct shm_chunk *c;
	const uint8_t *from;
	size_t left, n;
	int err = 0;

	if (place->len > t->what.len - t->moved)
		return -EPROTO;
	c = shm_window_claim(conn, place);
	if (!c)
		return -EPROTO;
	t->moved += c->len;
	from = shm_chunk_bytes(conn->in, c);
	/* given up: the memory is the program's again */
	for (left = c->len; left && !t->status; left -= n, from += n) {
		n = left;
		err = get_piece(conn, t, c, from, &n);
		if (err) {
			t->status = err;
			shm_tx_fail(conn, "write memory of a get");
		}
	}
	shm_window_free(conn);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving bulk: the peer's chunks are checked against the key that they
 * carry, copied from their ring to the final place, and acknowledged when the
 * whole put is there.  The ring's room is credited in order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/engine/copy.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_rx.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/clock.h"
#include "util/log.h"

#define OPS_AT_ONCE 128u

/* ---- puts and gets, piece by piece --------------------------------------- */

/* The put that @op belongs to; NULL: its number cannot be. */
static struct nvl_landing *find_landing(struct nvl_conn *conn,
					const struct nvl_op *op)
{
	uint32_t ahead = op->seq - (uint32_t)conn->placed;
	struct nvl_landing *l = &conn->landing[op->seq % NVL_PUTS];

	if (ahead >= NVL_PUTS)
		return NULL;
	if (!l->live) {
		if (l->placed)
			return NULL;
		memset(l, 0, sizeof(*l));
		weft_list_init(&l->link);
		l->conn = conn;
		l->live = true;
		l->seq = op->seq;
		l->total = op->total;
	}
	return l->seq == op->seq && !l->done ? l : NULL;
}

/* What was put there before stays. */
static void fail_landing(struct nvl_landing *l, int status)
{
	struct nvl_op ack = { .type = NVL_OP_ACK,
			      .seq = l->seq,
			      .status = status };

	l->status = status;
	weft_count(l->conn->stats, key_errors, 1);
	nvl_op_send(l->conn, &ack);
	nvl_conn_fail(l->conn, "write a put");
}

static void check_landing(struct nvl_landing *l)
{
	if (l->done || l->in_flight || (!l->ended && l->seen < l->total))
		return;
	l->done = true;
	weft_list_add_tail(&l->conn->iface->landed, &l->link);
}

static void note_failure(struct nvl_get *g, int status)
{
	if (g->parent && !g->parent->status)
		g->parent->status = status;
}

static void check_get(struct nvl_conn *conn, struct nvl_get *g)
{
	if (g->ended || g->in_flight || g->seen < g->total)
		return;
	g->ended = true;
	weft_list_add_tail(&conn->iface->done_gets, &g->done_link);
}

static void count_chunk(struct nvl_conn *conn, const struct nvl_op *op,
			int status)
{
	struct nvl_landing *l;
	struct nvl_get *g;

	if (op->flags & NVL_CHUNK_GET) {
		g = &conn->gets[op->seq];
		g->in_flight--;
		if (status && status != -ECANCELED) {
			note_failure(g, status);
			nvl_conn_fail(conn, "write memory of a get");
		}
		check_get(conn, g);
		return;
	}
	l = &conn->landing[op->seq % NVL_PUTS];
	l->in_flight--;
	if (status && status != -ECANCELED && !l->status)
		fail_landing(l, status);
	check_landing(l);
}

/* ---- the ring ------------------------------------------------------------ */

static void give_credit(struct nvl_conn *conn, struct nvl_rxring *r, uint8_t id)
{
	struct nvl_rxchunk *c;
	bool moved = false;

	while (r->out != r->in &&
	       (c = &r->chunks[r->out % NVL_RING_CHUNKS])->done) {
		r->freed = c->end;
		r->out++;
		moved = true;
	}
	if (!moved || conn->base.state != WEFT_CONN_OPEN)
		return;
	atomic_store_explicit(&conn->rx.head->credit[id], r->freed,
			      memory_order_release);
	nvl_inbox_wake_for_credit(conn);
}

static void finish_copy(struct weft_copy *copy, int status)
{
	struct nvl_rxchunk *c = container_of(copy, struct nvl_rxchunk, copy);

	c->conn->copies--;
	c->done = true;
	count_chunk(c->conn, &c->op, status);
	give_credit(c->conn, copy->owner, c->op.ring);
}

/* Takes the chunk's room in; NULL: it lies. */
static struct nvl_rxchunk *claim_chunk(struct nvl_conn *conn,
				       const struct nvl_op *op,
				       struct nvl_rxring **ring)
{
	struct nvl_rxchunk *c;
	struct nvl_rxring *r;
	uint64_t end;

	r = op->ring < NVL_RINGS ? conn->rxrings[op->ring] : NULL;
	if (!r || r->in - r->out == NVL_RING_CHUNKS || !op->len ||
	    op->len > r->map.size || op->pos % NVL_ALIGN || op->pos < r->pos ||
	    op->pos > r->freed + r->map.size ||
	    op->pos % r->map.size + op->len > r->map.size)
		return NULL;
	end = (op->pos + op->len + NVL_ALIGN - 1) & ~(uint64_t)(NVL_ALIGN - 1);
	if (end - r->freed > r->map.size)
		return NULL;
	c = &r->chunks[r->in++ % NVL_RING_CHUNKS];
	c->conn = conn;
	c->op = *op;
	c->end = end;
	c->done = false;
	r->pos = end;
	r->used_ms = weft_now_ms();
	*ring = r;
	return c;
}

/* ---- the last copy ------------------------------------------------------- */

static int copy_from_ring(struct nvl_rxring *r, const struct nvl_op *op,
			  const struct weft_rkey *key, void *dst)
{
	size_t at = op->pos % r->map.size;
	ssize_t n;

	if (r->map.kind != NVL_RING_HOST)
		return -EACCES; /* its key says host: a hint that lied */
	if (key && !weft_region_get(key, (uintptr_t)dst, op->len))
		return -EACCES;
	/* by the kernel: what a peer names may be unmapped by now */
	n = pread(r->map.fd, dst, op->len, at);
	if (key)
		weft_region_put(key);
	return n == (ssize_t)op->len ? 0 : -EACCES;
}

/*
 * @key is the region's for a put; NULL for a local get.  -EINPROGRESS: an
 * engine does it.
 */
static int copy_out(struct nvl_conn *conn, struct nvl_rxring *r,
		    struct nvl_rxchunk *c, const struct weft_rkey *key,
		    void *dst)
{
	size_t at = c->op.pos % r->map.size;
	struct weft_cuda_ptr where;
	struct weft_engine *gpu;
	int err;

	if (weft_cuda_query(dst, &where))
		return -EACCES;
	if (where.where != WEFT_CUDA_DEVICE)
		return copy_from_ring(r, &c->op, key, dst);
	gpu = weft_engine_get(&conn->iface->engines, &where, &err);
	if (!gpu)
		return err;
	err = nvl_map_reach(&r->map, gpu);
	if (err && r->map.kind == NVL_RING_CUDA)
		return err;
	c->copy = (struct weft_copy){
		.group = conn,
		.done = finish_copy,
		.owner = r,
		.dst = (uintptr_t)dst,
		.len = c->op.len,
		.src = r->map.kind == NVL_RING_CUDA
			       ? r->map.dev + at
			       : (uintptr_t)r->map.host + at,
	};
	if (key) {
		c->copy.guarded = true;
		c->copy.key = *key;
		c->copy.at = (uintptr_t)dst;
	}
	conn->copies++;
	weft_copy_queue(&gpu->rx_waiting, &c->copy);
	return -EINPROGRESS;
}

static void land_put(struct nvl_conn *conn, struct nvl_rxring *r,
		     struct nvl_rxchunk *c, struct nvl_landing *l)
{
	struct weft_rkey key = { c->op.slot, c->op.generation, c->op.token };
	void *dst = NULL;
	int err = 0;

	l->in_flight++;
	/* a void chunk never completes a put: its abort comes */
	if (!(c->op.flags & NVL_CHUNK_VOID))
		l->seen += c->op.len;
	if (c->op.flags & NVL_CHUNK_NOTIFY) {
		l->notify = true;
		l->tag = c->op.tag;
	}
	if (!(c->op.flags & NVL_CHUNK_VOID)) {
		dst = weft_region_get(&key, c->op.addr, c->op.len);
		if (dst)
			weft_region_put(&key);
		err = dst ? copy_out(conn, r, c, &key, dst) : -EACCES;
	}
	if (err == -EINPROGRESS)
		return;
	c->done = true;
	count_chunk(conn, &c->op, err);
	give_credit(conn, r, c->op.ring);
}

static void land_get(struct nvl_conn *conn, struct nvl_rxring *r,
		     struct nvl_rxchunk *c, struct nvl_get *g)
{
	int err = 0;

	g->in_flight++;
	if (!(c->op.flags & NVL_CHUNK_VOID))
		g->seen += c->op.len;
	if (!(c->op.flags & NVL_CHUNK_VOID) && g->parent)
		err = copy_out(conn, r, c, NULL, (char *)g->addr + c->op.addr);
	if (err == -EINPROGRESS)
		return;
	c->done = true;
	count_chunk(conn, &c->op, err);
	give_credit(conn, r, c->op.ring);
}

static int handle_empty(struct nvl_conn *conn, const struct nvl_op *op)
{
	struct weft_rkey key = { op->slot, op->generation, op->token };
	struct nvl_landing *l = find_landing(conn, op);

	if (!l || op->total || op->len || (op->flags & NVL_CHUNK_GET))
		return -EPROTO;
	if (weft_region_get(&key, op->addr, 0))
		weft_region_put(&key);
	else
		fail_landing(l, -EACCES);
	l->notify = op->flags & NVL_CHUNK_NOTIFY;
	l->tag = op->tag;
	check_landing(l);
	return 0;
}

static int handle_chunk(struct nvl_conn *conn, const struct nvl_op *op)
{
	struct nvl_landing *l = NULL;
	struct nvl_get *g = NULL;
	struct nvl_rxring *r;
	struct nvl_rxchunk *c;

	if (op->ring == NVL_NO_RING)
		return handle_empty(conn, op);
	if (op->flags & NVL_CHUNK_GET) {
		g = op->seq < NVL_GETS ? &conn->gets[op->seq] : NULL;
		if (!g || !g->live || g->ended || op->total != g->total ||
		    op->len > g->total - g->seen || op->addr > g->total ||
		    op->len > g->total - op->addr)
			return -EPROTO;
	} else {
		l = find_landing(conn, op);
		if (!l || l->ended || op->total != l->total ||
		    op->len > l->total - l->seen)
			return -EPROTO;
	}
	c = claim_chunk(conn, op, &r);
	if (!c)
		return -EPROTO;
	weft_count(conn->stats, wire_rx_bytes, op->len);
	if (g)
		land_get(conn, r, c, g);
	else
		land_put(conn, r, c, l);
	return 0;
}

/* The put ends incomplete. */
static int handle_abort(struct nvl_conn *conn, const struct nvl_op *op)
{
	struct nvl_landing *l = find_landing(conn, op);

	if (!l || l->ended)
		return -EPROTO;
	l->ended = true;
	l->status = -ECANCELED;
	check_landing(l);
	return 0;
}

static int handle_get_fail(struct nvl_conn *conn, const struct nvl_op *op)
{
	struct nvl_get *g = op->seq < NVL_GETS ? &conn->gets[op->seq] : NULL;

	if (!g || !g->live || g->ended)
		return -EPROTO;
	note_failure(g, op->status < 0 && op->status != -EINPROGRESS
				? op->status
				: -EIO);
	nvl_conn_told(conn);
	return 0;
}

unsigned int nvl_rx_ops(struct nvl_conn *conn)
{
	unsigned int n = 0;
	struct nvl_op op;
	int r = 0;

	while (n < OPS_AT_ONCE && conn->base.state == WEFT_CONN_OPEN &&
	       (r = nvl_op_next(conn, &op)) > 0) {
		switch (op.type) {
		case NVL_OP_CHUNK:
			r = handle_chunk(conn, &op);
			break;
		case NVL_OP_ABORT:
			r = handle_abort(conn, &op);
			break;
		case NVL_OP_ACK:
			r = nvl_tx_ack(conn, &op);
			break;
		case NVL_OP_GET:
			r = nvl_tx_serve(conn, &op);
			break;
		case NVL_OP_GET_FAIL:
			r = handle_get_fail(conn, &op);
			break;
		default:
			r = -EPROTO;
		}
		if (r)
			break;
		nvl_op_release(conn);
		n++;
	}
	if (r < 0) {
		if (r == -EPROTO)
			weft_error("a peer on this host sent an operation that "
				   "cannot be (type %u, number %u)",
				   op.type, op.seq);
		nvl_conn_break(conn, r);
	}
	return n;
}

/* ---- completions for the caller and the peer ----------------------------- */

static void finish_landing(struct nvl_landing *l)
{
	struct nvl_conn *conn = l->conn;
	struct nvl_op ack = { .type = NVL_OP_ACK,
			      .seq = l->seq,
			      .status = l->status };

	nvl_op_send(conn, &ack);
	l->live = l->done = false;
	l->placed = true;
	while (conn->landing[conn->placed % NVL_PUTS].placed)
		conn->landing[conn->placed++ % NVL_PUTS].placed = false;
}

unsigned int nvl_rx_deliver(struct nvl_iface *iface)
{
	struct weft_iface_cb *cb = &iface->base.iface.cb;
	struct nvl_landing *l;
	struct nvl_get *g;
	struct nvl_get_parent *p;
	unsigned int n = 0;

	while (iface->notices && !weft_list_empty(&iface->landed)) {
		l = weft_list_first(&iface->landed, struct nvl_landing, link);
		weft_list_del(&l->link);
		n++;
		if (!l->status) {
			weft_count(l->conn->stats, rx_puts, 1);
			weft_count(l->conn->stats, rx_put_bytes, l->total);
			if (l->notify) {
				iface->notices--;
				cb->on_notify(cb->arg, l->tag, l->total);
			}
		}
		finish_landing(l);
	}
	while (!weft_list_empty(&iface->done_gets)) {
		g = weft_list_first(&iface->done_gets, struct nvl_get,
				    done_link);
		weft_list_del(&g->done_link);
		n++;
		p = g->parent;
		g->live = false;
		g->parent = NULL;
		if (g->conn->stats && !(p && p->status))
			weft_count(g->conn->stats, get_bytes, g->total);
		g->conn->ngets--;
		if (p && !--p->left) {
			struct weft_op *op = p->op;
			int status = p->status;

			free(p);
			if (!status)
				weft_count(g->conn->stats, gets, 1);
			if (op)
				op->done(op, status);
		}
	}
	return n;
}

static struct nvl_get *take_slot(struct nvl_conn *conn)
{
	struct nvl_get *g;

	do
		g = &conn->gets[conn->next_get++ % NVL_GETS];
	while (g->live);
	memset(g, 0, sizeof(*g));
	weft_list_init(&g->done_link);
	g->live = true;
	g->conn = conn;
	conn->ngets++;
	return g;
}

static void send_get(struct nvl_conn *conn, struct nvl_get_parent *p,
		     const struct weft_iov *v, uint64_t addr,
		     const struct weft_rkey *key, uint8_t loc)
{
	struct nvl_get *g = take_slot(conn);
	struct nvl_op op = {
		.type = NVL_OP_GET,
		.loc = loc,
		.seq = g - conn->gets,
		.addr = addr,
		.total = v->len,
		.slot = key->slot,
		.generation = key->generation,
		.token = key->token,
	};

	g->parent = p;
	g->addr = v->addr;
	g->total = v->len;
	p->left++;
	if (v->len)
		nvl_op_send(conn, &op);
	else
		check_get(conn, g);
}

/* One get of the peer's memory per entry; the last one completes @op. */
int nvl_rx_get(struct nvl_conn *conn, const struct weft_iov *iov,
	       unsigned int n, uint64_t addr, const void *rkey,
	       struct weft_op *op)
{
	struct weft_cuda_ptr where[NVL_MAX_IOV];
	struct nvl_get_parent *p;
	struct weft_iov none = { NULL, 0, NULL };
	struct weft_rkey key;
	unsigned int i;
	int err;

	for (i = 0; i < n; i++) {
		err = nvl_mem_locate(&iov[i], &where[i]);
		if (err)
			return err;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->op = op;
	weft_rkey_unpack(rkey, &key);
	for (i = 0; i < n; i++) {
		send_get(conn, p, &iov[i], addr, &key,
			 where[i].where == WEFT_CUDA_DEVICE
				 ? NVL_LOC_GPU(where[i].ordinal)
				 : NVL_LOC_HOST);
		addr += iov[i].len;
	}
	if (!n)
		send_get(conn, p, &none, addr, &key, NVL_LOC_HOST);
	return -EINPROGRESS;
}

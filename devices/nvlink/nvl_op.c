/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets: copies by a GPU's engines between its memory and a peer's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/nvlink/nvl_conn.h"
#include "devices/nvlink/nvl_export.h"
#include "devices/nvlink/nvl_import.h"
#include "devices/nvlink/nvl_op.h"

/* ---- the end of one ------------------------------------------------------ */

static void count_op(const struct nvl_op *o)
{
	struct weft_counters *c = o->conn->stats;

	if (o->get) {
		weft_count(c, gets, 1);
		weft_count(c, get_bytes, o->total);
		weft_count(c, wire_rx_bytes, o->total);
	} else {
		weft_count(c, tx_puts, 1);
		weft_count(c, tx_put_bytes, o->total);
		weft_count(c, wire_tx_bytes, o->total);
	}
}

static void nvl_end_op(struct nvl_op *o)
{
	struct nvl_conn *conn = o->conn;

	if (o->import)
		nvl_import_put(conn, o->import);
	o->import = NULL;
	weft_list_add_tail(&conn->iface->done, &o->done_link);
	if (!o->status) {
		count_op(o);
	} else if (o->status != -ECANCELED) {
		if (o->status == -EACCES)
			weft_count(conn->stats, key_errors, 1);
		nvl_conn_fail(conn, o->get ? "copy a peer's GPU memory"
					   : "copy to a peer's GPU memory");
	}
}

static void nvl_finish_copy(struct weft_copy *copy, int status)
{
	struct nvl_op *o = copy->owner;

	o->conn->copies--;
	if (status && !o->status)
		o->status = status;
	if (!--o->left)
		nvl_end_op(o);
}

/* ---- the beginning ------------------------------------------------------- */

/*
 * The batch is claimed: either the owner waits for it, or this sees the cleared
 * word.
 */
static bool is_allowed(const struct weft_copy *copy)
{
	const struct nvl_op *o = copy->owner;

	return nvl_is_alive(o->conn->table, &o->life) &&
	       nvl_is_alive(o->conn->table, &o->conn->access);
}

/* Not the engine's fault: a context that was opened for another GPU. */
static bool can_reach(struct nvl_op *o)
{
	return !nvl_map_reach(&o->import->map, o->engine);
}

void nvl_op_go(struct nvl_op *o)
{
	struct nvl_import *im = o->import;
	const bool own = im->map.kind == NVL_MAP_OWN;
	struct weft_rkey rkey = { 0 };
	uint64_t there;
	unsigned int i;

	if (!o->status && im->err)
		o->status = im->err;
	if (!o->status && !can_reach(o))
		o->status = -EACCES;
	if (!o->status && own &&
	    !nvl_export_own(o->token, o->addr, o->total, &rkey))
		o->status = -EACCES;
	if (o->status) {
		nvl_end_op(o);
		return;
	}
	there = im->map.dev + (o->addr - im->base);
	for (i = 0; i < o->n; there += o->copies[i++].len) {
		if (o->get)
			o->copies[i].src = there;
		else
			o->copies[i].dst = there;
		/* a peer's key names no local memory */
		o->copies[i].guarded = own;
		o->copies[i].key = rkey;
		o->copies[i].at = there;
		o->conn->copies++;
		weft_copy_queue(&o->engine->tx_waiting, &o->copies[i]);
	}
}

static void make_copies(struct nvl_op *o, const struct weft_iov *iov,
			unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (!iov[i].len)
			continue;
		o->copies[o->n++] = (struct weft_copy){
			.group = o->conn,
			.done = nvl_finish_copy,
			.owner = o,
			.allowed = is_allowed,
			.dst = (uintptr_t)iov[i].addr, /* of a get */
			.src = (uintptr_t)iov[i].addr, /* of a put */
			.len = iov[i].len,
		};
		o->total += iov[i].len;
	}
	o->left = o->n;
}

/* All of it in one context; -EINVAL: it is not, or no GPU memory. */
static int find_engine(struct nvl_conn *conn, const struct weft_iov *iov,
		       unsigned int n, struct weft_engine **engine)
{
	struct weft_cuda_ptr where, first = { 0 };
	bool found = false;
	unsigned int i;
	int err;

	*engine = NULL;
	for (i = 0; i < n; i++) {
		if (!iov[i].len)
			continue;
		err = weft_engine_locate(&iov[i], &where);
		if (err)
			return err;
		if (where.where != WEFT_CUDA_DEVICE || where.managed ||
		    (found && !weft_cuda_is_same_ctx(&where.ctx, &first.ctx)))
			return -EINVAL;
		first = where;
		found = true;
	}
	if (!found)
		return 0;
	*engine = weft_engine_get(&conn->iface->engines, &first, &err);
	if (!*engine)
		return err;
	/* the peer must see when these copies have ended */
	return (*engine)->page_shared ? 0 : -ENOSPC;
}

/* The key allows what the operation names, and the peer still does. */
static bool is_within(const struct nvl_op *o, const struct nvl_key *key)
{
	return key->kind != NVL_KEY_NONE && o->addr >= key->addr &&
	       o->total <= key->len &&
	       o->addr - key->addr <= key->len - o->total &&
	       nvl_is_alive(o->conn->table, &key->life);
}

/* Finds out where the peer's memory is; what fails is for nvl_end_op(). */
static void start_op(struct nvl_op *o, const struct nvl_key *key)
{
	int err = 0;

	if (!is_within(o, key)) {
		o->status = -EACCES;
	} else if (o->n) {
		o->import = nvl_import_get(o->conn, key, o->engine, &err);
		if (!o->import)
			o->status = err;
	}
	if (!o->import)
		nvl_end_op(o);
	else if (o->import->pending)
		weft_list_add_tail(&o->import->waiting, &o->wait_link);
	else
		nvl_op_go(o);
}

int nvl_op_start(struct nvl_conn *conn, bool get, const struct weft_iov *iov,
		 unsigned int n, uint64_t addr, const void *rkey,
		 struct weft_op *op)
{
	struct weft_engine *engine;
	struct nvl_key key;
	struct nvl_op *o;
	int err;

	err = find_engine(conn, iov, n, &engine);
	if (err)
		return err;
	o = calloc(1, sizeof(*o) + n * sizeof(*o->copies));
	if (!o)
		return -ENOMEM;
	weft_list_init(&o->wait_link);
	weft_list_init(&o->done_link);
	o->conn = conn;
	o->engine = engine;
	o->op = op;
	o->get = get;
	o->addr = addr;
	make_copies(o, iov, n);
	memcpy(&key, rkey, sizeof(key));
	o->life = key.life;
	o->token = key.token;
	weft_list_add_tail(&conn->ops, &o->link);
	conn->nops++;
	start_op(o, &key);
	return -EINPROGRESS;
}

/* ---- completions --------------------------------------------------------- */

static void complete_op(struct nvl_op *o, int status)
{
	struct weft_op *op = o->op;

	weft_list_del(&o->done_link);
	weft_list_del(&o->link);
	o->conn->nops--;
	free(o);
	if (op)
		op->done(op, status);
}

unsigned int nvl_op_deliver(struct nvl_iface *iface)
{
	struct nvl_op *o;
	unsigned int n = 0;

	while (!weft_list_empty(&iface->done)) {
		o = weft_list_first(&iface->done, struct nvl_op, done_link);
		complete_op(o, o->status);
		n++;
	}
	return n;
}

void nvl_op_cancel(struct nvl_conn *conn)
{
	struct nvl_op *o, *tmp;

	weft_list_for_each (o, tmp, &conn->ops, link) {
		if (weft_list_empty(&o->wait_link))
			continue;
		weft_list_del(&o->wait_link);
		o->status = -ECANCELED;
		nvl_end_op(o);
	}
	weft_copy_cancel(&conn->iface->engines, conn, true);
}

void nvl_op_stop(struct nvl_conn *conn)
{
	nvl_op_cancel(conn);
	weft_copy_stop(&conn->iface->engines, &conn->copies);
}

/* The status of the operation if the connection ends with @status. */
static int result_of(const struct nvl_op *o, int status)
{
	/* report why it failed, not that its copies were taken back later */
	return o->status == -ECANCELED ? status : o->status;
}

/* The next one that has ended, or that has not, for @op's sake. */
static struct nvl_op *nvl_find_op(struct nvl_conn *conn)
{
	struct nvl_op *o, *tmp;

	weft_list_for_each (o, tmp, &conn->ops, link)
		if (!o->import || o->op)
			return o;
	return NULL;
}

void nvl_op_drop(struct nvl_conn *conn, int status)
{
	struct nvl_op *o;
	struct weft_op *op;

	while ((o = nvl_find_op(conn))) {
		if (!o->import) {
			complete_op(o, result_of(o, status));
			continue;
		}
		/* an engine did not end its copies: leak the operation */
		op = o->op;
		o->op = NULL;
		op->done(op, status);
	}
}

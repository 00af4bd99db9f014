/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and gets by local copies to and from the peer's memory.  The peer has
 * no part in them: counters in its inbox show them, which messages behind a
 * fence wait for.
 */
#include <errno.h>
#include <stdlib.h>

#include "devices/nvlink/nvl_direct.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/log.h"

/* A put or a get. */
struct direct {
	struct weft_list link;	    /* conn->directs */
	struct weft_list wait_link; /* conn->direct_waiting */
	struct weft_list done_link; /* iface->done_directs */
	struct nvl_conn *conn;
	struct weft_engine *gpu;
	struct nvl_import *import;
	struct weft_op *op; /* NULL: cancelled */
	bool get;
	uint32_t number; /* of a put */
	int status;
	size_t total;
	unsigned int n, left; /* copies */
	struct weft_copy copies[];
};

/* ---- the end of one ------------------------------------------------------ */

/* Moves on what messages behind a fence wait for. */
static void publish_placed(struct nvl_conn *conn)
{
	const uint64_t before = conn->direct_placed;
	bool *ended = conn->direct_ended;

	while (conn->direct_placed != conn->direct_next &&
	       ended[conn->direct_placed % NVL_DIRECTS])
		ended[conn->direct_placed++ % NVL_DIRECTS] = false;
	if (conn->direct_placed == before)
		return;
	atomic_store_explicit(&conn->tx.head->direct_placed,
			      conn->direct_placed, memory_order_release);
	if (conn->direct_fence > before)
		nvl_inbox_wake(conn);
}

static void count_direct(const struct direct *d)
{
	struct nvl_inbox_head *h = d->conn->tx.head;
	struct weft_counters *c = d->conn->stats;

	if (d->get) {
		weft_count(c, gets, 1);
		weft_count(c, get_bytes, d->total);
		weft_count(c, direct_get_bytes, d->total);
		weft_count(c, wire_rx_bytes, d->total);
		atomic_fetch_add(&h->direct_get_bytes, d->total);
		atomic_fetch_add(&h->direct_gets, 1);
	} else {
		weft_count(c, tx_puts, 1);
		weft_count(c, tx_put_bytes, d->total);
		weft_count(c, direct_put_bytes, d->total);
		weft_count(c, wire_tx_bytes, d->total);
		atomic_fetch_add(&h->direct_put_bytes, d->total);
		atomic_fetch_add(&h->direct_puts, 1);
	}
}

/* Before it counts as placed: the peer delivers nothing behind it. */
static void fail_direct(const struct direct *d)
{
	if (d->status == -EACCES)
		weft_count(d->conn->stats, key_errors, 1);
	nvl_conn_fail(d->conn, d->get ? "copy a peer's GPU memory"
				      : "copy to a peer's GPU memory");
}

static void end_direct(struct direct *d)
{
	struct nvl_conn *conn = d->conn;

	if (!d->status)
		count_direct(d);
	else if (d->status != -ECANCELED)
		fail_direct(d);
	weft_list_add_tail(&conn->iface->done_directs, &d->done_link);
	if (d->get)
		return;
	conn->direct_ended[d->number % NVL_DIRECTS] = true;
	publish_placed(conn);
}

static void finish_copy(struct weft_copy *copy, int status)
{
	struct direct *d = copy->owner;

	d->conn->copies--;
	d->conn->direct_copies--;
	nvl_import_put(d->conn, d->import);
	if (status && !d->status)
		d->status = status;
	if (!--d->left)
		end_direct(d);
}

/* ---- the beginning ------------------------------------------------------- */

static void queue_copies(struct direct *d)
{
	unsigned int i;

	for (i = 0; i < d->n; i++) {
		d->conn->copies++;
		d->conn->direct_copies++;
		weft_copy_queue(&d->gpu->tx_waiting, &d->copies[i]);
	}
}

static void make_copies(struct direct *d, const struct nvl_view *v,
			const struct weft_iov *iov, unsigned int n,
			uint64_t addr)
{
	uint64_t there = v->import->map.dev + (addr - v->import->base);
	uint64_t here;
	unsigned int i;

	for (i = 0; i < n; i++) {
		here = (uintptr_t)iov[i].addr;
		if (!iov[i].len)
			continue;
		d->copies[d->n++] = (struct weft_copy){
			.group = d->conn,
			.done = finish_copy,
			.owner = d,
			.dst = d->get ? here : there,
			.src = d->get ? there : here,
			.len = iov[i].len,
			.live = &d->conn->tx.head->live[v->slot],
			.serial = v->serial,
		};
		there += iov[i].len;
		v->import->copies++;
	}
	d->left = d->n;
}

static int start_direct(struct nvl_conn *conn, bool get,
			const struct nvl_view *v, struct weft_engine *gpu,
			const struct weft_iov *iov, unsigned int n,
			uint64_t addr, size_t total, struct weft_op *op)
{
	struct direct *d = calloc(1, sizeof(*d) + n * sizeof(*d->copies));

	if (!d)
		return -ENOMEM;
	weft_list_init(&d->link);
	weft_list_init(&d->wait_link);
	weft_list_init(&d->done_link);
	d->conn = conn;
	d->gpu = gpu;
	d->import = v->import;
	d->op = op;
	d->get = get;
	d->total = total;
	make_copies(d, v, iov, n, addr);
	conn->ndirects++;
	if (!get)
		d->number = conn->direct_next++;
	weft_list_add_tail(&conn->directs, &d->link);
	if (!weft_list_empty(&conn->direct_waiting) ||
	    conn->direct_copies + d->n > NVL_DIRECT_COPIES)
		weft_list_add_tail(&conn->direct_waiting, &d->wait_link);
	else
		queue_copies(d);
	return -EINPROGRESS;
}

/* All of it in one context, whose engines a peer can watch; NULL: no. */
static struct weft_engine *find_gpu(struct nvl_conn *conn,
				    const struct weft_iov *iov, unsigned int n,
				    size_t *total)
{
	struct weft_cuda_ptr where, first = { 0 };
	struct weft_engine *gpu;
	unsigned int i;
	int err;

	*total = 0;
	for (i = 0; i < n; i++) {
		if (!iov[i].len)
			continue;
		if (nvl_mem_locate(&iov[i], &where) ||
		    where.where != WEFT_CUDA_DEVICE ||
		    (*total && where.ctx != first.ctx))
			return NULL;
		first = where;
		*total += iov[i].len;
	}
	gpu = *total ? weft_engine_get(&conn->iface->engines, &first, &err)
		     : NULL;
	if (!gpu || !gpu->page_shared)
		return NULL;
	for (i = 0; i < WEFT_TX_STREAMS; i++)
		if (!gpu->streams[i].flag)
			return NULL;
	return gpu;
}

int nvl_direct_start(struct nvl_conn *conn, bool get,
		     const struct weft_iov *iov, unsigned int n, uint64_t addr,
		     const void *rkey, struct weft_op *op)
{
	uint8_t loc = ((const uint8_t *)rkey)[WEFT_RKEY_LEN];
	struct weft_rkey key;
	struct nvl_view *v;
	struct weft_engine *gpu;
	size_t total;

	if (!(loc & NVL_LOC_DIRECT))
		return 0;
	gpu = find_gpu(conn, iov, n, &total);
	if (!gpu)
		return 0;
	weft_rkey_unpack(rkey, &key);
	v = nvl_import_find(conn, &key, loc & ~NVL_LOC_DIRECT, gpu, addr,
			    total);
	return v ? start_direct(conn, get, v, gpu, iov, n, addr, total, op) : 0;
}

unsigned int nvl_direct_schedule(struct nvl_conn *conn)
{
	unsigned int n = 0;
	struct direct *d;

	while (!weft_list_empty(&conn->direct_waiting)) {
		d = weft_list_first(&conn->direct_waiting, struct direct,
				    wait_link);
		if (conn->direct_copies + d->n > NVL_DIRECT_COPIES)
			break;
		weft_list_del(&d->wait_link);
		queue_copies(d);
		n += d->n;
	}
	return n;
}

/* ---- completions --------------------------------------------------------- */

static void complete_direct(struct direct *d, int status)
{
	struct weft_op *op = d->op;

	weft_list_del(&d->done_link);
	weft_list_del(&d->link);
	d->conn->ndirects--;
	free(d);
	if (op)
		op->done(op, status);
}

unsigned int nvl_direct_deliver(struct nvl_iface *iface)
{
	struct direct *d;
	unsigned int n = 0;

	while (!weft_list_empty(&iface->done_directs)) {
		d = weft_list_first(&iface->done_directs, struct direct,
				    done_link);
		complete_direct(d, d->status);
		n++;
	}
	return n;
}

void nvl_direct_cancel(struct nvl_conn *conn)
{
	struct direct *d;

	while (!weft_list_empty(&conn->direct_waiting)) {
		d = weft_list_first(&conn->direct_waiting, struct direct,
				    wait_link);
		weft_list_del(&d->wait_link);
		d->status = -ECANCELED;
		for (; d->left; d->left--)
			nvl_import_put(conn, d->import);
		end_direct(d);
	}
}

/* The next one of @conn's that has ended, or that has not, for @op's sake. */
static struct direct *find_direct(struct nvl_conn *conn)
{
	struct direct *d, *tmp;

	weft_list_for_each (d, tmp, &conn->directs, link)
		if (!d->left || d->op)
			return d;
	return NULL;
}

void nvl_direct_drop(struct nvl_conn *conn, int status)
{
	struct direct *d;
	struct weft_op *op;

	while ((d = find_direct(conn))) {
		if (!d->left) {
			complete_direct(d, d->status ? status : 0);
			continue;
		}
		/* an engine never came back; it stays for that */
		op = d->op;
		d->op = NULL;
		op->done(op, status);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending bulk: puts of ours, and what the peer gets from us.  A job is cut
 * into chunks; each is copied into a ring and told to the peer when the copy
 * has ended.
 *
 * A job that fails half way sends no more; what is under way is told as it
 * is, failed chunks as void, and NVL_OP_ABORT comes last.  A put then ends when
 * the peer answers that nothing of it is under way there either.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/nvlink/nvl_copy.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/log.h"

#define CHUNKS_AT_ONCE 8u /* per connection and progress() */

/* ---- the end of a job ---------------------------------------------------- */

/* The put's number is no longer under way. */
static void settle_put(struct nvl_conn *conn, uint32_t seq)
{
	conn->puts[seq % NVL_PUTS] = NULL;
	conn->settled[seq % NVL_PUTS] = true;
	while (conn->put_acked != conn->put_next &&
	       conn->settled[conn->put_acked % NVL_PUTS])
		conn->settled[conn->put_acked++ % NVL_PUTS] = false;
}

static void unqueue_job(struct nvl_job *job)
{
	if (weft_list_empty(&job->link))
		return;
	weft_list_del(&job->link);
	job->conn->njobs--;
}

/* Nothing of it is under way any more; its op completes in progress(). */
void nvl_tx_finish(struct nvl_job *job, int status)
{
	struct nvl_conn *conn = job->conn;

	unqueue_job(job);
	if (job->kind == NVL_JOB_SERVE) {
		conn->serving[job->seq] = NULL;
		if (!status) {
			weft_count(conn->stats, tx_gets, 1);
			weft_count(conn->stats, tx_get_bytes, job->total);
		}
		free(job);
		return;
	}
	settle_put(conn, job->seq);
	job->status = status;
	weft_list_add_tail(&conn->iface->done, &job->done_link);
}

static void send_abort(struct nvl_job *job)
{
	struct nvl_op op = { .type = NVL_OP_ABORT,
			     .seq = job->seq,
			     .status = job->status };

	if (job->kind == NVL_JOB_SERVE)
		op.type = NVL_OP_GET_FAIL;
	nvl_op_send(job->conn, &op);
}

/* Called when `sent`, `flying` or `status` has changed. */
static void check_job(struct nvl_job *job)
{
	if (job->status)
		unqueue_job(job);
	if (job->flying || job->aborted ||
	    (!job->status && job->sent < job->total))
		return;
	if (job->status) {
		send_abort(job);
		/* chunks of a put may still be on their way to its target */
		if (job->kind == NVL_JOB_PUT)
			job->aborted = true;
		else
			nvl_tx_finish(job, job->status);
	} else if (job->kind == NVL_JOB_SERVE) {
		nvl_tx_finish(job, 0);
	} else {
		unqueue_job(job); /* the ack completes it */
	}
}

static void fail_job(struct nvl_job *job, int status)
{
	if (!job->status)
		job->status = status;
	check_job(job);
}

void nvl_tx_give_up(struct nvl_job *job, int status)
{
	if (!weft_list_empty(&job->link))
		fail_job(job, status);
}

/* ---- chunks -------------------------------------------------------------- */

/* Tells the peer of finished chunks, in the order in which they lie. */
static void announce_chunks(struct nvl_conn *conn, struct nvl_txring *r)
{
	struct nvl_txchunk *c;
	struct nvl_job *job;

	while (r->told != r->made &&
	       (c = &r->chunks[r->told % NVL_RING_CHUNKS])->done) {
		r->told++;
		nvl_op_send(conn, &c->op);
		weft_count(conn->stats, wire_tx_bytes, c->op.len);
		job = c->job;
		job->flying--;
		check_job(job);
	}
}

static void finish_chunk(struct nvl_txchunk *c, int status)
{
	if (status) {
		c->op.flags |= NVL_CHUNK_VOID;
		/* what the peer named and is gone: no better than a bad key */
		if (!c->job->status)
			c->job->status = c->job->kind == NVL_JOB_SERVE
						 ? -EACCES
						 : -EFAULT;
	}
	c->done = true;
}

static void finish_copy(struct nvl_copy *copy, int status)
{
	struct nvl_txchunk *c = container_of(copy, struct nvl_txchunk, copy);

	copy->conn->copies--;
	finish_chunk(c, status);
	announce_chunks(copy->conn, copy->owner);
}

/* Host to host ring, by the processor. */
static int copy_to_ring(struct nvl_job *job, struct nvl_txring *r, size_t at,
			const void *src, uint64_t addr, size_t len)
{
	ssize_t n;

	if (job->kind == NVL_JOB_PUT) {
		memcpy((char *)r->map.host + at, src, len);
		return 0;
	}
	/* named by the peer: may be unmapped, so the kernel reads it */
	if (!weft_region_get(&job->key, addr, len))
		return -EACCES;
	n = pwrite(r->map.fd, src, len, at);
	weft_region_put(&job->key);
	return n == (ssize_t)len ? 0 : -EFAULT;
}

static void make_chunk(struct nvl_job *job, struct nvl_txring *r, uint64_t pos,
		       void *src, size_t len, struct nvl_gpu *gpu)
{
	struct nvl_txchunk *c = &r->chunks[r->made % NVL_RING_CHUNKS];
	struct nvl_conn *conn = job->conn;
	size_t at = pos % r->map.size;
	uint64_t addr = job->addr + job->sent;
	uint8_t id = 0;

	while (conn->txrings[id] != r)
		id++;
	c->job = job;
	c->done = false;
	c->end = r->pos;
	r->made++;
	c->op = (struct nvl_op){
		.type = NVL_OP_CHUNK,
		.flags = job->flags,
		.ring = id,
		.loc = job->loc,
		.seq = job->seq,
		.len = len,
		.total = job->total,
		.pos = pos,
		.addr = job->kind == NVL_JOB_SERVE ? job->sent : addr,
		.slot = job->key.slot,
		.generation = job->key.generation,
		.token = job->key.token,
		.tag = job->tag,
	};
	job->sent += len;
	job->flying++;
	if (!gpu) {
		finish_chunk(c, copy_to_ring(job, r, at, src, addr, len));
		announce_chunks(conn, r);
		return;
	}
	c->copy = (struct nvl_copy){
		.conn = conn,
		.done = finish_copy,
		.owner = r,
		.len = len,
		.src = (uintptr_t)src,
		.guarded = job->kind == NVL_JOB_SERVE,
		.key = job->key,
		.at = addr,
		.dst = r->map.kind == NVL_RING_CUDA
			       ? r->map.dev + at
			       : (uintptr_t)r->map.host + at,
	};
	conn->copies++;
	nvl_copy_queue(&gpu->tx_waiting, &c->copy);
}

/* The next piece of the source, not longer than @max. */
static size_t take_piece(struct nvl_job *job, size_t max, void **p)
{
	struct weft_iov *v = &job->iov[job->iov_i];

	while (job->iov_off == v->len) {
		v = &job->iov[++job->iov_i];
		job->iov_off = 0;
	}
	*p = (char *)v->addr + job->iov_off;
	return weft_min(max, v->len - job->iov_off);
}

/* Small enough to overlap both copies, large enough to be worth a launch. */
static size_t chunk_size(const struct nvl_job *job, const struct nvl_txring *r)
{
	size_t n = weft_max(job->total / 8, nvl_tune.chunk_min);

	n = weft_min(weft_min(n, nvl_tune.chunk_max), r->map.size / 4);
	return (n + NVL_ALIGN - 1) & ~(size_t)(NVL_ALIGN - 1);
}

/* ---- scheduling ---------------------------------------------------------- */

/* The GPU that copies for @job; NULL and 0: the processor does. */
static int find_gpu(struct nvl_job *job, struct nvl_gpu **gpu)
{
	int err = 0;

	*gpu = NULL;
	if (job->where.where != WEFT_CUDA_DEVICE)
		return 0;
	*gpu = nvl_gpu_get(job->conn->iface, &job->where, &err);
	return *gpu ? 0 : err;
}

static void fall_back_to_host(struct nvl_job *job)
{
	weft_warn_once("GPU %d cannot reach the memory of a peer's GPU: data "
		       "goes through host memory",
		       job->where.ordinal);
	nvl_ring_use_host(job->conn, job->loc);
}

static void send_empty(struct nvl_job *job)
{
	struct nvl_op op = {
		.type = NVL_OP_CHUNK,
		.flags = job->flags,
		.ring = NVL_NO_RING,
		.seq = job->seq,
		.addr = job->addr,
		.slot = job->key.slot,
		.generation = job->key.generation,
		.token = job->key.token,
		.tag = job->tag,
	};

	unqueue_job(job);
	nvl_op_send(job->conn, &op);
}

static unsigned int send_chunks(struct nvl_job *job, struct nvl_txring *r,
				struct nvl_gpu *gpu, unsigned int max)
{
	unsigned int n = 0;
	uint64_t pos;
	size_t len;
	void *src;

	job->flying++; /* keeps it while we look at it */
	while (n < max && !job->status && job->sent < job->total) {
		len = take_piece(job, chunk_size(job, r), &src);
		if (!nvl_ring_take(r, len, &pos))
			break;
		job->iov_off += len;
		make_chunk(job, r, pos, src, len, gpu);
		n++;
	}
	if (job->sent == job->total)
		unqueue_job(job);
	job->flying--;
	check_job(job);
	return n;
}

static unsigned int send_job(struct nvl_job *job, unsigned int max)
{
	struct nvl_conn *conn = job->conn;
	struct nvl_txring *r;
	struct nvl_gpu *gpu;
	int err;

	if (!job->total) {
		send_empty(job);
		return 1;
	}
	r = nvl_ring_for(conn, job);
	if (!r)
		return 0;
	err = find_gpu(job, &gpu);
	if (!err && gpu)
		err = nvl_map_reach(&r->map, gpu);
	if (err && r->map.kind == NVL_RING_CUDA) {
		fall_back_to_host(job);
		return 0;
	}
	if (err && !gpu) {
		fail_job(job, err);
		return 0;
	}
	return send_chunks(job, r, gpu, max);
}

static struct nvl_job *get_job(struct nvl_conn *conn, unsigned int i)
{
	struct weft_list *l = conn->jobs.next;

	while (i-- && l != &conn->jobs)
		l = l->next;
	return l == &conn->jobs ? NULL : container_of(l, struct nvl_job, link);
}

unsigned int nvl_tx_schedule(struct nvl_conn *conn)
{
	unsigned int n = 0, stuck = 0;
	struct nvl_job *job;

	nvl_ring_credits(conn);
	/* any job may end while another one sends: none is held on to */
	while (conn->base.state == WEFT_CONN_OPEN && n < CHUNKS_AT_ONCE &&
	       conn->copies < NVL_CONN_CHUNKS && stuck < 16 &&
	       (job = get_job(conn, stuck))) {
		n += send_job(job, CHUNKS_AT_ONCE - n);
		if (get_job(conn, stuck) == job)
			stuck++;
	}
	return n;
}

/* ---- jobs begin ---------------------------------------------------------- */

static struct nvl_job *create_job(struct nvl_conn *conn, enum nvl_job_kind kind,
				  const struct weft_iov *iov, unsigned int n)
{
	struct nvl_job *job = calloc(1, sizeof(*job));
	unsigned int i;

	if (!job)
		return NULL;
	weft_list_init(&job->link);
	weft_list_init(&job->done_link);
	job->kind = kind;
	job->conn = conn;
	for (i = 0; i < n; i++) {
		if (!iov[i].len)
			continue;
		job->iov[job->iovcnt++] = iov[i];
		job->total += iov[i].len;
	}
	return job;
}

int nvl_mem_locate(const struct weft_iov *v, struct weft_cuda_ptr *where)
{
	int err;

	if (v->mem) {
		*where = v->mem->where;
		return 0;
	}
	err = weft_cuda_query(v->addr, where);
	if (err)
		return weft_fail(err,
				 "GPU memory at %p belongs to no CUDA "
				 "context that is active",
				 v->addr);
	nvl_location_add(where);
	return 0;
}

/* All entries must be of one kind; the first one stands for them. */
static int find_source(struct nvl_job *job)
{
	struct weft_cuda_ptr w;
	unsigned int i;
	int err;

	for (i = 0; i < job->iovcnt; i++) {
		err = nvl_mem_locate(&job->iov[i], &w);
		if (err)
			return err;
		if (i && ((w.where == WEFT_CUDA_DEVICE) !=
				  (job->where.where == WEFT_CUDA_DEVICE) ||
			  w.ctx != job->where.ctx))
			return -EINVAL;
		if (!i)
			job->where = w;
	}
	return 0;
}

int nvl_tx_put(struct nvl_conn *conn, const struct weft_iov *iov,
	       unsigned int n, uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op)
{
	struct nvl_job *job;
	int err;

	job = create_job(conn, NVL_JOB_PUT, iov, n);
	if (!job)
		return -ENOMEM;
	err = find_source(job);
	if (err) {
		free(job);
		return err;
	}
	job->op = op;
	job->seq = conn->put_next++;
	weft_rkey_unpack(rkey, &job->key);
	job->loc = ((const uint8_t *)rkey)[WEFT_RKEY_LEN];
	job->addr = addr;
	if (notify) {
		job->flags |= NVL_CHUNK_NOTIFY;
		job->tag = notify->tag;
	}
	conn->puts[job->seq % NVL_PUTS] = job;
	weft_list_add_tail(&conn->jobs, &job->link);
	conn->njobs++;
	return -EINPROGRESS;
}

/* The peer wants memory of ours.  -EPROTO: it breaks the rules. */
int nvl_tx_serve(struct nvl_conn *conn, const struct nvl_op *op)
{
	struct weft_iov iov = { (void *)(uintptr_t)op->addr, op->total, NULL };
	struct nvl_job *job;

	if (op->seq >= NVL_GETS || conn->serving[op->seq] || !op->total)
		return -EPROTO;
	job = create_job(conn, NVL_JOB_SERVE, &iov, 1);
	if (!job)
		return -ENOMEM;
	job->seq = op->seq;
	job->flags = NVL_CHUNK_GET;
	job->addr = op->addr;
	job->loc = op->loc;
	job->key = (struct weft_rkey){ op->slot, op->generation, op->token };
	conn->serving[job->seq] = job;
	weft_list_add_tail(&conn->jobs, &job->link);
	conn->njobs++;
	if (!weft_region_get(&job->key, op->addr, op->total)) {
		weft_count(conn->stats, key_errors, 1);
		fail_job(job, -EACCES);
		return 0;
	}
	if (find_source(job)) {
		weft_region_put(&job->key);
		fail_job(job, -EFAULT);
		return 0;
	}
	weft_region_put(&job->key);
	return 0;
}

int nvl_tx_ack(struct nvl_conn *conn, const struct nvl_op *op)
{
	struct nvl_job *job = conn->puts[op->seq % NVL_PUTS];

	if (!job || job->seq != op->seq || job->flying ||
	    (!job->aborted && job->sent < job->total) ||
	    !weft_list_empty(&job->link))
		return -EPROTO;
	nvl_tx_finish(job, job->aborted	    ? job->status
			   : op->status < 0 ? op->status
					    : 0);
	return 0;
}

unsigned int nvl_tx_deliver(struct nvl_iface *iface)
{
	struct weft_op *op;
	struct nvl_job *job;
	unsigned int n = 0;
	int status;

	while (!weft_list_empty(&iface->done)) {
		job = weft_list_first(&iface->done, struct nvl_job, done_link);
		weft_list_del(&job->done_link);
		op = job->op;
		status = job->status;
		if (!status) {
			weft_count(job->conn->stats, tx_puts, 1);
			weft_count(job->conn->stats, tx_put_bytes, job->total);
		}
		free(job);
		if (op)
			op->done(op, status);
		n++;
	}
	return n;
}

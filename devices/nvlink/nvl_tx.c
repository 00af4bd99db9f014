/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending bulk: local puts, and what the peer gets.  A transfer is
 * cut into chunks; each is copied into a ring and announced when the
 * copy has ended.
 *
 * A put that is cancelled half way sends no more; what is under way is
 * announced as it is, chunks that were not copied as void, and NVL_OP_ABORT
 * comes last. It then ends when the peer replies that nothing of it is under
 * way there either.  A transfer that fails ends the connection.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/engine/copy.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/log.h"

#define CHUNKS_AT_ONCE 8u /* per connection and progress() */

/* ---- the end of a transfer ----------------------------------------------- */

/* Moves the window on. */
static void finish_put(struct nvl_conn *conn, uint32_t seq)
{
	conn->puts[seq % NVL_PUTS] = NULL;
	conn->acked_early[seq % NVL_PUTS] = true;
	while (conn->put_acked != conn->put_next &&
	       conn->acked_early[conn->put_acked % NVL_PUTS])
		conn->acked_early[conn->put_acked++ % NVL_PUTS] = false;
}

static void unqueue_transfer(struct nvl_transfer *transfer)
{
	if (weft_list_empty(&transfer->link))
		return;
	weft_list_del(&transfer->link);
	transfer->conn->ntransfers--;
}

/* Nothing of it is under way any more; its op completes in progress(). */
void nvl_tx_finish(struct nvl_transfer *transfer, int status)
{
	struct nvl_conn *conn = transfer->conn;

	unqueue_transfer(transfer);
	if (transfer->kind == NVL_TRANSFER_SERVE) {
		conn->replies[transfer->seq] = NULL;
		if (!status) {
			weft_count(conn->stats, tx_gets, 1);
			weft_count(conn->stats, tx_get_bytes, transfer->total);
		}
		free(transfer);
		return;
	}
	finish_put(conn, transfer->seq);
	transfer->status = status;
	weft_list_add_tail(&conn->iface->done, &transfer->done_link);
}

static void send_end(struct nvl_transfer *transfer, enum nvl_op_type type)
{
	const struct nvl_op op = { .type = type,
				   .seq = transfer->seq,
				   .status = transfer->status };

	nvl_op_send(transfer->conn, &op);
}

/* The peer is told why, where it asks for it; of a put it places nothing. */
static void end_conn(struct nvl_transfer *transfer)
{
	if (transfer->kind == NVL_TRANSFER_SERVE)
		send_end(transfer, NVL_OP_GET_FAIL);
	nvl_conn_fail(transfer->conn, transfer->kind == NVL_TRANSFER_SERVE
					      ? "read what a get names"
					      : "read memory of a put");
}

/* Called when `sent`, `in_flight` or `status` has changed. */
static void check_transfer(struct nvl_transfer *transfer)
{
	if (transfer->status)
		unqueue_transfer(transfer);
	if (transfer->status && transfer->status != -ECANCELED)
		end_conn(transfer);
	if (transfer->in_flight || transfer->aborted ||
	    (!transfer->status && transfer->sent < transfer->total))
		return;
	if (transfer->kind == NVL_TRANSFER_SERVE) {
		nvl_tx_finish(transfer, transfer->status);
	} else if (transfer->status) {
		/* chunks may still be on their way to its target */
		send_end(transfer, NVL_OP_ABORT);
		transfer->aborted = true;
	} else {
		unqueue_transfer(transfer); /* the ack completes it */
	}
}

static void fail_transfer(struct nvl_transfer *transfer, int status)
{
	if (!transfer->status)
		transfer->status = status;
	check_transfer(transfer);
}

void nvl_tx_give_up(struct nvl_transfer *transfer, int status)
{
	if (!weft_list_empty(&transfer->link))
		fail_transfer(transfer, status);
}

/* ---- chunks -------------------------------------------------------------- */

/* Tells the peer of finished chunks, in the order in which they lie. */
static void announce_chunks(struct nvl_conn *conn, struct nvl_txring *r)
{
	struct nvl_txchunk *c;
	struct nvl_transfer *transfer;

	while (r->announced != r->made &&
	       (c = &r->chunks[r->announced % NVL_RING_CHUNKS])->done) {
		r->announced++;
		nvl_op_send(conn, &c->op);
		weft_count(conn->stats, wire_tx_bytes, c->op.len);
		transfer = c->transfer;
		transfer->in_flight--;
		check_transfer(transfer);
	}
}

static void finish_chunk(struct nvl_txchunk *c, int status)
{
	if (status) {
		c->op.flags |= NVL_CHUNK_VOID;
		if (!c->transfer->status)
			c->transfer->status = status;
	}
	c->done = true;
}

static void finish_copy(struct weft_copy *copy, int status)
{
	struct nvl_txchunk *c = container_of(copy, struct nvl_txchunk, copy);
	struct nvl_conn *conn = c->transfer->conn;

	conn->copies--;
	finish_chunk(c, status);
	announce_chunks(conn, copy->owner);
}

/* Host to host ring, by the processor. */
static int copy_to_ring(struct nvl_transfer *transfer, struct nvl_txring *r,
			size_t at, const void *src, uint64_t addr, size_t len)
{
	const bool serve = transfer->kind == NVL_TRANSFER_SERVE;
	ssize_t n;

	if (serve && !weft_region_get(&transfer->key, addr, len))
		return -EACCES;
	/* it may be unmapped, so the kernel reads it */
	n = pwrite(r->map.fd, src, len, at);
	if (serve)
		weft_region_put(&transfer->key);
	return n == (ssize_t)len ? 0 : -EACCES;
}

static void make_chunk(struct nvl_transfer *transfer, struct nvl_txring *r,
		       uint64_t pos, void *src, size_t len,
		       struct weft_engine *gpu)
{
	struct nvl_txchunk *c = &r->chunks[r->made % NVL_RING_CHUNKS];
	struct nvl_conn *conn = transfer->conn;
	size_t at = pos % r->map.size;
	uint64_t addr = transfer->addr + transfer->sent;
	uint8_t id = 0;

	while (conn->txrings[id] != r)
		id++;
	c->transfer = transfer;
	c->done = false;
	c->end = r->pos;
	r->made++;
	c->op = (struct nvl_op){
		.type = NVL_OP_CHUNK,
		.flags = transfer->flags,
		.ring = id,
		.loc = transfer->loc,
		.seq = transfer->seq,
		.len = len,
		.total = transfer->total,
		.pos = pos,
		.addr = transfer->kind == NVL_TRANSFER_SERVE ? transfer->sent
							     : addr,
		.slot = transfer->key.slot,
		.generation = transfer->key.generation,
		.token = transfer->key.token,
		.tag = transfer->tag,
	};
	transfer->sent += len;
	transfer->in_flight++;
	if (!gpu) {
		finish_chunk(c, copy_to_ring(transfer, r, at, src, addr, len));
		announce_chunks(conn, r);
		return;
	}
	c->copy = (struct weft_copy){
		.group = conn,
		.done = finish_copy,
		.owner = r,
		.len = len,
		.src = (uintptr_t)src,
		.guarded = transfer->kind == NVL_TRANSFER_SERVE,
		.key = transfer->key,
		.at = addr,
		.dst = r->map.kind == NVL_RING_CUDA
			       ? r->map.dev + at
			       : (uintptr_t)r->map.host + at,
	};
	conn->copies++;
	weft_copy_queue(&gpu->tx_waiting, &c->copy);
}

/* The next piece of the source, not longer than @max. */
static size_t take_piece(struct nvl_transfer *transfer, size_t max, void **p)
{
	struct weft_iov *v = &transfer->iov[transfer->iov_i];

	while (transfer->iov_off == v->len) {
		v = &transfer->iov[++transfer->iov_i];
		transfer->iov_off = 0;
	}
	*p = (char *)v->addr + transfer->iov_off;
	return weft_min(max, v->len - transfer->iov_off);
}

/* Small enough to overlap both copies, large enough to be worth a launch. */
static size_t chunk_size(const struct nvl_transfer *transfer,
			 const struct nvl_txring *r)
{
	size_t n = weft_max(transfer->total / 8, nvl_tune.chunk_min);

	n = weft_min(weft_min(n, nvl_tune.chunk_max), r->map.size / 4);
	return (n + NVL_ALIGN - 1) & ~(size_t)(NVL_ALIGN - 1);
}

/* ---- scheduling ---------------------------------------------------------- */

/* The GPU that copies for @transfer; NULL and 0: the processor does. */
static int find_gpu(struct nvl_transfer *transfer, struct weft_engine **gpu)
{
	int err = 0;

	*gpu = NULL;
	if (transfer->where.where != WEFT_CUDA_DEVICE)
		return 0;
	*gpu = weft_engine_get(&transfer->conn->iface->engines,
			       &transfer->where, &err);
	return *gpu ? 0 : err;
}

static void fall_back_to_host(struct nvl_transfer *transfer)
{
	weft_warn_once("GPU %d cannot reach the memory of a peer's GPU: data "
		       "goes through host memory",
		       transfer->where.ordinal);
	nvl_ring_use_host(transfer->conn, transfer->loc);
}

static void send_empty(struct nvl_transfer *transfer)
{
	struct nvl_op op = {
		.type = NVL_OP_CHUNK,
		.flags = transfer->flags,
		.ring = NVL_NO_RING,
		.seq = transfer->seq,
		.addr = transfer->addr,
		.slot = transfer->key.slot,
		.generation = transfer->key.generation,
		.token = transfer->key.token,
		.tag = transfer->tag,
	};

	unqueue_transfer(transfer);
	nvl_op_send(transfer->conn, &op);
}

static unsigned int send_chunks(struct nvl_transfer *transfer,
				struct nvl_txring *r, struct weft_engine *gpu,
				unsigned int max)
{
	unsigned int n = 0;
	uint64_t pos;
	size_t len;
	void *src;

	transfer->in_flight++; /* keeps it while we look at it */
	while (n < max && !transfer->status &&
	       transfer->sent < transfer->total) {
		len = take_piece(transfer, chunk_size(transfer, r), &src);
		if (!nvl_ring_take(r, len, &pos))
			break;
		transfer->iov_off += len;
		make_chunk(transfer, r, pos, src, len, gpu);
		n++;
	}
	if (transfer->sent == transfer->total)
		unqueue_transfer(transfer);
	transfer->in_flight--;
	check_transfer(transfer);
	return n;
}

static unsigned int send_transfer(struct nvl_transfer *transfer,
				  unsigned int max)
{
	struct nvl_conn *conn = transfer->conn;
	struct nvl_txring *r;
	struct weft_engine *gpu;
	int err;

	if (!transfer->total) {
		send_empty(transfer);
		return 1;
	}
	r = nvl_ring_for(conn, transfer);
	if (!r)
		return 0;
	err = find_gpu(transfer, &gpu);
	if (!err && gpu)
		err = nvl_map_reach(&r->map, gpu);
	if (err && r->map.kind == NVL_RING_CUDA) {
		fall_back_to_host(transfer);
		return 0;
	}
	if (err && !gpu) {
		fail_transfer(transfer, err);
		return 0;
	}
	return send_chunks(transfer, r, gpu, max);
}

static struct nvl_transfer *get_transfer(struct nvl_conn *conn, unsigned int i)
{
	struct weft_list *l = conn->transfers.next;

	while (i-- && l != &conn->transfers)
		l = l->next;
	return l == &conn->transfers
		       ? NULL
		       : container_of(l, struct nvl_transfer, link);
}

unsigned int nvl_tx_schedule(struct nvl_conn *conn)
{
	unsigned int n = 0, stuck = 0;
	struct nvl_transfer *transfer;

	nvl_ring_credits(conn);
	/* any transfer may end while another one sends: none is held on to */
	while (conn->base.state == WEFT_CONN_OPEN && n < CHUNKS_AT_ONCE &&
	       conn->copies - conn->direct_copies < NVL_CONN_CHUNKS &&
	       stuck < 16 && (transfer = get_transfer(conn, stuck))) {
		n += send_transfer(transfer, CHUNKS_AT_ONCE - n);
		if (get_transfer(conn, stuck) == transfer)
			stuck++;
	}
	return n;
}

/* ---- transfers begin ----------------------------------------------------- */

static struct nvl_transfer *create_transfer(struct nvl_conn *conn,
					    enum nvl_transfer_kind kind,
					    const struct weft_iov *iov,
					    unsigned int n)
{
	struct nvl_transfer *transfer = calloc(1, sizeof(*transfer));
	unsigned int i;

	if (!transfer)
		return NULL;
	weft_list_init(&transfer->link);
	weft_list_init(&transfer->done_link);
	transfer->kind = kind;
	transfer->conn = conn;
	for (i = 0; i < n; i++) {
		if (!iov[i].len)
			continue;
		transfer->iov[transfer->iovcnt++] = iov[i];
		transfer->total += iov[i].len;
	}
	return transfer;
}

int nvl_mem_locate(const struct weft_iov *v, struct weft_cuda_ptr *where)
{
	const int err = weft_engine_locate(v, where);

	if (!err && !v->mem)
		nvl_location_add(where);
	return err;
}

/* All entries must be of one kind; the first one stands for them. */
static int find_source(struct nvl_transfer *transfer)
{
	struct weft_cuda_ptr w;
	unsigned int i;
	int err;

	for (i = 0; i < transfer->iovcnt; i++) {
		err = nvl_mem_locate(&transfer->iov[i], &w);
		if (err)
			return err;
		if (i && ((w.where == WEFT_CUDA_DEVICE) !=
				  (transfer->where.where == WEFT_CUDA_DEVICE) ||
			  w.ctx != transfer->where.ctx))
			return -EINVAL;
		if (!i)
			transfer->where = w;
	}
	return 0;
}

int nvl_tx_put(struct nvl_conn *conn, const struct weft_iov *iov,
	       unsigned int n, uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op)
{
	struct nvl_transfer *transfer;
	int err;

	transfer = create_transfer(conn, NVL_TRANSFER_PUT, iov, n);
	if (!transfer)
		return -ENOMEM;
	err = find_source(transfer);
	if (err) {
		free(transfer);
		return err;
	}
	transfer->op = op;
	transfer->seq = conn->put_next++;
	weft_rkey_unpack(rkey, &transfer->key);
	transfer->loc = ((const uint8_t *)rkey)[WEFT_RKEY_LEN] &
			~(NVL_LOC_DIRECT | NVL_LOC_HANDLE);
	transfer->addr = addr;
	if (notify) {
		transfer->flags |= NVL_CHUNK_NOTIFY;
		transfer->tag = notify->tag;
	}
	conn->puts[transfer->seq % NVL_PUTS] = transfer;
	weft_list_add_tail(&conn->transfers, &transfer->link);
	conn->ntransfers++;
	return -EINPROGRESS;
}

/* The peer gets local memory.  -EPROTO: it breaks the rules. */
int nvl_tx_serve(struct nvl_conn *conn, const struct nvl_op *op)
{
	struct weft_iov iov = { (void *)(uintptr_t)op->addr, op->total, NULL };
	struct nvl_transfer *transfer;

	if (op->seq >= NVL_GETS || conn->replies[op->seq] || !op->total)
		return -EPROTO;
	transfer = create_transfer(conn, NVL_TRANSFER_SERVE, &iov, 1);
	if (!transfer)
		return -ENOMEM;
	transfer->seq = op->seq;
	transfer->flags = NVL_CHUNK_GET;
	transfer->addr = op->addr;
	transfer->loc = op->loc;
	transfer->key =
		(struct weft_rkey){ op->slot, op->generation, op->token };
	conn->replies[transfer->seq] = transfer;
	weft_list_add_tail(&conn->transfers, &transfer->link);
	conn->ntransfers++;
	if (!weft_region_get(&transfer->key, op->addr, op->total)) {
		weft_count(conn->stats, key_errors, 1);
		fail_transfer(transfer, -EACCES);
		return 0;
	}
	if (find_source(transfer)) {
		weft_region_put(&transfer->key);
		fail_transfer(transfer, -EACCES);
		return 0;
	}
	weft_region_put(&transfer->key);
	return 0;
}

int nvl_tx_ack(struct nvl_conn *conn, const struct nvl_op *op)
{
	struct nvl_transfer *transfer = conn->puts[op->seq % NVL_PUTS];

	if (!transfer || transfer->seq != op->seq || op->status == -EINPROGRESS)
		return -EPROTO;
	if (op->status < 0 && op->status != -ECANCELED) {
		/* the peer need not have all of it; dropped with the rest */
		if (!transfer->status)
			transfer->status = op->status;
		nvl_conn_told(conn);
		return 0;
	}
	if (transfer->in_flight || !weft_list_empty(&transfer->link) ||
	    (!transfer->aborted && transfer->sent < transfer->total))
		return -EPROTO;
	nvl_tx_finish(transfer, transfer->aborted ? transfer->status
				: op->status < 0  ? op->status
						  : 0);
	return 0;
}

unsigned int nvl_tx_deliver(struct nvl_iface *iface)
{
	struct weft_op *op;
	struct nvl_transfer *transfer;
	unsigned int n = 0;
	int status;

	while (!weft_list_empty(&iface->done)) {
		transfer = weft_list_first(&iface->done, struct nvl_transfer,
					   done_link);
		weft_list_del(&transfer->done_link);
		op = transfer->op;
		status = transfer->status;
		if (!status) {
			weft_count(transfer->conn->stats, tx_puts, 1);
			weft_count(transfer->conn->stats, tx_put_bytes,
				   transfer->total);
		}
		free(transfer);
		if (op)
			op->done(op, status);
		n++;
	}
	return n;
}

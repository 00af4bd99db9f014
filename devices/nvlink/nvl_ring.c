/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging rings: memory on the reader's side in which bulk waits for its last
 * copy.  One-way, per connection and place: the writer requests a ring towards
 * a GPU (or the host), the reader makes one within its budget and passes it
 * once as a descriptor, the writer maps it.  What the writer cannot map,
 * because the GPU's device node is not in its container, goes through host
 * memory.
 *
 * Chunks lie one behind the other, each in one piece; the reader gives credit
 * for all below a position, in order, when its own copy out has ended.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/settings.h"
#include "devices/forked.h"
#include "devices/nvlink/nvl_budget.h"
#include "devices/nvlink/nvl_direct.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_sock.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/clock.h"
#include "util/log.h"

#define FRAMES_AT_ONCE	64u
#define RING_SIZE_MAX	(1ul << 30) /* a peer that says more, lies */
#define RETRY_DOUBLINGS 6u	    /* of nvl_tune.retry_ms, at most */

/* ---- where this process has GPU memory ---------------------------------- */

static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_cuda_ptr places[NVL_LOCS];

void nvl_location_add(const struct weft_cuda_ptr *where)
{
	unsigned int loc = NVL_LOC_GPU(where->ordinal);

	if (where->where != WEFT_CUDA_DEVICE || loc >= NVL_LOCS)
		return;
	pthread_mutex_lock(&places_lock);
	places[loc] = *where;
	pthread_mutex_unlock(&places_lock);
}

static bool location_of(unsigned int loc, struct weft_cuda_ptr *where)
{
	if (loc >= NVL_LOCS)
		return false;
	pthread_mutex_lock(&places_lock);
	*where = places[loc];
	pthread_mutex_unlock(&places_lock);
	return where->where == WEFT_CUDA_DEVICE;
}

/* "GPU-5f0c...": the same in every container; the budget's name. */
static void name_gpu(int ordinal, char *buf, size_t len)
{
	struct weft_cu_uuid id;
	struct weft_cuda_scope s;
	int dev, r = -1;
	size_t i, n;

	memset(&id, 0, sizeof(id));
	if (!weft_cuda_enter(&s, NULL)) {
		r = s.cu->device_get(&dev, ordinal);
		if (!r)
			r = s.cu->device_uuid(&id, dev);
		weft_cuda_leave(&s);
	}
	n = snprintf(buf, len, r ? "gpu%d-" : "gpu-", ordinal);
	for (i = 0; !r && i < sizeof(id.bytes) && n + 3 < len; i++)
		n += snprintf(buf + n, len - n, "%02x", id.bytes[i]);
}

/* ---- the writer's side --------------------------------------------------- */

static unsigned int choose_path(struct nvl_conn *conn,
				const struct nvl_transfer *transfer)
{
	struct nvl_route *p;

	if (transfer->where.where != WEFT_CUDA_DEVICE ||
	    transfer->loc == NVL_LOC_HOST || transfer->loc >= NVL_LOCS)
		return NVL_LOC_HOST;
	p = &conn->paths[transfer->loc];
	/* the host's ring serves until there is a reply */
	if (p->via_host_ring && p->retry_ms && p->retry_ms <= weft_now_ms()) {
		p->retry_ms = 0;
		nvl_ring_request(conn, transfer->loc);
	}
	return p->via_host_ring ? NVL_LOC_HOST : transfer->loc;
}

void nvl_ring_use_host(struct nvl_conn *conn, uint8_t loc)
{
	if (loc == NVL_LOC_HOST || loc >= NVL_LOCS)
		return;
	conn->paths[loc].via_host_ring = true;
	conn->paths[loc].retry_ms = 0;
}

void nvl_ring_request(struct nvl_conn *conn, uint8_t loc)
{
	struct nvl_frame f = { .type = NVL_FRAME_RING_WANT, .loc = loc };
	struct nvl_route *p = &conn->paths[loc];
	int err;

	if (p->wanted || p->ring != NVL_NO_RING)
		return;
	p->wanted = true;
	err = nvl_sock_send(conn, &f, -1);
	if (err)
		nvl_conn_break(conn, err);
}

/* NULL: not yet; progress() goes on when the peer has replied. */
struct nvl_txring *nvl_ring_for(struct nvl_conn *conn,
				struct nvl_transfer *transfer)
{
	unsigned int loc = choose_path(conn, transfer);
	struct nvl_route *p = &conn->paths[loc];

	if (p->ring != NVL_NO_RING)
		return conn->txrings[p->ring];
	nvl_ring_request(conn, loc);
	return NULL;
}

/* Room for @len bytes in one piece; *@pos is where. */
bool nvl_ring_take(struct nvl_txring *r, size_t len, uint64_t *pos)
{
	uint64_t at = r->pos;
	size_t to_end = r->map.size - at % r->map.size;

	if (r->recalled || r->made - r->out == NVL_RING_CHUNKS)
		return false;
	if (to_end < len)
		at += to_end;
	if (at + len - r->freed > r->map.size)
		return false;
	*pos = at;
	r->pos = (at + len + NVL_ALIGN - 1) & ~(uint64_t)(NVL_ALIGN - 1);
	return true;
}

static void free_txring(struct nvl_conn *conn, uint8_t id)
{
	nvl_map_close(conn->iface, &conn->txrings[id]->map);
	free(conn->txrings[id]);
	conn->txrings[id] = NULL;
}

static void close_if_recalled(struct nvl_conn *conn, uint8_t id)
{
	struct nvl_frame f = { .type = NVL_FRAME_RING_CLOSED, .ring = id };
	struct nvl_txring *r = conn->txrings[id];
	int err;

	if (!r->recalled || r->made != r->out)
		return;
	free_txring(conn, id);
	err = nvl_sock_send(conn, &f, -1);
	if (err)
		nvl_conn_break(conn, err);
}

static uint64_t read_credit(struct nvl_conn *conn, unsigned int id)
{
	return atomic_load_explicit(&conn->tx.head->credit[id],
				    memory_order_acquire);
}

void nvl_ring_credits(struct nvl_conn *conn)
{
	struct nvl_txring *r;
	unsigned int id;
	uint64_t credit;

	for (id = 0; id < NVL_RINGS && conn->base.state == WEFT_CONN_OPEN;
	     id++) {
		r = conn->txrings[id];
		if (!r || r->out == r->announced)
			continue;
		credit = read_credit(conn, id);
		if (credit >
		    r->chunks[(r->announced - 1) % NVL_RING_CHUNKS].end) {
			weft_error("a peer on this host gives credit for bytes "
				   "that it was never sent");
			nvl_conn_break(conn, -EPROTO);
			return;
		}
		while (r->out != r->announced &&
		       r->chunks[r->out % NVL_RING_CHUNKS].end <= credit)
			r->freed = r->chunks[r->out++ % NVL_RING_CHUNKS].end;
		close_if_recalled(conn, id);
	}
}

bool nvl_ring_credit_pending(struct nvl_conn *conn)
{
	struct nvl_txring *r;
	unsigned int id;

	if (!conn->ntransfers)
		return false;
	for (id = 0; id < NVL_RINGS; id++) {
		r = conn->txrings[id];
		if (r && r->out != r->announced &&
		    read_credit(conn, id) >=
			    r->chunks[r->out % NVL_RING_CHUNKS].end)
			return true;
	}
	return false;
}

/* The GPU that a ring is mapped for first: that of a transfer that waits for
 * it. */
static struct weft_engine *choose_gpu(struct nvl_conn *conn, uint8_t loc)
{
	struct nvl_transfer *transfer, *tmp;
	int err;

	weft_list_for_each (transfer, tmp, &conn->transfers, link)
		if (transfer->loc == loc &&
		    transfer->where.where == WEFT_CUDA_DEVICE)
			return weft_engine_get(&conn->iface->engines,
					       &transfer->where, &err);
	if (weft_list_empty(&conn->iface->engines.list))
		return NULL;
	return weft_list_first(&conn->iface->engines.list, struct weft_engine,
			       link);
}

static int map_offer(struct nvl_conn *conn, const struct nvl_frame *f, int fd,
		     struct nvl_mapping *map)
{
	struct weft_engine *gpu;

	if (f->kind == NVL_RING_HOST)
		return nvl_map_host_import(map, fd, f->size);
	gpu = choose_gpu(conn, f->loc);
	return gpu ? nvl_map_cuda_import(map, gpu, fd, f->size) : -ENODEV;
}

static int handle_offer(struct nvl_conn *conn, const struct nvl_frame *f,
			int fd)
{
	struct nvl_frame reply = { .type = NVL_FRAME_RING_STATE,
				   .ring = f->ring };
	struct nvl_txring *r;

	if (f->ring >= NVL_RINGS || f->loc >= NVL_LOCS ||
	    conn->txrings[f->ring] || f->kind > NVL_RING_CUDA ||
	    (f->kind == NVL_RING_CUDA) != (f->loc != NVL_LOC_HOST) ||
	    !f->size || f->size > RING_SIZE_MAX || f->size % 4096 ||
	    conn->paths[f->loc].ring != NVL_NO_RING)
		return weft_fail(EPROTO,
				 "a peer on this host offers a ring "
				 "that cannot be (%u, %llu bytes)",
				 f->ring, (unsigned long long)f->size);
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	reply.err = map_offer(conn, f, fd, &r->map);
	conn->paths[f->loc].wanted = false;
	if (reply.err) {
		free(r);
		if (f->loc == NVL_LOC_HOST)
			return reply.err;
		nvl_ring_use_host(conn, f->loc);
	} else {
		conn->txrings[f->ring] = r;
		conn->paths[f->loc].ring = f->ring;
		conn->paths[f->loc].via_host_ring = false;
		conn->paths[f->loc].pause_ms = 0;
	}
	return nvl_sock_send(conn, &reply, -1);
}

static int handle_none(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_route *p;

	if (f->loc >= NVL_LOCS)
		return -EPROTO;
	p = &conn->paths[f->loc];
	p->wanted = false;
	if (f->loc == NVL_LOC_HOST)
		return weft_fail(ENOMEM, "a peer on this host has no memory "
					 "for a ring");
	nvl_ring_use_host(conn, f->loc);
	/* what cannot be shared will not be later on either */
	if (f->err == -EOPNOTSUPP)
		return 0;
	/* memory may be had later, but each question costs both sides */
	p->pause_ms = p->pause_ms
			      ? weft_min(2 * p->pause_ms,
					 nvl_tune.retry_ms << RETRY_DOUBLINGS)
			      : nvl_tune.retry_ms;
	p->retry_ms = weft_now_ms() + p->pause_ms;
	return 0;
}

static int handle_recall(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_txring *r;
	unsigned int loc;

	r = f->ring < NVL_RINGS ? conn->txrings[f->ring] : NULL;
	if (!r || r->recalled)
		return -EPROTO;
	r->recalled = true;
	for (loc = 0; loc < NVL_LOCS; loc++)
		if (conn->paths[loc].ring == f->ring)
			conn->paths[loc].ring = NVL_NO_RING;
	close_if_recalled(conn, f->ring);
	return 0;
}

/* ---- the reader's side --------------------------------------------------- */

static void release_rxring(struct nvl_conn *conn, struct nvl_rxring *r,
			   uint8_t id)
{
	nvl_budget_give(r->budget, r->unit, r->units);
	nvl_map_close(conn->iface, &r->map);
	free(r);
	conn->rxrings[id] = NULL;
}

static int make_cuda_ring(struct nvl_conn *conn, struct nvl_rxring *r)
{
	size_t budget = weft_settings()->nvl_budget / NVL_BUDGET_UNIT;
	struct weft_cuda_ptr where;
	struct weft_engine *gpu;
	int err = -ENODEV;

	if (!location_of(r->loc, &where))
		return -ENODEV;
	gpu = weft_engine_get(&conn->iface->engines, &where, &err);
	if (!gpu)
		return err;
	name_gpu(gpu->ordinal, r->budget, sizeof(r->budget));
	r->units = nvl_budget_take(conn->iface->local.run, r->budget,
				   nvl_tune.ring / NVL_BUDGET_UNIT, budget,
				   &r->unit);
	if (!r->units) {
		weft_warn_once("the %zu MiB for rings on GPU %d are used up by "
			       "this host's processes (WEFT_NVL_BUDGET): data "
			       "for it from further peers goes through host "
			       "memory, at a seventh of NVLink's speed",
			       weft_settings()->nvl_budget >> 20, gpu->ordinal);
		return -ENOMEM;
	}
	err = nvl_map_cuda_make(&r->map, gpu, r->units * NVL_BUDGET_UNIT);
	if (err) {
		nvl_budget_give(r->budget, r->unit, r->units);
		r->units = 0;
	}
	return err;
}

static int send_offer(struct nvl_conn *conn, struct nvl_rxring *r, uint8_t id)
{
	struct nvl_frame f = { .type = NVL_FRAME_RING_OFFER,
			       .ring = id,
			       .loc = r->loc,
			       .kind = r->map.kind,
			       .size = r->map.size };

	return nvl_sock_send(conn, &f, r->map.fd);
}

/*
 * Makes a ring for what goes to @loc here and offers it, or replies that there
 * is none.
 */
static int offer_ring(struct nvl_conn *conn, uint8_t loc)
{
	struct nvl_frame none = { .type = NVL_FRAME_RING_NONE, .loc = loc };
	struct nvl_rxring *r;
	uint8_t id, i;
	int err;

	for (id = NVL_RINGS, i = 0; i < NVL_RINGS; i++) {
		if (!conn->rxrings[i])
			id = i;
		else if (conn->rxrings[i]->loc == loc &&
			 conn->rxrings[i]->state != NVL_RXRING_CLOSING)
			return 0; /* on its way to the peer */
	}
	r = id < NVL_RINGS ? calloc(1, sizeof(*r)) : NULL;
	if (!r)
		return nvl_sock_send(conn, &none, -1);
	r->loc = loc;
	r->used_ms = weft_now_ms();
	if (loc == NVL_LOC_HOST)
		err = nvl_map_host_make(&r->map, nvl_tune.host_ring);
	else
		err = make_cuda_ring(conn, r);
	if (err) {
		free(r);
		none.err = err;
		return nvl_sock_send(conn, &none, -1);
	}
	r->state = NVL_RXRING_OFFERED;
	conn->rxrings[id] = r;
	atomic_store(&conn->rx.head->credit[id], 0);
	return send_offer(conn, r, id);
}

static int handle_state(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_rxring *r;

	r = f->ring < NVL_RINGS ? conn->rxrings[f->ring] : NULL;
	if (!r || r->state != NVL_RXRING_OFFERED || (f->err && r->in != r->out))
		return -EPROTO;
	if (f->err)
		release_rxring(conn, r, f->ring);
	else
		r->state = NVL_RXRING_OPEN;
	return 0;
}

static int handle_closed(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_rxring *r;

	r = f->ring < NVL_RINGS ? conn->rxrings[f->ring] : NULL;
	/* it closes what is empty: all credit has been given */
	if (!r || r->state != NVL_RXRING_CLOSING || r->in != r->out)
		return -EPROTO;
	release_rxring(conn, r, f->ring);
	return 0;
}

/* Idle rings go back, so that others find room in the budget. */
void nvl_ring_tick(struct nvl_conn *conn, uint64_t now)
{
	struct nvl_frame f = { .type = NVL_FRAME_RING_RECALL };
	struct nvl_rxring *r;
	unsigned int id;
	int err;

	/* nothing else looks at the last ones of a ring that is recalled */
	nvl_ring_credits(conn);
	for (id = 0; id < NVL_RINGS && conn->base.state == WEFT_CONN_OPEN;
	     id++) {
		r = conn->rxrings[id];
		if (!r || r->state != NVL_RXRING_OPEN || r->in != r->out ||
		    now - r->used_ms < nvl_tune.idle_ms)
			continue;
		r->state = NVL_RXRING_CLOSING;
		f.ring = id;
		err = nvl_sock_send(conn, &f, -1);
		if (err)
			nvl_conn_break(conn, err);
	}
}

static int handle_frame(struct nvl_conn *conn, struct nvl_frame *f, int fd)
{
	switch (f->type) {
	case NVL_FRAME_RING_WANT:
		return f->loc < NVL_LOCS ? offer_ring(conn, f->loc) : -EPROTO;
	case NVL_FRAME_RING_OFFER:
		return handle_offer(conn, f, fd);
	case NVL_FRAME_RING_STATE:
		return handle_state(conn, f);
	case NVL_FRAME_RING_NONE:
		return handle_none(conn, f);
	case NVL_FRAME_RING_RECALL:
		return handle_recall(conn, f);
	case NVL_FRAME_RING_CLOSED:
		return handle_closed(conn, f);
	case NVL_FRAME_MARKS:
	case NVL_FRAME_MAP_WANT:
	case NVL_FRAME_MAP_FETCH:
		return nvl_export_frame(conn, f, fd);
	case NVL_FRAME_MAP_GRANT:
	case NVL_FRAME_MAP_PART:
	case NVL_FRAME_MAP_HANDLE:
	case NVL_FRAME_MAP_NONE:
		return nvl_import_frame(conn, f, fd);
	default:
		return weft_fail(EPROTO,
				 "a peer on this host sent a frame of "
				 "type %u out of place",
				 f->type);
	}
}

unsigned int nvl_ring_read_frames(struct nvl_conn *conn)
{
	int fd, err;
	int32_t unread = nvl_sock_unread(conn);
	unsigned int n = 0, wakes = 0;
	struct nvl_frame f;

	while (conn->base.state == WEFT_CONN_OPEN &&
	       n + wakes < FRAMES_AT_ONCE) {
		err = nvl_sock_recv(conn, &f, &fd);
		if (!err && unread > (int32_t)n) {
			/* or else we would wait for them for ever, awake */
			weft_error("a peer on this host counts frames that "
				   "it has not sent");
			nvl_conn_break(conn, -EPROTO);
		}
		if (!err)
			break;
		if (err < 0) {
			/* what is in the inbox is delivered before the end */
			conn->hung_up = true;
			if (err != -ECONNRESET)
				nvl_conn_break(conn, err);
			break;
		}
		if (f.type == NVL_FRAME_WAKE) {
			wakes++;
			continue;
		}
		n++;
		conn->frames_read++;
		err = handle_frame(conn, &f, fd);
		if (fd >= 0)
			close(fd);
		if (err)
			nvl_conn_break(conn, err);
	}
	if (conn->base.state == WEFT_CONN_OPEN) {
		err = nvl_sock_flush(conn);
		if (err == -EPIPE || err == -ECONNRESET)
			conn->hung_up = true;
		else if (err)
			nvl_conn_break(conn, err);
	}
	return n;
}

void nvl_ring_close_all(struct nvl_conn *conn)
{
	unsigned int id;

	for (id = 0; id < NVL_RINGS; id++) {
		if (conn->txrings[id])
			free_txring(conn, id);
		if (conn->rxrings[id])
			release_rxring(conn, conn->rxrings[id], id);
	}
}

void nvl_ring_forget(struct nvl_conn *conn)
{
	unsigned int id;

	for (id = 0; id < NVL_RINGS; id++) {
		if (conn->txrings[id])
			weft_forked_close(&conn->txrings[id]->map.fd);
		if (conn->rxrings[id])
			weft_forked_close(&conn->rxrings[id]->map.fd);
	}
}

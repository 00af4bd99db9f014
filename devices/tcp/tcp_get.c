/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gets.  A small one is answered by a frame with its id.  For others the owner
 * of the memory is asked for a put: its target is registered for this get
 * alone, so that ending the get revokes the key.
 */
#include "devices/tcp/tcp_get.h"
#include "devices/tcp/bulk/tcp_bulk.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/bulk/tcp_pool.h"
#include "devices/tcp/tcp_fail.h"
#include "devices/tcp/tcp_put.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/util.h"

/* A get at its requester: one per iov entry, the last one completes the op. */
struct tcp_get {
	struct weft_list link; /* conn->gets */
	struct tcp_get_op *parent;
	struct weft_mem *landing; /* NULL: small */
	uint64_t id;
	void *addr;
	size_t len;
};

struct tcp_get_op {
	struct weft_op *op;
	unsigned int parts;
	int status;
	size_t len;
};

static void end_part(struct tcp_conn *conn, struct tcp_get *g, int status)
{
	struct tcp_get_op *parent = g->parent;
	struct weft_op *op;

	weft_list_del(&g->link);
	conn->ngets--;
	if (g->landing)
		weft_region_remove(g->landing); /* nothing lands from here on */
	free(g);
	if (status && !parent->status)
		parent->status = status;
	if (--parent->parts)
		return;
	op = parent->op;
	status = parent->status;
	if (!status) {
		weft_count(conn->stats, gets, 1);
		weft_count(conn->stats, get_bytes, parent->len);
	}
	free(parent);
	op->done(op, status);
}

static void request_part(struct tcp_conn *conn, const struct tcp_get *g,
			 uint64_t addr, const void *rkey)
{
	uint8_t body[TCP_GET_LEN];
	struct iovec iov = { body, TCP_GET_SMALL_LEN };

	weft_put_le64(body, addr);
	memcpy(body + 8, rkey, WEFT_RKEY_LEN);
	weft_put_le64(body + 24, g->len);
	weft_put_le64(body + 32, g->id);
	if (g->landing) {
		weft_put_le64(body + 40, (uintptr_t)g->addr);
		weft_rkey_pack(&g->landing->rkey, body + 48);
		iov.iov_len = sizeof(body);
	}
	if (tcp_conn_is_busy(conn))
		tcp_conn_gather(conn, TCP_FRAME_GET, &iov, 1, iov.iov_len);
	else
		tcp_conn_send_control(conn, TCP_FRAME_GET, body, iov.iov_len);
}

int tcp_get_start(struct weft_ep *base, const struct weft_iov *iov,
		  unsigned int n, uint64_t addr, const void *rkey,
		  struct weft_op *op)
{
	static const struct weft_iov nothing;
	const size_t max_small =
		weft_min(weft_settings()->tcp_bulk_min, TCP_SMALL);
	struct tcp_get *part[TCP_MAX_IOV] = { NULL };
	struct tcp_get_op *parent;
	unsigned int i;
	struct tcp_conn *conn;
	int err = weft_ep_check(weft_ep_ops_of(weft_base_ep(base)), base, n, 0);

	if (err)
		return err;
	conn = tcp_conn(weft_base_ep(base)->conn);
	if (!n) { /* it still completes after the peer has checked the key */
		iov = &nothing;
		n = 1;
	}
	parent = calloc(1, sizeof(*parent));
	if (!parent)
		return -ENOMEM;
	parent->op = op;
	parent->parts = n;
	for (i = 0; i < n; i++) {
		part[i] = calloc(1, sizeof(*part[i]));
		err = -ENOMEM;
		if (!part[i])
			goto free_parts;
		part[i]->parent = parent;
		part[i]->addr = iov[i].addr;
		part[i]->len = iov[i].len;
		parent->len += iov[i].len;
		if (iov[i].len <= max_small)
			continue;
		err = weft_region_add(iov[i].addr, iov[i].len, WEFT_MEM_HOST,
				      &part[i]->landing);
		if (err)
			goto free_parts;
	}
	for (i = 0; i < n; i++) {
		part[i]->id = ++conn->iface->next_get;
		weft_list_add_tail(&conn->gets, &part[i]->link);
		conn->ngets++;
		request_part(conn, part[i], addr, rkey);
		addr += part[i]->len;
	}
	return -EINPROGRESS;

free_parts:
	for (i = 0; i < n && part[i]; i++) {
		if (part[i]->landing)
			weft_region_remove(part[i]->landing);
		free(part[i]);
	}
	free(parent);
	return err;
}

/* A get of the peer's. */
struct tcp_asked {
	struct weft_list link; /* conn->asked */
	uint64_t addr, len, id;
	struct weft_rkey key;
	bool small; /* answered in a frame; else by a put, to: */
	uint64_t target_addr;
	struct weft_rkey target_key;
};

int tcp_get_asked(struct tcp_conn *conn, const uint8_t *p, size_t len)
{
	struct tcp_asked *ask;

	if (len != TCP_GET_SMALL_LEN && len != TCP_GET_LEN)
		return -EPROTO;
	if (conn->nasked > 2 * TCP_WINDOW) /* more than a peer may request */
		return -EPROTO;
	ask = calloc(1, sizeof(*ask));
	if (!ask)
		return -ENOMEM;
	ask->addr = weft_get_le64(p);
	weft_rkey_unpack(p + 8, &ask->key);
	ask->len = weft_get_le64(p + 24);
	ask->id = weft_get_le64(p + 32);
	ask->small = len == TCP_GET_SMALL_LEN;
	if (ask->small && ask->len > TCP_SMALL) {
		free(ask);
		return -EPROTO;
	}
	if (!ask->small) {
		ask->target_addr = weft_get_le64(p + 40);
		weft_rkey_unpack(p + 48, &ask->target_key);
	}
	weft_list_add_tail(&conn->asked, &ask->link);
	conn->nasked++;
	return 0;
}

static struct tcp_asked *first_asked(struct tcp_conn *conn)
{
	if (weft_list_empty(&conn->asked))
		return NULL;
	return weft_list_first(&conn->asked, struct tcp_asked, link);
}

static void free_asked(struct tcp_conn *conn, struct tcp_asked *ask)
{
	weft_list_del(&ask->link);
	conn->nasked--;
	free(ask);
}

void tcp_gets_forget(struct tcp_conn *conn)
{
	struct tcp_asked *ask;

	while ((ask = first_asked(conn)))
		free_asked(conn, ask);
}

static void tcp_refuse(struct tcp_conn *conn, const struct tcp_asked *ask,
		       int status)
{
	const struct tcp_failure f = {
		.what = "get",
		.len = ask->len,
		.told = true,
		.id = ask->id,
		.status = status,
	};

	tcp_conn_fail(conn, &f);
}

/* Refers to what is asked for, or refuses it. */
static bool may_read(struct tcp_conn *conn, const struct tcp_asked *ask)
{
	if (ask->len <= SIZE_MAX / 2 &&
	    weft_region_get(&ask->key, ask->addr, ask->len))
		return true;
	weft_count(conn->stats, key_errors, 1);
	tcp_refuse(conn, ask, -EACCES);
	return false;
}

/* Answers in a frame. */
static void answer_small(struct tcp_conn *conn, const struct tcp_asked *ask)
{
	uint8_t id[8];
	const struct iovec first = { id, sizeof(id) };
	int err;

	if (!may_read(conn, ask))
		return;
	weft_put_le64(id, ask->id);
	err = tcp_conn_gather_named(conn, TCP_FRAME_GET_DATA, &first,
				    (void *)(uintptr_t)ask->addr, ask->len);
	weft_region_put(&ask->key);
	if (err) {
		tcp_refuse(conn, ask, err);
		return;
	}
	weft_count(conn->stats, tx_gets, 1);
	weft_count(conn->stats, tx_get_bytes, ask->len);
}

/* Answers by a put. */
static int answer_large(struct tcp_conn *conn, const struct tcp_asked *ask)
{
	struct tcp_put *put;

	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	if (!may_read(conn, ask))
		return 0;
	weft_region_put(&ask->key);
	put = tcp_put_new(conn);
	if (!put)
		return -ENOMEM;
	put->flags = TCP_CHUNK_GET;
	put->tag = ask->id;
	put->remote_addr = ask->target_addr;
	put->rkey = ask->target_key;
	put->source_checked = true;
	put->source_key = ask->key;
	put->total = ask->len;
	put->iovcnt = 1;
	put->iov[0].iov_base = (void *)(uintptr_t)ask->addr;
	put->iov[0].iov_len = ask->len;
	tcp_put_send(conn, put);
	return 0;
}

void tcp_get_answer(struct tcp_conn *conn)
{
	struct tcp_asked *ask;
	int err = 0;

	while (!err && !conn->base.err && (ask = first_asked(conn))) {
		if (ask->small ? !tcp_conn_drained(conn) : tcp_bulk_full(conn))
			break;
		if (ask->small)
			answer_small(conn, ask);
		else
			err = answer_large(conn, ask);
		free_asked(conn, ask);
	}
	if (err)
		tcp_conn_break(conn, err);
	tcp_puts_post_waiting(conn);
}

/* Usually the oldest are answered first. */
static struct tcp_get *find_get(struct tcp_conn *conn, uint64_t id)
{
	struct tcp_get *g, *tg;

	weft_list_for_each (g, tg, &conn->gets, link)
		if (g->id == id)
			return g;
	return NULL;
}

void tcp_get_failed(struct tcp_conn *conn, uint64_t id, int status)
{
	struct tcp_get *g = find_get(conn, id);

	if (g && !g->parent->status)
		g->parent->status = status;
}

void tcp_get_done(struct tcp_conn *conn, uint64_t id, int status)
{
	struct tcp_get *g = find_get(conn, id);
	struct tcp_failure f = { .what = "get", .written = true };

	if (g && status) {
		tcp_get_failed(conn, id, status);
		f.len = g->len;
		tcp_conn_fail(conn, &f);
	} else if (g) { /* else it was cancelled */
		end_part(conn, g, 0);
	}
	weft_conn_attend(&conn->base);
}

int tcp_get_answered(struct tcp_conn *conn, const uint8_t *p, size_t len)
{
	struct tcp_get *g;

	if (len < 8)
		return -EPROTO;
	g = find_get(conn, weft_get_le64(p));
	if (!g) /* it was cancelled */
		return 0;
	if (g->landing || g->len != len - 8)
		return -EPROTO;
	if (g->len) /* the caller's memory, which no peer named */
		weft_copy(g->addr, p + 8, g->len);
	end_part(conn, g, 0);
	weft_conn_attend(&conn->base);
	return 0;
}

void tcp_gets_cancel(struct tcp_conn *conn, int status)
{
	while (!weft_list_empty(&conn->gets))
		end_part(conn,
			 weft_list_first(&conn->gets, struct tcp_get, link),
			 status);
}

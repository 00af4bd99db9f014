/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gets: a get asks the owner of the memory for a put.  Its target is registered
 * for this get alone, so that ending the get revokes the key.
 */
#include "devices/tcp/tcp_rma.h"
#include "devices/tcp/tcp_event.h"
#include "devices/tcp/tcp_msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"

/* A get at its requester: one per iov entry, the last one completes the op. */
struct tcp_get {
	struct weft_list link; /* conn->gets */
	struct tcp_get_op *parent;
	struct weft_mem *landing;
	uint64_t id;
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

	weft_put_le64(body, addr);
	memcpy(body + 8, rkey, WEFT_RKEY_LEN);
	weft_put_le64(body + 24, g->len);
	weft_put_le64(body + 32, g->id);
	weft_put_le64(body + 40, (uintptr_t)g->landing->addr);
	weft_rkey_pack(&g->landing->rkey, body + 48);
	tcp_conn_send_control(conn, TCP_FRAME_GET, body, sizeof(body));
}

int tcp_get_start(struct weft_ep *base, const struct weft_iov *iov,
		  unsigned int n, uint64_t addr, const void *rkey,
		  struct weft_op *op)
{
	static const struct weft_iov nothing;
	struct tcp_get *part[TCP_MAX_IOV] = { NULL };
	struct tcp_get_op *parent;
	unsigned int i;
	struct tcp_conn *conn;
	int err = weft_ep_check(weft_base_ep(base), n, 0);

	if (err)
		return err;
	conn = tcp_conn(weft_ep_conn(base));
	err = -ENOMEM;
	if (!n) { /* still ends when the peer has looked at the key */
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
		if (!part[i])
			goto free_parts;
		part[i]->parent = parent;
		part[i]->len = iov[i].len;
		err = weft_region_add(iov[i].addr, iov[i].len, WEFT_MEM_HOST,
				      &part[i]->landing);
		if (err)
			goto free_parts;
		parent->len += iov[i].len;
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

int tcp_get_serve(struct tcp_conn *conn, const uint8_t *p)
{
	uint64_t addr = weft_get_le64(p), len = weft_get_le64(p + 24);
	uint64_t id = weft_get_le64(p + 32);
	struct weft_rkey key;
	struct tcp_put *put;

	weft_rkey_unpack(p + 8, &key);
	if (conn->nreplies > 2 * TCP_WINDOW) /* more than a peer may request */
		return -EPROTO;
	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	if (len > SIZE_MAX / 2 || !weft_region_get(&key, addr, len)) {
		weft_count(conn->stats, key_errors, 1);
		tcp_get_refuse(conn, id, -EACCES);
		return 0;
	}
	weft_region_put(&key);
	put = calloc(1, sizeof(*put));
	if (!put)
		return -ENOMEM;
	weft_list_init(&put->link);
	weft_list_init(&put->done_link);
	put->conn = conn;
	put->flags = TCP_CHUNK_GET;
	put->tag = id;
	put->remote_addr = weft_get_le64(p + 40);
	weft_rkey_unpack(p + 48, &put->rkey);
	put->source_checked = true;
	put->source_key = key;
	put->total = len;
	put->iovcnt = 1;
	put->iov[0].iov_base = (void *)(uintptr_t)addr;
	put->iov[0].iov_len = len;
	weft_list_add_tail(&conn->replies, &put->link);
	conn->nreplies++;
	tcp_get_send_replies(conn);
	return 0;
}

void tcp_get_refuse(struct tcp_conn *conn, uint64_t id, int status)
{
	uint8_t body[12];

	weft_put_le64(body, id);
	weft_put_le32(body + 8, (uint32_t)status);
	tcp_conn_send_control(conn, TCP_FRAME_GET_FAIL, body, sizeof(body));
}

void tcp_get_send_replies(struct tcp_conn *conn)
{
	struct tcp_put *put;

	while (!weft_list_empty(&conn->replies) && !tcp_bulk_full(conn)) {
		put = weft_list_first(&conn->replies, struct tcp_put, link);
		weft_list_del(&put->link);
		conn->nreplies--;
		tcp_put_carry(conn, put);
	}
	tcp_puts_post_waiting(conn);
}

void tcp_get_done(struct tcp_conn *conn, uint64_t id, int status)
{
	struct tcp_get *g, *tg;

	weft_list_for_each (g, tg, &conn->gets, link) {
		if (g->id == id) {
			end_part(conn, g, status);
			break;
		}
	}
	weft_conn_attend(&conn->base);
}

void tcp_gets_cancel(struct tcp_conn *conn, int status)
{
	while (!weft_list_empty(&conn->gets))
		end_part(conn,
			 weft_list_first(&conn->gets, struct tcp_get, link),
			 status);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer's puts that come in frames, and puts that cannot be placed. */
#include "devices/tcp/tcp_place.h"
#include "devices/tcp/bulk/tcp_land.h"
#include "devices/tcp/tcp_copy.h"
#include "devices/tcp/tcp_fail.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <stdlib.h>

#include "util/bytes.h"

void tcp_place_failed(struct tcp_conn *conn, const struct tcp_chunk_head *c,
		      int status)
{
	const struct tcp_failure f = {
		.what = "put",
		.len = c->total,
		.written = true,
		.told = true,
		.id = c->seq,
		.status = status,
	};

	tcp_conn_fail(conn, &f);
}

/* The peer's puts that were read and will be placed together. */
struct tcp_placing {
	unsigned int n, copies;
	size_t bytes;
	struct tcp_chunk_head head[TCP_COPIES];
	int status[TCP_COPIES];
	/* puts that are allowed, each with a reference to its region */
	unsigned int put[TCP_COPIES];
	struct iovec to[TCP_COPIES], from[TCP_COPIES];
};

static void place(struct tcp_conn *conn, struct tcp_placing *p)
{
	int status[TCP_COPIES];
	unsigned int i;

	tcp_copy(conn->iface, p->to, p->from, p->copies, status);
	for (i = 0; i < p->copies; i++) {
		weft_region_put(&p->head[p->put[i]].rkey);
		p->status[p->put[i]] = status[i];
	}
}

int tcp_place_frames(struct tcp_conn *conn)
{
	struct tcp_placing *p = conn->iface->placing;
	uint8_t acks[TCP_COPIES * TCP_ACK_LEN], *ack = acks;
	const struct tcp_chunk_head *failed = NULL;
	int placed, result, status, err = 0;
	unsigned int i;

	if (!p || !p->n)
		return 0;
	place(conn, p);
	for (i = 0; i < p->n && !err; i++) {
		if (p->status[i])
			weft_count(conn->stats, key_errors, 1);
		if (p->status[i] && !(p->head[i].flags & TCP_CHUNK_GET)) {
			failed = &p->head[i];
			status = p->status[i];
			break;
		}
		placed = tcp_land_end(conn, &p->head[i], p->status[i], 0,
				      &result);
		if (placed < 0)
			err = placed;
		if (placed <= 0)
			continue;
		weft_put_le64(ack, p->head[i].seq);
		weft_put_le32(ack + 8, (uint32_t)result);
		weft_put_le32(ack + 12, 0);
		ack += TCP_ACK_LEN;
	}
	p->n = p->copies = 0;
	p->bytes = 0;
	if (ack != acks)
		tcp_conn_send_control(conn, TCP_FRAME_PUT_ACK, acks,
				      ack - acks);
	if (failed)
		tcp_place_failed(conn, failed, status);
	return err;
}

/* Adds a put, whose bytes are @data if it may land. */
static void add_placing(struct tcp_placing *p, const struct tcp_chunk_head *c,
			const uint8_t *data)
{
	uint8_t *dest = NULL;

	p->head[p->n] = *c;
	p->status[p->n] = 0;
	if (data && c->total) {
		/* of the whole put */
		dest = weft_region_get(&c->rkey, c->addr, c->total);
		if (!dest)
			p->status[p->n] = -EACCES;
	}
	if (dest) {
		p->put[p->copies] = p->n;
		p->to[p->copies] = (struct iovec){ dest + c->offset, c->len };
		p->from[p->copies++] = (struct iovec){ (void *)data, c->len };
	}
	p->n++;
	p->bytes += c->len;
}

int tcp_place_frame(struct tcp_conn *conn, const uint8_t *p, size_t len)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_chunk_head c;
	int land;

	if (len < TCP_CHUNK_LEN)
		return -EPROTO;
	tcp_chunk_decode(p, &c);
	if (c.len != len - TCP_CHUNK_LEN)
		return -EPROTO;
	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	if (!iface->placing)
		iface->placing = calloc(1, sizeof(*iface->placing));
	if (!iface->placing)
		return -ENOMEM;
	land = tcp_land_begin(conn, &c);
	if (land < 0)
		return land;
	add_placing(iface->placing, &c, land ? p + TCP_CHUNK_LEN : NULL);
	/* place a part of a put at once: what is left of it is known then */
	if (c.len < c.total || iface->placing->n == TCP_COPIES ||
	    iface->placing->bytes >= TCP_GATHER)
		return tcp_place_frames(conn);
	return 0;
}

int tcp_place_abort(struct tcp_conn *conn, const uint8_t *p)
{
	uint8_t ack[TCP_ACK_LEN] = { 0 };
	uint64_t seq = weft_get_le64(p);

	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	if (!tcp_land_abort(conn, seq))
		return 0;
	conn->cut = weft_min(conn->cut, seq);
	memcpy(ack, p, 8);
	weft_put_le32(ack + 8, (uint32_t)-ECANCELED);
	tcp_conn_send_control(conn, TCP_FRAME_PUT_ACK, ack, sizeof(ack));
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer's puts that come in frames, and puts that cannot be placed. */
#include "devices/tcp/tcp_place.h"
#include "devices/tcp/bulk/tcp_land.h"
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

void tcp_place_ack(struct tcp_conn *conn, uint64_t seq, int status)
{
	uint8_t ack[TCP_ACK_LEN] = { 0 };
	const struct iovec iov = { ack, sizeof(ack) };

	weft_put_le64(ack, seq);
	weft_put_le32(ack + 8, (uint32_t)status);
	tcp_conn_gather(conn, TCP_FRAME_PUT_ACK, &iov, 1, sizeof(ack));
}

/* 0, or why it cannot be placed. */
static int place(struct tcp_conn *conn, const struct tcp_chunk_head *c,
		 const uint8_t *data)
{
	uint8_t *to;
	int err;

	if (!c->total)
		return 0;
	/* of the whole put */
	to = weft_region_get(&c->rkey, c->addr, c->total);
	if (!to)
		return -EACCES;
	err = weft_bounce_out(&conn->iface->base.bounce, to + c->offset, data,
			      c->len);
	weft_region_put(&c->rkey);
	return err;
}

int tcp_place_frame(struct tcp_conn *conn, const uint8_t *p, size_t len)
{
	struct tcp_chunk_head c;
	int land, placed, result, err = 0;

	if (len < TCP_CHUNK_LEN)
		return -EPROTO;
	tcp_chunk_decode(p, &c);
	if (c.len != len - TCP_CHUNK_LEN)
		return -EPROTO;
	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	land = tcp_land_begin(conn, &c);
	if (land < 0)
		return land;
	if (land)
		err = place(conn, &c, p + TCP_CHUNK_LEN);
	if (err)
		weft_count(conn->stats, key_errors, 1);
	if (err && !(c.flags & TCP_CHUNK_GET)) {
		tcp_place_failed(conn, &c, err);
		return 0;
	}
	placed = tcp_land_end(conn, &c, err, 0, &result);
	if (placed > 0 && !(c.flags & TCP_CHUNK_GET))
		tcp_place_ack(conn, c.seq, result);
	return placed < 0 ? placed : 0;
}

int tcp_place_abort(struct tcp_conn *conn, const uint8_t *p)
{
	uint64_t seq = weft_get_le64(p);

	if (!tcp_bulk_get(conn))
		return -ENOMEM;
	if (!tcp_land_abort(conn, seq))
		return 0;
	conn->cut = weft_min(conn->cut, seq);
	tcp_place_ack(conn, seq, -ECANCELED);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts at their target: counted until every byte is placed, acknowledged once.
 * Any thread.
 */
#ifndef WEFT_DEVICES_TCP_BULK_LAND_H
#define WEFT_DEVICES_TCP_BULK_LAND_H

#include "devices/tcp/bulk/tcp_bulk.h"

void tcp_chunk_decode(const uint8_t *p, struct tcp_chunk_head *c);
/* 1: land it; 0: drain it; -EPROTO */
int tcp_land_begin(struct tcp_conn *conn, const struct tcp_chunk_head *c);
/*
 * The chunk's bytes are placed, or drained for the reason @status.  1: the put
 * is placed; acknowledge *@result on stream @by (0: in a frame, of a get by
 * progress()); -errno.
 */
int tcp_land_end(struct tcp_conn *conn, const struct tcp_chunk_head *c,
		 int status, uint32_t by, int *result);
/* The peer aborted @seq; true: acknowledge it. */
bool tcp_land_abort(struct tcp_conn *conn, uint64_t seq);

#endif

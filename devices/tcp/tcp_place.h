/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts of the peer's that come in frames (tcp_place.c). */
#ifndef WEFT_DEVICES_TCP_PLACE_H
#define WEFT_DEVICES_TCP_PLACE_H

#include "devices/tcp/bulk/tcp_bulk.h"

/* TCP_FRAME_PUT and TCP_FRAME_PUT_ABORT of the peer's; -errno */
int tcp_place_frame(struct tcp_conn *conn, const uint8_t *p, size_t len);
int tcp_place_abort(struct tcp_conn *conn, const uint8_t *p);
/* With the next frame, or when progress() or arm() begins. */
void tcp_place_ack(struct tcp_conn *conn, uint64_t seq, int status);
/* A put cannot be placed, by a frame or a stream: the connection fails. */
void tcp_place_failed(struct tcp_conn *conn, const struct tcp_chunk_head *c,
		      int status);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams that have become slow are given up. */
#ifndef WEFT_DEVICES_TCP_STALL_H
#define WEFT_DEVICES_TCP_STALL_H

#include "devices/tcp/tcp_engine.h"

struct tcp_info;

/* What a tick has seen of a connection's streams; zero before the first. */
struct tcp_stall {
	struct tcp_stream *worst; /* slow for long, NULL: none */
	bool free_path, busy;	  /* one that is not; one being given up */
};

/* @ti: what the kernel says of @s now, in this tick. */
void tcp_stall_check(struct tcp_bulk *b, struct tcp_stream *s,
		     const struct tcp_info *ti, struct tcp_stall *seen);
/* After the last: is one of them so slow that it is given up? */
void tcp_stall_end(struct tcp_conn *conn, const struct tcp_stall *seen);
/* TCP_FRAME_DROP and TCP_FRAME_DROPPED; -errno: the connection is no good. */
int tcp_stall_drop(struct tcp_conn *conn, const uint8_t *p);
int tcp_stall_dropped(struct tcp_conn *conn, const uint8_t *p, size_t len);

#endif

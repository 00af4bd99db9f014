/* SPDX-License-Identifier: BSD-3-Clause */
/* Drops streams that have become slow. */
#ifndef WEFT_DEVICES_TCP_STALL_H
#define WEFT_DEVICES_TCP_STALL_H

#include "devices/tcp/bulk/tcp_engine.h"

struct tcp_info;

/*
 * A tick's findings about a connection's streams; zero it before the first one.
 */
struct tcp_stall {
	struct tcp_stream *worst; /* slow for long, NULL: none */
	bool free_path, busy;	  /* one is fast; one is being dropped */
};

/* @ti: the kernel's TCP_INFO of @s in this tick. */
void tcp_stall_check(struct tcp_stream *s, const struct tcp_info *ti,
		     struct tcp_stall *seen);
/* After the last stream: drops one that is too slow. */
void tcp_stall_end(struct tcp_conn *conn, const struct tcp_stall *seen);
/*
 * A socket's path has died, or its peer's kernel; the connection has others.
 * An outgoing stream's chunks are sent again, an incoming one waits to be asked
 * how many it took.
 */
void tcp_stream_lost(struct tcp_conn *conn, struct tcp_stream *s, int err);
/* TCP_FRAME_DROP and TCP_FRAME_DROPPED; -errno: the connection breaks. */
int tcp_stall_drop(struct tcp_conn *conn, const uint8_t *p);
int tcp_stall_dropped(struct tcp_conn *conn, const uint8_t *p, size_t len);

#endif

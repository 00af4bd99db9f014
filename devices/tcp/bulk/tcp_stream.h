/* SPDX-License-Identifier: BSD-3-Clause */
/* One bulk socket. */
#ifndef WEFT_DEVICES_TCP_BULK_STREAM_H
#define WEFT_DEVICES_TCP_BULK_STREAM_H

#include "devices/tcp/bulk/tcp_bulk.h"

struct tcp_stream {
	uint32_t id; /* chosen by its dialer; unique in a connection */
	struct weft_list link;	     /* bulk->streams; owner and bulk lock */
	struct weft_list eng_link;   /* engine->streams */
	struct weft_list ready_link; /* engine->ready */
	struct tcp_conn *conn;
	struct tcp_engine *engine;
	int fd;
	bool out;		      /* sends chunks */
	_Atomic bool writable;	      /* as of the last edge */
	bool readable;		      /* likewise */
	_Atomic bool suspended;	      /* beyond the limit: takes no chunks */
	int err;		      /* why it died; 0 while it lives */
	struct weft_list report_link; /* iface->found.streams */
	uint64_t used_ms;	      /* when it last carried a chunk */
	bool abandoned;		      /* detached from its engine */
	struct weft_watch watch;
	struct weft_list sent; /* out: chunks not settled; bulk lock */
	uint64_t nsent;	       /* out: chunks that it took */
	uint64_t taken;	       /* in: whole chunks */
	uint64_t seen_acked, seen_window; /* at the last tick */
	unsigned int slow_ticks;
	/* sending a chunk (out), or acks (in) */
	struct tcp_chunk *out_chunk;
	size_t out_left;
	uint8_t head[TCP_CHUNK_LEN];
	unsigned int head_len, head_done;
	/* receiving a chunk (in), or acks (out) */
	uint8_t rx_head[TCP_CHUNK_LEN];
	unsigned int rx_have; /* bytes of the next header */
	struct tcp_chunk_head chunk;
	bool rx_busy;  /* inside a chunk */
	bool rx_drain; /* discard its bytes */
	int rx_status; /* why; of a put: it has failed */
	uint64_t rx_addr, rx_left;
	uint8_t *ack_buf; /* acks that did not fit the socket */
	size_t ack_len, ack_cap;
};

/* For engines, engine lock held; -errno: @s is dead. */
int tcp_stream_io(struct tcp_stream *s, bool *again);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines and the bulk streams that they move. */
#ifndef WEFT_DEVICES_TCP_ENGINE_H
#define WEFT_DEVICES_TCP_ENGINE_H

#include "devices/tcp/tcp_bulk.h"

/* One bulk socket. */
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
	struct tcp_watch watch;
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

/* What an engine's thread does. */
enum tcp_engine_mode {
	TCP_ENGINE_BUSY,
	TCP_ENGINE_POLLING, /* awake, and found nothing to do */
	TCP_ENGINE_ASLEEP,  /* until wake_fd is written */
	TCP_ENGINE_WOKEN,   /* it was; the thread does not run yet */
};

/* Moves bulk streams. */
struct tcp_engine {
	struct weft_source src;
	struct tcp_iface *iface;
	pthread_mutex_t lock; /* streams, ready, and all I/O on them */
	int epfd;
	int wake_fd;
	struct weft_list streams, ready;
	unsigned int nstreams;
	_Atomic bool has_work; /* chunks were queued, or streams may read */
	/* its thread */
	bool has_thread; /* else the owner moves it; owner only */
	pthread_t thread;
	_Atomic bool stop;
	_Atomic int mode; /* enum tcp_engine_mode */
};

/* Allocates the engines before the first stream; -errno, logged. */
int tcp_engines_need(struct tcp_iface *iface);
void tcp_engines_close(struct tcp_iface *iface);
/* The owner is about to sleep. */
void tcp_engines_sleep(struct tcp_iface *iface);
/* Moves what can be moved without waiting; returns the number of events. */
unsigned int tcp_engine_run(struct tcp_engine *eng);
/* Wakes engines for @n chunks of @conn, */
void tcp_engines_give(struct tcp_conn *conn, unsigned int chunks);
/* or for all that wait. */
void tcp_engines_wake(struct tcp_conn *conn);
/* Streams that stopped reading (tcp_events_full()) may go on. */
void tcp_engines_resume(struct tcp_iface *iface);
/* Waits until no engine is between settling a put and reporting it. */
void tcp_engines_sync(struct tcp_iface *iface);

/* Takes @fd over.  Owner only. */
int tcp_stream_attach(struct tcp_conn *conn, int fd, bool out, uint32_t id);
/*
 * Detaches @s from its engine; it stays open.  Returns the put whose chunk it
 * was sending, for which the caller calls tcp_bulk_stream_stopped(), or NULL.
 */
struct tcp_put *tcp_stream_stop(struct tcp_stream *s);
/*
 * A socket's path has died, or its peer's kernel; the connection has others.
 * An outgoing stream's chunks are sent again, an incoming one waits to be asked
 * how many it took.
 */
void tcp_stream_lost(struct tcp_conn *conn, struct tcp_stream *s, int err);
/* Closes and frees @s; it places and reads nothing afterwards. */
void tcp_stream_detach(struct tcp_stream *s);

/* tcp_stream.c: for engines, engine lock held; -errno: @s is dead. */
int tcp_stream_io(struct tcp_stream *s, bool *again);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines and the bulk streams that they move. */
#ifndef WEFT_DEVICES_TCP_BULK_ENGINE_H
#define WEFT_DEVICES_TCP_BULK_ENGINE_H

#include "devices/tcp/bulk/tcp_stream.h"

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
	bool has_thread; /* else the owner moves it; set before it starts */
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
 * was sending, for which the caller calls tcp_bulk_release(), or NULL.
 */
struct tcp_put *tcp_stream_stop(struct tcp_stream *s);
/* Closes and frees @s; it places and reads nothing afterwards. */
void tcp_stream_detach(struct tcp_stream *s);

#endif

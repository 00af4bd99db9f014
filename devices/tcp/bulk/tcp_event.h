/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events that engines and lower layers of the owner leave for progress().  Only
 * tcp_event.c and tcp_progress.c touch iface->found.
 */
#ifndef WEFT_DEVICES_TCP_BULK_EVENT_H
#define WEFT_DEVICES_TCP_BULK_EVENT_H

#include "devices/tcp/tcp.h"

struct tcp_chunk_head;
struct tcp_put;
struct tcp_stream;

/* A notification or get completion found by an engine. */
struct tcp_event {
	struct weft_list link;
	struct tcp_conn *conn;
	uint32_t flags;
	int status;
	uint64_t tag, size;
	uint64_t seq;
	bool ack; /* of a get: send it */
};

void tcp_events_init(struct tcp_iface *iface);
/* Wakes the owner if it may be asleep. */
void tcp_events_wake(struct tcp_iface *iface);
/* @put is complete. */
void tcp_events_add_put(struct tcp_iface *iface, struct tcp_put *put);
/*
 * A put that notifies (TCP_CHUNK_*) is placed; @ack: of a get, progress() sends
 * the acknowledgement.  -ENOMEM
 */
int tcp_events_add_landing(struct tcp_conn *conn,
			   const struct tcp_chunk_head *c, int status,
			   bool ack);
/* The op of a complete put of @conn that progress() has not seen, or NULL. */
struct weft_op *tcp_events_take_op(struct tcp_conn *conn);
/* Do so many of @conn's wait for progress() that it must not read more? */
bool tcp_events_full(const struct tcp_conn *conn);
/*
 * Unlinks @e, with the lock held; progress() resumes reading if there is room.
 */
void tcp_events_take_landing(struct tcp_event *e);
/* @s has died; s->err says why. */
void tcp_events_add_stream(struct tcp_stream *s);
/* Delivers @conn's notifications, before a message behind their fence. */
void tcp_events_notify(struct tcp_conn *conn);
/* Drops all events of @conn. */
void tcp_events_forget(struct tcp_conn *conn);

/* Owner only, from here on. */
/* Never calls back: progress() closes the connection and reports @err. */
void tcp_conn_break(struct tcp_conn *conn, int err);
/* A connection needs periodic checks. */
void tcp_iface_start_tick(struct tcp_iface *iface);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections, and the sockets that become theirs.  A connection outlives an
 * endpoint as long as the peer still uses it: destroying one only says BYE, and
 * it ends when both sides have said so.
 */
#ifndef WEFT_DEVICES_TCP_CONN_H
#define WEFT_DEVICES_TCP_CONN_H

#include "devices/tcp/tcp.h"

/* To dial @remote, or NULL: it has dialled.  NULL: no memory. */
struct tcp_conn *tcp_conn_new(struct tcp_iface *iface,
			      const struct weft_address *remote,
			      uint64_t peer_id, uint32_t number,
			      const char *where);
/* Bulk streams join by a token. */
struct tcp_conn *tcp_conn_by_token(struct tcp_iface *iface, uint64_t token);
/* Both sides are proven: @fd is its message stream. */
void tcp_conn_open(struct tcp_conn *conn, int fd);
/* It just spoke: polled directly, which saves a system call; or no more. */
void tcp_conn_poll_add(struct tcp_conn *conn);
void tcp_conn_poll_del(struct tcp_conn *conn);
/* The peer has closed in order: its bulk streams are read to their ends. */
void tcp_conn_end(struct tcp_conn *conn);
/* Breaks it once neither side has an endpoint on it and nothing is unsent. */
void tcp_conn_maybe_end(struct tcp_conn *conn);
/* A bulk stream died amid puts: the message stream has the last word. */
void tcp_conn_suspect(struct tcp_conn *conn, int err);

/* tcp_dial.c */
extern const struct weft_session_ops tcp_session_ops;
/* Dials the bulk streams that the tuner asks for, or asks the peer to. */
void tcp_streams_open(struct tcp_conn *conn);
/*
 * TCP_FRAME_STREAMS: the peer asks for @n streams, or, where it is the dialer,
 * says that one of ours cannot be had; -errno.
 */
int tcp_streams_asked(struct tcp_conn *conn, uint32_t n);
/* Ends the dial for a bulk stream; false: there is none. */
bool tcp_streams_drop_dial(struct tcp_conn *conn, uint32_t id);

#endif

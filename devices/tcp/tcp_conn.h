/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections and their sockets.  A connection outlives an endpoint while the
 * peer uses it: destroying an endpoint only sends BYE, and the connection ends
 * when both sides have sent it.
 */
#ifndef WEFT_DEVICES_TCP_CONN_H
#define WEFT_DEVICES_TCP_CONN_H

#include "devices/tcp/tcp.h"

/*
 * @remote: the address to dial; NULL: the peer has dialled.  Returns NULL: no
 * memory.
 */
struct tcp_conn *tcp_conn_new(struct tcp_iface *iface,
			      const struct weft_address *remote,
			      uint64_t peer_id, uint32_t number,
			      const char *where);
/* The connection that a bulk stream joins by @token, or NULL. */
struct tcp_conn *tcp_conn_by_token(struct tcp_iface *iface, uint64_t token);
/* Both sides are proven; takes over @fd as the message stream. */
void tcp_conn_open(struct tcp_conn *conn, int fd);
/* The endpoint was destroyed: it starts no more operations. */
void tcp_conn_send_bye(struct tcp_conn *conn);
/* Polls a recently active socket directly, which saves a system call. */
void tcp_conn_poll_add(struct tcp_conn *conn);
void tcp_conn_poll_del(struct tcp_conn *conn);
/* The peer has closed in order: its bulk streams are read to their ends. */
void tcp_conn_end(struct tcp_conn *conn);
/* Breaks it if neither side has an endpoint on it and nothing is unsent. */
void tcp_conn_maybe_end(struct tcp_conn *conn);
/* A bulk stream died during a put: wait for the message stream to tell why. */
void tcp_conn_suspect(struct tcp_conn *conn, int err);

#endif

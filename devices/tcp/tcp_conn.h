/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections, and the sockets that become theirs.  A connection outlives an
 * endpoint as long as the peer still uses it: destroying one only says BYE, and
 * it ends when both sides have said so.
 */
#ifndef WEFT_DEVICES_TCP_CONN_H
#define WEFT_DEVICES_TCP_CONN_H

#include "devices/tcp/tcp.h"

/* A move that is not legal is logged and not made. */
void tcp_conn_set_state(struct tcp_conn *conn, enum tcp_conn_state to);
struct tcp_conn *tcp_conn_new(struct tcp_iface *iface, uint64_t peer_id,
			      uint32_t sn, const char *where);
struct tcp_conn *tcp_conn_find(struct tcp_iface *iface, uint64_t peer_id,
			       uint32_t sn);
/* Bulk streams join by a token; -ENOMEM. */
int tcp_conn_make_token(struct tcp_conn *conn);
struct tcp_conn *tcp_conn_by_token(struct tcp_iface *iface, uint64_t token);
/* Both sides are proven: @fd is its message stream. */
void tcp_conn_open(struct tcp_conn *conn, int fd, bool dialer);
/* It just spoke: polled directly, which saves a system call; or no more. */
void tcp_conn_poll_add(struct tcp_conn *conn);
void tcp_conn_poll_del(struct tcp_conn *conn);
/* The peer has closed in order: its bulk streams are read to their ends. */
void tcp_conn_end(struct tcp_conn *conn);
/* Breaks it once neither side has an endpoint on it and nothing is unsent. */
void tcp_conn_maybe_end(struct tcp_conn *conn);
/* A bulk stream died amid puts: the message stream has the last word. */
void tcp_conn_suspect(struct tcp_conn *conn, int err);

/* A socket that has not said its hello yet. */
struct tcp_handshake {
	struct tcp_source src;
	struct weft_list link; /* iface->handshakes */
	struct tcp_iface *iface;
	int fd;
	bool connecting;
	enum tcp_purpose purpose; /* dialer's */
	uint32_t stream;	  /* dialer: the id of a bulk stream */
	struct tcp_conn *conn;	  /* dialer: whom it is for */
	struct tcp_conn *target;  /* listener: whose it becomes */
	bool dead;
	struct weft_stranger stranger; /* listener */
	uint64_t deadline_ms;
	union weft_sockaddr peer;
	struct weft_hello hello;
};

/* tcp_handshake.c: dials @conn's message stream. */
int tcp_conn_dial(struct tcp_conn *conn);
/* Dials the bulk streams that the tuner asks for, or asks the peer to. */
void tcp_streams_open(struct tcp_conn *conn);
/*
 * TCP_FRAME_STREAMS: the peer asks for @n streams, or, where it is the dialer,
 * says that one of ours cannot be had; -errno.
 */
int tcp_streams_asked(struct tcp_conn *conn, uint32_t n);
void tcp_handshake_accept(struct tcp_iface *iface);
/* Pausing, the backlog keeps the peers till the next tick. */
void tcp_handshake_resume_accept(struct tcp_iface *iface);
unsigned int tcp_handshake_io(struct tcp_handshake *h);
/* Its deadline has passed. */
void tcp_handshake_expire(struct tcp_handshake *h);
void tcp_handshake_free(struct tcp_handshake *h);
/* Frees those that ended; none is being looked at. */
void tcp_handshakes_reap(struct tcp_iface *iface);
/* Ends those that are for @conn. */
void tcp_handshakes_drop(struct tcp_conn *conn);
/* Ends the dial for a bulk stream; false: there is none. */
bool tcp_handshake_drop_stream(struct tcp_conn *conn, uint32_t id);

#endif

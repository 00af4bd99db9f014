/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of the message stream out. */
#ifndef WEFT_DEVICES_TCP_TX_H
#define WEFT_DEVICES_TCP_TX_H

#include "devices/tcp/tcp.h"

/* Has the socket taken everything except gathered frames? */
bool tcp_conn_drained(const struct tcp_conn *conn);
/* The one predicate behind ready(), -EAGAIN and on_ready(). */
bool tcp_conn_is_ready(struct weft_conn *conn);
/*
 * Are there puts or gets besides the newest?  Then the newest may wait for
 * progress().
 */
bool tcp_conn_is_busy(const struct tcp_conn *conn);
/* Counts a message of @len bytes. */
void tcp_conn_count_message(struct tcp_conn *conn, size_t len);
/*
 * Sends a frame; the connection must be drained.  0: sent or copied; -EAGAIN:
 * the connection has just broken; -EFAULT: the source cannot be read, and the
 * frame may be cut: break the connection.
 */
int tcp_conn_send(struct tcp_conn *conn, uint8_t type, uint8_t id,
		  uint64_t fence, const struct iovec *iov, unsigned int n,
		  size_t len);
/*
 * Copies a frame, to be written with others: by the next tcp_conn_send(), or
 * tcp_conn_write_gathered(), or once there are TCP_GATHER bytes.
 */
void tcp_conn_gather(struct tcp_conn *conn, uint8_t type,
		     const struct iovec *iov, unsigned int n, size_t len);
/*
 * The same of @own and @n bytes at @p, which a peer has named.  -EACCES: a
 * part of them is not mapped; -errno: they cannot be copied.  Nothing is
 * gathered then.
 */
int tcp_conn_gather_named(struct tcp_conn *conn, uint8_t type,
			  const struct iovec *own, const void *p, size_t n);
void tcp_conn_write_gathered(struct tcp_conn *conn);
/*
 * Sends a frame, behind whatever is not sent yet; gathered while frames of the
 * peer's are read.
 */
void tcp_conn_send_control(struct tcp_conn *conn, uint8_t type,
			   const void *body, size_t len);
/* Asks the peer how many messages it has, unless it was asked since the last.
 */
void tcp_conn_ask(struct tcp_conn *conn);
/* The socket can be written again. */
void tcp_conn_flush(struct tcp_conn *conn);

#endif

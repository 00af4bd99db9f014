/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, from the call to their end. */
#ifndef WEFT_DEVICES_TCP_PUT_H
#define WEFT_DEVICES_TCP_PUT_H

#include "devices/tcp/bulk/tcp_bulk.h"

int tcp_put_start(struct weft_ep *ep, const struct weft_iov *iov,
		  unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
		  const struct weft_notify *notify, struct weft_op *op);
/* Gives @put its number and sends it, or the part that can be sent now. */
void tcp_put_send(struct tcp_conn *conn, struct tcp_put *put);
/* Sends puts in frames when no bulk stream can be opened. */
void tcp_puts_post_waiting(struct tcp_conn *conn);
/*
 * Stops @s and asks the peer what it took from it.  The rest is sent again, and
 * acknowledgements sent on @s are not lost (tcp_stall.c).
 */
void tcp_stream_abandon(struct tcp_conn *conn, struct tcp_stream *s);
/* The source of @put cannot be read: the connection fails. */
void tcp_put_source_gone(struct tcp_conn *conn, struct tcp_put *put);
/* TCP_FRAME_FAIL: the peer cannot place it. */
void tcp_put_failed(struct tcp_conn *conn, uint64_t seq, int status);
/* Tells the peer that no more of @put will come. */
void tcp_put_send_abort(struct tcp_conn *conn, const struct tcp_put *put);
/* Completes its op. */
void tcp_put_done(struct tcp_put *put);
/*
 * Completes all local puts with @status.  Their memory is not read any more
 * when this returns.  Replies to the peer's gets continue.
 */
void tcp_puts_cancel(struct tcp_conn *conn, int status);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Gets, from the call to their end. */
#ifndef WEFT_DEVICES_TCP_GET_H
#define WEFT_DEVICES_TCP_GET_H

#include "devices/tcp/tcp.h"

int tcp_get_start(struct weft_ep *ep, const struct weft_iov *iov,
		  unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
		  struct weft_op *op);
/* TCP_FRAME_GET and TCP_FRAME_GET_DATA of the peer's; -errno */
int tcp_get_asked(struct tcp_conn *conn, const uint8_t *p, size_t len);
int tcp_get_answered(struct tcp_conn *conn, const uint8_t *p, size_t len);
/* Answers the peer's gets, as far as there is room. */
void tcp_get_answer(struct tcp_conn *conn);
/* TCP_FRAME_FAIL: the peer cannot read it. */
void tcp_get_failed(struct tcp_conn *conn, uint64_t id, int status);
void tcp_get_done(struct tcp_conn *conn, uint64_t id, int status);
void tcp_gets_cancel(struct tcp_conn *conn, int status);
/* Drops the peer's gets. */
void tcp_gets_forget(struct tcp_conn *conn);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of the message stream in, in order. */
#ifndef WEFT_DEVICES_TCP_RX_H
#define WEFT_DEVICES_TCP_RX_H

#include "devices/tcp/tcp.h"

/* Reads and delivers; returns the number of frames. */
unsigned int tcp_conn_receive(struct tcp_conn *conn);
/* Is there input that waits for its turn, not for the peer? */
bool tcp_conn_has_pending(const struct tcp_conn *conn);
/* Frees input that was not delivered. */
void tcp_conn_drop_received(struct tcp_conn *conn);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets: dialled, and taken from devices/common/session. */
#ifndef WEFT_DEVICES_TCP_DIAL_H
#define WEFT_DEVICES_TCP_DIAL_H

#include "devices/tcp/tcp.h"

extern const struct weft_session_ops tcp_session_ops;
/*
 * Dials bulk streams that the tuner wants, or asks the peer to: so many at a
 * time as do not hold transfers up.  Called again as each of them opens.
 */
void tcp_streams_open(struct tcp_conn *conn);
/*
 * Closes the streams to the peer if none has work: more can be dialled later.
 */
void tcp_streams_give_back(struct tcp_conn *conn);
/*
 * TCP_FRAME_STREAMS: the peer requests @n streams or, as the dialer, reports
 * that one that we requested cannot be opened; -errno.
 */
int tcp_streams_asked(struct tcp_conn *conn, uint32_t n);
/* Ends the dial for a bulk stream; false: there is none. */
bool tcp_streams_drop_dial(struct tcp_conn *conn, uint32_t id);

#endif

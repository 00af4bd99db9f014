/* SPDX-License-Identifier: BSD-3-Clause */
/* How many streams.  Bulk lock held. */
#ifndef WEFT_DEVICES_TCP_BULK_TUNE_H
#define WEFT_DEVICES_TCP_BULK_TUNE_H

#include "devices/tcp/bulk/tcp_bulk.h"

/*
 * A put is submitted; all are acknowledged.  Not only sent: the more streams,
 * the more of a message lies in socket buffers before any of it has arrived.
 */
void tcp_tune_busy(struct tcp_bulk *b);
void tcp_tune_idle(struct tcp_bulk *b);
void tcp_tune_bytes(struct tcp_bulk *b, size_t n, unsigned int max);
/* The stream on trial could not be opened. */
void tcp_tune_stream_lost(struct tcp_bulk *b);

#endif

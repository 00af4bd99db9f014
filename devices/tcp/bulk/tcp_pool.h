/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and chunks, of which some are kept for use again. */
#ifndef WEFT_DEVICES_TCP_BULK_POOL_H
#define WEFT_DEVICES_TCP_BULK_POOL_H

#include "devices/tcp/bulk/tcp_bulk.h"

/* Cleared; NULL: no memory.  Puts belong to the owner, ... */
struct tcp_put *tcp_put_new(struct tcp_conn *conn);
void tcp_put_free(struct tcp_put *put);
void tcp_puts_spare_free(struct tcp_iface *iface);
/* ... for chunks hold the bulk lock. */
struct tcp_chunk *tcp_chunk_new(struct tcp_bulk *b);
void tcp_chunk_free(struct tcp_bulk *b, struct tcp_chunk *c);
void tcp_chunks_spare_free(struct tcp_bulk *b);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* One progress(), and the ends of connections. */
#ifndef WEFT_DEVICES_TCP_PROGRESS_H
#define WEFT_DEVICES_TCP_PROGRESS_H

#include "devices/tcp/tcp.h"

unsigned int tcp_iface_progress(struct weft_iface *iface);
int tcp_iface_arm(struct weft_iface *iface);
/* @all: ignore WEFT_PROGRESS_MAX, for an interface that ends. */
unsigned int tcp_iface_deliver(struct tcp_iface *iface, bool all);
/* Handles epoll events of the message stream. */
unsigned int tcp_conn_handle(struct weft_source *src, uint32_t events);
/* Ends it and calls its endpoint's on_error(). */
void tcp_conn_close(struct tcp_conn *conn, int err);
/* Frees ended connections; do not call from their callbacks. */
void tcp_conns_reap(struct tcp_iface *iface);

#endif

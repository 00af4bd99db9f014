/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces and endpoints: the contract (devices/device.h), and progress. */
#ifndef WEFT_DEVICES_TCP_IFACE_H
#define WEFT_DEVICES_TCP_IFACE_H

#include "devices/tcp/tcp.h"

/* tcp_progress.c */
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

/* tcp_timer.c */
unsigned int tcp_iface_on_timer(struct weft_events *ev, uint64_t now,
				uint64_t stood);

/* tcp_ep.c */
extern const struct weft_ep_ops tcp_ep_ops;
void tcp_ep_query(struct weft_ep *ep, struct weft_ep_attr *attr);
int tcp_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int iovcnt, struct weft_op *op);
ssize_t tcp_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg);
void tcp_ep_fence(struct weft_ep *ep);

#endif

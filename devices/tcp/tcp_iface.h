/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces and endpoints: the contract (devices/device.h), and progress. */
#ifndef WEFT_DEVICES_TCP_IFACE_H
#define WEFT_DEVICES_TCP_IFACE_H

#include "devices/tcp/tcp.h"

/* tcp_progress.c */
unsigned int tcp_iface_progress(struct weft_iface *iface);
int tcp_iface_arm(struct weft_iface *iface);
/* @all: more than one progress() may, for one that ends. */
unsigned int tcp_iface_deliver(struct tcp_iface *iface, bool all);
/* Ends it and tells its endpoint. */
void tcp_conn_close(struct tcp_conn *conn, int err);
/* Frees what ended; nobody is inside those connections any more. */
void tcp_conns_reap(struct tcp_iface *iface);

/* tcp_timer.c */
unsigned int tcp_iface_tick(struct tcp_iface *iface);

/* tcp_ep.c */
int tcp_ep_create(struct weft_iface *iface, const struct weft_address *remote,
		  void *user, struct weft_ep **ep);
void tcp_ep_destroy(struct weft_ep *ep);
void tcp_ep_query(struct weft_ep *ep, struct weft_ep_attr *attr);
bool tcp_ep_ready(struct weft_ep *ep);
int tcp_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int iovcnt, struct weft_op *op);
ssize_t tcp_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg);
void tcp_ep_fence(struct weft_ep *ep);
int tcp_ep_flush(struct weft_ep *ep, struct weft_op *op);
void tcp_ep_cancel(struct weft_ep *ep);
/* Its connection ended; everything else has been completed. */
void tcp_ep_failed(struct tcp_ep *ep, int err);
/* Tells on_ready(), and flushes that are complete. */
void tcp_ep_notify(struct tcp_conn *conn);

#endif

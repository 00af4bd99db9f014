/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving bulk: the peer's puts, and what we get from it. */
#ifndef WEFT_DEVICES_NVL_RX_H
#define WEFT_DEVICES_NVL_RX_H

#include "devices/nvlink/nvl.h"

/* A get as its caller sees it: complete with its last part. */
struct nvl_get_parent {
	struct weft_op *op; /* NULL: cancelled */
	unsigned int left;
	int status;
};

/* Handles the peer's operation records; the number. */
unsigned int nvl_rx_ops(struct nvl_conn *conn);
/* Tells of puts and gets that have ended; the number. */
unsigned int nvl_rx_deliver(struct nvl_iface *iface);
/* As the contract's get() on a connection that is ready for it. */
int nvl_rx_get(struct nvl_conn *conn, const struct weft_iov *iov,
	       unsigned int n, uint64_t addr, const void *rkey,
	       struct weft_op *op);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets. */
#ifndef WEFT_DEVICES_NVL_OP_H
#define WEFT_DEVICES_NVL_OP_H

#include "devices/nvlink/nvl.h"

/* As the contract's put() and get(), on a connection that is ready. */
int nvl_op_start(struct nvl_conn *conn, bool get, const struct weft_iov *iov,
		 unsigned int n, uint64_t addr, const void *rkey,
		 struct weft_op *op);
/* Its memory was mapped, or cannot be. */
void nvl_op_go(struct nvl_op *op);
/* Completes what has ended; the number. */
unsigned int nvl_op_deliver(struct nvl_iface *iface);
/* Ends operations that no engine has. */
void nvl_op_cancel(struct nvl_conn *conn);
/* Cancels all, and waits for the engines, bounded by the watchdog. */
void nvl_op_stop(struct nvl_conn *conn);
/* Completes all with @status, here and now. */
void nvl_op_drop(struct nvl_conn *conn, int status);

#endif

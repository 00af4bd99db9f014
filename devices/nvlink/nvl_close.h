/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a connection. */
#ifndef WEFT_DEVICES_NVL_CLOSE_H
#define WEFT_DEVICES_NVL_CLOSE_H

#include "devices/nvlink/nvl.h"

/* The peer's end of the socket is closed and all it sent is delivered. */
void nvl_conn_on_hangup(struct nvl_conn *conn);
/* BROKEN and no copy left: ops end, on_error() is called.  True: it is dead. */
bool nvl_conn_finish_close(struct nvl_conn *conn);
void nvl_conn_free(struct nvl_conn *conn);
void nvl_conn_reap(struct nvl_iface *iface);
/* Our endpoint is gone; the connection ends when the peer's is, too. */
unsigned int nvl_conn_maybe_end(struct nvl_conn *conn);
void nvl_conn_say_close(struct nvl_conn *conn);
/* Waits until no engine works for @conn any more, bounded by the watchdog. */
void nvl_conn_stop_copies(struct nvl_conn *conn);
/* Completes its operations with @status, here and now. */
void nvl_conn_drop_ops(struct nvl_conn *conn, int status);
/* Nothing of the iface names @conn any more. */
void nvl_conn_forget(struct nvl_conn *conn);

#endif

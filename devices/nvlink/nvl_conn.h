/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining and ending. */
#ifndef WEFT_DEVICES_NVL_CONN_H
#define WEFT_DEVICES_NVL_CONN_H

#include "devices/nvlink/nvl.h"

extern const struct weft_session_ops nvl_session_ops;
/* Never calls back: marks it; progress() does the rest.  @err 0: in order. */
void nvl_conn_break(struct nvl_conn *conn, int err);
/*
 * An operation has failed here, which could not do @what: logged.  The same
 * with -EIO, and the peer learns of it.
 */
void nvl_conn_fail(struct nvl_conn *conn, const char *what);
/* Sends a frame without a descriptor; breaks the connection if it cannot. */
void nvl_conn_send(struct nvl_conn *conn, struct nvl_frame *f);
/* Must the peer learn that our endpoint is gone? */
bool nvl_conn_owes_bye(const struct nvl_conn *conn);
/*
 * Ends the connection if it is due; the caller must hold nothing of it.  True:
 * it ended.
 */
bool nvl_conn_end(struct nvl_conn *conn);
/* Tells the peer that the interface closes in order, and ends it. */
void nvl_conn_close(struct nvl_conn *conn);
void nvl_conn_reap(struct nvl_iface *iface);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting: the exchange of inboxes. */
#ifndef WEFT_DEVICES_NVL_DIAL_H
#define WEFT_DEVICES_NVL_DIAL_H

#include "devices/nvlink/nvl.h"

extern const struct weft_session_ops nvl_session_ops;
/* Reads what is at its socket: the inbox, then frames; how many. */
unsigned int nvl_conn_step(struct nvl_conn *conn);

#endif

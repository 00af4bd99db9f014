/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting: who may be dialled, and the exchange of inboxes. */
#ifndef WEFT_DEVICES_NVL_DIAL_H
#define WEFT_DEVICES_NVL_DIAL_H

#include "devices/nvlink/nvl.h"

extern const struct weft_session_ops nvl_session_ops;
/* Does the kernel let us dial it?  False: one warning has said why not. */
bool nvl_conn_may_dial(struct nvl_iface *iface,
		       const struct weft_address *remote);
/* Reads what is at its socket: the inbox, then frames; how many. */
unsigned int nvl_conn_step(struct nvl_conn *conn);

#endif

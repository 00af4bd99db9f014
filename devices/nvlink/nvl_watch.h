/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of peers. */
#ifndef WEFT_DEVICES_NVL_WATCH_H
#define WEFT_DEVICES_NVL_WATCH_H

#include "devices/nvlink/nvl.h"

/* Have all copies ended that the peer's engines had at the first call? */
bool nvl_watch_have_ended(const struct nvl_conn *conn, struct nvl_watch *w);
/*
 * The same, or the time for them is over: the driver ends those of a process
 * that has ended, perhaps without a mark.  nvl_export.c's lock is held.
 */
bool nvl_watch_is_over(struct nvl_conn *conn, struct nvl_watch *w);

#endif

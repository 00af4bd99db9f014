/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections. */
#ifndef WEFT_DEVICES_IB_CONN_H
#define WEFT_DEVICES_IB_CONN_H

#include "devices/ib/ib.h"

struct ib_conn *ib_conn_new(struct ib_peer *peer, uint32_t number);
/* The peer's half arrived. */
void ib_conn_info(struct ib_conn *conn, const struct ib_conn_info *info);
/* Fills in the local half. */
void ib_conn_fill_info(const struct ib_conn *conn, struct ib_conn_info *info);
/*
 * Ends it: completes its operations and moves it to iface->dead, from where
 * progress() calls on_error().
 */
void ib_conn_fail(struct ib_conn *conn, int err);
/* Advances it, outside of callbacks; true: it has ended. */
bool ib_conn_step(struct ib_conn *conn);
void ib_conn_free(struct ib_conn *conn);

#endif

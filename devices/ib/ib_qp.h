/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs and their completion queues. */
#ifndef WEFT_DEVICES_IB_QP_H
#define WEFT_DEVICES_IB_QP_H

#include "devices/ib/ib.h"

/* Creates the queue pair and reserves entries in a CQ; -errno, logged. */
int ib_qp_create(struct ib_conn *conn);
/* Connects to conn->peer_info: RTR, then RTS; -errno, logged. */
int ib_qp_connect(struct ib_conn *conn);
/*
 * Moves it to the error state: nothing arrives any more, and nothing posted is
 * executed once conn->tx_out is 0.  False: only destroying it ensures that.
 */
bool ib_qp_flush(struct ib_conn *conn);
void ib_qp_destroy(struct ib_conn *conn);
void ib_cq_destroy(struct ib_iface *iface, struct ib_cq *cq);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests and credits. */
#ifndef WEFT_DEVICES_IB_XFER_H
#define WEFT_DEVICES_IB_XFER_H

#include "devices/ib/ib.h"

struct ib_tx *ib_tx_get(struct ib_conn *conn, bool user);
void ib_tx_put(struct ib_conn *conn, struct ib_tx *tx);
/* Posts @tx if there is room; -errno: the caller keeps it. */
int ib_xfer_send(struct ib_conn *conn, struct ib_tx *tx, enum ib_kind kind,
		 uint8_t id, struct ib_op *op);
/* An empty WRITE: is the path alive? */
int ib_xfer_probe(struct ib_conn *conn);
/* Could a message be posted now? */
bool ib_xfer_ready(const struct ib_conn *conn);
/* Posts all receive buffers, or one that is idle again. */
void ib_xfer_receive(struct ib_conn *conn);
void ib_xfer_receive_one(struct ib_rx *rx);
/* Takes over @op, which ends with op->status if that is set. */
void ib_xfer_queue(struct ib_conn *conn, struct ib_op *op);
/*
 * Has the peer delivered the first @sent messages?  If not, sends ASK as soon
 * as one may be sent.
 */
bool ib_xfer_is_delivered(struct ib_conn *conn, uint64_t sent);
/*
 * Before the interface closes: returns all credits.  True: the adapter has not
 * sent everything.
 */
bool ib_xfer_closes(struct ib_conn *conn);
/* Posts what is queued and returns credits, while there is room. */
void ib_xfer_pump(struct ib_conn *conn);
/* All of @op has completed: queue it to be reported. */
void ib_op_finish(struct ib_op *op);
/* Ends @op with op->status: drops what it holds, and counts it. */
void ib_op_release(struct ib_op *op);

#endif

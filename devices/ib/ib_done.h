/* SPDX-License-Identifier: BSD-3-Clause */
/* Completions. */
#ifndef WEFT_DEVICES_IB_DONE_H
#define WEFT_DEVICES_IB_DONE_H

#include "devices/ib/ib.h"

/* Ends all posted requests; the adapter has none when it returns. */
void ib_done_stop(struct ib_conn *conn);
/* Is a put or get posted? */
bool ib_done_pending(const struct ib_conn *conn);
/*
 * Completes all puts and gets with @status, with callbacks; none of them may be
 * posted.
 */
void ib_done_drop(struct ib_conn *conn, int status);
/* Is a received message not delivered yet? */
bool ib_done_undelivered(const struct ib_conn *conn);
/* Polls the CQs without callbacks; returns the number of completions. */
unsigned int ib_done_gather(struct ib_iface *iface);
/* Calls back for what was gathered; returns how often. */
unsigned int ib_done_deliver(struct ib_iface *iface);
/* Arms the CQs; -EBUSY: something was complete already. */
int ib_done_arm(struct ib_iface *iface);
/* Ends the users of failed completion queues. */
void ib_done_check_cqs(struct ib_iface *iface);

#endif

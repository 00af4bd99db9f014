/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes. */
#ifndef WEFT_DEVICES_SHM_RX_H
#define WEFT_DEVICES_SHM_RX_H

#include "devices/shm/shm.h"

/* Handles records, up to a limit; how many. */
unsigned int shm_rx_run(struct shm_conn *conn);
/*
 * On a connection that is still: delivers the next record, if it is a message
 * that waits for no put.  False: it is not, call shm_rx_run().
 */
bool shm_rx_take(struct shm_conn *conn);
/* Would shm_rx_run() do anything? */
bool shm_rx_can_run(struct shm_conn *conn);
/* Is there something that waits for engines? */
bool shm_rx_awaits_engines(const struct shm_conn *conn);

#endif

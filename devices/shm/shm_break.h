/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_DEVICES_SHM_BREAK_H
#define WEFT_DEVICES_SHM_BREAK_H

#include "devices/shm/shm.h"

/* Never calls back: marks it; progress() does the rest.  @err 0: in order. */
void shm_conn_break(struct shm_conn *conn, int err);
/* The peer reports a failed operation, which ends the connection. */
void shm_conn_told(struct shm_conn *conn);

#endif

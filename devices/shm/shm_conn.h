/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining and ending. */
#ifndef WEFT_DEVICES_SHM_CONN_H
#define WEFT_DEVICES_SHM_CONN_H

#include "devices/shm/shm.h"

extern const struct weft_session_ops shm_session_ops;
/* Must the peer learn, once there is room, that our endpoint is gone? */
bool shm_conn_owes_bye(const struct shm_conn *conn);
/*
 * Ends the connection if it is due; the caller must hold nothing of it.  True:
 * it ended.
 */
bool shm_conn_end(struct shm_conn *conn);
/* Tells the peer that the interface closes in order. */
void shm_conn_say_close(struct shm_conn *conn);
void shm_conn_free(struct shm_conn *conn);

#endif

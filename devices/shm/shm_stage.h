/* SPDX-License-Identifier: BSD-3-Clause */
/* Filling them. */
#ifndef WEFT_DEVICES_SHM_STAGE_H
#define WEFT_DEVICES_SHM_STAGE_H

#include "devices/shm/shm.h"

/* Does @t use a window, and are bytes of it missing there? */
bool shm_stage_waits(const struct shm_transfer *t);
/*
 * Stages waiting transfers, in order, as far as there is room; returns how
 * much.
 */
unsigned int shm_stage_run(struct shm_conn *conn);
/* Would that do anything? */
bool shm_stage_can_run(struct shm_conn *conn);
/* The next chunk of @t, which is the first in the queue; NULL: not yet. */
struct shm_chunk *shm_stage_next(struct shm_conn *conn,
				 const struct shm_transfer *t);
/* The peer has the record of @c. */
void shm_stage_sent(struct shm_conn *conn, struct shm_chunk *c);
/* Drops what is staged of @t and was not sent. */
void shm_stage_drop(struct shm_conn *conn, const struct shm_transfer *t);

#endif

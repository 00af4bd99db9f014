/* SPDX-License-Identifier: BSD-3-Clause */
/* What we send. */
#ifndef WEFT_DEVICES_SHM_TX_H
#define WEFT_DEVICES_SHM_TX_H

#include "devices/shm/shm.h"

/*
 * A put or get of the program's, or (@op and @iov NULL) a reply; -ENOMEM.
 * @where: of each entry, or of what is replied, if it goes by a window, else
 * NULL.
 */
int shm_tx_add(struct shm_conn *conn, enum shm_transfer_kind kind,
	       const struct weft_iov *iov, unsigned int niov,
	       const struct weft_cuda_ptr *where, const struct shm_op *what,
	       struct weft_op *op);
/* Reports to the peer how its put ended; -EPROTO: it had no more. */
int shm_tx_ack(struct shm_conn *conn, int status);
/*
 * An operation has failed here, which could not do @what: logged.  As
 * shm_conn_break() with -EIO, and the peer learns of it.
 */
void shm_tx_fail(struct shm_conn *conn, const char *what);
/* Sends what there is room for, up to a limit; returns how much. */
unsigned int shm_tx_run(struct shm_conn *conn);
/* Would that do anything? */
bool shm_tx_can_run(struct shm_conn *conn);
/* Is there anything left to send, now or later? */
bool shm_tx_waits(const struct shm_conn *conn);
/* The next piece of at most @max bytes of its memory. */
size_t shm_tx_piece(struct shm_transfer *t, size_t max, void **p);
/*
 * May this process copy from (@write: to) such a piece?  A piece no larger than
 * a message is not checked, like a message's payload: the system call would
 * cost as much as the whole put.
 */
bool shm_tx_may_copy(const struct shm_transfer *t, const void *p, size_t n,
		     bool write);
/* Frees it, and ends its op with @status. */
void shm_tx_finish(struct shm_conn *conn, struct shm_transfer *t, int status);
/*
 * Ends all ops with @status at once; transfers that have begun go on without
 * them.
 */
void shm_tx_give_up(struct shm_conn *conn, int status);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared memory of a connection: messages, operation records, wakes. */
#ifndef WEFT_DEVICES_NVL_INBOX_H
#define WEFT_DEVICES_NVL_INBOX_H

#include "devices/nvlink/nvl.h"

/* To read; the memory stays mapped when *@fd is closed.  Logs why not. */
int nvl_inbox_make(struct nvl_inbox *box, int *fd);
/* The peer's, to write.  -EINVAL: not sealed, or of another size. */
int nvl_inbox_map(struct nvl_inbox *box, int fd);
void nvl_inbox_close(struct nvl_inbox *box);
/* Wakes the peer if it sleeps.  Any thread. */
void nvl_inbox_wake(struct nvl_conn *conn);
/* Wakes the peer if it sleeps until its chunks are taken; after that. */
void nvl_inbox_wake_for_credit(struct nvl_conn *conn);
/* Would a message, a put or a get be taken now? */
bool nvl_conn_is_ready(struct weft_conn *conn);
/* Is there room for a message of @len?  A peer that lies breaks it. */
bool nvl_msg_room(struct nvl_conn *conn, size_t len);
/* Where @len bytes may be written, nvl_msg_room() having said yes, ... */
void *nvl_msg_begin(struct nvl_conn *conn, size_t len);
/* ... and sent: at most as many, behind the puts before the last fence. */
void nvl_msg_end(struct nvl_conn *conn, uint8_t kind, uint8_t id, size_t len);
/*
 * Puts are about to be cut, which ends them: the peer drops messages behind any
 * that has not ended yet.
 */
void nvl_msg_cut(struct nvl_conn *conn);
/* The same for one that has failed, which the peer finds behind what it reads.
 */
void nvl_msg_fail(struct nvl_conn *conn);
/* Has the peer said that? */
bool nvl_msg_has_failed(const struct nvl_conn *conn);
/*
 * Sends, or keeps for later: the number kept is bounded by what is under way.
 */
void nvl_op_send(struct nvl_conn *conn, const struct nvl_op *op);
void nvl_op_retry(struct nvl_conn *conn);
/* 1: *@op is there; 0; -EPROTO */
int nvl_op_next(struct nvl_conn *conn, struct nvl_op *op);
/* The peer may write over that one. */
void nvl_op_release(struct nvl_conn *conn);
/* Delivers messages, as many as progress() has left; the number. */
unsigned int nvl_msg_progress(struct nvl_conn *conn);
/* Is there something that progress() would deliver? */
bool nvl_inbox_pending(struct nvl_conn *conn);
/* Tells the peer that we are about to sleep, and for what; or no more. */
void nvl_inbox_sleep(struct nvl_conn *conn, bool on);

#endif

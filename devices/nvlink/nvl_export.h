/* SPDX-License-Identifier: BSD-3-Clause */
/* This process's memory. */
#ifndef WEFT_DEVICES_NVL_EXPORT_H
#define WEFT_DEVICES_NVL_EXPORT_H

#include "devices/nvlink/nvl.h"

/* In a child: no peer is waited for. */
void nvl_export_forget(void);

/* Sets mem->exported where peers may map @mem. */
void nvl_export_add(struct weft_mem *mem);
/* Fills in the key of @mem, which may say that it cannot be mapped. */
void nvl_export_pack(const struct weft_mem *mem, struct nvl_key *key);
/*
 * Is @token of a registration of this process that has [@addr, @addr + @len)?
 * Then *@rkey is the region's.
 */
bool nvl_export_own(uint64_t token, uint64_t addr, uint64_t len,
		    struct weft_rkey *rkey);
/*
 * Ends all copies of peers to or from it: waits for those that their engines
 * have, bounded by the watchdog, or by a second if the peer has ended.  A peer
 * that was given up may copy nothing more, and is not waited for again.  Any
 * thread.
 */
void nvl_export_del(struct nvl_export *x);

/* Lets the peer copy, once it has conn->life; -ENOSPC. */
int nvl_export_join(struct nvl_conn *conn);
/* Its marks have arrived. */
int nvl_export_marks(struct nvl_conn *conn, int fd);
/* The peer asks for descriptors. */
int nvl_export_fetch(struct nvl_conn *conn, const struct nvl_frame *f);
/* Sends some of those: the number, or -errno: the connection is broken. */
int nvl_export_step(struct nvl_conn *conn);
bool nvl_export_is_due(const struct nvl_conn *conn);
/* Lets the peer start no more copies; false: its engines still have some. */
bool nvl_export_revoke(struct nvl_conn *conn);
/* The same, and waits as nvl_export_del(). */
void nvl_export_leave(struct nvl_conn *conn);
/* @conn is freed. */
void nvl_export_close(struct nvl_conn *conn);

#endif

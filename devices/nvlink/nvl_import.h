/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer's memory. */
#ifndef WEFT_DEVICES_NVL_IMPORT_H
#define WEFT_DEVICES_NVL_IMPORT_H

#include "devices/nvlink/nvl.h"

/*
 * The allocation of @key, for copies by @engine, which it keeps until
 * nvl_import_put().  Maps it at its first use; import->pending: the peer is
 * asked for descriptors, and nvl_op_go() follows for the operations that wait.
 * NULL: *@err is why not.
 */
struct nvl_import *nvl_import_get(struct nvl_conn *conn,
				  const struct nvl_key *key,
				  struct weft_engine *engine, int *err);
void nvl_import_put(struct nvl_conn *conn, struct nvl_import *import);
/* The peer's reply: PART or NONE. */
int nvl_import_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd);
/* Unmaps what is not alive any more. */
void nvl_import_tick(struct nvl_conn *conn);
/* Unmaps all; no copy uses it. */
void nvl_import_close(struct nvl_conn *conn);
/*
 * Could memory of @key be mapped here?  The contract's mem_reaches(): tried
 * once per process whose keys are seen.
 */
int nvl_import_reaches(const void *rkey);
/* In a child: it has none. */
void nvl_import_forget(void);

#endif

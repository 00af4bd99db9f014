/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is copied to and from in place, without a ring: GPU memory
 * that the driver exports as POSIX file descriptors, or, where it is of
 * cudaMalloc(), by an IPC handle.
 *
 * The owner (nvl_export.c) lists what it registers.  A peer that uses a key
 * again queries it (nvl_import.c), gets a descriptor for each allocation once,
 * or its handle, and maps it; from then on its own engines copy (nvl_direct.c).
 * Until then, and wherever a step fails, data goes over the ring as without a
 * query.
 *
 * A mapping cannot be taken back, so the peer is trusted to look: before each
 * batch of copies, at a word of the owner's for the registration.  The owner
 * clears that word and then waits for what the peer's engines have, which it
 * sees in pages of the peer's, whether the peer makes progress or not.
 */
#ifndef WEFT_DEVICES_NVL_DIRECT_H
#define WEFT_DEVICES_NVL_DIRECT_H

#include "devices/nvlink/nvl.h"
#include "devices/nvlink/nvl_map.h"

struct nvl_export;

/* ---- nvl_export.c: local memory ------------------------------------------ */

/* Sets mem->exported where peers may map @mem: mem_pack() marks the key. */
void nvl_export_add(struct weft_mem *mem);
/* NVL_LOC_DIRECT, or what else says how. */
unsigned int nvl_export_loc(const struct nvl_export *x);
/*
 * No peer copies to or from it any more: waits for copies that are with their
 * engines, bounded by the watchdog, or by a second where the peer is gone.  A
 * peer that was given up once may copy nothing more: it is not waited for
 * again.  Any thread.
 */
void nvl_export_del(struct nvl_export *x);
/* A peer's frame: MARKS, MAP_WANT or MAP_FETCH. */
int nvl_export_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd);
/*
 * Sends a descriptor or handle that the peer has requested; the number.  To
 * export one takes the driver 34 us, or 0.6 ms where it is the only one
 * (nvl_map.h), of any size (580, H200): a peer whose data is under way
 * meanwhile gets one each NVL_EXPORT_MS.
 */
unsigned int nvl_export_step(struct nvl_conn *conn);
bool nvl_export_is_due(const struct nvl_conn *conn);
/* The peer starts no more copies; false: some are with its engines. */
bool nvl_export_revoke(struct nvl_conn *conn);
/* The same, and waits as nvl_export_del(). */
void nvl_export_leave(struct nvl_conn *conn);
/* Counts what the peer has put and got by itself. */
void nvl_export_count(struct nvl_conn *conn);
/* @conn is freed. */
void nvl_export_close(struct nvl_conn *conn);

/* ---- nvl_import.c: remote memory ----------------------------------------- */

/* An allocation of the peer's, mapped. */
struct nvl_import {
	struct weft_list link; /* conn->imports */
	uint64_t id;
	uint64_t base; /* the peer's address */
	size_t mapped; /* bytes, so far */
	unsigned int nparts;
	struct weft_engine *gpu;
	bool ready, failed;
	uint64_t refused;	    /* ordinals that may not reach it */
	bool by_handle;		    /* one context's alone */
	unsigned int views, copies; /* that use it */
	struct nvl_mapping map;
};

/* A registration of the peer's, as long as it is live. */
struct nvl_view {
	struct weft_entry entry; /* conn->views, by the key's token */
	struct weft_list link;	 /* conn->view_list */
	struct weft_rkey key;
	struct weft_engine *gpu;
	uint8_t loc;
	bool by_handle, replied;
	uint64_t addr, len;
	unsigned int slot;
	uint32_t serial;
	struct nvl_import *import;
};

/*
 * What @gpu can copy to and from directly for [addr, addr+len) of the peer's;
 * NULL: use the ring.  A key that is used for the second time is queried now.
 * @loc: the key's, without NVL_LOC_DIRECT.
 */
struct nvl_view *nvl_import_find(struct nvl_conn *conn,
				 const struct weft_rkey *key, uint8_t loc,
				 struct weft_engine *gpu, uint64_t addr,
				 size_t len);
/* A copy has ended. */
void nvl_import_put(struct nvl_conn *conn, struct nvl_import *import);
/* The peer's reply: MAP_GRANT, MAP_PART, MAP_HANDLE or MAP_NONE. */
int nvl_import_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd);
/* Unmaps what the peer has revoked. */
void nvl_import_tick(struct nvl_conn *conn);
void nvl_import_close_all(struct nvl_conn *conn);

/* ---- nvl_direct.c: copies ------------------------------------------------ */

#define NVL_DIRECT_COPIES 128u /* of them, with engines */

/* -EINPROGRESS: as the contract's put() and get(); 0: not directly. */
int nvl_direct_start(struct nvl_conn *conn, bool get,
		     const struct weft_iov *iov, unsigned int n, uint64_t addr,
		     const void *rkey, struct weft_op *op);
/* Hands on what waited for others. */
unsigned int nvl_direct_schedule(struct nvl_conn *conn);
/* Completes what has ended; the number. */
unsigned int nvl_direct_deliver(struct nvl_iface *iface);
/* Ends what no engine has. */
void nvl_direct_cancel(struct nvl_conn *conn);
/* Completes all with @status, here and now. */
void nvl_direct_drop(struct nvl_conn *conn, int status);

#endif

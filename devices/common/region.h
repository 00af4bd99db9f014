/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of registered memory, which maps keys to regions.  One per process
 * and plugin; all devices share it.
 *
 * Hold a reference for each system call (or copy) that places a peer's bytes,
 * and drop it right after.  The key is checked each time, so revoking one stops
 * a put half way.  Taking a reference is lock-free.
 */
#ifndef WEFT_DEVICES_COMMON_REGION_H
#define WEFT_DEVICES_COMMON_REGION_H

#include "devices/device.h"
#include "util/drivers/cuda.h"

/* The key of a region; `token` is random. */
struct weft_rkey {
	uint32_t slot;
	uint32_t generation;
	uint64_t token;
};

/* Packed: WEFT_RKEY_LEN little-endian bytes. */
#define WEFT_RKEY_LEN 16
void weft_rkey_pack(const struct weft_rkey *rkey, void *buf);
void weft_rkey_unpack(const void *buf, struct weft_rkey *rkey);

struct weft_mem {
	void *addr;
	size_t len;
	unsigned int forks; /* util/fork.h: whose it is */
	enum weft_mem_kind kind;
	struct weft_cuda_ptr where; /* shm, nvlink; else zero */
	struct weft_rkey rkey;
	struct nvl_export *exported; /* nvlink's: peers may map it, or NULL */
};

/* -ENOMEM, -ENOSPC (a million regions), or the error of getrandom(). */
int weft_region_add(void *addr, size_t len, enum weft_mem_kind kind,
		    struct weft_mem **mem);
/* Revokes the key, waits until no reference is left, and frees @mem. */
void weft_region_remove(struct weft_mem *mem);

/*
 * A reference to [addr, addr+len) if @rkey allows it, else NULL.  Drop it with
 * weft_region_put() at once: weft_region_remove() waits for it.
 */
void *weft_region_get(const struct weft_rkey *rkey, uint64_t addr, size_t len);
void weft_region_put(const struct weft_rkey *rkey);

#endif

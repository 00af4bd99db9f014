/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer's GPU memory at addresses of this process. */
#ifndef WEFT_DEVICES_NVL_MAP_H
#define WEFT_DEVICES_NVL_MAP_H

#include "devices/engine/copy.h"

enum nvl_map_kind {
	NVL_MAP_NONE,
	NVL_MAP_OWN,	/* it is this process's: nothing is mapped */
	NVL_MAP_HANDLE, /* by an IPC handle, for one context alone */
	NVL_MAP_PARTS,	/* by descriptors, one behind the other */
};

struct nvl_mapping {
	enum nvl_map_kind kind;
	uint64_t dev;		  /* where it begins */
	struct weft_cuda_ctx ctx; /* in which it was mapped */
	/* PARTS: */
	size_t size;
	uint64_t access, refused; /* ordinals that may, or may not, reach it */
#define NVL_ORDINALS 64
	size_t *parts; /* bytes of each */
	unsigned int nparts;
};

void nvl_map_own(struct nvl_mapping *m, uint64_t dev);
/*
 * All of an allocation of the peer's at once, by the driver's IPC handle; in
 * @engine's context, which alone may copy: of an exporter the driver lets one
 * context of a GPU open handles (CUDA Driver API, cuIpcOpenMemHandle).
 * CUresult; INVALID_VALUE, too, if it is smaller than @size.
 */
int nvl_map_handle(struct nvl_mapping *m, struct weft_engine *engine,
		   const void *handle, size_t size);
/*
 * Does the driver open such a handle, in the context of this thread, or else in
 * any that is active?  CUresult.  Any thread.
 */
int nvl_map_try(const void *handle);
/*
 * Addresses for @size bytes of the peer's, of several allocations one behind
 * the other: each by nvl_map_part(), then nvl_map_reach().
 */
int nvl_map_reserve(struct nvl_mapping *m, struct weft_engine *engine,
		    size_t size);
/* The next @len bytes, which begin at @offset.  @fd stays the caller's. */
int nvl_map_part(struct nvl_mapping *m, uint64_t offset, int fd, size_t len);
/* May @engine copy to and from it?  -EACCES. */
int nvl_map_reach(struct nvl_mapping *m, struct weft_engine *engine);
/* Unmaps it, waiting for the kernels that run. */
void nvl_map_undo(struct nvl_mapping *m);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that two processes see, and whose GPU's may be shared. */
#ifndef WEFT_DEVICES_NVL_MAP_H
#define WEFT_DEVICES_NVL_MAP_H

#include "devices/nvlink/nvl.h"
#include "devices/engine/copy.h"

/* Memory that both sides see; made by the reader, mapped by the writer. */
struct nvl_mapping {
	enum nvl_ring_kind kind;
	size_t size;
	int fd;		 /* HOST: the memfd; CUDA: as exported, or -1 */
	void *host;	 /* HOST: its mapping */
	bool pinned;	 /* HOST: the driver knows it */
	uint64_t dev;	 /* CUDA: its address */
	uint64_t access; /* CUDA: ordinals that may reach it */
#define NVL_ORDINALS 64
	void *ctx;	/* in which it was mapped or pinned */
	bool by_handle; /* CUDA: of an IPC handle, for that context alone */
	/* CUDA: bytes of its allocations; NULL: it is one */
	size_t *parts;
	unsigned int nparts;
};

/* A memfd of @size bytes and its mapping; m->fd is the mapping's. */
int nvl_map_host_make(struct nvl_mapping *m, size_t size);
/*
 * The peer's.  -EINVAL: not sealed, or of another size.  @fd stays the
 * caller's.
 */
int nvl_map_host_import(struct nvl_mapping *m, int fd, size_t size);
/*
 * On @gpu; m->fd is the mapping's.  -EOPNOTSUPP: it is not shared, for good.
 *
 * The descriptor stays open, and not for this memory's sake: while no exported
 * memory of any process has one, the kernel's driver forgets by what it exports
 * (RmRefObjExportImport(), rmobjexportimport.c of NVIDIA's open modules).  To
 * export then takes 570 us and to close 530, else 34 together (580, H200).
 */
int nvl_map_cuda_make(struct nvl_mapping *m, struct weft_engine *gpu,
		      size_t size);
/*
 * Addresses for @size bytes of the peer's, of several allocations one behind
 * the other: each by nvl_map_cuda_part(), then nvl_map_reach().
 */
int nvl_map_cuda_reserve(struct nvl_mapping *m, struct weft_engine *gpu,
			 size_t size);
/*
 * The next @len bytes, which begin at @offset.  @fd stays the caller's.  When
 * it fails the caller undoes the mapping.
 */
int nvl_map_cuda_part(struct nvl_mapping *m, uint64_t offset, int fd,
		      size_t len);
/*
 * All of an allocation of the peer's at once, by the driver's IPC handle; in
 * @gpu's context, whose engines alone may copy: of an exporter the driver lets
 * one context of a GPU open handles (CUDA Driver API, cuIpcOpenMemHandle).
 * CUresult; INVALID_VALUE, too, if it is smaller than @size.
 */
int nvl_map_cuda_handle(struct nvl_mapping *m, struct weft_engine *gpu,
			const void *handle, size_t size);
/* Lets engines of @gpu copy to and from it: pins host memory, grants access. */
int nvl_map_reach(struct nvl_mapping *m, struct weft_engine *gpu);
/* Unmaps it, waiting for the kernels that run. */
void nvl_map_undo(struct nvl_mapping *m);
/*
 * All three for one allocation, a ring; logs why not.  nvl_map_reach() lets in
 * other GPUs.
 */
int nvl_map_cuda_import(struct nvl_mapping *m, struct weft_engine *gpu, int fd,
			size_t size);

/* nvl_unmap.c */
/* From here on nvl_map_close() leaves it to a thread.  -ENOMEM. */
int nvl_unmap_begin(struct nvl_iface *iface);
/* As nvl_map_undo(), or later and by a thread. */
void nvl_map_close(struct nvl_iface *iface, struct nvl_mapping *m);
/* Waits for the thread, and unmaps what it has left. */
void nvl_unmap_end(struct nvl_iface *iface);

/* nvl_share.c */
/*
 * May memory of this GPU be exported, and other GPUs' be mapped for it?  Found
 * when first called, which may take as long as NVML takes to begin; any thread.
 */
bool nvl_share_allowed(int ordinal);

#endif

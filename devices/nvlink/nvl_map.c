/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/nvlink/nvl_map.h"
#include "devices/nvlink/nvl_share.h"
#include "util/log.h"

void nvl_map_own(struct nvl_mapping *m, uint64_t dev)
{
	*m = (struct nvl_mapping){ .kind = NVL_MAP_OWN, .dev = dev };
}

/* ---- by a handle --------------------------------------------------------- */

/*
 * Do not trust the size that the peer gives: a copy beyond the end fails the
 * whole context.
 */
static bool is_mapped(const struct weft_cuda *cu, uint64_t p, size_t size)
{
	uint64_t base;
	size_t len;

	/* of a small allocation it may be the block that has it */
	return !cu->address_range(&base, &len, p) && base <= p &&
	       p - base <= len && size <= len - (p - base);
}

int nvl_map_handle(struct nvl_mapping *m, struct weft_engine *engine,
		   const void *handle, size_t size)
{
	struct weft_cuda_scope s;
	struct weft_cu_ipc h;
	uint64_t p;
	int r;

	if (!nvl_share_allowed(engine->ordinal))
		return WEFT_CU_NOT_SUPPORTED;
	if (weft_cuda_enter_kept(&s, &engine->ctx))
		return WEFT_CU_INVALID_CONTEXT;
	memcpy(&h, handle, sizeof(h));
	r = s.cu->ipc_open(&p, h, WEFT_CU_IPC_LAZY_PEER_ACCESS);
	if (!r && !is_mapped(s.cu, p, size)) {
		s.cu->ipc_close(p);
		r = WEFT_CU_INVALID_VALUE;
	}
	if (!r)
		*m = (struct nvl_mapping){ .kind = NVL_MAP_HANDLE,
					   .dev = p,
					   .ctx = engine->ctx };
	weft_cuda_leave(&s);
	return r;
}

int nvl_map_try(const void *handle)
{
	struct weft_cuda_scope s;
	struct weft_cu_ipc h;
	void *ctx = weft_cuda_any_context();
	uint64_t p;
	int r;

	if (!ctx || weft_cuda_enter(&s, ctx))
		return WEFT_CU_INVALID_CONTEXT;
	memcpy(&h, handle, sizeof(h));
	r = s.cu->ipc_open(&p, h, WEFT_CU_IPC_LAZY_PEER_ACCESS);
	if (!r)
		s.cu->ipc_close(p);
	weft_cuda_leave(&s);
	return r;
}

/* ---- by descriptors ------------------------------------------------------ */

int nvl_map_reserve(struct nvl_mapping *m, struct weft_engine *engine,
		    size_t size)
{
	struct weft_cuda_scope s;
	uint64_t dev;
	int r, err;

	if (!nvl_share_allowed(engine->ordinal))
		return -EACCES;
	err = weft_cuda_enter_kept(&s, &engine->ctx);
	if (err)
		return err;
	r = s.cu->address_reserve(&dev, size, 0, 0, 0);
	weft_cuda_leave(&s);
	if (!r)
		*m = (struct nvl_mapping){ .kind = NVL_MAP_PARTS,
					   .dev = dev,
					   .ctx = engine->ctx,
					   .size = size };
	return weft_cuda_errno(r);
}

int nvl_map_part(struct nvl_mapping *m, uint64_t offset, int fd, size_t len)
{
	size_t *parts = realloc(m->parts, (m->nparts + 1) * sizeof(*parts));
	unsigned long long handle;
	struct weft_cuda_scope s;
	int r, err;

	if (!parts)
		return -ENOMEM;
	m->parts = parts;
	err = weft_cuda_enter_kept(&s, &m->ctx);
	if (err)
		return err;
	r = s.cu->mem_import(&handle, (void *)(intptr_t)fd,
			     WEFT_CU_HANDLE_POSIX_FD);
	if (!r) {
		r = s.cu->mem_map(m->dev + offset, len, 0, handle, 0);
		s.cu->mem_release(handle);
	}
	weft_cuda_leave(&s);
	if (!r)
		parts[m->nparts++] = len;
	return weft_cuda_errno(r);
}

static int set_access(const struct weft_cuda *cu, struct nvl_mapping *m,
		      int ordinal)
{
	struct weft_cu_access access = {
		.location = { WEFT_CU_LOCATION_DEVICE, 0 },
		.flags = WEFT_CU_ACCESS_READWRITE,
	};
	int r = cu->device_get(&access.location.id, ordinal);

	return r ? r : cu->mem_access(m->dev, m->size, &access, 1);
}

/* Remember the answer: a driver call per copy would be too slow. */
static int reach_parts(struct nvl_mapping *m, struct weft_engine *engine)
{
	struct weft_cuda_scope s;
	int r;

	if (engine->ordinal >= NVL_ORDINALS ||
	    (m->refused & BIT(engine->ordinal)))
		return -EACCES;
	if (m->access & BIT(engine->ordinal))
		return 0;
	if (weft_cuda_enter_kept(&s, &engine->ctx))
		return -EACCES;
	r = set_access(s.cu, m, engine->ordinal);
	weft_cuda_leave(&s);
	if (r)
		m->refused |= BIT(engine->ordinal);
	else
		m->access |= BIT(engine->ordinal);
	return r ? -EACCES : 0;
}

int nvl_map_reach(struct nvl_mapping *m, struct weft_engine *engine)
{
	switch (m->kind) {
	case NVL_MAP_OWN:
		return 0;
	case NVL_MAP_HANDLE:
		return weft_cuda_is_same_ctx(&m->ctx, &engine->ctx) ? 0
								    : -EACCES;
	case NVL_MAP_PARTS:
		return reach_parts(m, engine);
	default:
		return -EACCES;
	}
}

/* ---- the end ------------------------------------------------------------- */

static void unmap_parts(const struct weft_cuda *cu, struct nvl_mapping *m)
{
	uint64_t at = m->dev;
	unsigned int i;

	/* what was mapped by one call is unmapped by one call */
	for (i = 0; i < m->nparts; at += m->parts[i++])
		cu->mem_unmap(at, m->parts[i]);
	cu->address_free(m->dev, m->size);
}

/* A context that its owner has destroyed took the memory with it. */
void nvl_map_undo(struct nvl_mapping *m)
{
	struct weft_cuda_scope s;

	if (m->kind > NVL_MAP_OWN && !weft_cuda_enter_kept(&s, &m->ctx)) {
		if (m->kind == NVL_MAP_HANDLE)
			s.cu->ipc_close(m->dev);
		else
			unmap_parts(s.cu, m);
		weft_cuda_leave(&s);
	}
	free(m->parts);
	memset(m, 0, sizeof(*m));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory domain.  Registration is the device's; an rkey is its packed key,
 * which the target checks on every access.
 */
#include <stdlib.h>
#include <string.h>
#include "ucx_tl/status.h"
#include "ucx_tl/uct.h"
#include "util/drivers/cuda.h"

enum { /* slots of uct_md_ops_t; 0 to 8 are the same in all releases */
       MD_CLOSE = 0,
       MD_QUERY = 1,
       MD_REG = 5,
       MD_DEREG = 6,
       MD_PACK = 8,
       MD_COUNT = WEFT_UCT_MD_OPS,
};

static void set_u64(char *attr, size_t offset, uint64_t value)
{
	memcpy(attr + offset, &value, sizeof(value));
}

static uint64_t ucs_types(unsigned int kinds)
{
	uint64_t types = 0;

	if (kinds & BIT(WEFT_MEM_HOST))
		types |= BIT(WEFT_UCS_MEMORY_HOST);
	if (kinds & BIT(WEFT_MEM_CUDA))
		types |= BIT(WEFT_UCS_MEMORY_CUDA);
	return types;
}

static enum weft_ucs_status md_query(struct weft_uct_memory_domain *md,
				     char *attr)
{
	const struct weft_uct_abi *abi = md->uct->abi;
	const uint64_t types = ucs_types(md->mem_kinds);
	uint64_t flags = WEFT_UCT_MD_REG | WEFT_UCT_MD_NEED_RKEY |
			 WEFT_UCT_MD_INVALIDATE;

	/*
	 * With error handling enabled, UCP puts only if the target can
	 * invalidate the rkey: INVALIDATE_RMA from 1.15 on, INVALIDATE before.
	 */
	if (abi->minor >= 15)
		flags |= WEFT_UCT_MD_INVALIDATE_RMA;
	if (md->tl->needs_memh)
		flags |= WEFT_UCT_MD_NEED_MEMH;
	if (abi->md_attr.clear)
		memset(attr, 0, abi->md_attr.size);
	set_u64(attr, abi->md_attr.max_reg, SIZE_MAX);
	set_u64(attr, abi->md_attr.flags, flags);
	set_u64(attr, abi->md_attr.reg_mem_types, types);
	set_u64(attr, abi->md_attr.access_mem_types, types);
	/*
	 * UCP keeps rendezvous registrations in its rcache, unless
	 * UCX_RCACHE_ENABLE=n, and asserts that the MD declares the memory
	 * types cacheable (ucp/dt/datatype_iter.inl).
	 */
	if (abi->md_attr.cache_mem_types)
		set_u64(attr, abi->md_attr.cache_mem_types, types);
	set_u64(attr, abi->md_attr.rkey_size, md->tl->dev->rkey_len);
	memset(attr + abi->md_attr.local_cpus, 0xff, WEFT_UCS_CPU_SET_SIZE);
	if (abi->md_attr.reg_alignment)
		set_u64(attr, abi->md_attr.reg_alignment, 1);
	return WEFT_UCS_OK;
}

static void md_close(struct weft_uct_memory_domain *md)
{
	free(md);
}

/*
 * UCX does not pass the kind of memory.  If the program has no GPU it is the
 * host's.
 */
static int find_kind(const struct weft_uct_memory_domain *md, const void *addr,
		     enum weft_mem_kind *kind)
{
	struct weft_cuda_ptr where;
	int err;

	*kind = md->mem_kinds & BIT(WEFT_MEM_HOST) ? WEFT_MEM_HOST
						   : WEFT_MEM_CUDA;
	if (!(md->mem_kinds & BIT(WEFT_MEM_CUDA)) || *kind == WEFT_MEM_CUDA ||
	    (!weft_cuda() && weft_cuda_program_gpus() <= 0))
		return 0;
	err = weft_cuda_init();
	if (!err)
		err = weft_cuda_query(addr, &where);
	if (!err && where.where == WEFT_CUDA_DEVICE && !where.managed)
		*kind = WEFT_MEM_CUDA;
	return err;
}

/* The 4th argument: flags in 1.13, a pointer to parameters from 1.14 on. */
static enum weft_ucs_status mem_reg(struct weft_uct_memory_domain *md,
				    void *addr, size_t len, uintptr_t params,
				    void **memh)
{
	enum weft_mem_kind kind;
	struct weft_mem *mem;
	int err;

	err = find_kind(md, addr, &kind);
	if (!err)
		err = md->tl->dev->mem_register(addr, len, kind, &mem);
	if (err)
		return weft_ucs_status(err);
	*memh = mem;
	return WEFT_UCS_OK;
}

/*
 * mem_release() guarantees that no remote access follows, so an invalidation
 * completes at once.  Without UCT_MD_MEM_DEREG_FLAG_INVALIDATE do not call the
 * completion: UCX >= 1.16 passes one that asserts.
 */
static enum weft_ucs_status mem_dereg(struct weft_uct_memory_domain *md,
				      const struct weft_uct_dereg_params *p)
{
	const uint64_t needed =
		WEFT_UCT_DEREG_HAS_FLAGS | WEFT_UCT_DEREG_HAS_COMP;

	if (!(p->field_mask & WEFT_UCT_DEREG_HAS_MEMH))
		return WEFT_UCS_INVALID_PARAM;
	md->tl->dev->mem_release(p->memh);
	if ((p->field_mask & needed) == needed && p->comp &&
	    (p->flags & WEFT_UCT_DEREG_INVALIDATE) && --p->comp->count == 0)
		p->comp->func(p->comp);
	return WEFT_UCS_OK;
}

static enum weft_ucs_status pack_key(struct weft_uct_memory_domain *md,
				     struct weft_mem *mem, void *buffer)
{
	md->tl->dev->mem_pack(mem, buffer);
	return WEFT_UCS_OK;
}

static enum weft_ucs_status mkey_pack_13(struct weft_uct_memory_domain *md,
					 void *memh, const void *params,
					 void *buffer)
{
	return pack_key(md, memh, buffer);
}

static enum weft_ucs_status mkey_pack_16(struct weft_uct_memory_domain *md,
					 void *memh, void *addr, size_t len,
					 const void *params, void *buffer)
{
	return pack_key(md, memh, buffer);
}

static size_t rkey_len(void *component)
{
	return weft_uct_tl_of(component)->tl->dev->rkey_len;
}

/* UCX owns @buffer and does not pass its length: keep a copy of the rkey. */
static enum weft_ucs_status unpack_key(void *component, const void *buffer,
				       uintptr_t *rkey, void **handle)
{
	const struct weft_dev_ops *dev = weft_uct_tl_of(component)->tl->dev;
	void *key;

	/* not an error: UCP uses another transport for that memory */
	if (dev->mem_reaches && dev->mem_reaches(buffer))
		return WEFT_UCS_UNREACHABLE;
	key = malloc(dev->rkey_len);
	if (!key)
		return WEFT_UCS_NO_MEMORY;
	memcpy(key, buffer, dev->rkey_len);
	*rkey = (uintptr_t)key;
	*handle = NULL;
	return WEFT_UCS_OK;
}

static enum weft_ucs_status rkey_unpack_13(void *component, const void *buffer,
					   uintptr_t *rkey, void **handle)
{
	return unpack_key(component, buffer, rkey, handle);
}

static enum weft_ucs_status rkey_unpack_19(void *component, const void *buffer,
					   const void *params, uintptr_t *rkey,
					   void **handle)
{
	return unpack_key(component, buffer, rkey, handle);
}

weft_uct_fn weft_uct_rkey_unpack(const struct weft_uct *uct)
{
	return uct->abi->rkey_unpack_params ? (weft_uct_fn)rkey_unpack_19
					    : (weft_uct_fn)rkey_unpack_13;
}

enum weft_ucs_status weft_uct_rkey_release(void *component, uintptr_t rkey,
					   void *handle)
{
	free((void *)rkey);
	return WEFT_UCS_OK;
}

enum weft_ucs_status weft_uct_rkey_compare(void *component, uintptr_t a,
					   uintptr_t b, const void *params,
					   int *result)
{
	*result = memcmp((const void *)a, (const void *)b, rkey_len(component));
	return WEFT_UCS_OK;
}

enum weft_ucs_status weft_uct_md_open(void *component, const char *name,
				      const void *config, void **out)
{
	struct weft_uct_memory_domain *md = calloc(1, sizeof(*md));
	const struct weft_uct_part *part = weft_uct_tl_of(component);

	if (!md)
		return WEFT_UCS_NO_MEMORY;
	md->uct = part->uct;
	md->tl = part->tl;
	md->mem_kinds = md->tl->mem_kinds;
	if (md->tl->may_use_gpus && !md->tl->may_use_gpus(md->uct))
		md->mem_kinds &= ~BIT(WEFT_MEM_CUDA);
	md->base.ops = md->uct->md_ops;
	md->base.component = component;
	*out = md;
	return WEFT_UCS_OK;
}

/* Slots that weft does not implement return UCS_ERR_UNSUPPORTED. */
void weft_uct_md_ops(struct weft_uct *uct)
{
	for (size_t i = 0; i < MD_COUNT; i++)
		uct->md_ops[i] = (weft_uct_fn)weft_uct_unsupported;
	/* is_sockaddr_accessible() returns a boolean: 0 is "no" */
	if (uct->abi->minor < 14)
		uct->md_ops[9] = (weft_uct_fn)weft_uct_ok;
	else if (uct->abi->minor < 16)
		uct->md_ops[10] = (weft_uct_fn)weft_uct_ok;
	uct->md_ops[MD_CLOSE] = (weft_uct_fn)md_close;
	uct->md_ops[MD_QUERY] = (weft_uct_fn)md_query;
	uct->md_ops[MD_REG] = (weft_uct_fn)mem_reg;
	uct->md_ops[MD_DEREG] = (weft_uct_fn)mem_dereg;
	uct->md_ops[MD_PACK] = uct->abi->mkey_pack_address
				       ? (weft_uct_fn)mkey_pack_16
				       : (weft_uct_fn)mkey_pack_13;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the memory domain reports to UCX, in the layout of each minor. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "tests/unit/ucx_tl/fake.h"
#include "ucx_tl/uct.h"

#define POISON 0xa5
#define QUERY  1 /* uct_md_ops_t, its 2nd in every minor */

TestSuite(md, .timeout = 5);

static uint64_t at(const char *attr, size_t offset)
{
	uint64_t v;

	memcpy(&v, attr + offset, sizeof(v));
	return v;
}

static void query(const struct weft_uct_abi *abi, const struct weft_uct_tl *tl,
		  char *attr)
{
	struct weft_uct uct = { .abi = abi };
	struct weft_uct_memory_domain md = {
		.uct = &uct,
		.tl = tl,
		.mem_kinds = tl->mem_kinds,
	};

	weft_uct_md_ops(&uct);
	cr_assert_eq(((enum weft_ucs_status(*)(
			     void *, char *))uct.md_ops[QUERY])(&md, attr),
		     WEFT_UCS_OK);
}

static void check_one(const struct weft_uct_abi *abi,
		      const struct weft_uct_tl *tl)
{
	const uint64_t types =
		(tl->mem_kinds & BIT(WEFT_MEM_HOST) ? BIT(WEFT_UCS_MEMORY_HOST)
						    : 0) |
		(tl->mem_kinds & BIT(WEFT_MEM_CUDA) ? BIT(WEFT_UCS_MEMORY_CUDA)
						    : 0);
	const size_t cache = abi->md_attr.cache_mem_types;
	char attr[1024];

	/* UCX zeroes it from 1.14 on */
	memset(attr, POISON, sizeof(attr));
	if (!abi->md_attr.clear)
		memset(attr, 0, abi->md_attr.size);
	query(abi, tl, attr);
	for (size_t i = abi->md_attr.size; i < sizeof(attr); i++)
		cr_assert_eq((unsigned char)attr[i], POISON,
			     "%s, 1.%u: wrote at %zu", tl->name, abi->minor, i);
	cr_expect_eq(at(attr, abi->md_attr.max_reg), UINT64_MAX);
	cr_expect_eq(at(attr, abi->md_attr.reg_mem_types), types);
	cr_expect_eq(at(attr, abi->md_attr.access_mem_types), types);
	cr_expect_eq(at(attr, abi->md_attr.rkey_size), tl->dev->rkey_len);
	if (cache)
		cr_expect_eq(at(attr, cache), types, "%s, 1.%u", tl->name,
			     abi->minor);
	cr_expect_eq((at(attr, abi->md_attr.flags) & WEFT_UCT_MD_NEED_MEMH) !=
			     0,
		     !strcmp(tl->name, "weft_ib"), "%s", tl->name);
	/* max_alloc comes before max_reg: nothing can be allocated here */
	cr_expect_eq(at(attr, abi->md_attr.max_reg - 8), 0, "%s, 1.%u",
		     tl->name, abi->minor);
}

Test(md, attributes_are_equal_in_every_minor)
{
	for (size_t i = 0; i < WEFT_UCT_TLS; i++)
		for (unsigned int m = weft_uct_tls[i].minor_min;
		     m <= WEFT_UCX_MINOR_MAX; m++)
			check_one(weft_uct_abi_find(m), &weft_uct_tls[i]);
}

static bool never(const struct weft_uct *uct)
{
	return false;
}

/* With error handling UCX asks for keys that can be revoked. */
Test(md, keys_can_be_revoked)
{
	char attr[1024] = { 0 };

	query(weft_uct_abi_find(14), &weft_uct_tls[0], attr);
	cr_expect_eq(at(attr, weft_uct_abi_find(14)->md_attr.flags),
		     WEFT_UCT_MD_REG | WEFT_UCT_MD_NEED_RKEY |
			     WEFT_UCT_MD_INVALIDATE);
	memset(attr, 0, sizeof(attr));
	query(weft_uct_abi_find(15), &weft_uct_tls[0], attr);
	cr_expect_eq(at(attr, weft_uct_abi_find(15)->md_attr.flags),
		     WEFT_UCT_MD_REG | WEFT_UCT_MD_NEED_RKEY |
			     WEFT_UCT_MD_INVALIDATE |
			     WEFT_UCT_MD_INVALIDATE_RMA);
}

/* Where there is no GPU, or no cuda_copy, UCP must not know of its memory. */
Test(md, gpu_memory_is_offered_where_there_may_be_some)
{
	struct weft_uct uct = { .abi = weft_uct_abi_find(WEFT_UCX_MINOR_MAX) };
	struct weft_uct_part part = { .uct = &uct };
	struct weft_uct_tl tl = {
		.mem_kinds = BIT(WEFT_MEM_HOST) | BIT(WEFT_MEM_CUDA),
		.may_use_gpus = never,
	};
	struct weft_uct_memory_domain *md;

	part.tl = &tl;
	cr_assert_eq(weft_uct_md_open(part.component, "", NULL, (void **)&md),
		     WEFT_UCS_OK);
	cr_expect_eq(md->mem_kinds, BIT(WEFT_MEM_HOST));
	free(md);
	tl.may_use_gpus = NULL;
	cr_assert_eq(weft_uct_md_open(part.component, "", NULL, (void **)&md),
		     WEFT_UCS_OK);
	cr_expect_eq(md->mem_kinds, tl.mem_kinds);
	free(md);
}

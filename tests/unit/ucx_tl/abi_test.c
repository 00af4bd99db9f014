/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <string.h>
#include "ucx_tl/abi.h"
#include "util/util.h"

TestSuite(abi, .timeout = 5);

Test(abi, one_row_per_minor)
{
	for (unsigned int m = WEFT_UCX_MINOR_MIN; m <= WEFT_UCX_MINOR_MAX;
	     m++) {
		const struct weft_uct_abi *abi = weft_uct_abi_find(m);

		cr_assert_not_null(abi, "1.%u", m);
		cr_expect_eq(abi->minor, m);
	}
	cr_expect_null(weft_uct_abi_find(WEFT_UCX_MINOR_MIN - 1));
	cr_expect_null(weft_uct_abi_find(WEFT_UCX_MINOR_MAX + 1));
}

/* What weft writes must lie inside what UCX gave. */
Test(abi, offsets_are_inside)
{
	for (unsigned int m = WEFT_UCX_MINOR_MIN; m <= WEFT_UCX_MINOR_MAX;
	     m++) {
		const struct weft_uct_abi *abi = weft_uct_abi_find(m);
		size_t component = 16 + 6 * 8 + 8 * abi->rkey_compare +
				   2 * abi->config_entry + 2 * 16 + 8 + 8;

		cr_expect_leq(abi->component_size, WEFT_UCT_COMPONENT_MAX);
		cr_expect_eq(component, abi->component_size, "1.%u", m);
		cr_expect_eq(32 + abi->config_entry + 16, abi->tl_size, "1.%u",
			     m);
		cr_expect_leq(abi->tl_size, WEFT_UCT_TL_MAX);
		cr_expect_leq(abi->md_attr.local_cpus + WEFT_UCS_CPU_SET_SIZE,
			      abi->md_attr.size, "1.%u", m);
		cr_expect_leq(abi->md_attr.reg_alignment + 8, abi->md_attr.size,
			      "1.%u", m);
		cr_expect_eq(abi->md_attr.reg_mem_types, abi->md_attr.flags + 8,
			     "1.%u", m);
		cr_expect_geq(abi->md_attr.rkey_size,
			      abi->md_attr.reg_cost + 32, "1.%u", m);
	}
}

static const char *const *symbols; /* of the libuct in question */

static void *find(void *arg, const char *name)
{
	for (size_t i = 0; symbols[i]; i++)
		if (!strcmp(symbols[i], name))
			return (void *)symbols[i];
	return NULL;
}

/* As seen in Debian's 1.13.1 and in the wheels. */
Test(abi, fingerprints)
{
	static const char *const v13[] = { "uct_md_query", NULL };
	static const char *const v15[] = { "uct_base_iface_is_reachable_v2",
					   "uct_md_query_v2", NULL };
	static const char *const v20[] = { "uct_iface_mem_element_pack",
					   "uct_rkey_unpack_v2",
					   "uct_iface_fill_info_str_buf",
					   "uct_md_base_md_query",
					   "uct_rkey_compare",
					   "uct_md_query_v2",
					   NULL };
	/* each has what the one before it has, and more */
	static const char *const v23[] = { "uct_ep_outstanding_purge",
					   "uct_md_mem_query_v2",
					   "uct_md_mem_elem_pack",
					   "uct_rkey_unpack_v2",
					   "uct_iface_fill_info_str_buf",
					   "uct_md_base_md_query",
					   "uct_rkey_compare",
					   "uct_md_query_v2",
					   NULL };
	static const struct {
		const char *const *symbols;
		unsigned int minor;
	} seen[] = {
		{ v13, 13 },	 { v23 + 7, 14 }, { v15, 15 },
		{ v23 + 6, 16 }, { v23 + 4, 18 }, { v20, 20 },
		{ v23 + 2, 21 }, { v23 + 1, 22 }, { v23, 23 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(seen); i++) {
		symbols = seen[i].symbols;
		cr_expect_eq(weft_uct_abi_fingerprint(find, NULL),
			     seen[i].minor, "1.%u", seen[i].minor);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "ucx_tl/abi.h"
#include "util/util.h"

/* Tables, a row per release: */
/* clang-format off */
/*
 * uct_md_attr_t up to 1.13, uct_md_attr_v2_t after; max_reg to reg_alignment.
 * 1.15 put reg_nonblock_mem_types in the middle, 1.18 gva_mem_types.
 */
#define MD_ATTR_13 { 224, true, 8, 16, 24, 0, 48, 56, 88, 96, 0 }
#define MD_ATTR_14 { 512, false, 16, 24, 32, 40, 64, 80, 112, 120, 0 }
#define MD_ATTR_15 { 520, false, 16, 24, 32, 48, 72, 88, 120, 128, 0 }
#define MD_ATTR_16 { 528, false, 16, 24, 32, 48, 72, 88, 120, 128, 520 }
#define MD_ATTR_18 { 536, false, 16, 24, 32, 48, 80, 96, 128, 136, 528 }
#define MD_ATTR_22 { 544, false, 16, 24, 32, 48, 80, 96, 128, 136, 528 }

/* uct_perf_attr_t: 1.19 put path_bandwidth in the place of the latency. */
#define PERF_13 { 0 }
#define PERF_19 { 64 }

static const struct weft_uct_abi rows[] = {
	{ 13, 48, false, false, false, WEFT_INTERNAL_PLAIN,
	  MD_ATTR_13, PERF_13, 208, 96 },
	{ 14, 48, false, false, false, WEFT_INTERNAL_PLAIN,
	  MD_ATTR_14, PERF_13, 208, 96 },
	{ 15, 56, false, false, false, WEFT_INTERNAL_PLAIN,
	  MD_ATTR_15, PERF_13, 224, 104 },
	{ 16, 56, true, true, false, WEFT_INTERNAL_PLAIN,
	  MD_ATTR_16, PERF_13, 232, 104 },
	{ 17, 56, true, true, false, WEFT_INTERNAL_PLAIN,
	  MD_ATTR_16, PERF_13, 232, 104 },
	{ 18, 56, true, true, false, WEFT_INTERNAL_PLAIN,
	  MD_ATTR_18, PERF_13, 232, 104 },
	{ 19, 56, true, true, true, WEFT_INTERNAL_PLAIN,
	  MD_ATTR_18, PERF_19, 232, 104 },
	{ 20, 56, true, true, true, WEFT_INTERNAL_20,
	  MD_ATTR_18, PERF_19, 232, 104 },
	{ 21, 56, true, true, true, WEFT_INTERNAL_PLAIN,
	  MD_ATTR_18, PERF_19, 232, 104 },
	{ 22, 56, true, true, true, WEFT_INTERNAL_22,
	  MD_ATTR_22, PERF_19, 232, 104 },
	{ 23, 56, true, true, true, WEFT_INTERNAL_22,
	  MD_ATTR_22, PERF_19, 232, 104 },
};
/* clang-format on */

/*
 * Newest first: each symbol has existed since this minor, except those of 1.20
 * and 1.15, which only that release exports.
 */
static const struct {
	const char *symbol;
	unsigned int minor;
} marks[] = {
	{ "uct_ep_outstanding_purge", 23 },
	{ "uct_md_mem_query_v2", 22 },
	{ "uct_md_mem_elem_pack", 21 },
	{ "uct_iface_mem_element_pack", 20 },
	{ "uct_rkey_unpack_v2", 19 },
	{ "uct_iface_fill_info_str_buf", 18 },
	{ "uct_md_base_md_query", 17 },
	{ "uct_rkey_compare", 16 },
	{ "uct_base_iface_is_reachable_v2", 15 },
	{ "uct_md_query_v2", 14 },
};

const struct weft_uct_abi *weft_uct_abi_find(unsigned int minor)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].minor == minor)
			return &rows[i];
	return NULL;
}

unsigned int
weft_uct_abi_fingerprint(void *(*find)(void *arg, const char *name), void *arg)
{
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (find(arg, marks[i].symbol))
			return marks[i].minor;
	return WEFT_UCX_MINOR_MIN;
}

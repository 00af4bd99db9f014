/* SPDX-License-Identifier: BSD-3-Clause */
/* What is asked of verbs devices without one: lists, and who meets whom. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/address.h"
#include "host/netdevs.h"
#include "host/verbs.h"
#include "settings/settings.h"
#include "util/util.h"

static const struct {
	const char *list;
	enum weft_verbs_form form;
	const char *dev;
	unsigned int port;
	bool match;
} matches[] = {
	{ "all", WEFT_VERBS_LIST, "mlx5_0", 1, true },
	{ "", WEFT_VERBS_NCCL, "mlx5_0", 1, true },
	{ "mlx5_1", WEFT_VERBS_LIST, "mlx5_1", 2, true },
	{ "mlx5_1", WEFT_VERBS_LIST, "mlx5_10", 1, false },
	{ "mlx5_0,mlx5_1:2", WEFT_VERBS_LIST, "mlx5_1", 2, true },
	{ "mlx5_0,mlx5_1:2", WEFT_VERBS_LIST, "mlx5_1", 1, false },
	{ "mlx5_0,,mlx5_1", WEFT_VERBS_LIST, "mlx5_1", 1, true },
	{ "^mlx5_0", WEFT_VERBS_LIST, "mlx5_0", 1, false },
	{ "^mlx5_0", WEFT_VERBS_LIST, "mlx5_1", 1, true },
	{ "mlx5_1", WEFT_VERBS_NCCL, "mlx5_10", 1, true },
	{ "mlx5", WEFT_VERBS_NCCL, "mlx5_3", 1, true },
	{ "mlx5", WEFT_VERBS_NCCL, "hfi1_0", 1, false },
	{ "=mlx5_1", WEFT_VERBS_NCCL, "mlx5_10", 1, false },
	{ "=mlx5_1:2", WEFT_VERBS_NCCL, "mlx5_1", 2, true },
	{ "=mlx5_1:2", WEFT_VERBS_NCCL, "mlx5_1", 1, false },
	{ "^=mlx5_1:2", WEFT_VERBS_NCCL, "mlx5_1", 1, true },
	{ "^mlx5_1,mlx5_2", WEFT_VERBS_NCCL, "mlx5_2", 1, false },
	{ "mlx5_0:x", WEFT_VERBS_LIST, "mlx5_0", 1, false },
	{ "mlx5_0:99999999999", WEFT_VERBS_LIST, "mlx5_0", 1, false },
	{ "mlx5_[0-3]:1", WEFT_VERBS_LIST, "mlx5_0", 1, true },
	{ "mlx5_[0-3]:1", WEFT_VERBS_LIST, "mlx5_3", 1, true },
	{ "mlx5_[0-3]:1", WEFT_VERBS_LIST, "mlx5_3", 2, false },
	{ "mlx5_[0-3]:1", WEFT_VERBS_LIST, "mlx5_4", 1, false },
	{ "mlx5_[0-3]", WEFT_VERBS_LIST, "mlx5_30", 1, false },
	{ "eth0,mlx5_[8-12]", WEFT_VERBS_LIST, "mlx5_10", 2, true },
	{ "mlx5_0:[1-2]", WEFT_VERBS_LIST, "mlx5_0", 2, true },
	{ "^mlx5_[0-3]", WEFT_VERBS_LIST, "mlx5_2", 1, false },
	{ "^mlx5_[0-3]", WEFT_VERBS_LIST, "mlx5_4", 1, true },
};

Test(verbs_lists, lists_match_as_ucx_and_nccl_match_them)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(matches); i++)
		cr_expect(weft_verbs_match(matches[i].list, matches[i].form,
					   matches[i].dev,
					   matches[i].port) == matches[i].match,
			  "'%s' and '%s:%u'", matches[i].list, matches[i].dev,
			  matches[i].port);
}

static const struct {
	const char *name, *value;
	bool allowed;
} allowed[] = {
	{ "UCX_NET_DEVICES", "mlx5_0:1", true },
	{ "UCX_NET_DEVICES", "mlx5_0:2", false },
	{ "UCX_NET_DEVICES", "eth0,mlx5_0", true },
	{ "UCX_NET_DEVICES", "eth0", false },
	{ "UCX_NET_DEVICES", "ib0", true },
	{ "UCX_NET_DEVICES", "^ib0", false },
	{ "UCX_NET_DEVICES", "^mlx5_0:1", false },
	{ "UCX_NET_DEVICES", "^eth0", true },
	{ "UCX_NET_DEVICES", "all", true },
	{ "UCX_NET_DEVICES", "auto", true },
	{ "UCX_NET_DEVICES", "ib[0-1]", true },
	{ "UCX_NET_DEVICES", "mlx5_[1-3]:1", false },
	{ "DASK_UCX__NET_DEVICES", "auto", true },
	{ "NCCL_SOCKET_IFNAME", "eth0", true },
	{ "UCXPY_IFNAME", "eth0", true },
	{ "NCCL_IB_HCA", "mlx5", true },
	{ "NCCL_IB_HCA", "=mlx5", false },
	{ "WEFT_IB_DEVICES", "mlx5", false },
	{ "WEFT_IB_DEVICES", "mlx5_0", true },
};

Test(verbs_lists, settings_restrict_ports)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(allowed); i++) {
		clearenv();
		setenv(allowed[i].name, allowed[i].value, 1);
		weft_settings_reset();
		cr_expect(weft_netdevs_verbs_allowed("mlx5_0", 1, "ib0") ==
				  allowed[i].allowed,
			  "%s=%s", allowed[i].name, allowed[i].value);
	}
}

static uint8_t fabric(bool roce, uint64_t prefix, bool ipv4)
{
	const struct weft_verbs_port p = { .roce = roce };
	uint8_t g[16] = { 0 };
	unsigned int i;

	for (i = 0; i < 8 && !ipv4; i++)
		g[i] = (uint8_t)(prefix >> (56 - 8 * i));
	g[10] = g[11] = ipv4 ? 0xff : 0x12;
	g[15] = 9;
	return weft_verbs_fabric(&p, g);
}

/* The text has the word where they cannot meet; NULL: they may. */
static void expect_meeting(uint8_t ours, uint8_t theirs, const char *word)
{
	const char *why = NULL;

	cr_expect(eq(int, weft_verbs_reachable(ours, theirs, &why), !word));
	cr_expect(eq(int, weft_verbs_reachable(theirs, ours, NULL), !word));
	cr_expect(eq(int, word ? why &&strstr(why, word) : !why, 1), "%s",
		  why ? why : "nothing was logged");
}

Test(verbs_lists, fabrics_that_cannot_reach_each_other)
{
	const uint64_t usual = 0xfe80000000000000;
	const uint8_t v4 = fabric(true, 0, true);
	const uint8_t v6 = fabric(true, usual, false);
	const uint8_t ib = fabric(false, usual, false);
	unsigned int i;

	/* another address of the same kind may be on the same network */
	cr_expect(eq(u8, fabric(true, 0x20010db800000000, false), v6));
	expect_meeting(v4, v4, NULL);
	expect_meeting(v6, v6, NULL);
	expect_meeting(ib, ib, NULL);
	expect_meeting(v4, v6, "IPv6");
	expect_meeting(v4, ib, "RoCE");
	expect_meeting(v6, ib, "RoCE");
	/* numbers that people give */
	for (i = 1; i < 61; i++)
		expect_meeting(ib, fabric(false, usual + i, false), "subnet");
	/* what UCX made of a socket address tells nothing */
	cr_expect(eq(int, weft_verbs_reachable(v4, 0, NULL), 1));
	/* and UCX's own flag is none of these */
	cr_expect(ne(int, v4 &v6 &ib &WEFT_FABRIC, 0));
}

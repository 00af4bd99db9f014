/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/pci.h"
#include "bootstrap/settings_table.h"
#include "util/util.h"

static const struct {
	const char *list;
	enum weft_netdev_form form;
	const char *name;
	bool match;
} cases[] = {
	{ "all", WEFT_NETDEV_LIST, "eth0", true },
	{ "", WEFT_NETDEV_LIST, "eth0", true },
	{ "eth0", WEFT_NETDEV_LIST, "eth0", true },
	{ "eth0", WEFT_NETDEV_LIST, "eth", false },
	{ "eth0", WEFT_NETDEV_LIST, "eth01", false },
	{ "eth0", WEFT_NETDEV_LIST, "lo", false },
	{ "ib0,eth0", WEFT_NETDEV_LIST, "eth0", true },
	{ "ib0,,eth0,", WEFT_NETDEV_LIST, "eth0", true },
	{ "ib0,eth1", WEFT_NETDEV_LIST, "eth0", false },
	{ "eth0:1", WEFT_NETDEV_LIST, "eth0", true },
	{ "^docker0,virbr0", WEFT_NETDEV_LIST, "eth0", true },
	{ "^docker0,virbr0", WEFT_NETDEV_LIST, "virbr0", false },
	{ "^docker0", WEFT_NETDEV_LIST, "lo", true },
	{ "^lo", WEFT_NETDEV_LIST, "lo", false },
	{ "eth[0-3]", WEFT_NETDEV_LIST, "eth2", true },
	{ "eth[0-3]", WEFT_NETDEV_LIST, "ib0", false },

	{ "eth0", WEFT_NETDEV_HINT, "eth0", true },
	{ "eth0", WEFT_NETDEV_HINT, "eth1", false },
	{ "eth0", WEFT_NETDEV_HINT, "lo", true },

	{ "eth", WEFT_NETDEV_NCCL, "eth0", true },
	{ "eth", WEFT_NETDEV_NCCL, "eth17", true },
	{ "eth", WEFT_NETDEV_NCCL, "ens3", false },
	{ "eth,ens", WEFT_NETDEV_NCCL, "ens3", true },
	{ "eth", WEFT_NETDEV_NCCL, "lo", true },
	{ "=eth0", WEFT_NETDEV_NCCL, "eth0", true },
	{ "=eth0", WEFT_NETDEV_NCCL, "eth01", false },
	{ "=eth1,eth0", WEFT_NETDEV_NCCL, "eth0", true },
	{ "^docker,br-", WEFT_NETDEV_NCCL, "docker0", false },
	{ "^docker,br-", WEFT_NETDEV_NCCL, "br-4ac2", false },
	{ "^docker,br-", WEFT_NETDEV_NCCL, "eth0", true },
	{ "^=eth0", WEFT_NETDEV_NCCL, "eth0", false },
	{ "^=eth0", WEFT_NETDEV_NCCL, "eth01", true },
	{ "^lo", WEFT_NETDEV_NCCL, "lo", false },
};

Test(netdevs, lists_mean_what_their_users_mean)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		cr_expect(weft_netdev_match(cases[i].list, cases[i].form,
					    cases[i].name) == cases[i].match,
			  "'%s' and '%s'", cases[i].list, cases[i].name);
}

Test(netdevs, form_follows_the_origin)
{
	cr_expect(eq(int, weft_netdev_form("environment"), WEFT_NETDEV_LIST));
	cr_expect(
		eq(int, weft_netdev_form("UCX_NET_DEVICES"), WEFT_NETDEV_LIST));
	cr_expect(eq(int, weft_netdev_form("UCXPY_IFNAME"), WEFT_NETDEV_HINT));
	cr_expect(eq(int, weft_netdev_form("NCCL_SOCKET_IFNAME"),
		     WEFT_NETDEV_NCCL));
}

Test(netdevs, verbs_device_stands_for_its_interface)
{
	char root[] = "/tmp/weft-sysfs-XXXXXX", command[256];

	cr_assert(ne(ptr, mkdtemp(root), NULL));
	snprintf(command, sizeof(command),
		 "cd %s && mkdir -p class/infiniband/mlx5_0/device/net/ib0 "
		 "class/infiniband/mlx5_1/device/net/ib1 "
		 "class/infiniband/rxe0 && echo eth0 >class/infiniband/rxe0/parent",
		 root);
	cr_assert(zero(int, system(command)));
	weft_sysfs_root = root;
	cr_expect(weft_netdev_match("mlx5_0:1", WEFT_NETDEV_LIST, "ib0"));
	cr_expect(weft_netdev_match("mlx5_0", WEFT_NETDEV_LIST, "ib0"));
	cr_expect(not(weft_netdev_match("mlx5_0:1", WEFT_NETDEV_LIST, "ib1")));
	cr_expect(weft_netdev_match("mlx5_0:1,mlx5_1:1", WEFT_NETDEV_LIST,
				    "ib1"));
	cr_expect(weft_netdev_match("rxe0:1", WEFT_NETDEV_LIST, "eth0"));
	cr_expect(not(weft_netdev_match("rxe0:1", WEFT_NETDEV_LIST, "eth")));
	cr_expect(not(weft_netdev_match("rxe0:1", WEFT_NETDEV_LIST, "")));
	cr_expect(not(weft_netdev_match("^mlx5_0:1", WEFT_NETDEV_LIST, "ib0")));
	cr_expect(not(weft_netdev_of_verbs("mlx5_0/../mlx5_1", "ib1")));
	cr_expect(not(weft_netdev_of_verbs("..", "ib1")));
	cr_expect(not(weft_netdev_of_verbs(":1", "ib1")));
	snprintf(command, sizeof(command), "rm -r %s", root);
	cr_assert(zero(int, system(command)));
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/netdevs.h"
#include "host/pci.h"
#include "settings/table.h"
#include "tests/lib/caught.h"
#include "tests/lib/folder.h"
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
	{ "eth[0-3]", WEFT_NETDEV_LIST, "eth4", false },
	{ "eth[0-3]", WEFT_NETDEV_LIST, "eth", false },
	{ "ib0,ens[8-10]f1", WEFT_NETDEV_LIST, "ens10f1", true },
	{ "ib0,ens[8-10]f1", WEFT_NETDEV_LIST, "ens10f0", false },
	{ "^eth[0-3]", WEFT_NETDEV_LIST, "eth3", false },
	{ "^eth[0-3]", WEFT_NETDEV_LIST, "eth4", true },
	{ "auto", WEFT_NETDEV_LIST, "eth0", true },
	{ "auto", WEFT_NETDEV_LIST, "lo", true },
	{ "auto,eth1", WEFT_NETDEV_LIST, "eth0", false },

	{ "eth0", WEFT_NETDEV_HINT, "eth0", true },
	{ "eth0", WEFT_NETDEV_HINT, "eth1", false },
	{ "eth0", WEFT_NETDEV_HINT, "lo", true },
	{ "auto", WEFT_NETDEV_HINT, "eth0", false },

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
	{ "auto", WEFT_NETDEV_NCCL, "eth0", false },
};

Test(netdevs, lists_match_as_ucx_and_nccl_match_them)
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

/*
 * mlx5_0 and mlx5_1 with IPoIB, mlx5_2 two ports of a RoCE bond (the PCI device
 * has its members), rxe0 a software device.
 */
static void begin(void)
{
	folder_begin();
	weft_sysfs_root = folder;
	shell("mkdir class && cd class && mkdir infiniband && cd infiniband && "
	      "mkdir -p mlx5_0/device/net/ib0 mlx5_1/device/net/ib1 "
	      "mlx5_2/device/net/ens1f0 mlx5_2/device/net/ens1f1 rxe0 && "
	      "for d in mlx5_0 mlx5_1 mlx5_2 rxe0; do "
	      "mkdir -p $d/ports/1/gid_attrs/ndevs; "
	      "echo '4: ACTIVE' >$d/ports/1/state; done; "
	      "echo bond0 >mlx5_2/ports/1/gid_attrs/ndevs/0; "
	      "echo eth0 >rxe0/parent");
}

Test(netdevs, verbs_device_stands_for_its_interface, .init = begin,
     .fini = folder_end)
{
	cr_expect(weft_netdev_match("mlx5_0:1", WEFT_NETDEV_LIST, "ib0"));
	cr_expect(weft_netdev_match("mlx5_0", WEFT_NETDEV_LIST, "ib0"));
	cr_expect(not(weft_netdev_match("mlx5_0:1", WEFT_NETDEV_LIST, "ib1")));
	cr_expect(weft_netdev_match("mlx5_0:1,mlx5_1:1", WEFT_NETDEV_LIST,
				    "ib1"));
	cr_expect(weft_netdev_match("mlx5_[0-1]:1", WEFT_NETDEV_LIST, "ib1"));
	cr_expect(not(
		weft_netdev_match("mlx5_[1-2]:1", WEFT_NETDEV_LIST, "ib0")));
	cr_expect(weft_netdev_match("mlx5_2:1", WEFT_NETDEV_LIST, "bond0"));
	cr_expect(weft_netdev_match("mlx5_2", WEFT_NETDEV_LIST, "bond0"));
	cr_expect(
		not(weft_netdev_match("mlx5_2:2", WEFT_NETDEV_LIST, "bond0")));
	cr_expect(
		not(weft_netdev_match("mlx5_1:1", WEFT_NETDEV_LIST, "bond0")));
	cr_expect(weft_netdev_match("rxe0:1", WEFT_NETDEV_LIST, "eth0"));
	cr_expect(not(weft_netdev_match("rxe0:1", WEFT_NETDEV_LIST, "eth")));
	cr_expect(not(weft_netdev_match("rxe0:1", WEFT_NETDEV_LIST, "")));
	cr_expect(not(weft_netdev_match("^mlx5_0:1", WEFT_NETDEV_LIST, "ib0")));
	cr_expect(not(weft_netdev_of_verbs("mlx5_0/../mlx5_1", "ib1")));
	cr_expect(not(weft_netdev_of_verbs("..", "ib1")));
	cr_expect(not(weft_netdev_of_verbs(":1", "ib1")));
	cr_expect(not(weft_netdev_of_verbs("mlx5_2:x", "bond0")));
}

static void check_with(const char *name, const char *value)
{
	setenv(name, value, 1);
	weft_settings_reset();
	weft_netdevs_check();
	if (caught.count)
		cr_expect(eq(int, (int)caught.level, WEFT_LOG_WARN));
}

static void expect_warning(const char *start, const char *advice)
{
	cr_expect(eq(int, caught.count, 1));
	cr_expect(zero(int, strncmp(caught.text, start, strlen(start))), "%s",
		  caught.text);
	expect_caught(advice);
}

static void begin_with(const char *cmdline)
{
	catch_log();
	clearenv();
	setenv("PATH", "/bin:/usr/bin", 1);
	weft_cmdline = cmdline;
}

/* An interface for addresses, and devices that do not have it. */
Test(netdevs, ifname_outside_listed_hcas_warns, .init = begin,
     .fini = folder_end)
{
	begin_with(in("cmdline"));
	/* agreed, not told, or nothing to do with verbs devices */
	check_with("UCXPY_IFNAME", "ib0");
	check_with("UCX_NET_DEVICES", "mlx5_0:1");
	check_with("UCX_NET_DEVICES", "mlx5_1:1,ib0");
	check_with("UCX_NET_DEVICES", "^mlx5_1:1");
	check_with("UCX_NET_DEVICES", "mlx5_[0-3]:1");
	check_with("UCX_NET_DEVICES", "all");
	check_with("UCX_NET_DEVICES", "auto");
	check_with("UCX_NET_DEVICES", "eth1");
	check_with("UCX_NET_DEVICES", "../../infiniband/mlx5_1");
	check_with("UCXPY_IFNAME", "bond0");
	check_with("UCX_NET_DEVICES", "mlx5_2:1");
	unsetenv("UCXPY_IFNAME");
	check_with("UCX_NET_DEVICES", "mlx5_1:1");
	shell("printf 'dask\\0worker\\0--interface\\0ib1\\0' >cmdline");
	check_with("UCX_NET_DEVICES", "mlx5_1:1");
	shell("printf 'dask\\0worker\\0--interface' >cmdline");
	check_with("UCX_NET_DEVICES", "mlx5_1:1");
	cr_expect(zero(int, caught.count), "%s", caught.text);
	/* one line, whatever comes after it */
	check_with("UCXPY_IFNAME", "ib0");
	expect_warning(
		"UCXPY_IFNAME=ib0, of mlx5_0:1, is not in UCX_NET_DEVICES=mlx5_1:1: ",
		"or take ib1");
	check_with("UCXPY_IFNAME", "eth7");
	cr_expect(eq(int, caught.count, 1));
}

/* A range of devices names them, too. */
Test(netdevs, ifname_outside_listed_range_warns, .init = begin,
     .fini = folder_end)
{
	begin_with("/dev/null");
	check_with("UCXPY_IFNAME", "ib0");
	check_with("UCX_NET_DEVICES", "mlx5_[1-2]:1");
	cr_expect(eq(int, caught.count, 1));
}

/* As in Dask's recipe: --interface, and the device in Dask's own variable. */
Test(netdevs, dask_interface_outside_listed_hcas_warns, .init = begin,
     .fini = folder_end)
{
	begin_with(in("cmdline"));
	shell("printf 'dask\\0--interface=eth0\\0--port\\0001' >cmdline");
	check_with("DASK_UCX__NET_DEVICES", "mlx5_2:1");
	expect_warning(
		"--interface eth0, of rxe0:1, is not in DASK_UCX__NET_DEVICES=mlx5_2:1: ",
		"or take bond0");
}

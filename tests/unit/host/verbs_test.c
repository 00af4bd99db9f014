/* SPDX-License-Identifier: BSD-3-Clause */
/* Verbs devices, their GIDs and their distances, on trees of sysfs made up. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "host/verbs.h"
#include "settings/settings.h"
#include "tests/lib/folder.h"
#include "tests/lib/quiet.h"
#include "util/util.h"

static void begin(void)
{
	folder_begin();
	weft_sysfs_root = folder;
	log_quiet();
	clearenv();
	setenv("PATH", "/bin:/usr/bin", 1);
	weft_settings_reset();
	shell("mkdir -p bus/pci/devices class/infiniband devices");
}

/*
 * A PCI device below @parent ("pci0000:16/0000:16:00.0"), on NUMA node @numa.
 */
static void pci(const char *parent, const char *busid, int numa)
{
	shell("mkdir -p devices/%s/%s && echo %d >devices/%s/%s/numa_node && "
	      "ln -s ../../../devices/%s/%s bus/pci/devices/%s",
	      parent, busid, numa, parent, busid, parent, busid, busid);
}

static void gpu(const char *parent, const char *busid, int numa)
{
	pci(parent, busid, numa);
	shell("cd bus/pci/devices/%s && echo 0x10de >vendor && "
	      "echo 0x030200 >class",
	      busid);
}

static void hca(const char *dev, const char *busid, unsigned int port,
		const char *link, const char *state)
{
	shell("d=$(cd -P bus/pci/devices/%s && pwd) && "
	      "mkdir -p $d/infiniband/%s/ports/%u/gids "
	      "$d/infiniband/%s/ports/%u/gid_attrs/types "
	      "$d/infiniband/%s/ports/%u/gid_attrs/ndevs && "
	      "ln -sfn $d $d/infiniband/%s/device && "
	      "ln -sfn $d/infiniband/%s class/infiniband/%s && "
	      "cd $d/infiniband/%s && echo %s >ports/%u/link_layer && "
	      "echo '%s' >ports/%u/state && "
	      "echo '100 Gb/sec (4X EDR)' >ports/%u/rate && "
	      "echo 0002:c903:00a1:b2c3 >node_guid",
	      busid, dev, port, dev, port, dev, port, dev, dev, dev, dev, link,
	      port, state, port, port);
}

static void ib(const char *dev, const char *busid)
{
	hca(dev, busid, 1, "InfiniBand", "4: ACTIVE");
}

static void gid(const char *dev, unsigned int index, const char *value,
		const char *type)
{
	shell("cd class/infiniband/%s/ports/1 && echo %s >gids/%u && "
	      "echo '%s' >gid_attrs/types/%u",
	      dev, value, index, type, index);
}

/* What the @turn-th GPU gets. */
static const char *nearest(const char *gpu, unsigned int turn,
			   enum weft_distance *d)
{
	static struct weft_verbs_port got;
	struct weft_verbs_port *list;
	struct weft_pci at;
	int n = weft_verbs_list(&list), i;

	weft_pci_find_busid(gpu, &at);
	i = weft_verbs_nearest(list, (size_t)n, &at, turn, d);
	cr_assert(ge(int, i, 0));
	got = list[i];
	free(list);
	return got.name;
}

static void expect_near(const char *gpu, unsigned int turn, const char *name,
			enum weft_distance want)
{
	enum weft_distance d;
	const char *got = nearest(gpu, turn, &d);

	cr_expect(zero(int, strcmp(got, name)), "%s got %s, not %s", gpu, got,
		  name);
	cr_expect(eq(int, d, want), "%s: %s, not %s", gpu,
		  weft_distance_name(d), weft_distance_name(want));
}

/* Dask's net-devices=auto in a worker that was given @visible; NULL: all. */
static void expect_auto(const char *visible, const char *names)
{
	struct weft_verbs_port *list;
	char got[256] = "";
	size_t at = 0;
	int i, n;

	clearenv();
	setenv("PATH", "/bin:/usr/bin", 1);
	setenv("WEFT_LIBNVML", "/nosuch", 1);
	setenv("DASK_UCX__NET_DEVICES", "auto", 1);
	if (visible)
		setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	weft_settings_reset();
	n = weft_verbs_list_near(&list);
	for (i = 0; i < n; i++)
		at += (size_t)snprintf(got + at, sizeof(got) - at, "%s%s",
				       i ? " " : "", list[i].name);
	free(list);
	cr_expect(zero(int, strcmp(got, names)), "%s: '%s', not '%s'",
		  visible ? visible : "unset", got, names);
}

Test(verbs, no_device_is_no_error, .init = begin, .fini = folder_end)
{
	struct weft_verbs_port *list, port;

	cr_expect(zero(int, weft_verbs_list(&list)));
	free(list);
	cr_expect(eq(int, weft_verbs_get("mlx5_0:1", &port), -ENODEV));
	cr_expect(eq(int, weft_verbs_of_netdev("eth0", &port), -ENODEV));
	cr_expect(eq(int, weft_verbs_of_netdev("", &port), -ENODEV));
	shell("rmdir class/infiniband");
	cr_expect(zero(int, weft_verbs_list(&list)));
	free(list);
}

Test(verbs, port_attributes_are_read, .init = begin, .fini = folder_end)
{
	struct weft_verbs_port p;

	pci("pci0000:00", "0000:00:02.0", 0);
	hca("mlx5_0", "0000:00:02.0", 1, "InfiniBand", "1: DOWN");
	hca("mlx5_0", "0000:00:02.0", 2, "Ethernet", "4: ACTIVE");
	shell("mkdir -p class/infiniband/mlx5_0/device/net/ens1f0 "
	      "class/infiniband/mlx5_0/device/net/ens1f1 && "
	      "echo 0 >class/infiniband/mlx5_0/device/net/ens1f0/dev_port && "
	      "echo 1 >class/infiniband/mlx5_0/device/net/ens1f1/dev_port");
	cr_expect(eq(int, weft_verbs_get("mlx5_0:1", &p), -ENODEV));
	cr_assert(zero(int, weft_verbs_get("mlx5_0", &p)));
	cr_expect(eq(str, (char *)p.name, (char *)"mlx5_0:2"));
	cr_expect(p.roce);
	cr_expect(eq(u64, p.speed, 12500000000));
	cr_expect(eq(u64, p.guid, 0x0002c90300a1b2c3));
	cr_expect(eq(str, (char *)p.netdev, (char *)"ens1f1"));
	cr_expect(eq(int, p.pci.numa, 0));
	cr_assert(zero(int, weft_verbs_of_netdev("ens1f1", &p)));
	cr_expect(eq(str, (char *)p.name, (char *)"mlx5_0:2"));
	/* RoCE tells the interface of each GID */
	shell("echo bond0 >class/infiniband/mlx5_0/ports/2/gid_attrs/ndevs/0");
	cr_assert(zero(int, weft_verbs_of_netdev("bond0", &p)));
}

static void expect_gid(int family, int want)
{
	struct weft_verbs_port p;
	unsigned int index = 99;
	uint8_t g[16];
	int err;

	cr_assert(zero(int, weft_verbs_get("mlx5_0", &p)));
	err = weft_verbs_gid(&p, family, &index, g);
	if (want < 0) {
		cr_expect(eq(int, err, want));
		return;
	}
	cr_expect(zero(int, err));
	cr_expect(eq(uint, index, (unsigned int)want));
}

/* iWARP and EFA are verbs devices, too, but none that we could use. */
Test(verbs, adapters_without_ib_queue_pairs_are_skipped, .init = begin,
     .fini = folder_end)
{
	struct weft_verbs_port *list;

	pci("pci0000:16", "0000:17:00.0", 0);
	ib("mlx5_0", "0000:17:00.0");
	ib("irdma0", "0000:17:00.0");
	ib("efa_0", "0000:17:00.0");
	shell("cd class/infiniband && echo '1: CA' >mlx5_0/node_type && "
	      "echo '4: RNIC' >irdma0/node_type && "
	      "echo '7: unspecified' >efa_0/node_type");
	cr_assert(eq(int, weft_verbs_list(&list), 1));
	cr_expect(eq(str, list[0].name, (char *)"mlx5_0:1"));
	free(list);
}

Test(verbs, gid_choice, .init = begin, .fini = folder_end)
{
	pci("pci0000:00", "0000:00:02.0", 0);
	hca("mlx5_0", "0000:00:02.0", 1, "Ethernet", "4: ACTIVE");
	expect_gid(AF_UNSPEC, -ENODEV);
	gid("mlx5_0", 0, "fe80:0000:0000:0000:5054:00ff:fe12:3456",
	    "IB/RoCE v1");
	expect_gid(AF_UNSPEC, 0);
	gid("mlx5_0", 1, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2");
	expect_gid(AF_UNSPEC, 1);
	gid("mlx5_0", 2, "0000:0000:0000:0000:0000:ffff:0a4d:0001",
	    "IB/RoCE v1");
	expect_gid(AF_UNSPEC, 1);
	gid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a4d:0001", "RoCE v2");
	expect_gid(AF_UNSPEC, 3);
	gid("mlx5_0", 4, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2");
	gid("mlx5_0", 5, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2");
	expect_gid(AF_UNSPEC, 3);
	expect_gid(AF_INET, 3);
	expect_gid(AF_INET6, 4);
	setenv("NCCL_IB_GID_INDEX", "1", 1);
	weft_settings_reset();
	expect_gid(AF_UNSPEC, 1);
	setenv("NCCL_IB_GID_INDEX", "77", 1);
	weft_settings_reset();
	expect_gid(AF_UNSPEC, -ENODEV);
	setenv("NCCL_IB_GID_INDEX", "-1", 1);
	weft_settings_reset();
	expect_gid(AF_UNSPEC, 3);
}

static void expect_pkey(const char *asked, int want)
{
	struct weft_verbs_port p;
	unsigned int index = 99;
	int err;

	clearenv();
	setenv("PATH", "/bin:/usr/bin", 1);
	setenv("NCCL_IB_PKEY", "2", 1);
	if (asked)
		setenv("UCX_IB_PKEY", asked, 1);
	weft_settings_reset();
	cr_assert(zero(int, weft_verbs_get("mlx5_0", &p)));
	err = weft_verbs_pkey(&p, &index);
	cr_expect(eq(int, err, want < 0 ? want : 0));
	if (want >= 0)
		cr_expect(eq(uint, index, (unsigned int)want), "%s",
			  asked ? asked : "unset");
}

Test(verbs, partition_of_a_key, .init = begin, .fini = folder_end)
{
	pci("pci0000:00", "0000:00:02.0", 0);
	ib("mlx5_0", "0000:00:02.0");
	shell("mkdir class/infiniband/mlx5_0/ports/1/pkeys && "
	      "cd class/infiniband/mlx5_0/ports/1/pkeys && "
	      "echo 0xffff >0 && echo 0x1234 >1 && echo 0x0000 >2 && "
	      "echo 0x0077 >3 && echo 0x9234 >4");
	expect_pkey(NULL, 2);
	expect_pkey("auto", 2);
	expect_pkey("0x7fff", 0);
	expect_pkey("0x77", 3);
	/* a full member can speak to all */
	expect_pkey("0x1234", 4);
	expect_pkey("0x4", -ENODEV);
	/* of empty entries */
	expect_pkey("0x0", -ENODEV);
	shell("echo Ethernet >class/infiniband/mlx5_0/ports/1/link_layer");
	expect_pkey("0x1234", 0);
	expect_pkey(NULL, 2);
}

static void expect_class(const char *asked, unsigned int gid_index,
			 unsigned int want)
{
	struct weft_verbs_port p;

	clearenv();
	setenv("PATH", "/bin:/usr/bin", 1);
	setenv("UCX_IB_TRAFFIC_CLASS", asked, 1);
	weft_settings_reset();
	cr_assert(zero(int, weft_verbs_get("mlx5_0", &p)));
	cr_expect(eq(uint, weft_verbs_traffic_class(&p, gid_index), want), "%s",
		  asked);
}

Test(verbs, traffic_class_as_ucx_chooses, .init = begin, .fini = folder_end)
{
	pci("pci0000:00", "0000:00:02.0", 0);
	hca("mlx5_0", "0000:00:02.0", 1, "Ethernet", "4: ACTIVE");
	gid("mlx5_0", 0, "fe80:0000:0000:0000:5054:00ff:fe12:3456",
	    "IB/RoCE v1");
	gid("mlx5_0", 1, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2");
	expect_class("auto", 0, 0);
	expect_class("auto", 1, 106);
	expect_class("41", 1, 41);
	shell("mkdir -p class/infiniband/mlx5_0/tc/1 && "
	      "echo Global tclass=96 >class/infiniband/mlx5_0/tc/1/traffic_class");
	expect_class("auto", 1, 96);
	expect_class("auto", 0, 0);
	expect_class("0", 1, 0);
	shell("echo >class/infiniband/mlx5_0/tc/1/traffic_class");
	expect_class("auto", 1, 106);
	shell("echo InfiniBand >class/infiniband/mlx5_0/ports/1/link_layer");
	expect_class("auto", 1, 0);
}

/* Eight P100 or V100; a switch each for two of them and an HCA. */
Test(verbs, dgx_1, .init = begin, .fini = folder_end)
{
	static const struct {
		const char *bridge, *gpu[2], *hca;
	} sw[] = {
		{ "pci0000:00/0000:00:02.0/0000:04:00.0",
		  { "0000:06:00.0", "0000:07:00.0" },
		  "0000:05:00.0" },
		{ "pci0000:00/0000:00:03.0/0000:08:00.0",
		  { "0000:0a:00.0", "0000:0b:00.0" },
		  "0000:0c:00.0" },
		{ "pci0000:80/0000:80:02.0/0000:84:00.0",
		  { "0000:85:00.0", "0000:86:00.0" },
		  "0000:84:01.0" },
		{ "pci0000:80/0000:80:03.0/0000:88:00.0",
		  { "0000:89:00.0", "0000:8a:00.0" },
		  "0000:8b:00.0" },
	};
	char dev[16], at[128];
	unsigned int i, g;

	for (i = 0; i < 4; i++) {
		for (g = 0; g < 2; g++) {
			snprintf(at, sizeof(at), "%s/0000:ff:0%u.0",
				 sw[i].bridge, g);
			gpu(at, sw[i].gpu[g], (int)i / 2);
		}
		snprintf(at, sizeof(at), "%s/0000:ff:02.0", sw[i].bridge);
		pci(at, sw[i].hca, (int)i / 2);
		snprintf(dev, sizeof(dev), "mlx5_%u", i);
		ib(dev, sw[i].hca);
	}
	for (i = 0; i < 4; i++)
		for (g = 0; g < 2; g++) {
			snprintf(dev, sizeof(dev), "mlx5_%u:1", i);
			expect_near(sw[i].gpu[g], i * 2 + g, dev,
				    WEFT_NEAR_PIX);
		}
	expect_auto("0", "mlx5_0:1");
	expect_auto("2", "mlx5_1:1");
	expect_auto("5,6,7,0,1,2,3,4", "mlx5_2:1");
	expect_auto("7", "mlx5_3:1");
	/* which of eight is its own is unknown, or it has none */
	expect_auto(NULL, "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1");
	expect_auto("", "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1");
	expect_auto("8", "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1");
	expect_auto("-1", "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1");
	unsetenv("DASK_UCX__NET_DEVICES");
	/* without its own, the one of the same socket */
	setenv("NCCL_IB_HCA", "^=mlx5_0", 1);
	weft_settings_reset();
	expect_near(sw[0].gpu[0], 0, "mlx5_1:1", WEFT_NEAR_PHB);
	setenv("NCCL_IB_HCA", "mlx5_2,mlx5_3", 1);
	weft_settings_reset();
	expect_near(sw[0].gpu[0], 0, "mlx5_2:1", WEFT_NEAR_SYS);
	expect_near(sw[0].gpu[1], 1, "mlx5_3:1", WEFT_NEAR_SYS);
}

/* DGX H100: an HCA per GPU, each pair behind a host bridge of its own. */
Test(verbs, dgx_h100, .init = begin, .fini = folder_end)
{
	static const unsigned int bus[] = { 0x18, 0x2a, 0x3a, 0x5d,
					    0x9a, 0xab, 0xba, 0xdb };
	char bridge[96], card[16], nic[16], dev[16], number[4];
	unsigned int i;

	for (i = 0; i < 8; i++) {
		snprintf(bridge, sizeof(bridge),
			 "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0",
			 bus[i] - 1, bus[i] - 1, bus[i]);
		snprintf(card, sizeof(card), "0000:%02x:00.0", bus[i] + 3);
		snprintf(nic, sizeof(nic), "0000:%02x:00.0", bus[i] + 2);
		/* the switch has a second level below the GPU */
		snprintf(bridge + strlen(bridge), 32, "/0000:%02x:00.0",
			 bus[i] + 1);
		gpu(bridge, card, (int)i / 4);
		bridge[strlen(bridge) - 1] = '1';
		pci(bridge, nic, (int)i / 4);
		/* named the other way round */
		snprintf(dev, sizeof(dev), "mlx5_%u", i ? 12 - i : 0);
		ib(dev, nic);
	}
	for (i = 0; i < 8; i++) {
		snprintf(card, sizeof(card), "0000:%02X:00.0", bus[i] + 3);
		snprintf(dev, sizeof(dev), "mlx5_%u:1", i ? 12 - i : 0);
		expect_near(card, i, dev, WEFT_NEAR_PIX);
		snprintf(number, sizeof(number), "%u", i);
		expect_auto(number, dev);
	}
	/* a driver's way of writing it */
	expect_near("00000000:1B:00.0", 0, "mlx5_0:1", WEFT_NEAR_PIX);
}

/* Summit: three GPUs per socket on NVLink, one HCA with a function in each. */
Test(verbs, summit, .init = begin, .fini = folder_end)
{
	gpu("pci0004:00/0004:00:00.0/0004:01:00.0/0004:02:02.0", "0004:04:00.0",
	    0);
	gpu("pci0004:00/0004:00:00.0/0004:01:00.0/0004:02:03.0", "0004:05:00.0",
	    0);
	gpu("pci0035:00/0035:00:00.0/0035:01:00.0/0035:02:08.0", "0035:03:00.0",
	    8);
	pci("pci0003:00/0003:00:00.0", "0003:01:00.0", 0);
	pci("pci0003:00/0003:00:00.0", "0003:01:00.1", 0);
	pci("pci0033:00/0033:00:00.0", "0033:01:00.0", 8);
	pci("pci0033:00/0033:00:00.0", "0033:01:00.1", 8);
	ib("mlx5_0", "0003:01:00.0");
	ib("mlx5_1", "0003:01:00.1");
	ib("mlx5_2", "0033:01:00.0");
	ib("mlx5_3", "0033:01:00.1");
	/* the dual rail is shared by turns */
	expect_near("0004:04:00.0", 0, "mlx5_0:1", WEFT_NEAR_NODE);
	expect_near("0004:05:00.0", 1, "mlx5_1:1", WEFT_NEAR_NODE);
	expect_near("0035:03:00.0", 3, "mlx5_3:1", WEFT_NEAR_NODE);
	expect_auto("0", "mlx5_0:1");
	expect_auto("1", "mlx5_1:1");
	expect_auto("2", "mlx5_2:1");
}

/* A VM: everything on one bridge, nothing known of NUMA; or /sys masked. */
Test(verbs, virtual_machine, .init = begin, .fini = folder_end)
{
	gpu("pci0000:00", "0000:00:04.0", -1);
	pci("pci0000:00", "0000:00:05.0", -1);
	pci("pci0000:00", "0000:00:06.0", -1);
	ib("mlx5_0", "0000:00:05.0");
	ib("mlx5_1", "0000:00:06.0");
	expect_near("0000:00:04.0", 0, "mlx5_0:1", WEFT_NEAR_PHB);
	expect_near("0000:00:04.0", 1, "mlx5_1:1", WEFT_NEAR_PHB);
	expect_near("0000:99:00.0", 0, "mlx5_0:1", WEFT_NEAR_SYS);
	expect_near("../../../etc", 0, "mlx5_0:1", WEFT_NEAR_SYS);
	/* it is the only one */
	expect_auto(NULL, "mlx5_0:1");
	/* nothing to be seen of GPUs */
	shell("rm bus/pci/devices/0000:00:04.0");
	expect_auto("0", "mlx5_0:1 mlx5_1:1");
}

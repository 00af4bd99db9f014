/* SPDX-License-Identifier: BSD-3-Clause */
/* weft_tcp and weft_ib on one wire: bulk goes by the latter. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host/pci.h"
#include "settings/settings.h"
#include "tests/lib/caught.h"
#include "tests/lib/folder.h"
#include "tests/unit/ucx_tl/fake.h"
#include "ucx_tl/status.h"
#include "ucx_tl/uct.h"

static void begin(void)
{
	folder_begin();
	shell("mkdir -p class/infiniband && cd class/infiniband && "
	      "for i in 0 1; do mkdir -p mlx5_$i/device/net/ib$i "
	      "mlx5_$i/ports/1 && echo '4: ACTIVE' >mlx5_$i/ports/1/state && "
	      "echo '100 Gb/sec (4X EDR)' >mlx5_$i/ports/1/rate; done");
	weft_sysfs_root = folder;
	clearenv();
}

static double get_better(const char *tls, const char *devices, const char *name)
{
	size_t i = 0;

	setenv("UCX_TLS", tls, 1);
	setenv("UCX_NET_DEVICES", devices, 1);
	weft_settings_reset();
	while (strcmp(weft_uct_tls[i].name, name))
		i++;
	return weft_uct_tls[i].better_bandwidth
		       ? weft_uct_tls[i].better_bandwidth("ib0")
		       : 0;
}

Test(tls, weft_tcp_knows_it_shares_a_port, .init = begin, .fini = folder_end)
{
#ifdef HAVE_VERBS_H
	const double fast = 12.5e9;

	cr_expect(zero(dbl, get_better("weft_ib,weft_tcp", "all", "weft_ib")));
#else
	const double fast = 0;
#endif
	cr_expect(eq(dbl, get_better("weft_ib,weft_tcp", "all", "weft_tcp"),
		     fast));
	cr_expect(eq(dbl,
		     get_better("weft_ib,weft_tcp", "mlx5_0:1,ib0", "weft_tcp"),
		     fast));
	cr_expect(eq(
		dbl,
		get_better("weft_ib,weft_tcp", "mlx5_[0-1]:1,ib0", "weft_tcp"),
		fast));
	/* weft_ib is not asked for, or not on this wire */
	cr_expect(zero(dbl, get_better("weft_tcp", "all", "weft_tcp")));
	cr_expect(zero(dbl, get_better("weft_ib,weft_tcp", "mlx5_1:1,ib1",
				       "weft_tcp")));
	cr_expect(zero(dbl, get_better("weft_ib,weft_tcp", "all", "weft_nvl")));
}

static void *plain_calloc(size_t n, size_t size, const char *name)
{
	return calloc(n, size);
}

static unsigned int count(const char *name)
{
	struct weft_uct uct = { .sym.calloc = plain_calloc };
	struct weft_uct_tl_device *devices = NULL;
	unsigned int n = 0;
	size_t i = 0;

	while (strcmp(weft_uct_tls[i].name, name))
		i++;
	cr_assert(eq(int, weft_uct_tls[i].devices(&uct, &devices, &n),
		     WEFT_UCS_OK));
	free(devices);
	return n;
}

/* UCX fails a worker for a device that does not open. */
Test(tls, device_that_does_not_work_is_not_offered)
{
	static const char *const names[] = { "weft_tcp", "weft_shm",
#ifdef HAVE_VERBS_H
					     "weft_ib"
#endif
	};
	char line[128];

	weft_log_set_level(WEFT_LOG_INFO);
	catch_log();
	fake.works = -EPERM;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		cr_expect(zero(uint, count(names[i])), "%s", names[i]);
		snprintf(
			line, sizeof(line),
			"%s is not offered: the test says so: Operation not permitted",
			names[i]);
		cr_expect(eq(str, caught.text, line));
		cr_expect(eq(int, (int)caught.level, WEFT_LOG_INFO));
	}
	fake.works = 0;
	cr_expect(eq(uint, count("weft_shm"), 1));
}

#ifdef HAVE_VERBS_H
static void expect_ports(const char *visible, const char *first,
			 unsigned int count)
{
	struct weft_uct uct = { .sym.calloc = plain_calloc };
	struct weft_uct_tl_device *devices = NULL;
	unsigned int n = 0;
	size_t i = 0;

	setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	while (strcmp(weft_uct_tls[i].name, "weft_ib"))
		i++;
	cr_assert(eq(int, weft_uct_tls[i].devices(&uct, &devices, &n),
		     WEFT_UCS_OK));
	cr_expect(eq(uint, n, count), "GPU '%s'", visible);
	cr_expect(eq(str, devices[0].name, (char *)first), "GPU '%s'", visible);
	free(devices);
}

/* As in a container: sysfs shows both adapters, /dev has one. */
Test(tls, port_without_its_device_node_is_not_offered, .init = begin,
     .fini = folder_end)
{
	shell("/bin/mkdir -p class/infiniband_verbs/uverbs99 && "
	      "echo mlx5_0 >class/infiniband_verbs/uverbs99/ibdev");
	cr_expect(zero(dbl, get_better("weft_ib,weft_tcp", "all", "weft_tcp")));
	expect_ports("", "mlx5_1:1", 1);
}

/* It meets its peers by TCP. */
Test(tls, port_without_a_netdev_is_not_offered, .init = begin,
     .fini = folder_end)
{
	catch_log();
	expect_ports("", "mlx5_0:1", 2);
	/* its interface has no address here */
	setenv("UCX_NET_DEVICES", "mlx5_1:1", 1);
	weft_settings_reset();
	cr_expect(zero(uint, count("weft_ib")));
	cr_expect(eq(int, (int)caught.level, WEFT_LOG_WARN));
	expect_caught("'ib1' has no address");
}

/* A GPU and an adapter on each of two sockets; a worker is given one GPU. */
Test(tls, auto_offers_port_nearest_to_gpu, .init = begin, .fini = folder_end)
{
	shell("PATH=/bin:/usr/bin; mkdir -p bus/pci/devices && "
	      "for i in 0 1; do d=devices/pci0000:${i}0/0000:${i}0:01.0; "
	      "mkdir -p $d/0000:${i}1:00.0 $d/0000:${i}2:00.0 && "
	      "ln -s ../../../$d/0000:${i}1:00.0 bus/pci/devices && "
	      "echo 0x10de >$d/0000:${i}1:00.0/vendor && "
	      "echo 0x030200 >$d/0000:${i}1:00.0/class && "
	      "mv class/infiniband/mlx5_$i/device/net $d/0000:${i}2:00.0 && "
	      "rmdir class/infiniband/mlx5_$i/device && "
	      "ln -s ../../../$d/0000:${i}2:00.0 "
	      "class/infiniband/mlx5_$i/device; done");
	setenv("WEFT_LIBNVML", "/nosuch", 1);
	cr_expect(eq(dbl, get_better("weft_ib,weft_tcp", "auto", "weft_tcp"),
		     12.5e9),
		  "without a GPU, all");
	expect_ports("", "mlx5_0:1", 2);
	expect_ports("0", "mlx5_0:1", 1);
	expect_ports("1,0", "mlx5_1:1", 1);
	/* only weft_tcp uses ib0 now */
	cr_expect(
		zero(dbl, get_better("weft_ib,weft_tcp", "auto", "weft_tcp")));
	setenv("UCX_NET_DEVICES", "all", 1);
	weft_settings_reset();
	expect_ports("1,0", "mlx5_0:1", 2);
}
#endif

Test(tls, slower_of_two_on_a_port_is_deprioritized)
{
	struct weft_uct_iface iface = { .tl = &weft_uct_tls[0],
					.attr.bandwidth = 12.5e9,
					.attr.latency = 10e-6 };
	struct weft_uct_iface_attr attr;

	memset(&attr, 0, sizeof(attr));
	weft_uct_iface_scores(&iface, &attr);
	cr_expect(eq(dbl, attr.bandwidth.shared, 12.5e9));
	iface.deprioritized = true;
	weft_uct_iface_scores(&iface, &attr);
	/* UCX_MULTI_LANE_MAX_RATIO */
	cr_expect(lt(dbl, attr.bandwidth.shared, 12.5e9 / 4));
	cr_expect(gt(dbl, attr.latency.c, 10e-6));
}

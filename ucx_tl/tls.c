/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transports: how they differ.  Everything else in ucx_tl is common to all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "host/netdevs.h"
#include "host/netif.h"
#include "host/verbs.h"
#include "settings/settings.h"
#include "ucx_tl/status.h"
#include "ucx_tl/uct.h"
#include "ucx_tl/ucxenv.h"
#include "util/drivers/cuda.h"
#include "util/log.h"

#define GPU_MINOR_MIN 17 /* UCX 1.x, for transports of GPU memory */

/* Some sandboxes refuse what a device needs: that must not fail the worker. */
static bool works(const char *name, const struct weft_dev_ops *dev)
{
	const char *why;
	const int err = dev->works ? dev->works(&why) : 0;

	if (err)
		weft_info("%s is not offered: %s: %s", name, why,
			  strerror(-err));
	return !err;
}

/* UCX itself only logs that weft_tcp is not available. */
static void log_no_netdev(const struct weft_netif *list, int n)
{
	struct weft_setting_info devices, family;
	struct weft_netif *any = NULL;
	char names[256] = "";
	size_t at = 0;
	int here = n;

	weft_settings_named("WEFT_NET_DEVICES", &devices);
	weft_settings_named("WEFT_FAMILY", &family);
	if (!n) {
		here = weft_netif_list(AF_UNSPEC, &any);
		list = any;
	}
	for (int i = 0; i < here && at < sizeof(names); i++)
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s",
				       i ? ", " : "", list[i].name);
	free(any);
	if (here <= 0)
		weft_warn_once(
			"weft_tcp has no interface: none here is up and has an address");
	else if (!n)
		weft_warn_once(
			"weft_tcp has no interface: %s='%s', and those that are up (%s) have no such address; 'any' allows them",
			weft_setting_variable(&family), family.value, names);
	else
		weft_warn_once(
			"weft_tcp has no interface: %s='%s' matches none of those that are up and have an address (%s); name one of them, or leave it unset",
			weft_setting_variable(&devices), devices.value, names);
}

static void set_device(struct weft_uct_tl_device *device, uint32_t type,
		       const char *name)
{
	strcpy(device->name, name);
	device->type = type;
	device->sys_device = WEFT_UCS_SYS_DEVICE_UNKNOWN;
}

/* For peers and their memory on this host. */
static enum weft_ucs_status list_one(const struct weft_uct *uct,
				     const char *name,
				     struct weft_uct_tl_device **out,
				     unsigned int *count)
{
	struct weft_uct_tl_device *device =
		uct->sym.calloc(1, sizeof(*device), "weft device");

	if (!device)
		return WEFT_UCS_NO_MEMORY;
	set_device(device, WEFT_UCT_DEVICE_SHM, name);
	*out = device;
	*count = 1;
	return WEFT_UCS_OK;
}

/*
 * One device per netdev, of the same name: after a connect by socket address
 * UCP keeps only devices that are named like the netdev.
 */
static enum weft_ucs_status list_netdevs(const struct weft_uct *uct,
					 struct weft_uct_tl_device **out,
					 unsigned int *count)
{
	struct weft_uct_tl_device *devices;
	struct weft_netif *netifs;
	unsigned int used = 0;
	int n;

	if (!works("weft_tcp", &weft_tcp_ops))
		return WEFT_UCS_OK;
	weft_netdevs_check();
	n = weft_netif_list(weft_settings()->family, &netifs);
	if (n < 0)
		return weft_ucs_status(n);
	devices = uct->sym.calloc((size_t)n + 1, sizeof(*devices),
				  "weft devices");
	if (!devices) {
		free(netifs);
		return WEFT_UCS_NO_MEMORY;
	}
	for (int i = 0; i < n; i++) {
		if (!weft_netdevs_allowed(netifs[i].name))
			continue;
		set_device(&devices[used++], WEFT_UCT_DEVICE_NET,
			   netifs[i].name);
	}
	if (!used)
		log_no_netdev(netifs, n);
	free(netifs);
	*out = devices;
	*count = used;
	return WEFT_UCS_OK;
}

/*
 * One device for all GPUs: each buffer determines its GPU.  UCP connects it in
 * addition to the netdev of a socket address (UCX_CM_USE_ALL_DEVICES).
 */
static enum weft_ucs_status list_nvlink(const struct weft_uct *uct,
					struct weft_uct_tl_device **out,
					unsigned int *count)
{
	const char *lacking = NULL;
	int copiers;

	if (!weft_gpu_here())
		return WEFT_UCS_OK;
	/*
	 * If a transport supports GPU memory, UCP creates an endpoint for
	 * copies between host and GPU, and fails the worker if no transport
	 * can copy.
	 */
	copiers = weft_uct_component_mds(uct, "cuda_cpy");
	if (!weft_cuda_copy_requested())
		lacking = "UCX_TLS leaves it out";
	else if (copiers < 0)
		lacking = "this UCX has none, or it did not load";
	if (lacking)
		weft_warn_once(
			"weft_nvl needs UCX's cuda_copy beside it (%s): GPU memory does not go over NVLink",
			lacking);
	/* no copiers: the driver shows this process no GPU */
	if (lacking || !copiers || !works("weft_nvl", &weft_nvlink_ops))
		return WEFT_UCS_OK;
	return list_one(uct, "nvlink", out, count);
}

/* As in list_nvlink(): without a copier UCP fails the worker. */
static bool may_use_gpus(const struct weft_uct *uct)
{
	return uct->abi->minor >= GPU_MINOR_MIN && weft_gpu_here() &&
	       weft_cuda_copy_requested() &&
	       weft_uct_component_mds(uct, "cuda_cpy") > 0;
}

static enum weft_ucs_status list_shm(const struct weft_uct *uct,
				     struct weft_uct_tl_device **out,
				     unsigned int *count)
{
	if (!works("weft_shm", &weft_shm_ops))
		return WEFT_UCS_OK;
	return list_one(uct, "shm", out, count);
}

#ifdef HAVE_VERBS_H
/* The bandwidth of weft_ib on the port of @netdev; 0: not offered there. */
static double port_bandwidth(const char *netdev)
{
	struct weft_verbs_port *list;
	double speed = 0;
	int n;

	if (!weft_is_requested("weft_ib"))
		return 0;
	n = weft_verbs_list_near(&list);
	for (int i = 0; i < n && speed == 0; i++)
		if (!strcmp(list[i].netdev, netdev) &&
		    weft_verbs_openable(list[i].dev))
			speed = list[i].speed ? (double)list[i].speed : 1.25e9;
	if (n >= 0)
		free(list);
	return speed;
}

/* Can a worker use it?  UCX fails a worker if a device does not open. */
static bool is_usable(const struct weft_verbs_port *port)
{
	char netdev[IF_NAMESIZE];

	/* assigned to this container? */
	if (!weft_verbs_openable(port->dev))
		return false;
	if (!weft_verbs_control_netdev(port, weft_settings()->family, netdev))
		return true;
	weft_warn_once(
		"weft_ib does not use '%s': it needs a network interface to exchange its queue pairs over; '%s' has no address, and WEFT_NET_DEVICES allows no other",
		port->name, port->netdev);
	return false;
}

/* One device per active port, named as in UCX's transports. */
static enum weft_ucs_status list_verbs_ports(const struct weft_uct *uct,
					     struct weft_uct_tl_device **out,
					     unsigned int *count)
{
	struct weft_uct_tl_device *devices;
	struct weft_verbs_port *list;
	unsigned int used = 0;
	int n;

	if (!works("weft_ib", &weft_ib_ops))
		return WEFT_UCS_OK;
	weft_netdevs_check();
	n = weft_verbs_list_near(&list);
	if (n < 0)
		return weft_ucs_status(n);
	devices = uct->sym.calloc((size_t)n + 1, sizeof(*devices),
				  "weft devices");
	if (!devices) {
		free(list);
		return WEFT_UCS_NO_MEMORY;
	}
	for (int i = 0; i < n; i++) {
		/* too long for UCX; truncated it would name another port */
		if (strlen(list[i].name) >= sizeof(devices->name))
			continue;
		if (!is_usable(&list[i]))
			continue;
		set_device(&devices[used++], WEFT_UCT_DEVICE_NET, list[i].name);
	}
	free(list);
	*out = devices;
	*count = used;
	return WEFT_UCS_OK;
}
#endif

const struct weft_uct_tl weft_uct_tls[WEFT_UCT_TLS] = {
	{
		.name = "weft_tcp",
		.dev = &weft_tcp_ops,
		.config_prefix = "WEFT_TCP_",
		.minor_min = WEFT_UCX_MINOR_MIN,
		.mem_kinds = BIT(WEFT_MEM_HOST),
		.am_zcopy = true,
		.same_host = false,
		.devices = list_netdevs,
#ifdef HAVE_VERBS_H
		.better_bandwidth = port_bandwidth,
#endif
		/*
		 * A get is as fast as a put and takes a control message less:
		 * UCP prefers it.  Its overhead makes it beat a rendezvous by
		 * messages, which the receiver copies, from 79 KiB on; see
		 * PIECE_OVERHEAD.
		 */
		.message_copy = 2.5e9,
		.put_overhead = 0,
		.get_overhead = 10e-6,
	},
	{
		.name = "weft_shm",
		.dev = &weft_shm_ops,
		.config_prefix = "WEFT_SHM_",
		.minor_min = WEFT_UCX_MINOR_MIN,
		.mem_kinds = BIT(WEFT_MEM_HOST) | BIT(WEFT_MEM_CUDA),
		.may_use_gpus = may_use_gpus,
		.am_zcopy = false,
		.same_host = true,
		.devices = list_shm,
		/*
		 * More than UCX_MULTI_LANE_MAX_RATIO (4) times that of any
		 * netdev: the part of a message on a rail of weft_tcp would
		 * arrive last.
		 */
		.lane_bandwidth = 200e9,
		/*
		 * A message and a put are copied as often, but a put by the
		 * kernel at its target, page by page, and behind a rendezvous:
		 * a third as fast (1 MiB: 12 and 46 GB/s on Zen 5).  UCP
		 * assumes 12 GB/s for a copy of its own (UCX_BCOPY_BW).
		 */
		.message_copy = 20e9,
		.put_copy = 4e9,
		.put_overhead = 10e-6,
		.get_overhead = 60e-6,
		/*
		 * GPU memory, through host memory: 44 GB/s (two H100).  Less
		 * than a quarter of weft_nvl's figure, so that UCX does not use
		 * it as a rail beside weft_nvl.
		 */
		.gpu_copy = 40e9,
		.gpu_get_overhead = 14e-6,
	},
	{
		.name = "weft_nvl",
		.dev = &weft_nvlink_ops,
		.config_prefix = "WEFT_NVL_",
		.minor_min = GPU_MINOR_MIN,
		.mem_kinds = BIT(WEFT_MEM_CUDA),
		.am_zcopy = false,
		.same_host = true,
		.devices = list_nvlink,
		.put_overhead = 0.5e-6,
		.get_overhead = 0.5e-6,
	},
#ifdef HAVE_VERBS_H
	{
		.name = "weft_ib",
		.dev = &weft_ib_ops,
		.config_prefix = "WEFT_IB_",
		.minor_min = WEFT_UCX_MINOR_MIN,
		.mem_kinds = BIT(WEFT_MEM_HOST),
		/* else memory would be registered for each operation */
		.needs_memh = true,
		.am_zcopy = false,
		.same_host = false,
		.devices = list_verbs_ports,
		/*
		 * Not measured: no adapter was available.  A rendezvous crosses
		 * the wire three times before data arrive, by a get (RTS, READ,
		 * data) as by a put (RTS, RTR, WRITE).  The get saves a
		 * message, ends without another one and does not need the
		 * sender's program: UCP prefers it, as with its own transports
		 * for InfiniBand.
		 */
		.message_copy = 10e9,
		.put_overhead = 0,
		.get_overhead = 0,
	},
#endif
};

bool weft_uct_asked_for_any(void)
{
	for (size_t i = 0; i < WEFT_UCT_TLS; i++)
		if (weft_is_requested(weft_uct_tls[i].name))
			return true;
	return false;
}

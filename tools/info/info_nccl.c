/* SPDX-License-Identifier: BSD-3-Clause */
/* weft info nccl: what the NCCL plugin uses, and what it sets for NCCL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/gpu.h"
#include "host/netif.h"
#include "host/samehost.h"
#include "host/verbs.h"
#include "nccl_net/api/env.h"
#include "nccl_net/common/channels.h"
#include "nccl_net/net/hcas.h"
#include "nccl_net/net/netifs.h"
#include "settings/settings.h"
#include "tools/tool.h"

static void print_library(const char *file, const char *how)
{
	char path[TOOL_PATH_MAX];

	if (tool_find(file, path))
		printf("  %s\n    %s\n", path, how);
	else
		printf("  %s is not installed beside this program\n", file);
}

/* The number of interfaces; -1 after an error message. */
static int print_interfaces(void)
{
	char text[WEFT_SOCKADDR_STR];
	struct weft_netif *list;
	int n, i;

	puts("\nInterfaces for NCCL's traffic, best first");
	n = weft_net_netifs(&list);
	if (n < 0)
		return -1;
	for (i = 0; i < n; i++)
		printf("  %-15s %s\n", list[i].name,
		       weft_sockaddr_str(&list[i].addr, text, sizeof(text)));
	if (!n)
		puts("  none");
	free(list);
	return n;
}

/* Returns whether NCCL would use weft in this environment. */
static bool print_verdict(int interfaces)
{
	char entry[TOOL_PATH_MAX], file[TOOL_PATH_MAX + 32];
	char why[TOOL_WHY_MAX];
	const char *cause;

	puts("\nWhat would happen");
	if (!weft_nccl_plugin(entry, sizeof(entry), &cause)) {
		printf("  NCCL does not use weft: %s\n", cause);
		return false;
	}
	snprintf(file, sizeof(file),
		 strchr(entry, '/') || strchr(entry, '.') ? "%s"
							  : "libnccl-net-%s.so",
		 entry);
	if (!tool_probe_nccl(file, why)) {
		printf("  NCCL does not use weft: cannot load '%s', which NCCL_NET_PLUGIN names: %s%s\n",
		       file, why,
		       strchr(entry, '/')
			       ? ""
			       : "; give the path above, or add its folder to LD_LIBRARY_PATH");
		return false;
	}
	if (interfaces <= 0) {
		puts("  NCCL does not use weft: there is no interface for it");
		return false;
	}
	printf("  NCCL uses weft: NCCL_NET_PLUGIN=%s%s\n", entry,
	       getenv("NCCL_NET")
		       ? ", and NCCL_NET names it"
		       : "; with NCCL_NET=weft NCCL fails, and says why, instead of using another");
	return true;
}

static void print_hcas(void)
{
	const struct weft_verbs_port *list;
	const unsigned int n = weft_net_hcas(&list);
	unsigned int i;

	puts("\nInfiniBand and RoCE (NCCL_IB_HCA, NCCL_IB_DISABLE)");
	for (i = 0; i < n; i++)
		printf("  %-15s %llu Mbit/s%s%s%s%s\n", list[i].name,
		       (unsigned long long)list[i].speed / 125000,
		       *list[i].netdev ? ", " : "", list[i].netdev,
		       *list[i].pci.path ? ", " : "", list[i].pci.path);
	if (n)
		puts("  each is a device for NCCL; TCP is used if the other rank has none or is out of reach");
	else if (weft_net_hcas_disabled())
		puts("  NCCL_IB_DISABLE is set: everything goes over TCP");
	else
		puts("  no port that is active, allowed and accessible");
}

static struct weft_samehost host;

/* The answer may still depend on NCCL's version, which is unknown here. */
static void print_introduction(void)
{
	puts("\nNCCL's own NVLink between containers (WEFT_NCCL_INTRODUCE)");
	weft_samehost_find(0, &host);
	if (host.introduced && host.hidden)
		printf("  introduced as %.13s..., by LD_PRELOAD=libweft_preload.so "
		       "or NCCL_ENV_PLUGIN, or by\n  NCCL_NET_PLUGIN if "
		       "NCCL_CUMEM_HOST_ENABLE=0 is set: of this host's GPUs "
		       "one is here,\n  and NCCL uses its own shared memory with "
		       "processes that show the same name\n  and have one, too "
		       "(NCCL_P2P_DISABLE=1, NCCL_CUMEM_HOST_ENABLE=0). They "
		       "share the\n  folder %s\n",
		       host.id, host.folder);
	else if (host.introduced)
		printf("  introduced as %.13s..., by LD_PRELOAD=libweft_preload.so, "
		       "NCCL_NET_PLUGIN or\n  NCCL_ENV_PLUGIN: NCCL uses its own "
		       "NVLink and shared memory with processes that\n  show the "
		       "same name here: they share the folder %s\n  and the "
		       "device nodes of %u GPU%s%s\n",
		       host.id, host.folder, host.gpus,
		       host.gpus == 1 ? "" : "s",
		       host.gpus_shared
			       ? ", with several ranks on a GPU, which "
				 "needs NCCL 2.30\n  or newer "
				 "(NCCL_MULTI_RANK_GPU_ENABLE), and "
				 "NCCL_NVLS_ENABLE=0"
			       : "");
	else
		printf("  not introduced: %s\n", host.reason);
}

static void print_variables(void)
{
	struct weft_nccl_setting s;
	size_t i;
	int count = 0;

	puts("\nSet for NCCL by 'weft run', and by NCCL_ENV_PLUGIN=weft from 2.28.7 on");
	for (i = 0; i < weft_nccl_env_count(); i++) {
		weft_nccl_env(i, &s);
		if (!s.value)
			continue;
		count++;
		if (getenv(s.name))
			printf("  %s=%s: set by you, unchanged\n", s.name,
			       getenv(s.name));
		else
			printf("  %s=%s (from %s): %s\n", s.name, s.value,
			       s.origin, s.why);
	}
	if (!count)
		puts("  nothing");
}

static void print_sockets(void)
{
	const struct weft_settings *s = weft_settings();
	const char *name, *value, *why, *set;
	size_t i;

	puts("\nTCP");
	if (s->tcp_streams)
		printf("  %u streams per peer, as set\n", s->tcp_streams);
	else
		puts("  streams per peer: as many as measuring finds useful");
	for (i = 0; weft_nccl_network_setting(i, &name, &value, &why); i++) {
		set = getenv(name);
		if (set && *set)
			printf("  %s=%s, as set\n", name, set);
		else
			printf("  %s=%s, set by the plugin:\n    %s\n", name,
			       value, why);
	}
}

int info_nccl(void)
{
	int interfaces;
	bool lost;

	weft_settings_set_runtime("NCCL_");
	puts("Libraries");
	print_library(
		"libnccl-net-weft.so",
		"NCCL_NET_PLUGIN=weft if it is on the loader's path, else this path");
	print_library("libnccl-env-weft.so", "NCCL_ENV_PLUGIN, likewise");
	fflush(stdout);
	lost = weft_nccl_plugin_lost();
	interfaces = print_interfaces();
	print_hcas();
	print_sockets();
	print_introduction();
	print_variables();
	return !lost && print_verdict(interfaces) ? 0 : EXIT_FAILED;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "host/netdevs.h"
#include "host/netif.h"
#include "host/verbs.h"
#include "nccl_net/api/env.h"
#include "nccl_net/common/channels.h"
#include "settings/settings.h"
#include "util/log.h"
#include "util/util.h"

static char ifnames[1024], hcas[1024];
static char origin_ifname[64], origin_family[64], origin_hcas[64];

static void origin_of(const char *name, char *buf, size_t len)
{
	struct weft_setting_info info;
	size_t i;

	for (i = 0; i < weft_settings_count(); i++) {
		weft_settings_info(i, &info);
		if (!strcmp(info.name, name))
			snprintf(buf, len, "%s",
				 strcmp(info.origin, "environment")
					 ? info.origin
					 : name);
	}
}

/*
 * Names of the interfaces that weft uses: NCCL has no form for "all but
 * docker0" or for a verbs device.
 */
static const char *socket_ifname(void)
{
	const char *list = weft_settings()->net_devices;
	struct weft_netif *netif;
	size_t at = 0;
	int n, i;

	if (!*list || !strcmp(list, "all") ||
	    !strcmp(origin_ifname, "NCCL_SOCKET_IFNAME"))
		return NULL;
	n = weft_netif_list(weft_settings()->family, &netif);
	if (n < 0)
		return NULL;
	for (i = 0; i < n; i++) {
		if (!weft_netdevs_allowed(netif[i].name) ||
		    (netif[i].loopback && at))
			continue;
		if (at + sizeof(netif[i].name) + 2 > sizeof(ifnames))
			break;
		at += snprintf(ifnames + at, sizeof(ifnames) - at, "%s%s",
			       at ? "," : "=", netif[i].name);
	}
	free(netif);
	return at ? ifnames : NULL;
}

static const char *socket_family(void)
{
	switch (weft_settings()->family) {
	case AF_INET:
		return "AF_INET";
	case AF_INET6:
		return "AF_INET6";
	default:
		return NULL;
	}
}

static bool takes_some(const char *list)
{
	return *list && strcmp(list, "all");
}

/* Hints concern addresses; NCCL finds the nearest device by itself. */
static bool names_devices(void)
{
	return takes_some(weft_settings()->net_devices) &&
	       !weft_netdevs_auto() && strcmp(origin_ifname, "UCXPY_IFNAME") &&
	       strcmp(origin_ifname, "NCCL_SOCKET_IFNAME");
}

/*
 * The same for verbs devices; *@none: the host has some, but none may be used.
 */
static const char *ib_hca(bool *none)
{
	struct weft_verbs_port *list = NULL;
	size_t at = 0, len;
	int n, i;

	*none = false;
	if (!strcmp(origin_hcas, "NCCL_IB_HCA"))
		return NULL;
	if (!takes_some(weft_settings()->ib_devices)) {
		if (!names_devices())
			return NULL;
		memcpy(origin_hcas, origin_ifname, sizeof(origin_hcas));
	}
	n = weft_verbs_list(&list);
	*none = !n && weft_verbs_present();
	for (i = 0; i < n; i++) {
		len = strlen(list[i].name) + 1;
		if (at + len >= sizeof(hcas))
			break;
		at += snprintf(hcas + at, sizeof(hcas) - at, "%s%s",
			       at ? "," : "=", list[i].name);
	}
	free(list);
	return at ? hcas : NULL;
}

static struct weft_nccl_setting table[] = {
	{ "NCCL_SOCKET_IFNAME", NULL, origin_ifname,
	  "NCCL's bootstrap uses the interfaces that weft uses" },
	{ "NCCL_SOCKET_FAMILY", NULL, origin_family,
	  "NCCL's bootstrap uses the addresses that weft uses" },
	{ "NCCL_IB_HCA", NULL, origin_hcas,
	  "NCCL's own InfiniBand uses the adapters that weft uses" },
	{ "NCCL_IB_DISABLE", NULL, origin_hcas, "weft uses no adapter" },
	{ "NCCL_NET_PLUGIN_REF_COUNT", NULL, "NCCL_NET_PLUGIN",
	  "NCCL 2.28 cannot load the plugin a second time" },
};
/* the ones that choose what NCCL's own networks use */
#define NETWORKS 4

static bool names_weft(const char *plugin, size_t len)
{
	static const char *const ours[] = { "weft", "libnccl-net-weft.so" };
	const char *base = memrchr(plugin, '/', len);
	size_t i;

	if (base) {
		len -= base + 1 - plugin;
		plugin = base + 1;
	}
	for (i = 0; i < ARRAY_SIZE(ours); i++)
		if (len == strlen(ours[i]) && !memcmp(plugin, ours[i], len))
			return true;
	return false;
}

bool weft_nccl_plugin(char *entry, size_t len, const char **why)
{
	const char *plugin = getenv("NCCL_NET_PLUGIN"),
		   *net = getenv("NCCL_NET");
	const bool named = net && *net;
	bool any = false;
	size_t n;

	*entry = '\0';
	*why = "NCCL_NET_PLUGIN is not set";
	if (!plugin || !*plugin)
		return false;
	*why = "NCCL_NET_PLUGIN names another plugin, as an image may do: give it the path above, or both and NCCL_NET=weft";
	for (; *plugin; plugin += n + (plugin[n] == ',')) {
		n = strcspn(plugin, ",");
		if (!names_weft(plugin, n)) {
			any = true;
			continue;
		}
		snprintf(entry, len, "%.*s", (int)n, plugin);
		*why = named ? "NCCL_NET names another network"
			     : "NCCL_NET_PLUGIN names another plugin first, and NCCL takes the first that works unless NCCL_NET says weft";
		return named ? !strcasecmp(net, "weft") : !any;
	}
	return false;
}

/* Without weft's network plugin the traffic is not weft's. */
static bool takes_weft(void)
{
	char entry[PATH_MAX];
	const char *why;

	return weft_nccl_plugin(entry, sizeof(entry), &why);
}

static bool is_lost(const char *entry, size_t len)
{
	char path[PATH_MAX];

	if (!memchr(entry, '/', len) || !names_weft(entry, len) ||
	    len >= sizeof(path))
		return false;
	memcpy(path, entry, len);
	path[len] = '\0';
	if (!access(path, R_OK))
		return false;
	weft_warn(
		"NCCL_NET_PLUGIN names '%s' (%s): NCCL continues without weft; give it the path that 'weft info nccl' shows",
		path, strerror(errno));
	return true;
}

bool weft_nccl_plugin_lost(void)
{
	const char *plugin = getenv("NCCL_NET_PLUGIN");
	bool lost = false;
	size_t len;

	if (!plugin || !weft_nccl_network_ours())
		return false;
	for (; *plugin; plugin += len + (plugin[len] == ',')) {
		len = strcspn(plugin, ",");
		lost |= is_lost(plugin, len);
	}
	return lost;
}

static void fill_table(void)
{
	bool no_hca;

	origin_of("WEFT_NET_DEVICES", origin_ifname, sizeof(origin_ifname));
	origin_of("WEFT_FAMILY", origin_family, sizeof(origin_family));
	origin_of("WEFT_IB_DEVICES", origin_hcas, sizeof(origin_hcas));
	table[0].value = socket_ifname();
	table[1].value = socket_family();
	table[2].value = ib_hca(&no_hca);
	table[3].value = no_hca ? "1" : NULL;
	table[4].value = takes_weft() ? "1" : NULL;
}

size_t weft_nccl_env_count(void)
{
	return ARRAY_SIZE(table);
}

void weft_nccl_env(size_t i, struct weft_nccl_setting *out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fill_table);
	*out = i < ARRAY_SIZE(table) ? table[i]
				     : (struct weft_nccl_setting){ .name = "" };
}

const char *weft_nccl_env_get(const char *name)
{
	struct weft_nccl_setting s;
	const char *v = getenv(name);
	size_t i;

	if (v)
		return v;
	for (i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].name, name))
			continue;
		weft_nccl_env(i, &s);
		return s.value;
	}
	return NULL;
}

void weft_nccl_env_apply(void)
{
	struct weft_nccl_setting s;
	size_t i;

	for (i = 0; i < NETWORKS; i++) {
		weft_nccl_env(i, &s);
		if (!s.value || getenv(s.name))
			continue;
		if (setenv(s.name, s.value, 0))
			weft_fail(-errno, "cannot set %s=%s", s.name, s.value);
		else
			weft_info("%s is now %s, from %s: %s", s.name, s.value,
				  s.origin, s.why);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of interfaces, in the three forms that users know. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/netdevs.h"
#include "host/pci.h"
#include "host/verbs.h"
#include "settings/table.h"
#include "util/file.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/util.h"

const char *weft_cmdline = "/proc/self/cmdline";

enum weft_netdev_form weft_netdev_form(const char *origin)
{
	if (!strcmp(origin, "NCCL_SOCKET_IFNAME"))
		return WEFT_NETDEV_NCCL;
	if (!strcmp(origin, "UCXPY_IFNAME"))
		return WEFT_NETDEV_HINT;
	return WEFT_NETDEV_LIST;
}

/* A name from a list that becomes part of a path: never leave the folder. */
static bool is_file_name(const char *name, size_t len)
{
	return len && len < WEFT_VERBS_NAME && *name != '.' &&
	       !memchr(name, '/', len);
}

bool weft_netdev_read_verbs(const char *dev, unsigned int which,
			    char name[IF_NAMESIZE])
{
	const size_t len = strcspn(dev, ":");
	uint64_t port = 1;
	char path[512];

	*name = '\0';
	if (!is_file_name(dev, len) ||
	    (dev[len] && weft_parse_u64(dev + len + 1, 1, 255, &port)))
		return false;
	if (!which)
		snprintf(path, sizeof(path),
			 "%s/class/infiniband/%.*s/ports/%u/gid_attrs/ndevs/0",
			 weft_sysfs_root, (int)len, dev, (unsigned int)port);
	else
		snprintf(path, sizeof(path), "%s/class/infiniband/%.*s/parent",
			 weft_sysfs_root, (int)len, dev);
	weft_file_read(path, name, IF_NAMESIZE);
	return *name;
}

bool weft_netdev_of_verbs(const char *dev, const char *name)
{
	const size_t len = strcspn(dev, ":");
	char path[512], found[IF_NAMESIZE];
	unsigned int i;

	if (!is_file_name(dev, len) || !is_file_name(name, strlen(name)))
		return false;
	snprintf(path, sizeof(path), "%s/class/infiniband/%.*s/device/net/%s",
		 weft_sysfs_root, (int)len, dev, name);
	if (!access(path, F_OK))
		return true;
	for (i = 0; i < WEFT_NETDEV_SOURCES; i++)
		if (weft_netdev_read_verbs(dev, i, found) &&
		    !strcmp(found, name))
			return true;
	return false;
}

/* Does an entry in UCX's form stand for interface @name? */
static bool matches_entry(const char *entry, const char *name)
{
	char one[WEFT_VERBS_NAME + 8];
	unsigned int i;
	size_t len;

	for (i = 0; weft_range_name(entry, strlen(entry), i, one, sizeof(one));
	     i++) {
		len = strcspn(one, ":");
		if ((strlen(name) == len && !strncmp(one, name, len)) ||
		    weft_netdev_of_verbs(one, name))
			return true;
	}
	return false;
}

/* Dask's "auto": any interface, but only the nearest verbs port. */
static bool is_auto(const char *list, enum weft_netdev_form form)
{
	return form == WEFT_NETDEV_LIST && !strcmp(list, "auto");
}

static bool is_unrestricted(const char *list, enum weft_netdev_form form)
{
	return !*list || (form != WEFT_NETDEV_NCCL && !strcmp(list, "all")) ||
	       is_auto(list, form);
}

bool weft_netdev_match(const char *list, enum weft_netdev_form form,
		       const char *name)
{
	const bool nccl = form == WEFT_NETDEV_NCCL;
	bool negated, whole, hit = false;
	char entry[WEFT_VERBS_NAME + 32];
	const char *end;
	size_t len;

	negated = *list == '^';
	list += negated;
	whole = nccl && *list == '=';
	list += whole;
	if (is_unrestricted(list, form))
		return !negated;
	if (form != WEFT_NETDEV_LIST && !negated && !strcmp(name, "lo"))
		return true;
	for (; *list && !hit; list = *end ? end + 1 : end) {
		end = strchrnul(list, ',');
		len = weft_min((size_t)(end - list), sizeof(entry) - 1);
		memcpy(entry, list, len);
		entry[len] = '\0';
		if (!len)
			continue;
		if (nccl && !whole)
			entry[strcspn(entry, ":")] = '\0';
		hit = nccl && !whole ? !strncmp(entry, name, strlen(entry))
				     : matches_entry(entry, name);
	}
	return hit != negated;
}

/* ---- the lists in force -------------------------------------------------- */

static const char *get_origin(const char *name)
{
	struct weft_setting_info info;

	weft_settings_named(name, &info);
	return info.origin;
}

static enum weft_netdev_form get_form(void)
{
	return weft_netdev_form(get_origin("WEFT_NET_DEVICES"));
}

bool weft_netdevs_allowed(const char *name)
{
	const char *list = weft_settings()->net_devices;

	return weft_netdev_match(list, get_form(), name);
}

bool weft_netdevs_named(const char *name)
{
	const char *list = weft_settings()->net_devices;

	return *list && *list != '^' && strcmp(list, "all") &&
	       !weft_netdevs_auto() && weft_netdevs_allowed(name);
}

bool weft_netdevs_auto(void)
{
	return is_auto(weft_settings()->net_devices, get_form());
}

bool weft_netdevs_verbs_allowed(const char *dev, unsigned int port,
				const char *netdev)
{
	const struct weft_settings *s = weft_settings();
	const bool nccl = !strcmp(get_origin("WEFT_IB_DEVICES"), "NCCL_IB_HCA");
	const char *list = s->net_devices;
	bool named;

	if (!weft_verbs_match(s->ib_devices,
			      nccl ? WEFT_VERBS_NCCL : WEFT_VERBS_LIST, dev,
			      port))
		return false;
	if (get_form() != WEFT_NETDEV_LIST || !*list || !strcmp(list, "all") ||
	    weft_netdevs_auto())
		return true;
	named = weft_verbs_match(list + (*list == '^'), WEFT_VERBS_LIST, dev,
				 port) ||
		(*netdev && weft_verbs_match(list + (*list == '^'),
					     WEFT_VERBS_LIST, netdev, 0));
	return named != (*list == '^');
}

/* ---- lists that contradict each other ------------------------------------ */

static bool is_verbs_device(const char *name)
{
	const size_t len = strcspn(name, ":");
	char path[512];

	snprintf(path, sizeof(path), "%s/class/infiniband/%.*s",
		 weft_sysfs_root, (int)len, name);
	return is_file_name(name, len) && !access(path, F_OK);
}

bool weft_netdevs_entry(unsigned int i, char *name, size_t len)
{
	const char *list = weft_settings()->net_devices;
	unsigned int at;
	size_t n;

	if (get_form() == WEFT_NETDEV_NCCL || *list == '^' ||
	    is_unrestricted(list, get_form()))
		return false;
	for (; *list; list += n + !!list[n]) {
		n = strcspn(list, ",");
		for (at = 0; weft_range_name(list, n, at, name, len); at++)
			if (!is_verbs_device(name) && !i--)
				return true;
	}
	return false;
}

/* Does a list of UCX's form name a verbs device of this host? */
static bool has_verbs_device(const char *list)
{
	char one[WEFT_VERBS_NAME + 8];
	unsigned int i;
	size_t len;

	for (list += *list == '^'; *list; list += !!*list) {
		len = strcspn(list, ",");
		for (i = 0; weft_range_name(list, len, i, one, sizeof(one));
		     i++)
			if (is_verbs_device(one))
				return true;
		list += len;
	}
	return false;
}

/* The value of --interface on this process's command line. */
static bool find_interface_argument(char name[IF_NAMESIZE])
{
	static const char option[] = "--interface";
	const size_t len = sizeof(option) - 1;
	FILE *f = fopen(weft_cmdline, "re");
	char *arg = NULL;
	size_t room = 0;
	bool next = false;

	*name = '\0';
	while (f && !*name && getdelim(&arg, &room, '\0', f) > 0) {
		if (next)
			snprintf(name, IF_NAMESIZE, "%s", arg);
		else if (!strncmp(arg, option, len) && arg[len] == '=')
			snprintf(name, IF_NAMESIZE, "%s", arg + len + 1);
		next = !strcmp(arg, option);
	}
	free(arg);
	if (f)
		fclose(f);
	return *name;
}

/* The interface of the first allowed port that has one, or "". */
static void find_first_allowed(char name[IF_NAMESIZE])
{
	struct weft_verbs_port *ports;
	int i, n = weft_verbs_list(&ports);

	*name = '\0';
	for (i = 0; i < n && !*name; i++)
		memcpy(name, ports[i].netdev, IF_NAMESIZE);
	if (n >= 0)
		free(ports);
}

void weft_netdevs_check(void)
{
	const char *asked = secure_getenv("UCXPY_IFNAME"), *whence;
	char arg[IF_NAMESIZE], other[IF_NAMESIZE], owner[96] = "";
	struct weft_setting_info list;
	struct weft_verbs_port port;

	weft_settings_named("WEFT_NET_DEVICES", &list);
	whence = "UCXPY_IFNAME=";
	if (!asked || !*asked) {
		if (!find_interface_argument(arg))
			return;
		asked = arg;
		whence = "--interface ";
	}
	/* a hint cannot contradict itself */
	if (weft_netdev_form(list.origin) != WEFT_NETDEV_LIST ||
	    !has_verbs_device(list.value) || weft_netdevs_allowed(asked))
		return;
	if (!weft_verbs_of_netdev(asked, &port))
		snprintf(owner, sizeof(owner), ", of %s,", port.name);
	find_first_allowed(other);
	weft_warn_once(
		"%s%s%s is not in %s=%s: peers that get its address find no weft device there; add %s to the list%s%s",
		whence, asked, owner, weft_setting_variable(&list), list.value,
		asked, *other ? ", or take " : "", other);
}

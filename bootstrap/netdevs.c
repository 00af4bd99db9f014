/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of interfaces, in the three forms that users know. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/pci.h"
#include "bootstrap/settings_table.h"
#include "util/util.h"

enum weft_netdev_form weft_netdev_form(const char *origin)
{
	if (!strcmp(origin, "NCCL_SOCKET_IFNAME"))
		return WEFT_NETDEV_NCCL;
	if (!strcmp(origin, "UCXPY_IFNAME"))
		return WEFT_NETDEV_HINT;
	return WEFT_NETDEV_LIST;
}

/* A software device (rxe, siw) has no PCI device, but a parent. */
static bool has_parent(const char *dev, size_t len, const char *name)
{
	char path[512], parent[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/class/infiniband/%.*s/parent",
		 weft_sysfs_root, (int)len, dev);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (fgets(parent, sizeof(parent), f))
		parent[strcspn(parent, "\n")] = '\0';
	fclose(f);
	return *parent && !strcmp(parent, name);
}

bool weft_netdev_of_verbs(const char *dev, const char *name)
{
	const size_t len = strcspn(dev, ":");
	char path[512];

	/* Both are names of one folder's entry, never a way out of it. */
	if (!len || memchr(dev, '/', len) || strchr(name, '/') || dev[0] == '.')
		return false;
	snprintf(path, sizeof(path), "%s/class/infiniband/%.*s/device/net/%s",
		 weft_sysfs_root, (int)len, dev, name);
	return !access(path, F_OK) || has_parent(dev, len, name);
}

/* One entry of UCX's form. */
static bool entry_names(const char *entry, const char *name)
{
	const char *range = strchr(entry, '[');
	const size_t len = strcspn(entry, ":");

	/*
	 * UCX 1.22 knows ranges (eth[0-3]) and applies them itself to our
	 * devices' names: to agree with it, this need not be exact.
	 */
	if (range)
		return !strncmp(entry, name, (size_t)(range - entry));
	return (strlen(name) == len && !strncmp(entry, name, len)) ||
	       weft_netdev_of_verbs(entry, name);
}

bool weft_netdev_match(const char *list, enum weft_netdev_form form,
		       const char *name)
{
	const bool nccl = form == WEFT_NETDEV_NCCL;
	bool negated, whole, hit = false;
	char entry[64];
	const char *end;
	size_t len;

	negated = *list == '^';
	list += negated;
	whole = nccl && *list == '=';
	list += whole;
	if (!*list || (!nccl && !strcmp(list, "all")))
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
				     : entry_names(entry, name);
	}
	return hit != negated;
}

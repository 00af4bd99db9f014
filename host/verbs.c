/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "host/netdevs.h"
#include "host/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/address.h"
#include "host/gpu.h"
#include "settings/settings.h"
#include "util/file.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/util.h"
#ifdef HAVE_VERBS_H
#include "util/drivers/verbs.h"
#endif

#define MAX_PORTS 256
#define MAX_GIDS  256
#define MAX_PKEYS 65536
#define PKEY_FULL 0x8000 /* a full member of the partition */
/* UCT_IB_DEFAULT_ROCEV2_DSCP in UCX's uct/ib/base/ib_device.h */
#define ROCE_TRAFFIC_CLASS 106
#define CLASS		   "class/infiniband"
#define NODES		   "class/infiniband_verbs"

/* The first line of a sysfs file, without newline; false: cannot read it. */
static bool read_line(char *text, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static bool read_line(char *text, size_t len, const char *fmt, ...)
{
	char path[512];
	int at = snprintf(path, sizeof(path), "%s/", weft_sysfs_root);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path + at, sizeof(path) - (size_t)at, fmt, ap);
	va_end(ap);
	if (weft_file_read(path, text, len) <= 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	return true;
}

/* "40 Gb/sec (4X QDR)", in 10^9 bits/s. */
static uint64_t parse_rate(const char *text)
{
	uint64_t tenths = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9' && p - text < 6; p++)
		tenths = tenths * 10 + (uint64_t)(*p - '0');
	tenths *= 10;
	if (p[0] == '.' && p[1] >= '0' && p[1] <= '9')
		tenths += (uint64_t)(p[1] - '0');
	return tenths * 100000000 / 8;
}

/* "0002:c903:00a1:b2c3" */
static uint64_t parse_guid(const char *text)
{
	uint64_t v = 0;

	for (; *text; text++) {
		if (*text >= '0' && *text <= '9')
			v = v << 4 | (uint64_t)(*text - '0');
		else if (*text >= 'a' && *text <= 'f')
			v = v << 4 | (uint64_t)(*text - 'a' + 10);
	}
	return v;
}

/* The port's interface: for RoCE that of the GID, for IPoIB by dev_port. */
static void find_netdev(struct weft_verbs_port *p)
{
	char path[512], text[32];
	struct dirent *e;
	uint64_t port;
	DIR *dir;

	if (read_line(p->netdev, sizeof(p->netdev),
		      CLASS "/%s/ports/%u/gid_attrs/ndevs/0", p->dev, p->port))
		return;
	p->netdev[0] = '\0';
	snprintf(path, sizeof(path), "%s/" CLASS "/%s/device/net",
		 weft_sysfs_root, p->dev);
	dir = opendir(path);
	if (!dir) {
		/* a software device has a parent instead of a PCI device */
		if (!read_line(p->netdev, sizeof(p->netdev), CLASS "/%s/parent",
			       p->dev))
			p->netdev[0] = '\0';
		return;
	}
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.' || strlen(e->d_name) >= IF_NAMESIZE)
			continue;
		if (!read_line(text, sizeof(text),
			       CLASS "/%s/device/net/%s/dev_port", p->dev,
			       e->d_name) ||
		    weft_parse_u64(text, 0, 255, &port))
			port = p->port - 1;
		if (port != p->port - 1)
			continue;
		if (!p->netdev[0] || strcmp(e->d_name, p->netdev) < 0)
			snprintf(p->netdev, sizeof(p->netdev), "%s", e->d_name);
	}
	closedir(dir);
}

/*
 * Only channel adapters will do: iWARP connects its queue pairs differently,
 * and EFA and usNIC have no reliable ones (enum rdma_node_type in the kernel's
 * include/rdma/ib_verbs.h: 1 is a channel adapter, Soft-RoCE included).
 */
static bool is_channel_adapter(const char *dev)
{
	char text[32];

	return !read_line(text, sizeof(text), CLASS "/%s/node_type", dev) ||
	       !strncmp(text, "1:", 2);
}

/* False: no such port, down, or not a channel adapter. */
static bool read_port(const char *dev, unsigned int port,
		      struct weft_verbs_port *p)
{
	char text[128];

	memset(p, 0, sizeof(*p));
	if (!read_line(text, sizeof(text), CLASS "/%s/ports/%u/state", dev,
		       port) ||
	    !strstr(text, "ACTIVE") || !is_channel_adapter(dev))
		return false;
	snprintf(p->dev, sizeof(p->dev), "%s", dev);
	p->port = port;
	snprintf(p->name, sizeof(p->name), "%s:%u", p->dev, port);
	if (read_line(text, sizeof(text), CLASS "/%s/ports/%u/link_layer", dev,
		      port))
		p->roce = !strcmp(text, "Ethernet");
	if (read_line(text, sizeof(text), CLASS "/%s/ports/%u/rate", dev, port))
		p->speed = parse_rate(text);
	if (read_line(text, sizeof(text), CLASS "/%s/node_guid", dev))
		p->guid = parse_guid(text);
	find_netdev(p);
	snprintf(text, sizeof(text), CLASS "/%s/device", dev);
	weft_pci_find(text, &p->pci);
	return true;
}

static int compare_ports(const void *a, const void *b)
{
	const struct weft_verbs_port *x = a, *y = b;
	size_t lx = strlen(x->dev), ly = strlen(y->dev);
	int order;

	/* mlx5_2 before mlx5_10 */
	if (lx != ly)
		return lx < ly ? -1 : 1;
	order = strcmp(x->dev, y->dev);
	return order ? order : (int)x->port - (int)y->port;
}

static int add_ports(const char *dev, struct weft_verbs_port *found, int n)
{
	char path[512];
	struct dirent *e;
	uint64_t port;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/" CLASS "/%s/ports", weft_sysfs_root,
		 dev);
	dir = opendir(path);
	while (dir && n < MAX_PORTS && (e = readdir(dir)))
		if (!weft_parse_u64(e->d_name, 1, 255, &port) &&
		    read_port(dev, (unsigned int)port, &found[n]))
			n++;
	if (dir)
		closedir(dir);
	return n;
}

/* All active ports, regardless of the settings. */
static int list_ports(struct weft_verbs_port **list)
{
	struct weft_verbs_port *found;
	char path[512];
	struct dirent *e;
	DIR *dir;
	int n = 0;

	found = calloc(MAX_PORTS, sizeof(*found));
	if (!found)
		return -ENOMEM;
	snprintf(path, sizeof(path), "%s/" CLASS, weft_sysfs_root);
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.' && strlen(e->d_name) < WEFT_VERBS_NAME)
			n = add_ports(e->d_name, found, n);
	if (dir)
		closedir(dir);
	qsort(found, (size_t)n, sizeof(*found), compare_ports);
	*list = found;
	return n;
}

int weft_verbs_list(struct weft_verbs_port **list)
{
	int i, kept = 0, n = list_ports(list);

	for (i = 0; i < n; i++)
		if (weft_netdevs_verbs_allowed((*list)[i].dev, (*list)[i].port,
					       (*list)[i].netdev))
			(*list)[kept++] = (*list)[i];
	return n < 0 ? n : kept;
}

int weft_verbs_list_near(struct weft_verbs_port **list)
{
	const int n = weft_verbs_list(list);
	struct weft_pci pci;
	unsigned int turn;
	int best;

	if (n < 2 || !weft_netdevs_auto() || !weft_gpu_of_process(&pci, &turn))
		return n;
	best = weft_verbs_nearest(*list, (size_t)n, &pci, turn, NULL);
	(*list)[0] = (*list)[best];
	return 1;
}

bool weft_verbs_present(void)
{
	struct weft_verbs_port *list;
	const int n = list_ports(&list);

	if (n >= 0)
		free(list);
	return n > 0;
}

static int find_port(bool (*fits)(const struct weft_verbs_port *, const char *),
		     const char *name, struct weft_verbs_port *out)
{
	struct weft_verbs_port *list;
	int i, n = list_ports(&list), err = -ENODEV;

	if (n < 0)
		return n;
	for (i = 0; i < n && err; i++)
		if (fits(&list[i], name)) {
			*out = list[i];
			err = 0;
		}
	free(list);
	return err;
}

static bool is_named(const struct weft_verbs_port *p, const char *name)
{
	return !strcmp(name, p->name) || !strcmp(name, p->dev);
}

static bool has_netdev(const struct weft_verbs_port *p, const char *name)
{
	return *name && !strcmp(name, p->netdev);
}

int weft_verbs_get(const char *name, struct weft_verbs_port *out)
{
	return find_port(is_named, name, out);
}

int weft_verbs_of_netdev(const char *netdev, struct weft_verbs_port *out)
{
	return find_port(has_netdev, netdev, out);
}

bool weft_verbs_openable(const char *dev)
{
	char path[512], text[WEFT_VERBS_NAME];
	struct dirent *e;
	bool known = false;
	int fd = -1;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/" NODES, weft_sysfs_root);
	dir = opendir(path);
	while (dir && !known && (e = readdir(dir))) {
		if (e->d_name[0] == '.' ||
		    !read_line(text, sizeof(text), NODES "/%s/ibdev",
			       e->d_name) ||
		    strcmp(text, dev))
			continue;
		known = true;
		/* access(2) does not see what a device cgroup forbids */
		snprintf(path, sizeof(path), "/dev/infiniband/%s", e->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (dir)
		closedir(dir);
	if (fd >= 0)
		close(fd);
	return !known || fd >= 0;
}

#ifdef HAVE_VERBS_H
bool weft_verbs_loads(void)
{
	return weft_verbs() != NULL;
}
#else
bool weft_verbs_loads(void)
{
	return false;
}
#endif

/* "fe80:0000:0000:0000:5054:00ff:fe12:3456" */
static bool parse_gid(const char *text, uint8_t gid[16])
{
	unsigned int digits = 0, i;
	uint8_t v;

	memset(gid, 0, 16);
	for (; *text; text++) {
		if (*text == ':')
			continue;
		if (*text >= '0' && *text <= '9')
			v = (uint8_t)(*text - '0');
		else if (*text >= 'a' && *text <= 'f')
			v = (uint8_t)(*text - 'a' + 10);
		else
			return false;
		if (digits == 32)
			return false;
		gid[digits / 2] |= (uint8_t)(digits % 2 ? v : v << 4);
		digits++;
	}
	for (i = 0; i < 16 && !gid[i]; i++)
		;
	return digits == 32 && i < 16;
}

static bool is_ipv4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid, mapped, sizeof(mapped));
}

/* The RoCE version of an entry of the GID table. */
static unsigned int read_gid_version(const struct weft_verbs_port *port,
				     unsigned int index)
{
	char type[32];

	return read_line(type, sizeof(type),
			 CLASS "/%s/ports/%u/gid_attrs/types/%u", port->dev,
			 port->port, index) &&
			       !strcmp(type, "RoCE v2")
		       ? 2
		       : 1;
}

/* Lower is better. */
static unsigned int rank_gid(const uint8_t gid[16], unsigned int version,
			     int family)
{
	const bool ipv4 = is_ipv4(gid);
	const bool link_local = gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
	unsigned int rank = ipv4 ? 0 : link_local ? 2 : 1;

	if ((family == AF_INET && !ipv4) || (family == AF_INET6 && ipv4))
		rank += 4;
	return version == 2 ? rank : rank + 8;
}

int weft_verbs_gid(const struct weft_verbs_port *port, int family,
		   unsigned int *index, uint8_t gid[16])
{
	unsigned int i, rank, best = UINT_MAX, last = MAX_GIDS - 1, first = 0;
	const unsigned int asked = weft_settings()->ib_gid_index;
	uint8_t this[16];
	char text[64];

	if (!port->roce)
		last = 0;
	else if (asked != UINT_MAX)
		first = last = asked;
	for (i = first; i <= last; i++) {
		if (!read_line(text, sizeof(text), CLASS "/%s/ports/%u/gids/%u",
			       port->dev, port->port, i))
			break;
		if (!parse_gid(text, this))
			continue;
		rank = !port->roce ? 0
				   : rank_gid(this, read_gid_version(port, i),
					      family);
		if (rank >= best)
			continue;
		best = rank;
		*index = i;
		memcpy(gid, this, sizeof(this));
	}
	if (best != UINT_MAX)
		return 0;
	if (port->roce && asked != UINT_MAX)
		return weft_fail(
			-ENODEV,
			"'%s' has no GID %u (WEFT_IB_GID_INDEX); leave it to 'auto'",
			port->name, asked);
	return weft_fail(
		-ENODEV,
		"'%s' has no GID; does its interface '%s' have an address?",
		port->name, port->netdev);
}

int weft_verbs_pkey(const struct weft_verbs_port *port, unsigned int *index)
{
	const unsigned int asked = weft_settings()->ib_pkey;
	unsigned int i, limited = UINT_MAX;
	uint64_t key;
	char text[16];

	*index = weft_settings()->ib_pkey_index;
	if (asked == UINT_MAX)
		return 0;
	*index = 0;
	if (port->roce)
		return 0;
	for (i = 0; i < MAX_PKEYS &&
		    read_line(text, sizeof(text), CLASS "/%s/ports/%u/pkeys/%u",
			      port->dev, port->port, i);
	     i++) {
		*index = i;
		if (weft_parse_u64(text, 1, 0xffff, &key) ||
		    (key & 0x7fff) != asked)
			continue;
		if (key & PKEY_FULL)
			return 0;
		if (limited == UINT_MAX)
			limited = i;
	}
	*index = limited;
	return limited != UINT_MAX
		       ? 0
		       : weft_fail(
				 -ENODEV,
				 "'%s' is in no partition 0x%x (WEFT_IB_PKEY or UCX_IB_PKEY); /sys/class/infiniband/%s/ports/%u/pkeys has those it is in",
				 port->name, asked, port->dev, port->port);
}

unsigned int weft_verbs_traffic_class(const struct weft_verbs_port *port,
				      unsigned int gid_index)
{
	static const char global[] = "Global tclass=";
	const unsigned int asked = weft_settings()->ib_traffic_class;
	uint64_t ports;
	char text[64];

	if (asked != UINT_MAX)
		return asked;
	if (!port->roce || read_gid_version(port, gid_index) != 2)
		return 0;
	if (read_line(text, sizeof(text), CLASS "/%s/tc/%u/traffic_class",
		      port->dev, port->port) &&
	    !strncmp(text, global, sizeof(global) - 1) &&
	    !weft_parse_u64(text + sizeof(global) - 1, 0, 255, &ports))
		return (unsigned int)ports;
	return ROCE_TRAFFIC_CLASS;
}

#define FABRIC_ROCE_IPV4 (WEFT_FABRIC | 0x40)
#define FABRIC_ROCE_IPV6 (WEFT_FABRIC | 0x41)
#define FABRIC_ROCE	 FABRIC_ROCE_IPV4 /* at least this */
#define PREFIX_DIGESTS	 61		  /* prime, so that neighbours differ */

uint8_t weft_verbs_fabric(const struct weft_verbs_port *port,
			  const uint8_t gid[16])
{
	uint64_t prefix = 0;
	unsigned int i;

	if (port->roce)
		return is_ipv4(gid) ? FABRIC_ROCE_IPV4 : FABRIC_ROCE_IPV6;
	for (i = 0; i < 8; i++)
		prefix = prefix << 8 | gid[i];
	return WEFT_FABRIC | (uint8_t)(prefix % PREFIX_DIGESTS);
}

bool weft_verbs_reachable(uint8_t ours, uint8_t theirs, const char **why)
{
	const char *text = "it is on another InfiniBand subnet";

	if (ours == theirs || !theirs)
		return true;
	if (ours >= FABRIC_ROCE && theirs >= FABRIC_ROCE)
		text = "its GID is of another family (IPv4 or IPv6); WEFT_IB_GID_INDEX chooses";
	else if (ours >= FABRIC_ROCE || theirs >= FABRIC_ROCE)
		text = "one port is InfiniBand, the other RoCE";
	if (why)
		*why = text;
	return false;
}

int weft_verbs_nearest(const struct weft_verbs_port *list, size_t n,
		       const struct weft_pci *to, unsigned int turn,
		       enum weft_distance *distance)
{
	enum weft_distance d, best = WEFT_NEAR_SYS;
	size_t i, ties = 0;

	if (!n)
		return -ENODEV;
	for (i = 0; i < n; i++) {
		d = weft_pci_distance(&list[i].pci, to);
		if (!ties || d < best) {
			best = d;
			ties = 0;
		}
		ties += d == best;
	}
	turn %= (unsigned int)ties;
	for (i = 0; i < n; i++)
		if (weft_pci_distance(&list[i].pci, to) == best && !turn--)
			break;
	if (distance)
		*distance = best;
	return (int)i;
}

/* "mlx5_0" and "mlx5_0:1" name port 1 of mlx5_0, by a prefix also "mlx5". */
static bool matches_port(const char *name, bool whole, const char *dev,
			 unsigned int port)
{
	const size_t len = strcspn(name, ":");
	uint64_t wanted;

	if (!len || strncmp(name, dev, len) || (whole && dev[len]))
		return false;
	return !name[len] ||
	       (!weft_parse_u64(name + len + 1, 1, 255, &wanted) &&
		wanted == port);
}

bool weft_verbs_match(const char *list, enum weft_verbs_form form,
		      const char *dev, unsigned int port)
{
	bool negated, whole = form == WEFT_VERBS_LIST, hit = false;
	char name[WEFT_VERBS_NAME + 8];
	const char *end;
	unsigned int i;
	size_t len;

	negated = *list == '^';
	list += negated;
	if (form == WEFT_VERBS_NCCL && *list == '=') {
		whole = true;
		list++;
	}
	if (!*list || !strcmp(list, "all"))
		return !negated;
	/* NCCL has no ranges, but no name has a bracket either */
	for (; *list && !hit; list = *end ? end + 1 : end) {
		end = strchrnul(list, ',');
		len = (size_t)(end - list);
		for (i = 0;
		     !hit && weft_range_name(list, len, i, name, sizeof(name));
		     i++)
			hit = matches_port(name, whole, dev, port);
	}
	return hit != negated;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/pci.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/file.h"
#include "util/parse.h"
#include "util/util.h"

const char *weft_sysfs_root = "/sys";

#define MAX_DEPTH 64

/* The components of a path from the host bridge on. */
struct pci_path {
	const char *at[MAX_DEPTH];
	size_t len[MAX_DEPTH];
	unsigned int n;
};

static int read_numa(const char *folder)
{
	char path[PATH_MAX + 16], text[32];
	uint64_t node;

	snprintf(path, sizeof(path), "%s/numa_node", folder);
	weft_file_read(path, text, sizeof(text));
	/* fails for "-1", which means that the firmware does not say */
	return weft_parse_u64(text, 0, 65535, &node) ? -1 : (int)node;
}

void weft_pci_find(const char *link, struct weft_pci *pci)
{
	char path[PATH_MAX];

	pci->numa = -1;
	snprintf(path, sizeof(path), "%s/%s", weft_sysfs_root, link);
	if (!realpath(path, pci->path)) {
		pci->path[0] = '\0';
		return;
	}
	pci->numa = read_numa(pci->path);
}

void weft_pci_find_busid(const char *busid, struct weft_pci *pci)
{
	char link[64];
	size_t i, skip = 0;

	/* the driver writes eight digits of the domain, sysfs four */
	if (strcspn(busid, ":") == 8 && !strncmp(busid, "0000", 4))
		skip = 4;
	snprintf(link, sizeof(link), "bus/pci/devices/%.32s", busid + skip);
	for (i = 0; link[i]; i++)
		link[i] = (char)tolower((unsigned char)link[i]);
	weft_pci_find(link, pci);
}

/* False: the path has no host bridge. */
static bool split_path(const struct weft_pci *pci, struct pci_path *w)
{
	const char *p = strstr(pci->path, "/pci"), *end;

	w->n = 0;
	if (!p)
		return false;
	while (*p == '/' && w->n < MAX_DEPTH) {
		end = strchrnul(++p, '/');
		w->at[w->n] = p;
		w->len[w->n++] = (size_t)(end - p);
		p = end;
	}
	return w->n > 0;
}

/* Functions of one device: "0000:17:00.0" and "0000:17:00.1". */
static bool is_same_device(const struct pci_path *a, const struct pci_path *b)
{
	const char *x = a->at[a->n - 1], *y = b->at[b->n - 1];
	size_t len = a->len[a->n - 1];

	return len == b->len[b->n - 1] && len > 2 && x[len - 2] == '.' &&
	       !strncmp(x, y, len - 2);
}

enum weft_distance weft_pci_distance(const struct weft_pci *a,
				     const struct weft_pci *b)
{
	unsigned int common = 0, up_a, up_b;
	struct pci_path wa, wb;

	if (!split_path(a, &wa) || !split_path(b, &wb))
		return WEFT_NEAR_SYS;
	while (common < wa.n && common < wb.n &&
	       wa.len[common] == wb.len[common] &&
	       !strncmp(wa.at[common], wb.at[common], wa.len[common]))
		common++;
	if (!common)
		return a->numa >= 0 && a->numa == b->numa ? WEFT_NEAR_NODE
							  : WEFT_NEAR_SYS;
	/* bridges below the common ancestor */
	up_a = wa.n > common ? wa.n - common - 1 : 0;
	up_b = wb.n > common ? wb.n - common - 1 : 0;
	if (common == wa.n || common == wb.n ||
	    (!up_a && !up_b && is_same_device(&wa, &wb)))
		return WEFT_NEAR_SAME;
	if (common == 1)
		return WEFT_NEAR_PHB;
	return up_a <= 1 && up_b <= 1 ? WEFT_NEAR_PIX : WEFT_NEAR_PXB;
}

const char *weft_distance_name(enum weft_distance d)
{
	static const char *const names[] = { "SAME", "PIX",  "PXB",
					     "PHB",  "NODE", "SYS" };

	return (size_t)d < ARRAY_SIZE(names) ? names[d] : "SYS";
}

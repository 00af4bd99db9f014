/* SPDX-License-Identifier: BSD-3-Clause */
/* Which GPUs this process may use: their device nodes, by the host's numbers */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/gpu.h"
#include "util/hash.h"

const char *weft_dev_root = "/dev";

static bool is_gpu_node(const char *name)
{
	static const char prefix[] = "nvidia";
	const size_t len = sizeof(prefix) - 1;

	return !strncmp(name, prefix, len) && name[len] &&
	       name[len + strspn(name + len, "0123456789")] == '\0';
}

/* open() it: stat() does not see what a device cgroup forbids. */
static bool can_open_node(int dir, const char *name, uint64_t *dev)
{
	const int fd = openat(dir, name, O_RDWR | O_CLOEXEC);
	struct statx st;
	bool yes;

	if (fd < 0)
		return false;
	yes = !statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) &&
	      S_ISCHR(st.stx_mode);
	close(fd);
	if (yes)
		*dev = (uint64_t)st.stx_rdev_major << 32 | st.stx_rdev_minor;
	return yes;
}

static int compare_devs(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void weft_gpu_nodes_find(struct weft_gpu_nodes *set)
{
	DIR *d = opendir(weft_dev_root);
	struct dirent *e;

	memset(set, 0, sizeof(*set));
	while (d && set->n < WEFT_GPUS_MAX && (e = readdir(d)))
		if (is_gpu_node(e->d_name) &&
		    can_open_node(dirfd(d), e->d_name, &set->dev[set->n]))
			set->n++;
	if (d)
		closedir(d);
	qsort(set->dev, set->n, sizeof(set->dev[0]), compare_devs);
}

uint32_t weft_gpu_nodes_id(void)
{
	struct weft_gpu_nodes set;

	weft_gpu_nodes_find(&set);
	return set.n ? (uint32_t)weft_hash_u64("weft gpu nodes", set.dev,
					       set.n * sizeof(set.dev[0]))
		     : 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft info: the GPUs, and what would carry memory between each two of them.
 * A child queries the driver, which may never answer; its exit closes what it
 * opens.  Creates no CUDA context.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "host/gpu.h"
#include "host/pci.h"
#include "host/rundir.h"
#include "tools/tool.h"
#include "util/drivers/cuda.h"
#include "util/log.h"

/* The GPUs that CUDA shows. */
struct driver {
	char why[256]; /* "": it has answered */
	unsigned int n;
	struct {
		char busid[WEFT_BUSID_LEN];
		bool vmm, fd;
	} gpu[WEFT_GPUS_MAX];
};

static struct {
	struct weft_gpus gpus; /* comes first: it takes no CUDA */
	struct driver driver;
} query;

/* ---- the child ----------------------------------------------------------- */

/* The first message is the cause. */
static void record_cause(void *arg, enum weft_level level, const char *file,
			 int line, const char *text)
{
	struct driver *d = arg;

	if (!*d->why)
		snprintf(d->why, sizeof(d->why), "%s", text);
}

static bool has_attribute(const struct weft_cuda *cu, int attr, int dev)
{
	int v = 0;

	return !cu->device_attr(&v, attr, dev) && v;
}

static void query_gpu(const struct weft_cuda *cu, struct driver *d, int dev)
{
	weft_gpu_busid(cu, dev, d->gpu[d->n].busid);
	d->gpu[d->n].vmm = has_attribute(cu, WEFT_CU_DEVICE_VMM, dev);
	d->gpu[d->n].fd = has_attribute(cu, WEFT_CU_DEVICE_POSIX_FD, dev);
	d->n++;
}

static void query_driver_gpus(struct driver *d)
{
	struct weft_cuda_scope s;
	int n = 0, i, dev;

	/* a program can import memory of GPUs that it hides from itself */
	unsetenv("CUDA_VISIBLE_DEVICES");
	weft_log_set_sink(record_cause, d);
	if (weft_cuda_init() || weft_cuda_enter(&s, NULL))
		return;
	if (s.cu->device_count(&n))
		n = 0;
	for (i = 0; i < n && i < WEFT_GPUS_MAX; i++)
		if (!s.cu->device_get(&dev, i))
			query_gpu(s.cu, d, dev);
	weft_cuda_leave(&s);
}

static void run_child(const void *nothing, const char *name, int out)
{
	const char *why;

	weft_gpus_find(&query.gpus);
	why = query.gpus.why;
	query.gpus.why = NULL;
	if (write(out, &query.gpus, sizeof(query.gpus)) != sizeof(query.gpus))
		_exit(1);
	if (why)
		snprintf(query.driver.why, sizeof(query.driver.why), "%s", why);
	else
		query_driver_gpus(&query.driver);
	tool_answer(out, &query.driver, sizeof(query.driver));
}

/* ---- its answer ---------------------------------------------------------- */

/* True: at least the list of GPUs has come. */
static bool ask_driver(void)
{
	struct driver *d = &query.driver;
	const size_t all = sizeof(query.gpus) + sizeof(*d);
	const size_t have = tool_ask_child(run_child, NULL, NULL, &query, all);

	if (have < all) {
		d->n = 0;
		snprintf(d->why, sizeof(d->why),
			 "the driver gave no answer within %d s",
			 TOOL_CHILD_MS / 1000);
	}
	return have >= sizeof(query.gpus);
}

static int find_cuda_gpu(const char *busid)
{
	unsigned int i;

	for (i = 0; i < query.driver.n; i++)
		if (!strcasecmp(query.driver.gpu[i].busid, busid))
			return (int)i;
	return -1;
}

/* Sets @why if other processes cannot import memory of @g. */
static bool is_unshareable(const struct weft_gpu *g, char *why, size_t len)
{
	const int i = find_cuda_gpu(g->busid);

	if (!g->here)
		snprintf(why, len, "the device node of %s is missing",
			 g->busid);
	else if (g->mig)
		snprintf(why, len, "%s is divided into instances (MIG)",
			 g->busid);
	else if (i < 0)
		snprintf(why, len, "CUDA does not show %s", g->busid);
	else if (!query.driver.gpu[i].vmm || !query.driver.gpu[i].fd)
		snprintf(
			why, len,
			"the driver cannot export memory of %s as a descriptor",
			g->busid);
	else
		return false;
	return true;
}

static void print_wire(unsigned int a, unsigned int b)
{
	const struct weft_gpu_pair *p = &query.gpus.pair[a][b];
	struct weft_pci one, other;

	if (p->nvlink) {
		printf("NVLink, %u links; ", p->links);
		return;
	}
	weft_pci_find_busid(query.gpus.gpu[a].busid, &one);
	weft_pci_find_busid(query.gpus.gpu[b].busid, &other);
	printf("%s (%s); ", p->known ? "PCIe" : "link unknown",
	       weft_distance_name(weft_pci_distance(&one, &other)));
}

static void print_pair(unsigned int a, unsigned int b)
{
	const struct weft_gpus *g = &query.gpus;
	char why[300];
	bool no;

	printf("  %s - %s  ", g->gpu[a].busid, g->gpu[b].busid);
	print_wire(a, b);
	if (*query.driver.why) {
		printf("unknown whether importable: %s\n", query.driver.why);
		return;
	}
	no = is_unshareable(&g->gpu[a], why, sizeof(why)) ||
	     is_unshareable(&g->gpu[b], why, sizeof(why));
	if (!no && g->pair[a][b].known && !g->pair[a][b].reads) {
		no = true;
		snprintf(why, sizeof(why),
			 "neither can read the other's memory");
	}
	if (no)
		printf("not importable: %s\n", why);
	else
		puts("importable");
}

void info_folder(void)
{
	char path[TOOL_PATH_MAX];
	const int err = weft_rundir_check(path, sizeof(path));

	if (err)
		printf("  run folder: none; '%s' %s%s\n", path,
		       err == -EPERM ? "is not private to this user"
				     : "cannot be used: ",
		       err == -EPERM ? "" : strerror(-err));
	else
		printf("  run folder: %s\n", path);
}

void info_gpu(void)
{
	const struct weft_gpus *g = &query.gpus;
	unsigned int a, b;

	puts("\nGPUs, and how their memory moves between processes of this host");
	if (!ask_driver()) {
		printf("  unknown: %s\n", query.driver.why);
		return;
	}
	for (a = 0; a < g->n && !g->gpu[a].here; a++)
		;
	if (a == g->n) {
		if (g->n)
			printf("  %u in this host, none for this process: %s\n",
			       g->n,
			       *query.driver.why
				       ? query.driver.why
				       : "their device nodes are missing");
		else
			puts("  none");
		return;
	}
	for (a = 0; a < g->n; a++)
		printf("  %s  %s%s\n", g->gpu[a].busid,
		       g->gpu[a].here ? g->gpu[a].name
				      : "its device node is missing",
		       g->gpu[a].mig ? ", divided into instances (MIG)" : "");
	for (a = 0; a < g->n; a++)
		for (b = a + 1; b < g->n; b++)
			print_pair(a, b);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What weft check prints for a bug report: where it ran, and the figures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bootstrap/address.h"
#include "config.h"
#include "host/gpu.h"
#include "host/host.h"
#include "tools/check/check.h"
#include "tools/tool.h"
#include "ucx_tl/ucxenv.h"
#include "util/file.h"
#include "util/util.h"

/* What the kernel says of NVIDIA's module, as it says it. */
static void print_driver(void)
{
	static const char prefix[] = "NVRM version: ";
	char line[256];

	weft_file_read("/proc/driver/nvidia/version", line, sizeof(line));
	line[strcspn(line, "\n")] = '\0';
	if (!strncmp(line, prefix, sizeof(prefix) - 1))
		puts(line + sizeof(prefix) - 1);
	else
		puts("no NVIDIA driver");
}

static void print_gpus(void)
{
	struct weft_gpus g;
	unsigned int i;

	if (!weft_gpu_here())
		return;
	weft_gpus_list(&g);
	for (i = 0; i < g.n; i++)
		printf("GPU %s %s%s%s\n", g.gpu[i].busid, g.gpu[i].name,
		       g.gpu[i].here ? "" : ", not of this container",
		       g.gpu[i].mig ? ", MIG" : "");
}

static void print_found(const char *name,
			size_t (*find)(struct tool_library out[TOOL_FOUND_MAX]))
{
	struct tool_library found[TOOL_FOUND_MAX];
	const size_t n = find(found);
	unsigned int any = 0;
	size_t i;

	for (i = 0; i < n; i++)
		if (found[i].found)
			printf("%s%s %u.%u.%u (%s) %s", any++ ? "; " : "", name,
			       found[i].version[0], found[i].version[1],
			       found[i].version[2], found[i].who,
			       found[i].path);
	if (any)
		putchar('\n');
	else
		printf("no %s found\n", name);
}

/* Only names that hold no password. */
static bool is_telling(const char *variable)
{
	static const char *const prefixes[] = {
		"WEFT_",
		"UCX_",
		"NCCL_",
		"UCXPY_",
		"DASK_UCX",
		"DASK_DISTRIBUTED__COMM__UCX",
		"CUDA_VISIBLE_DEVICES=",
		"LD_PRELOAD=",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (!strncmp(variable, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static void print_environment(void)
{
	char **at;

	for (at = environ; *at; at++)
		if (is_telling(*at))
			puts(*at);
}

static void print_rates(const char *way, const struct check_rates *rates)
{
	printf("%s: ", way);
	if (rates->usec > 0)
		printf("8 B in %.1f us, ", rates->usec);
	printf("put %.0f MB/s, get %.0f MB/s\n", rates->put / 1e6,
	       rates->get / 1e6);
}

static void print_pair(const struct check_pair *pair)
{
	char way[CHECK_PAIR_LEN];

	check_format_pair(pair, way);
	if (pair->measured)
		print_rates(way, &pair->rates);
	else
		printf("%s: %s\n", way,
		       pair->err ? strerror(-pair->err) : "not measured");
	if (pair->gpu.put > 0)
		print_rates("weft_nvl", &pair->gpu);
}

void check_report(const struct check_pair *pairs, int n, bool works)
{
	struct utsname host;
	int i;

	puts("\nTo report a problem, paste this, and what 'weft info' prints on "
	     "the other host:\n```");
	printf("weft " PACKAGE_VERSION ", wire %d, check: %s\n", WEFT_WIRE_MAX,
	       works ? "works" : "fails");
	if (!uname(&host))
		printf("%s %s %s, %u processors, ", host.sysname, host.release,
		       host.machine, weft_host_cpus());
	print_driver();
	print_gpus();
	print_found("UCX", tool_find_ucx);
	print_found("NCCL", tool_find_nccl);
	print_environment();
	for (i = 0; i < n; i++)
		print_pair(&pairs[i]);
	info_processes();
	puts("```");
}

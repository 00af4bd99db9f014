/* SPDX-License-Identifier: BSD-3-Clause */
/* weft info: what is here, what would be chosen, and why. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/host.h"
#include "bootstrap/netif.h"
#include "bootstrap/settings.h"
#include "bootstrap/ucxenv.h"
#include "bootstrap/verbs.h"
#include "config.h"
#include "tools/tool.h"
#include "ucx_tl/abi.h"
#include "util/util.h"

static const char help[] =
	"usage: weft info [settings [--man] | nccl]\n"
	"\n"
	"Shows this host's interfaces and GPUs, the UCX that programs load "
	"here, how weft\n"
	"enters it, and what would be chosen. Sends nothing and starts "
	"nothing.\n"
	"\n"
	"  settings   every setting, its value and where that came from\n"
	"  nccl       what the NCCL plugin takes, and what NCCL is told\n"
	"  --man      settings as docs/settings.md has them, without values\n"
	"  -h, --help show this\n";

static void print_speed(uint64_t bytes)
{
	const uint64_t mbit = bytes / 125000;

	if (!mbit)
		printf("%-12s", "speed ?");
	else if (mbit < 1000)
		printf("%3u Mbit/s  ", (unsigned int)mbit);
	else
		printf("%3g Gbit/s  ", (double)mbit / 1000);
}

/* Returns how many weft would use, other than loopback. */
static int print_interfaces(void)
{
	const int family = weft_settings()->family;
	struct weft_setting_info set;
	struct weft_netif *list, *nif;
	char text[WEFT_SOCKADDR_STR];
	int n, used = 0;

	puts("\nInterfaces");
	weft_settings_named("WEFT_NET_DEVICES", &set);
	n = weft_netif_list(family, &list);
	if (n < 0)
		return 0;
	if (!n)
		puts("  none is up and has an address");
	for (nif = list; nif < list + n; nif++) {
		weft_sockaddr_str(&nif->addr, text, sizeof(text));
		*strrchr(text, ':') = '\0'; /* no port yet */
		printf("  %-15s %-22s ", nif->name, text);
		print_speed(nif->loopback ? 0 : nif->speed);
		printf("mtu %-6u ", nif->mtu);
		if (!weft_settings_netdev_allowed(nif->name))
			printf("no: %s=%s leaves it out\n",
			       weft_setting_variable(&set), set.value);
		else if (nif->loopback)
			puts("yes, between processes of this host");
		else if (nif->link_local_only &&
			 !weft_settings_netdev_named(nif->name))
			puts("no: its address is link-local; name it in "
			     "WEFT_NET_DEVICES to use it");
		else
			used += puts("yes") != EOF;
	}
	free(list);
	return used;
}

static bool supported(const struct tool_ucx *u)
{
	return u->found && u->version[0] == 1 &&
	       u->version[1] >= WEFT_UCX_MINOR_MIN &&
	       u->version[1] <= WEFT_UCX_MINOR_MAX;
}

static bool print_ucx(void)
{
	struct tool_ucx found[TOOL_UCX_MAX];
	const size_t n = tool_find_ucx(found);
	bool any = false;
	size_t i;

	puts("\nUCX, as it is found in this environment");
	for (i = 0; i < n; i++) {
		if (!found[i].found) {
			printf("  %-9s none: %s\n", found[i].who, found[i].why);
			continue;
		}
		any |= supported(&found[i]);
		printf("  %-9s %u.%u.%u %s\n            %s; %s", found[i].who,
		       found[i].version[0], found[i].version[1],
		       found[i].version[2], found[i].path, found[i].why,
		       supported(&found[i]) ? "weft supports it"
					    : "weft does not support it");
		if (!supported(&found[i]))
			printf(" (1.%d to 1.%d)", WEFT_UCX_MINOR_MIN,
			       WEFT_UCX_MINOR_MAX);
		putchar('\n');
	}
	if (!any)
		puts("  A program may carry a UCX of its own; weft enters that "
		     "one too.");
	return any;
}

static bool print_libraries(void)
{
	const char *given = getenv("LD_PRELOAD");
	char path[TOOL_PATH_MAX];
	bool here;

	puts("\nHow weft enters it");
	here = tool_find("libweft_preload.so", path);
	printf("  LD_PRELOAD       %s%s\n",
	       here ? path
		    : "libweft_preload.so was not found: install weft whole",
	       here && given && strstr(given, path) ? ", set here"
	       : here				    ? " ('weft run' sets it)"
						    : "");
	if (tool_find("ucx/libuct_weft.so", path)) {
		*strrchr(path, '/') = '\0';
		printf("  UCX_PLUGIN_PATH  %s, with UCX 1.22 instead\n", path);
	} else {
		here = false;
		puts("  libuct_weft.so was not found: install weft whole");
	}
	return here;
}

/* Returns whether weft_ib is offered. */
static bool print_ib(void)
{
	const bool asked = weft_asked_for("weft_ib");
	struct weft_verbs_port *ports;
	const int n = weft_verbs_list_near(&ports);

	if (n < 0 || (!n && !asked))
		return false;
	printf("  InfiniBand, RoCE:");
	for (int i = 0; i < n; i++)
		printf(" %s", ports[i].name);
#ifdef HAVE_VERBS_H
	printf("%s: weft_ib is %s\n", n ? "" : " no active port",
	       !n ? "not offered"
	       : asked ? "offered" : "not offered, nobody asked for it");
	if (asked)
		info_ib_gpu(ports, n);
	free(ports);
	return n && asked;
#else
	printf("%s: no weft_ib, built without rdma-core's headers\n",
	       n ? "" : " no active port");
	free(ports);
	return false;
#endif
}

/* Which transport goes where, of those that are offered. */
static void print_ways(int interfaces, bool tcp, bool ib, bool nvl)
{
	static const char netdev[] =
		"weft_tcp, by the interface whose route leads there";

	printf("  to another host         %s\n",
	       ib    ? tcp ? "weft_ib, or weft_tcp where no port leads there"
			   : "weft_ib"
	       : !tcp ? "nothing of weft's"
	       : interfaces ? netdev : "none: no interface may be used");
	printf("  on this host            %s\n",
	       tcp ? "weft_tcp" : ib ? "weft_ib" : "nothing of weft's");
	if (nvl)
		puts("  GPU memory, this host   weft_nvl, between processes that "
		     "share a network\n                          namespace or "
		     "the folder of WEFT_RUN_DIR");
}

static void print_choice(int interfaces)
{
	struct weft_ucxenv out[WEFT_UCXENV_MAX];
	const char *tls = getenv("UCX_TLS");
	const bool asked = weft_asked_for("weft_tcp");
	const bool nvl = weft_asked_for("weft_nvl");
	const bool nvl_here = nvl && weft_gpu_here() &&
			      weft_cuda_copy_asked_for();
	bool ib, run_tcp = false, run_nvl = false;
	const uint8_t *secret;
	size_t i, n, len;

	puts("\nWhat would be chosen");
	printf("  UCX_TLS here is %s: weft_tcp is %s\n",
	       tls && *tls ? tls : "unset",
	       asked ? "offered" : "not offered, nobody asked for it");
	if (weft_gpu_here() || nvl)
		printf("  there is %s GPU here: weft_nvl is %s\n",
		       weft_gpu_here() ? "a" : "no",
		       !nvl			     ? "not offered, nobody asked for it"
		       : !weft_gpu_here()	     ? "not offered"
		       : !weft_cuda_copy_asked_for() ? "not offered, it needs cuda_copy in UCX_TLS"
						     : "offered");
	ib = print_ib();
	if (weft_settings()->ucx == WEFT_OFF)
		puts("  WEFT_UCX=off: weft stays out, also under weft run");
	n = weft_ucxenv(WEFT_UCXENV_LOADED, out);
	for (i = 0; i < n; i++)
		printf("  loaded here, weft sets  %s=%s  (%s)\n", out[i].name,
		       out[i].value, out[i].reason);
	n = weft_ucxenv(WEFT_UCXENV_RUN, out);
	for (i = 0; i < n; i++) {
		printf("  'weft run' would set    %s=%s  (%s)\n", out[i].name,
		       out[i].value, out[i].reason);
		if (strcmp(out[i].name, "UCX_TLS") &&
		    strcmp(out[i].name, "WEFT_UCX"))
			continue;
		run_tcp |= !strcmp(out[i].value, "on") ||
			   strstr(out[i].value, "weft_tcp");
		run_nvl |= strstr(out[i].value, "weft_nvl") != NULL;
	}
	if (weft_settings()->ucx == WEFT_OFF)
		return;
	/* it has said which file it is, and what is wrong with it */
	if (weft_settings_secret(&secret, &len) < 0) {
		puts("  Nothing: without its WEFT_SECRET_FILE nothing may connect");
		return;
	}
	if (asked || ib || nvl_here) {
		print_ways(interfaces, asked, ib, nvl_here);
	} else if (run_tcp || run_nvl) {
		puts("  As it is here nothing goes by weft; under 'weft run'");
		print_ways(interfaces, run_tcp, false, run_nvl);
	} else {
		puts("  Nothing goes by weft.");
	}
}

int info_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "man", no_argument, NULL, 'm' },
		{ 0 },
	};
	bool man = false, good;
	int c, used;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'm':
			man = true;
			break;
		default:
			return usage_error("info", "there is no option '%s'",
					   argv[optind - 1]);
		}
	}
	if (optind < argc) {
		if (!strcmp(argv[optind], "nccl") && optind + 1 == argc && !man)
			return info_nccl();
		if (strcmp(argv[optind], "settings") || optind + 1 < argc)
			return usage_error("info", "there is no '%s' to show",
					   argv[argc - 1]);
		return info_settings(man);
	}
	if (man)
		return usage_error("info", "--man belongs to 'settings'");
	printf("weft " PACKAGE_VERSION ", host %016llx, network namespace "
	       "%016llx, %u processors\n",
	       (unsigned long long)weft_host_id(),
	       (unsigned long long)weft_netns_id(), weft_host_cpus());
	info_gpu_begin();
	used = print_interfaces();
	print_ucx();
	good = print_libraries();
	info_gpu();
	print_choice(used);
	puts("\nSettings that are not the default ('weft info settings' shows "
	     "all)");
	c = 0;
	for (size_t i = 0; i < weft_settings_count(); i++) {
		struct weft_setting_info info;

		weft_settings_info(i, &info);
		if (strcmp(info.origin, "default"))
			c += printf("  %s=%s  (from %s)\n", info.name,
				    info.value, info.origin);
	}
	if (!c)
		puts("  none");
	return good ? 0 : EXIT_FAILED;
}

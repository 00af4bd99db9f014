/* SPDX-License-Identifier: BSD-3-Clause */
/* weft info: what is here, what would be chosen, and why. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/host.h"
#include "host/netdevs.h"
#include "host/netif.h"
#include "host/verbs.h"
#include "settings/settings.h"
#include "ucx_tl/ucxenv.h"
#include "config.h"
#include "tools/tool.h"
#include "util/util.h"

static const char help[] =
	"usage: weft info [--check]\n"
	"       weft info settings\n"
	"       weft info nccl\n"
	"\n"
	"Shows this host's interfaces and GPUs, the UCX that programs load "
	"here, how it\n"
	"loads weft, and what would be chosen. The last line says whether "
	"weft is ready.\n"
	"Sends nothing over the network.\n"
	"\n"
	"  settings   every setting, its value and its origin\n"
	"  nccl       what the NCCL plugin uses, and what it sets for NCCL\n"
	"  --check    exit code 1, too, where weft carries only under 'weft "
	"run'\n"
	"  -h, --help show this\n"
	"\n"
	"Exit codes: 0 weft is ready, 1 it is not, 2 wrong usage. With 'nccl': "
	"0 NCCL uses\n"
	"weft in this environment, 1 it does not.\n";

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

/* Print the interfaces that the settings name but that do not work. */
static void print_unusable(const struct weft_netif *list, int n,
			   const struct weft_setting_info *set)
{
	char name[WEFT_VERBS_NAME];
	int i;

	for (unsigned int at = 0; weft_netdevs_entry(at, name, sizeof(name));
	     at++) {
		for (i = 0; i < n; i++)
			if (!strcmp(list[i].name, name))
				break;
		if (i == n)
			printf("  %-15s named in %s: %s\n", name,
			       weft_setting_variable(set),
			       if_nametoindex(name)
				       ? "it is down or has no address"
				       : "no such interface");
	}
}

enum { IF_LOOPBACK = 1, IF_WIDE = 2 };

/* Returns which kinds may be used. */
static unsigned int print_interfaces(void)
{
	const int family = weft_settings()->family;
	struct weft_setting_info set;
	struct weft_netif *list, *nif;
	char text[WEFT_SOCKADDR_STR];
	unsigned int used = 0;
	int n;

	puts("\nInterfaces");
	weft_settings_named("WEFT_NET_DEVICES", &set);
	n = weft_netif_list(family, &list);
	if (n < 0)
		return 0;
	if (!n)
		puts("  none is up and has an address");
	for (nif = list; nif < list + n; nif++) {
		weft_sockaddr_str(&nif->addr, text, sizeof(text));
		*strrchr(text, ':') = '\0'; /* without the port */
		printf("  %-15s %-22s ", nif->name, text);
		print_speed(nif->loopback ? 0 : nif->speed);
		printf("mtu %-6u ", nif->mtu);
		if (!weft_netdevs_allowed(nif->name))
			printf("no: excluded by %s=%s\n",
			       weft_setting_variable(&set), set.value);
		else if (!nif->loopback && nif->link_local_only &&
			 !weft_netdevs_named(nif->name))
			puts("no: its address is link-local; name it in WEFT_NET_DEVICES to use it");
		else {
			used |= nif->loopback ? IF_LOOPBACK : IF_WIDE;
			puts(nif->loopback
				     ? "yes, between processes of this host"
				     : "yes");
		}
	}
	print_unusable(list, n, &set);
	free(list);
	return used;
}

/* Returns whether weft_ib is offered. */
static bool print_ib(void)
{
	const bool asked = weft_is_requested("weft_ib");
	struct weft_verbs_port *ports;
	const int n = weft_verbs_list_near(&ports);

	if (n < 0)
		return false;
	if (!n && !asked) {
		free(ports);
		return false;
	}
	printf("  InfiniBand, RoCE:");
	for (int i = 0; i < n; i++)
		printf(" %s", ports[i].name);
#ifdef HAVE_VERBS_H
	printf("%s: weft_ib is %s\n", n ? "" : " no active port",
	       !n      ? "not offered"
	       : asked ? "offered"
		       : "not offered, not requested");
	free(ports);
	return n && asked;
#else
	printf("%s: no weft_ib, built without rdma-core's headers\n",
	       n ? "" : " no active port");
	free(ports);
	return false;
#endif
}

/* The transports that are offered. */
struct offer {
	bool tcp, ib, shm, nvl;
};

/* Print which of the offered transports is used for which peers. */
static void print_paths(const struct offer *o, bool interfaces)
{
	static const char netdev[] =
		"weft_tcp, over the interface that the route uses";

	printf("  to another host         %s\n",
	       o->ib	 ? o->tcp ? "weft_ib, or weft_tcp if no port reaches it"
				  : "weft_ib"
	       : !o->tcp ? "not weft"
	       : interfaces ? netdev
			    : "none: no usable interface");
	printf("  on this host            %s%s\n",
	       o->shm ? "weft_shm, between processes that share a network\n"
			"                          namespace or the run folder "
			"(WEFT_RUN_DIR),\n                          else "
		      : "",
	       o->tcp  ? "weft_tcp"
	       : o->ib ? "weft_ib"
		       : "not weft");
	if (o->nvl)
		puts("  GPU memory, this host   weft_nvl, between processes that "
		     "share a network\n                          namespace or "
		     "the run folder (WEFT_RUN_DIR) and have\n"
		     "                          the same GPUs' device nodes; "
		     "else weft_shm");
	if (o->shm || o->nvl)
		info_folder();
}

/* How weft would be used. */
enum readiness { READY_NOWHERE, READY_BY_RUN, READY_HERE };

/* Prints what UCX_TLS requests here, and returns what is offered. */
static struct offer print_requested(unsigned int interfaces)
{
	const char *tls = getenv("UCX_TLS");
	const bool tcp = weft_is_requested("weft_tcp");
	const bool nvl = weft_is_requested("weft_nvl");
	const bool gpu = weft_gpu_here();
	const bool copy = weft_cuda_copy_requested();

	printf("  UCX_TLS here is %s: weft_tcp is %s\n",
	       tls && *tls ? tls : "unset",
	       tcp ? "offered" : "not offered, not requested");
	if (gpu || nvl)
		printf("  there is %s GPU here: weft_nvl is %s\n",
		       gpu ? "a" : "no",
		       !nvl    ? "not offered, not requested"
		       : !gpu  ? "not offered"
		       : !copy ? "not offered, it needs cuda_copy in UCX_TLS"
			       : "offered");
	return (struct offer){
		.tcp = tcp && interfaces,
		.ib = print_ib(),
		.shm = weft_is_requested("weft_shm"),
		.nvl = nvl && gpu && copy,
	};
}

/* Prints what 'weft run' would set, and returns what it would offer. */
static struct offer print_environment(void)
{
	struct weft_ucxenv out[WEFT_UCXENV_MAX];
	struct offer run = { 0 };
	size_t i, n;

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
		run.tcp |= !strcmp(out[i].value, "on") ||
			   strstr(out[i].value, "weft_tcp");
		run.shm |= strstr(out[i].value, "weft_shm") != NULL;
		run.nvl |= strstr(out[i].value, "weft_nvl") != NULL;
	}
	return run;
}

/* Why nothing works, or NULL. */
static const char *what_forbids(void)
{
	const uint8_t *secret;
	size_t len;

	if (weft_settings()->ucx == WEFT_OFF)
		return "WEFT_UCX=off";
	if (weft_settings_secret(&secret, &len) >= 0)
		return NULL;
	/* the error has been logged */
	puts("  Nothing: WEFT_SECRET_FILE cannot be read, so nothing may connect");
	return "WEFT_SECRET_FILE cannot be used";
}

/* @why_not: why it is READY_NOWHERE. */
static enum readiness print_choice(unsigned int interfaces,
				   enum info_entry entry, const char **why_not)
{
	const bool asked = weft_is_requested("weft_tcp");
	char library[TOOL_PATH_MAX];
	struct offer here, run;
	const char *why = NULL;
	bool blind;

	puts("\nWhat would be chosen");
	here = print_requested(interfaces);
	if (weft_settings()->ucx == WEFT_OFF)
		puts("  WEFT_UCX=off: weft is not offered, not even by weft run");
	run = print_environment();
	*why_not = what_forbids();
	if (*why_not)
		return READY_NOWHERE;
	blind = (asked || run.tcp) && !interfaces;
	if (!here.tcp && !here.ib && !here.nvl && !here.shm) {
		here = run;
		here.tcp = run.tcp && interfaces;
		/* programs find each other over an interface */
		here.shm = run.shm && (here.tcp || here.nvl);
		why = "it is not requested";
	} else if (entry != INFO_ENTERED) {
		why = "no UCX loads it";
	}
	if (!here.tcp && !here.ib && !here.nvl && !here.shm) {
		printf("  weft carries nothing%s.\n",
		       blind ? ": no usable interface" : "");
		*why_not =
			blind ? "no usable interface"
			      : "nothing here that the requested transports can use";
		return READY_NOWHERE;
	}
	if (why)
		printf("  In this environment weft carries nothing: %s%s\n",
		       why, entry != INFO_NO_WAY ? "; under 'weft run':" : "");
	if (!why || entry != INFO_NO_WAY)
		print_paths(&here, interfaces & IF_WIDE);
	*why_not = tool_find("libweft_preload.so", library)
			   ? "no UCX that is found here can load it"
			   : "libweft_preload.so was not found: reinstall weft";
	return !why		      ? READY_HERE
	       : entry != INFO_NO_WAY ? READY_BY_RUN
				      : READY_NOWHERE;
}

static void print_changed_settings(void)
{
	struct weft_setting_info info;
	int printed = 0;
	size_t i;

	puts("\nSettings that are not the default ('weft info settings' shows all)");
	for (i = 0; i < weft_settings_count(); i++) {
		weft_settings_info(i, &info);
		if (strcmp(info.origin, "default"))
			printed += printf("  %s=%s  (from %s)\n", info.name,
					  info.value, info.origin);
	}
	if (!printed)
		puts("  none");
}

/* The last line, so that it is what a first user sees.  The exit code. */
static int print_verdict(enum readiness ready, const char *why_not, bool check)
{
	putchar('\n');
	switch (ready) {
	case READY_HERE:
		puts("Ready: programs that are started here use weft");
		return 0;
	case READY_BY_RUN:
		puts("Ready: start programs with `weft run`");
		return check ? EXIT_FAILED : 0;
	case READY_NOWHERE:
		printf("Not ready: %s\n", why_not);
	}
	return EXIT_FAILED;
}

/* weft info without a topic. */
static int info_host(bool check)
{
	const char *why_not;
	enum readiness ready;
	enum info_entry entry;
	unsigned int used;

	printf("weft " PACKAGE_VERSION
	       ", host %016llx, network namespace %016llx, %u processors\n",
	       (unsigned long long)weft_host_id(),
	       (unsigned long long)weft_netns_id(), weft_host_cpus());
	info_install();
	used = print_interfaces();
	entry = info_ucx();
	info_gpu();
	ready = print_choice(used, entry, &why_not);
	print_changed_settings();
	info_processes();
	return print_verdict(ready, why_not, check);
}

int info_main(int argc, char **argv)
{
	int check = 0;
	const struct option options[] = {
		TOOL_HELP,
		{ "check", no_argument, &check, 1 },
		{ 0 },
	};
	int rc;

	/* an ignored SIGPIPE is inherited, and `| head` is no error */
	signal(SIGPIPE, SIG_DFL);
	rc = tool_options(argc, argv, options, false, NULL, help);
	if (rc >= 0)
		return rc;
	if (optind < argc) {
		if (check)
			return usage_error("info", "--check takes no topic");
		if (!strcmp(argv[optind], "nccl") && optind + 1 == argc)
			return info_nccl();
		if (strcmp(argv[optind], "settings") || optind + 1 < argc)
			return usage_error("info", "there is no topic '%s'",
					   argv[argc - 1]);
		info_settings();
		return 0;
	}
	return info_host(check);
}

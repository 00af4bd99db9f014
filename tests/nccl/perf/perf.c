/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl_perf: checks and measures an NCCL network plugin between two processes.
 * The command line, and the list of cases.
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/nccl/perf/cases.h"
#include "util/parse.h"

#define CASE(n, w, r, f, ...)                                           \
	{                                                               \
		.name = n, .what = w, .ranks = r, .run = f, __VA_ARGS__ \
	}

const struct perf_case perf_cases[] = {
	CASE("properties", "a device that NCCL can use", 2, case_properties),
	CASE("sizes", "0 B to 64 MiB, true size at the receiver", 2, case_sizes,
	     .slow = 2),
	CASE("unaligned", "odd addresses and sizes", 2, case_unaligned),
	CASE("in-flight", "as many requests as NCCL has out", 2,
	     case_in_flight),
	CASE("both-ways", "both directions at once", 2, case_both_ways),
	CASE("late-receive", "sends that wait for their receives", 2,
	     case_late_receive),
	CASE("late-send", "receives that wait for their sends", 2,
	     case_late_send),
	CASE("early-completion", "receives that may complete early (LL)", 2,
	     case_early_completion),
	CASE("grouped", "several receives in one request", 2, case_grouped),
	CASE("register-beside", "registration beside transfers", 2,
	     case_register_beside),
	CASE("listen-reuse", "several connections to one listener", 2,
	     case_listen_reuse),
	CASE("many-comms", "64 comms between two ranks", 2, case_many_comms,
	     .slow = 2),
	CASE("two-contexts", "two communicators at once", 2, case_two_contexts),
	CASE("threads", "four threads, each with comms of its own", 2,
	     case_threads),
	CASE("connect-beside", "other connections come and go beside transfers",
	     2, case_connect_beside),
	CASE("self", "a rank connects to itself", 1, case_self),
	CASE("ring", "four ranks in a ring", 4, case_ring),
	CASE("reload", "dlclose leaves nothing, and loads again", 2,
	     case_reload),
	CASE("close-in-flight", "comms closed with requests out", 2,
	     case_close_in_flight, .slow = 2),
	CASE("too-large", "a send larger than its receive is an error", 2,
	     case_too_large),
	CASE("peer-killed", "a killed rank is an error in bounded time", 2,
	     case_peer_killed, .killed = true, .slow = 2),
	CASE("peer-busy", "a rank that is away is not dead", 2, case_peer_busy,
	     .slow = 2, .once = true),
	CASE("peer-stopped", "nor is one that is stopped", 2, case_peer_stopped,
	     .slow = 2, .once = true),
	{ .name = NULL },
};

enum {
	EXIT_FAILED = 1, /* a check failed */
	EXIT_USAGE = 2,	 /* the command line makes no sense */
};

static void complain(const char *fmt, va_list ap)
{
	fputs("nccl_perf: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

static int __attribute__((format(printf, 1, 2))) fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(fmt, ap);
	va_end(ap);
	return EXIT_FAILED;
}

static int __attribute__((format(printf, 1, 2)))
usage_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(fmt, ap);
	va_end(ap);
	fputs("'nccl_perf --help' shows how it is used\n", stderr);
	return EXIT_USAGE;
}

static const char help[] =
	"usage: nccl_perf [OPTION...] PLUGIN\n"
	"\n"
	"Checks an NCCL network plugin, ours or anyone's, and measures it between two\n"
	"processes of this host. Neither NCCL nor a GPU is needed; the checks compare\n"
	"every byte that arrives. PLUGIN is a file or a name as in NCCL_NET_PLUGIN.\n"
	"\n"
	"  --api A,B        versions of the interface that the ranks take in turn, 6 to\n"
	"                   12; one stands for both (default: its newest)\n"
	"  --all-api        the checks with every version that the plugin has\n"
	"  --case NAME      only this check; may be repeated\n"
	"  --list           names the checks\n"
	"  --speed          only measure\n"
	"  --check          only check\n"
	"  --comms N        connections that carry the bandwidth figure (default 4)\n"
	"  --max-size SIZE  largest message that is measured (default 64m)\n"
	"  --netns A,B      network namespaces of the ranks, by name or path\n"
	"  --env R:N=V      a variable of rank R's environment; may be repeated\n"
	"  --timeout S      per check (default 60); longer where the load is higher\n"
	"                   than the number of processors\n"
	"  --json           figures as JSON, one object per line\n"
	"  --tap            checks as TAP\n"
	"  --verbose        all that the plugin logs\n"
	"  --help           show this\n"
	"\n"
	"Exit status: 0 all is well, 1 a check failed, 2 the command line is wrong.\n";

enum {
	O_API = 256,
	O_CASE,
	O_COMMS,
	O_SIZE,
	O_NETNS,
	O_ENV,
	O_TIMEOUT,
};

static struct wanted {
	struct perf_options opt;
	const char *cases[64];
	unsigned int ncases;
	int all_api, speed, check, tap, list, help;
} wanted = {
	.opt = { .time_limit = 60, .comms = 4, .max_size = (size_t)64 << 20 },
};

static const struct option long_options[] = {
	{ "api", required_argument, NULL, O_API },
	{ "all-api", no_argument, &wanted.all_api, 1 },
	{ "case", required_argument, NULL, O_CASE },
	{ "list", no_argument, &wanted.list, 1 },
	{ "speed", no_argument, &wanted.speed, 1 },
	{ "check", no_argument, &wanted.check, 1 },
	{ "comms", required_argument, NULL, O_COMMS },
	{ "max-size", required_argument, NULL, O_SIZE },
	{ "netns", required_argument, NULL, O_NETNS },
	{ "env", required_argument, NULL, O_ENV },
	{ "timeout", required_argument, NULL, O_TIMEOUT },
	{ "json", no_argument, &wanted.opt.json, 1 },
	{ "tap", no_argument, &wanted.tap, 1 },
	{ "verbose", no_argument, &wanted.opt.verbose, 1 },
	{ "help", no_argument, &wanted.help, 1 },
	{ NULL, 0, NULL, 0 },
};

static bool known_case(const char *name)
{
	const struct perf_case *c;

	for (c = perf_cases; c->name; c++)
		if (!strcmp(c->name, name))
			return true;
	return false;
}

static int number(const char *opt, const char *text, uint64_t min, uint64_t max,
		  uint64_t *out)
{
	if (weft_parse_size(text, min, max, out) < 0)
		return usage_error("--%s '%s' is not a number from "
				   "%llu to %llu",
				   opt, text, (unsigned long long)min,
				   (unsigned long long)max);
	return 0;
}

static int api(struct wanted *w, char *arg)
{
	char *comma = strchr(arg, ','), *text[2] = { arg, arg };
	uint64_t n;
	int i, rc;

	if (comma) {
		*comma = '\0';
		text[1] = comma + 1;
	}
	for (i = 0; i < 2; i++) {
		rc = number("api", text[i], PERF_API_MIN, PERF_API_MAX, &n);
		if (rc)
			return rc;
		w->opt.api[i] = (int)n;
	}
	return 0;
}

static int parse_option(struct wanted *w, int o, char *arg)
{
	uint64_t n;
	char *comma;
	int rc;

	switch (o) {
	case O_API:
		return api(w, arg);
	case O_COMMS:
		rc = number("comms", arg, 1, 64, &n);
		w->opt.comms = (unsigned int)n;
		return rc;
	case O_SIZE:
		rc = number("max-size", arg, 8, 1 << 30, &n);
		w->opt.max_size = n;
		return rc;
	case O_TIMEOUT:
		rc = number("timeout", arg, 1, 36000, &n);
		w->opt.time_limit = (unsigned int)n;
		return rc;
	case O_CASE:
		if (!known_case(arg))
			return usage_error("no check is named '%s'; "
					   "--list shows them",
					   arg);
		if (w->ncases < sizeof(w->cases) / sizeof(*w->cases))
			w->cases[w->ncases++] = arg;
		return 0;
	case O_NETNS:
		comma = strchr(arg, ',');
		if (!comma)
			return usage_error("--netns wants two, as in "
					   "--netns a,b");
		*comma = '\0';
		w->opt.netns[0] = arg;
		w->opt.netns[1] = comma + 1;
		return 0;
	case O_ENV:
		if (*arg < '0' || *arg - '0' >= PERF_RANKS_MAX ||
		    arg[1] != ':' || arg[2] == '=' || !strchr(arg + 2, '=') ||
		    w->opt.nenv == PERF_ENV_MAX)
			return usage_error("--env wants RANK:NAME="
					   "VALUE, not '%s'",
					   arg);
		w->opt.env[w->opt.nenv++] = arg;
		return 0;
	case 0: /* one without a value */
		return 0;
	default:
		return EXIT_USAGE;
	}
}

static bool asked_for(const struct wanted *w, const char *name)
{
	unsigned int i;

	for (i = 0; i < w->ncases; i++)
		if (!strcmp(w->cases[i], name))
			return true;
	return !w->ncases;
}

/* "v12", or "v6,12" */
static const char *versions_of(const struct perf_options *opt)
{
	static char text[16];

	if (opt->api[0] == opt->api[1])
		snprintf(text, sizeof(text), "v%d", opt->api[0]);
	else
		snprintf(text, sizeof(text), "v%d,%d", opt->api[0],
			 opt->api[1]);
	return text;
}

static void print_tap(enum perf_verdict v, unsigned int n,
		      const struct perf_options *opt, const struct perf_case *c,
		      char *text)
{
	char *line, *save = NULL;

	printf("%sok %u - %s %s: %s%s%s\n", v == PERF_FAILED ? "not " : "", n,
	       versions_of(opt), c->name, c->what,
	       v == PERF_SKIPPED ? " # SKIP " : "",
	       v == PERF_SKIPPED ? text : "");
	if (v == PERF_FAILED)
		for (line = strtok_r(text, "\n", &save); line;
		     line = strtok_r(NULL, "\n", &save))
			printf("#   %s\n", line);
}

static void print_plain(enum perf_verdict v, const struct perf_options *opt,
			const struct perf_case *c, const char *text)
{
	static const char *const word[] = {
		[PERF_OK] = "ok",
		[PERF_SKIPPED] = "skipped",
		[PERF_FAILED] = "FAILED",
	};

	printf("%-4s %-17s %-8s %s\n", versions_of(opt), c->name, word[v],
	       *text ? text : c->what);
}

/* Failed checks, of version @api or (0) of those that were chosen. */
static unsigned int check_one(const struct wanted *w, int api,
			      unsigned int *count)
{
	struct perf_options opt = w->opt;
	const struct perf_case *c;
	unsigned int failed = 0;
	enum perf_verdict v;
	char text[2048];

	if (api)
		opt.api[0] = opt.api[1] = api;
	for (c = perf_cases; c->name; c++) {
		if (!asked_for(w, c->name) ||
		    (c->once && opt.api[0] != w->opt.api[0]))
			continue;
		v = perf_run(c, &opt, text, sizeof(text));
		failed += v == PERF_FAILED;
		if (w->tap)
			print_tap(v, ++*count, &opt, c, text);
		else
			print_plain(v, &opt, c, text);
		fflush(stdout);
	}
	return failed;
}

static int newest(unsigned int versions)
{
	int api = PERF_API_MAX;

	while (!(versions & 1u << api))
		api--;
	return api;
}

static int run(struct wanted *w)
{
	unsigned int versions, failed = 0, count = 0;
	char text[8192];
	int i;

	versions = perf_plugin_versions(w->opt.plugin, text, sizeof(text));
	if (!versions)
		return fail("%s", text);
	for (i = 0; i < 2; i++) {
		if (!w->opt.api[i])
			w->opt.api[i] = newest(versions);
		if (!(versions & 1u << w->opt.api[i]))
			return fail("'%s' has no "
				    "ncclNetPlugin_v%d",
				    w->opt.plugin, w->opt.api[i]);
	}
	if (!w->speed && !w->all_api)
		failed += check_one(w, 0, &count);
	for (i = PERF_API_MAX; !w->speed && w->all_api && i >= PERF_API_MIN;
	     i--)
		if (versions & 1u << i)
			failed += check_one(w, i, &count);
	if (w->tap && count)
		printf("1..%u\n", count);
	if (!w->check && !w->ncases) {
		if (perf_run(&perf_speed, &w->opt, text, sizeof(text)) ==
		    PERF_FAILED)
			failed++;
		puts(text);
	}
	return failed ? EXIT_FAILED : 0;
}

int main(int argc, char **argv)
{
	struct wanted *w = &wanted;
	const struct perf_case *c;
	int o, rc;

	opterr = 0;
	optind = 1;
	while ((o = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (o == '?')
			return usage_error("'%s' is no option, or "
					   "wants a value",
					   argv[optind - 1]);
		rc = parse_option(w, o, optarg);
		if (rc)
			return rc;
	}
	if (w->help) {
		fputs(help, stdout);
		return 0;
	}
	if (w->list) {
		for (c = perf_cases; c->name; c++)
			printf("%-17s %s\n", c->name, c->what);
		return 0;
	}
	if (argc - optind != 1)
		return usage_error(argc == optind ? "which plugin?"
						  : "one plugin at a time");
	if (w->speed && (w->check || w->ncases))
		return usage_error("--speed leaves no checks to make");
	w->opt.plugin = argv[optind];
	return run(w);
}

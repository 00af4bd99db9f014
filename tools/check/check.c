/* SPDX-License-Identifier: BSD-3-Clause */
/* weft check: the command line. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/check/check_control.h"
#include "tools/tool.h"

static const char help[] =
	"usage: weft check [--json] HOST[:PORT]\n"
	"       weft check [--json] --scheduler-file FILE [:PORT]\n"
	"       weft check --listen [[ADDRESS]:PORT]\n"
	"\n"
	"Does weft work between two hosts, over which devices, and how fast? Run "
	"'weft\n"
	"check --listen' on one and 'weft check HOST' on the other. It sends "
	"messages both\n"
	"ways, puts and gets blocks of growing size, compares every byte, and "
	"then\n"
	"measures the speed, briefly also of the other interfaces and ports that "
	"both have.\n"
	"If both sides have a GPU, it does the same between their memory. It "
	"says what to\n"
	"change, and takes a minute at most if all devices answer.\n"
	"\n"
	"  -l, --listen  serve checks, one after the other, until stopped\n"
	"  -s, --scheduler-file FILE\n"
	"                HOST is that of the Dask scheduler that wrote FILE\n"
	"  -j, --json    print one line of JSON, and nothing else to stdout\n"
	"  -h, --help    show this\n"
	"\n"
	"Exit codes: 0 all of it works, 1 something does not, 2 wrong usage, 3 no\n"
	"answer (yet).\n"
	"\n"
	"PORT is that of the control connection (default " CHECK_PORT
	"; 0 is any free port).\n"
	"On both hosts the device listens on another port, of "
	"WEFT_PORT_RANGE. Write an\n"
	"IPv6 address in brackets: [fd00::1]:19515.\n";

/* @where: "" or ":PORT". */
static int check_scheduler(const char *file, const char *where, bool json)
{
	/* Python is where Dask is, and its library knows JSON */
	static const char code[] =
		"import json, sys\n"
		"with open(sys.argv[1]) as file:\n"
		"    print(json.load(file)['address'], end='')\n";
	char python[TOOL_PATH_MAX], address[512], text[600], *host;
	const char *port, *scheme;

	if (*where && *where != ':')
		return usage_error("check", "'%s' is not :PORT", where);
	if (access(file, R_OK)) {
		if (errno != ENOENT)
			return tool_error("check", "cannot read '%s': %m",
					  file);
		tool_error(
			"check",
			"cannot read '%s': %m; Dask's scheduler writes it when it is up",
			file);
		return EXIT_AWAY;
	}
	if (!tool_ask_python(code, file, python, address, sizeof(address)))
		return tool_error("check",
				  "%s finds no address of a scheduler in '%s'",
				  python, file);
	snprintf(text, sizeof(text), "%s", address);
	scheme = strstr(text, "://") ? text : "";
	host = *scheme ? strstr(address, "://") + 3 : address;
	if (check_split_host_port(host, &host, &port) || !*host)
		return tool_error("check", "'%s' has an invalid address: '%s'",
				  file, text);
	if (!json && !strncmp(scheme, "tcp:", 4))
		puts("the scheduler talks tcp://, which weft leaves alone: "
		     "'weft run dask scheduler --protocol\nucxx' starts one that "
		     "it carries");
	snprintf(text, sizeof(text), strchr(host, ':') ? "[%s]%s" : "%s%s",
		 host, where);
	return check_host(text, json);
}

int check_main(int argc, char **argv)
{
	int listen = 0, json = 0;
	const struct option options[] = {
		TOOL_HELP,
		{ "listen", no_argument, &listen, 'l' },
		{ "scheduler-file", required_argument, NULL, 's' },
		{ "json", no_argument, &json, 'j' },
		{ 0 },
	};
	char any[] = "";
	const char *file = NULL;
	char *where;
	int rc = tool_options(argc, argv, options, false, &file, help);

	if (rc >= 0)
		return rc;
	if (argc - optind > 1)
		return usage_error("check", "more than one host");
	where = optind < argc ? argv[optind] : any;
	if (listen && (file || json))
		return usage_error("check", "--listen takes no --%s",
				   file ? "scheduler-file" : "json");
	if (listen)
		return check_listen(where);
	if (file)
		return check_scheduler(file, where, json);
	if (optind == argc)
		return usage_error("check", "no host given");
	return check_host(where, json);
}

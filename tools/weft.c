/* SPDX-License-Identifier: BSD-3-Clause */
/* The command: a table of subcommands. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "tools/tool.h"
#include "util/util.h"

static const struct {
	const char *name;
	const char *summary;
	int (*main)(int argc, char **argv);
} commands[] = {
	{ "info", "Show what this host has, what would be used, and why",
	  info_main },
	{ "run", "Start a program with weft in its UCX and NCCL", run_main },
	{ "check", "Test whether it works between two hosts, and how fast",
	  check_main },
	{ "status", "Show what runs now, and what has gone over which way",
	  status_main },
	{ "top", "The same once a second, and how fast", top_main },
	{ "stats", "Add up what WEFT_STATS made a job write", stats_main },
	{ "path", "Print the path of a library, for a variable", path_main },
};

static void print_help(FILE *to)
{
	size_t i;

	fputs("usage: weft COMMAND [OPTION...]\n\n", to);
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(to, "  weft %-8s %s\n", commands[i].name,
			commands[i].summary);
	fputs("\n'weft COMMAND --help' explains one; 'weft --version' prints the "
	      "version.\n"
	      "Programs are started unchanged: weft run python script.py\n",
	      to);
}

static int is_one_of(const char *word, const char *a, const char *b)
{
	return !strcmp(word, a) || !strcmp(word, b);
}

/* Output that was truncated by a full disk is an error. */
static int flush_output(int rc)
{
	if (fflush(stdout) || ferror(stdout)) {
		perror("weft: cannot write");
		return rc ? rc : EXIT_FAILED;
	}
	return rc;
}

int main(int argc, char **argv)
{
	size_t i;

	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (is_one_of(argv[1], "--help", "-h")) {
		print_help(stdout);
		return flush_output(0);
	}
	if (is_one_of(argv[1], "--version", "-V")) {
		puts("weft " PACKAGE_VERSION);
		return flush_output(0);
	}
	if (!strcmp(argv[1], "help")) {
		if (argc == 2) {
			print_help(stdout);
			return flush_output(0);
		}
		/* weft help run is weft run --help */
		argv[1] = argv[2];
		argv[2] = (char *)"--help";
		argc = 3;
	}
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return flush_output(
				commands[i].main(argc - 1, argv + 1));
	fprintf(stderr,
		"weft: unknown command '%s'; 'weft --help' lists them\n",
		argv[1]);
	return EXIT_USAGE;
}

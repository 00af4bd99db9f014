/* SPDX-License-Identifier: BSD-3-Clause */
/* What the subcommands of weft share. */
#ifndef WEFT_TOOLS_TOOL_H
#define WEFT_TOOLS_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/verbs.h"

/* Exit codes; weft run has the program's own, or 126 and 127 as env(1) has. */
enum {
	EXIT_FAILED = 1, /* the requested action failed */
	EXIT_USAGE = 2,	 /* invalid command line */
	EXIT_AWAY = 3,	 /* weft check: no answer (yet) */
};

/* @argv[0] is the subcommand's name.  Returns the exit code. */
int info_main(int argc, char **argv);
int run_main(int argc, char **argv);
int check_main(int argc, char **argv);
int status_main(int argc, char **argv);
int top_main(int argc, char **argv);
int stats_main(int argc, char **argv);
int path_main(int argc, char **argv);

/* "weft info: ..." to stderr, with a pointer to --help; returns EXIT_USAGE. */
int usage_error(const char *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same without the pointer; returns EXIT_FAILED. */
int tool_error(const char *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Parses @options, TOOL_HELP among them.  They set their flag to `val`: a
 * letter that does the same, or 1; one at most takes an argument, *@value.
 * @in_order: the first word that is none ends them.  -1, and optind, or an exit
 * code.
 */
struct option;
#define TOOL_HELP                              \
	{                                      \
		"help", no_argument, NULL, 'h' \
	}
int tool_options(int argc, char **argv, const struct option *options,
		 bool in_order, const char **value, const char *help);

/* @text as a JSON string, to stdout. */
void tool_print_json(const char *text);
/* "1.23 GB"; returns @text. */
#define TOOL_BYTES_LEN 16
const char *tool_format_bytes(uint64_t n, char text[TOOL_BYTES_LEN]);
/* What users call the @device of a @runtime: "weft_tcp", "NCCL net, tcp". */
void tool_format_path(const char *runtime, const char *device, char *to,
		      size_t len);

/*
 * Find @file ("libweft_preload.so" or "ucx/libuct_weft.so"): in the build tree,
 * or in the prefix that this program is in.  False: not found.
 */
#define TOOL_PATH_MAX 4096
bool tool_find(const char *file, char path[TOOL_PATH_MAX]);

/* A UCX or NCCL on this host, as a program would find it. */
struct tool_library {
	const char *who; /* who loads it: "Python", "programs" */
	char path[TOOL_PATH_MAX];
	char why[256]; /* where it was found, or what is missing */
	bool found;
	unsigned int version[3];
};
/* Does @name load weft's NCCL plugin? */
#define TOOL_WHY_MAX 512
bool tool_probe_nccl(const char *name, char why[TOOL_WHY_MAX]);

/*
 * Runs @probe in a child, to keep constructors of what it loads, and a driver
 * that never answers, out of this process; it ends with tool_answer().  How
 * much of @answer came within TOOL_CHILD_MS.
 */
#define TOOL_CHILD_MS 10000
size_t
tool_ask_child(void (*probe)(const void *about, const char *name, int out),
	       const void *about, const char *name, void *answer, size_t len);
void tool_answer(int out, const void *answer, size_t len)
	__attribute__((noreturn));

/*
 * What this environment's Python prints for @code with @arg, which may be NULL.
 * False: nothing, or there is no Python.  @python is set in any case.
 */
bool tool_ask_python(const char *code, const char *arg,
		     char python[TOOL_PATH_MAX], char *out, size_t len);

/* Python's, conda's and the dynamic linker's, found or not; how many. */
#define TOOL_FOUND_MAX 3
size_t tool_find_ucx(struct tool_library out[TOOL_FOUND_MAX]);
size_t tool_find_nccl(struct tool_library out[TOOL_FOUND_MAX]);

/* Sections of weft info. */
void info_settings(void);
/* Only where there is something to say. */
void info_install(void);
/* Does weft enter a UCX that is found here, or would it under weft run? */
enum info_entry { INFO_NO_WAY, INFO_BY_RUN, INFO_ENTERED };
enum info_entry info_ucx(void);
int info_nccl(void);
void info_gpu(void);
/* Print the folder through which processes meet, or why it cannot be used. */
void info_folder(void);
/* Nothing where there are not two. */
void info_processes(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A folder of a test's own, and what lies in it. */
#ifndef WEFT_TESTS_LIB_FOLDER_H
#define WEFT_TESTS_LIB_FOLDER_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/weft-test-XXXXXX";

static inline void folder_begin(void)
{
	if (!mkdtemp(folder)) {
		perror(folder);
		abort();
	}
}

/* Runs a command there, which has to succeed. */
static inline void __attribute__((format(printf, 1, 2)))
shell(const char *fmt, ...)
{
	char command[2048];
	int at = snprintf(command, sizeof(command), "cd %s && ", folder);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command + at, sizeof(command) - (size_t)at, fmt, ap);
	va_end(ap);
	if (system(command)) {
		fprintf(stderr, "it fails: %s\n", command);
		abort();
	}
}

/* It may begin again. */
static inline void folder_end(void)
{
	shell("/bin/rm -rf %s", folder);
	memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
}

/* The path of what is there; four of them are kept. */
static inline const char *in(const char *name)
{
	static char path[4][192];
	static unsigned int which;
	char *p = path[which++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", folder, name);
	return p;
}

static inline void write_file(const char *name, const char *text)
{
	FILE *f = fopen(in(name), "w");

	if (!f || fputs(text, f) < 0 || fclose(f)) {
		perror(name);
		abort();
	}
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>

#include "tools/tool.h"

static int print_error(const char *command, const char *fmt, va_list ap)
{
	fprintf(stderr, "weft %s: ", command);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	return EXIT_FAILED;
}

int tool_error(const char *command, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_error(command, fmt, ap);
	va_end(ap);
	return EXIT_FAILED;
}

int usage_error(const char *command, const char *fmt, ...)
{
	va_list ap;

	if (fmt) {
		va_start(ap, fmt);
		print_error(command, fmt, ap);
		va_end(ap);
	}
	fprintf(stderr, "see 'weft %s --help'\n", command);
	return EXIT_USAGE;
}

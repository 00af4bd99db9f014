/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/alone.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void fail_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: %s:%d: ", program_invocation_short_name, file,
		line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void drop_message(struct side *s, uint8_t id, void *data, size_t len)
{
}

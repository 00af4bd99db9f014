/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/devices/sides.h"

#include <stdarg.h>

struct side a, b, c;

void fail_at(const char *file, int line, const char *fmt, ...)
{
	char why[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	cr_fatal("%s:%d: %s", file, line, why);
	abort(); /* not reached */
}

void progress_all(void)
{
	both_progress(&a, &b);
	both_progress(&c, NULL);
}

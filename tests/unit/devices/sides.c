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

char run_folder[] = "/tmp/weft-device-test-XXXXXX";

void begin_folder(void)
{
	cr_assert(mkdtemp(run_folder) != NULL);
	setenv("WEFT_RUN_DIR", run_folder, 1);
}

void end_folder(void)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", run_folder);
	cr_expect(eq(int, system(cmd), 0));
}

void end_pair(void)
{
	side_close(&a);
	side_close(&b);
	end_folder();
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/devices/sides.h"

#include "tests/lib/folder.h"

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

const char *const run_folder = folder;

void begin_folder(void)
{
	folder_begin();
	setenv("WEFT_RUN_DIR", run_folder, 1);
}

void end_folder(void)
{
	folder_end();
}

void dial_both(void)
{
	cr_assert(zero(int, side_dial(&a, &b)));
	cr_assert(zero(int, side_dial(&b, &a)));
}

void end_pair(void)
{
	side_close(&a);
	side_close(&b);
	end_folder();
}

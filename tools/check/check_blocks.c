/* SPDX-License-Identifier: BSD-3-Clause */
/* What weft check prints of blocks: every byte compared, then the speed. */
#include <stdio.h>
#include <string.h>

#include "tools/check/check.h"
#include "tools/tool.h"
#include "util/clock.h"
#include "util/util.h"

#define CHECK_STEP_S 15 /* for blocks of one size */

const char *check_format_size(size_t size, char *buf, size_t len)
{
	if (size >= 1 << 20)
		snprintf(buf, len, "%zu MiB", size >> 20);
	else if (size >= 1 << 10)
		snprintf(buf, len, "%zu KiB", size >> 10);
	else
		snprintf(buf, len, "%zu B", size);
	return buf;
}

/* Would blocks of @size take too long at @bandwidth? */
bool check_is_slow(size_t size, double bandwidth)
{
	return 2.0 * CHECK_WINDOW * (double)size > CHECK_STEP_S * bandwidth;
}

int check_blocks(struct check *c, const size_t *sizes, size_t n,
		 struct check_rates *rates)
{
	/* the best so far: small blocks on a busy host tell little */
	double best = 0;
	char text[32];
	size_t i;
	int err = 0;

	puts("  block         put MB/s   get MB/s");
	for (i = 0; i < n && !err; i++) {
		if (i && check_is_slow(sizes[i], best)) {
			printf("  %-10s left out, it would take long\n",
			       check_format_size(sizes[i], text, sizeof(text)));
			break;
		}
		err = check_bytes(c, CHECK_PUT, sizes[i]);
		if (!err)
			err = check_bytes(c, CHECK_GET, sizes[i]);
		if (!err)
			err = check_speed(c, CHECK_PUT, sizes[i], &rates->put);
		if (!err)
			err = check_speed(c, CHECK_GET, sizes[i], &rates->get);
		if (!err)
			printf("  %-10s %11.0f %10.0f\n",
			       check_format_size(sizes[i], text, sizeof(text)),
			       rates->put / 1e6, rates->get / 1e6);
		best = weft_max(best, weft_max(rates->put, rates->get));
		fflush(stdout);
	}
	return err;
}

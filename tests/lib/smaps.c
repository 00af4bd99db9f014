/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/smaps.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool smaps_undumped(const void *p)
{
	unsigned long from, to;
	bool here = false, is = false;
	char line[512];
	FILE *f = fopen("/proc/self/smaps", "r");

	if (!f)
		abort();
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (here && !strncmp(line, "VmFlags:", 8))
			is = strstr(line, " dd ");
	}
	fclose(f);
	return is;
}

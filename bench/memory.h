/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel says of the memory of this process. */
#ifndef WEFT_BENCH_MEMORY_H
#define WEFT_BENCH_MEMORY_H

#include <stdio.h>

/* Its private part, in KiB; -1: the kernel does not tell, and errno. */
static long private_kib(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	char line[256];
	long kib, sum = 0;

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Private_%*[a-zA-Z]: %ld", &kib) == 1)
			sum += kib;
	fclose(file);
	return sum;
}

#endif

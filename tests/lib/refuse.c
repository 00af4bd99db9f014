/* SPDX-License-Identifier: BSD-3-Clause */
/* refuse memfd|seals COMMAND...: COMMAND in a sandbox that refuses these. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/refuse.h"

int main(int argc, char **argv)
{
	int failed = -1;

	if (argc > 2 && !strcmp(argv[1], "memfd"))
		failed = refuse_memfd(ENOSYS);
	else if (argc > 2 && !strcmp(argv[1], "seals"))
		failed = refuse_seals(EPERM);
	if (!failed)
		execvp(argv[2], argv + 2);
	fprintf(stderr, "refuse: no such sandbox is available here\n");
	return 77;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <stdio.h>

#include "tools/tool.h"

int tool_options(int argc, char **argv, const struct option *options,
		 const char *help)
{
	char letters[8] = "", *end = letters;
	const struct option *o;
	int c;

	for (o = options; o->name; o++)
		if (o->val > 1)
			*end++ = (char)o->val;
	opterr = 0;
	while ((c = getopt_long(argc, argv, letters, options, NULL)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return 0;
		}
		if (c == '?')
			return usage_error(argv[0], "unknown option '%s'",
					   argv[optind - 1]);
		for (o = options; o->name; o++)
			if (o->val == c)
				*o->flag = c;
	}
	return -1;
}

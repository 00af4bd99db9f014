/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <stdio.h>

#include "tools/tool.h"

int tool_options(int argc, char **argv, const struct option *options,
		 bool in_order, const char **value, const char *help)
{
	char letters[16] = "+:", *end = letters + 2;
	const struct option *o;
	int c;

	for (o = options; o->name; o++) {
		if (o->val > 1)
			*end++ = (char)o->val;
		if (o->has_arg)
			*end++ = ':';
	}
	opterr = 0;
	while ((c = getopt_long(argc, argv, letters + !in_order, options,
				NULL)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return 0;
		}
		if (c == ':')
			return usage_error(argv[0], "%s needs an argument",
					   argv[optind - 1]);
		if (c == '?')
			return usage_error(argv[0], "unknown option '%s'",
					   argv[optind - 1]);
		for (o = options; o->name; o++)
			if (o->val == c && o->has_arg)
				*value = optarg;
			else if (o->val == c)
				*o->flag = c;
	}
	return -1;
}

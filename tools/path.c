/* SPDX-License-Identifier: BSD-3-Clause */
/* weft path: where weft's libraries are, for the variables that take them. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/tool.h"
#include "util/util.h"

static const char help[] =
	"usage: weft path nccl | ucx | preload\n"
	"\n"
	"Print the path of weft's library, for a variable that takes one:\n"
	"\n"
	"  NCCL_NET_PLUGIN=$(weft path nccl)\n"
	"  UCX_PLUGIN_PATH=$(weft path ucx)    UCX 1.22 and newer\n"
	"  LD_PRELOAD=$(weft path preload)\n"
	"\n"
	"  -h, --help  show this\n";

static const struct {
	const char *name;
	const char *file;
	bool folder; /* the variable takes that of the file */
} paths[] = {
	{ "nccl", "libnccl-net-weft.so", false },
	{ "ucx", "ucx/libuct_weft.so", true },
	{ "preload", "libweft_preload.so", false },
};

int path_main(int argc, char **argv)
{
	static const struct option options[] = { TOOL_HELP, { 0 } };
	char path[TOOL_PATH_MAX];
	int rc = tool_options(argc, argv, options, false, NULL, help);
	size_t i;

	if (rc >= 0)
		return rc;
	if (optind + 1 != argc)
		return usage_error("path", "give one of nccl, ucx and preload");
	for (i = 0; i < ARRAY_SIZE(paths); i++)
		if (!strcmp(argv[optind], paths[i].name))
			break;
	if (i == ARRAY_SIZE(paths))
		return usage_error("path", "there is no '%s'", argv[optind]);
	if (!tool_find(paths[i].file, path))
		return tool_error("path", "%s is not installed beside weft",
				  paths[i].file);
	if (paths[i].folder)
		*strrchr(path, '/') = '\0';
	puts(path);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* How the commands print texts of others, amounts and transports. */
#include <stdio.h>
#include <string.h>

#include "tools/tool.h"
#include "util/util.h"

void tool_print_json(const char *text)
{
	putchar('"');
	for (; *text; text++)
		if ((unsigned char)*text < ' ')
			printf("\\u%04x", (unsigned char)*text);
		else
			printf(*text == '"' || *text == '\\' ? "\\%c" : "%c",
			       *text);
	putchar('"');
}

const char *tool_format_bytes(uint64_t n, char text[TOOL_BYTES_LEN])
{
	static const char *const units[] = { "B",  "kB", "MB", "GB",
					     "TB", "PB", "EB" };
	double value = (double)n;
	size_t i = 0;

	/* three digits, rounded: never "1000 kB" */
	for (; value >= (i ? 999.5 : 1000); i++)
		value /= 1000;
	snprintf(text, TOOL_BYTES_LEN, "%.*f %s",
		 !i || value >= 99.95 ? 0 : (value >= 9.995 ? 1 : 2), value,
		 units[i]);
	return text;
}

void tool_format_path(const char *runtime, const char *device, char *to,
		      size_t len)
{
	if (!strcmp(device, "nvlink"))
		device = "nvl";
	if (!strcmp(runtime, "nccl"))
		snprintf(to, len, "NCCL net, %s", device);
	else
		snprintf(to, len, "weft_%s", device);
}

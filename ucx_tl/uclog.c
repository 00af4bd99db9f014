/* SPDX-License-Identifier: BSD-3-Clause */
/* weft's messages among UCX's own: same file, same stamp, own component. */
#include <stdint.h>
#include "ucx_tl/resolve.h"
#include "ucx_tl/uct.h"
#include "util/log.h"

/* ucs_log_level_t and ucs_log_component_config_t, unchanged 1.13 to 1.22 */
enum {
	UCS_ERROR = 1,
	UCS_WARN = 2,
	UCS_INFO = 4,
	UCS_DEBUG = 5,
	UCS_PRINT = 13, /* whatever the level; after _LAST */
};

struct component_config {
	int level;
	char name[16];
	const char *file_filter;
};

static void sink(void *arg, enum weft_level level, const char *file, int line,
		 const char *text)
{
	static const int levels[] = {
		[WEFT_LOG_ERROR] = UCS_ERROR,
		[WEFT_LOG_WARN] = UCS_WARN,
		/*
		 * The wheels are built with logging off above WARN; who says
		 * WEFT_LOG=debug wants to see it there as well.
		 */
		[WEFT_LOG_INFO] = UCS_PRINT,
		[WEFT_LOG_DEBUG] = UCS_PRINT,
	};
	static const struct component_config config = {
		.level = UCS_DEBUG,
		.name = "WEFT",
		.file_filter = "*",
	};
	const struct weft_uct *uct = arg;

	uct->sym.log_dispatch(file, (unsigned int)line, "weft", levels[level],
			      &config, "weft: %s", text);
}

void weft_uct_log_attach(const struct weft_uct *uct)
{
	static const struct weft_uct *attached;
	int level;

	if (attached || !uct->sym.log_dispatch || !uct->sym.global_opts)
		return;
	attached = uct;
	/* its first member is the level of UCX_LOG_LEVEL */
	level = ((const struct component_config *)uct->sym.global_opts)->level;
	if (level >= UCS_DEBUG)
		weft_log_set_level(WEFT_LOG_DEBUG);
	else if (level >= UCS_INFO && weft_log_level < WEFT_LOG_INFO)
		weft_log_set_level(WEFT_LOG_INFO);
	weft_log_set_sink(sink, (void *)uct);
}

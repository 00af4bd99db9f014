/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Write weft's messages to UCX's log (with a component of their own), and
 * explain one of UCX's messages.
 */
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include "ucx_tl/resolve.h"
#include "ucx_tl/uct.h"
#include "util/log.h"
#include "util/util.h"

/* ucs_log_level_t and ucs_log_component_config_t, the same from 1.13 on */
enum {
	UCS_ERROR = 1,
	UCS_WARN = 2,
	UCS_INFO = 4,
	UCS_DEBUG = 5,
	UCS_PRINT = 13, /* regardless of the level; after _LAST */
};

struct component_config {
	int level;
	char name[16];
	const char *file_filter;
};

static void write_ucx_log(void *arg, enum weft_level level, const char *file,
			  int line, const char *text)
{
	static const int levels[] = {
		[WEFT_LOG_ERROR] = UCS_ERROR,
		[WEFT_LOG_WARN] = UCS_WARN,
		/*
		 * The wheels have logging above WARN compiled out; with
		 * WEFT_LOG=debug the user wants it there, too.
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
	/* the first member is the level of UCX_LOG_LEVEL */
	level = ((const struct component_config *)uct->sym.global_opts)->level;
	if (level >= UCS_DEBUG)
		weft_log_set_level(WEFT_LOG_DEBUG);
	else if (level >= UCS_INFO && weft_log_level < WEFT_LOG_INFO)
		weft_log_set_level(WEFT_LOG_INFO);
	weft_log_set_sink(write_ucx_log, (void *)uct);
}

/*
 * UCP calls is_reachable() only for transports in the peer's address.  If it
 * finds no transport and has not called weft's, the peer does not offer weft.
 * This is the thread's last answer, until an endpoint is created; a stale "no"
 * costs at worst the message.
 */
static __thread bool last_unreachable;

void weft_uct_log_reach(bool reached)
{
	last_unreachable = !reached;
}

/* "weft_tcp/lo - not available, ...": does the peer lack weft? */
static bool is_peer_without_weft(const char *tried)
{
	/* from 1.19 on, and before */
	static const char *const why[] = {
		"not available",
		"Destination is unreachable",
	};
	const char *at = strstr(tried, "weft_");
	size_t i;

	at = at ? strstr(at, " - ") : NULL;
	for (i = 0; at && i < ARRAY_SIZE(why); i++)
		if (!strncmp(at + 3, why[i], strlen(why[i])))
			return true;
	return false;
}

/* The message of ucp_wireup_select_transport(), from 1.13 on. */
static int filter_ucx_log(const char *file, unsigned int line,
			  const char *function, int level,
			  const void *component, const char *format,
			  va_list args)
{
	const char *title, *peer, *tried;

	if (level != UCS_ERROR || strcmp(format, "no %s transport to %s: %s"))
		return 1;
	title = va_arg(args, const char *);
	peer = va_arg(args, const char *);
	tried = va_arg(args, const char *);
	if (!strcmp(title, "active messages") && !last_unreachable &&
	    is_peer_without_weft(tried))
		weft_warn_once(
			"%s offers no weft transport, and no other transport here reaches it: start it under 'weft run', too, or allow UCX's tcp here (UCX_TLS=weft_tcp,tcp)",
			*peer == '<' ? "a peer" : peer);
	last_unreachable = false;
	return 1;
}

void weft_uct_log_filter(const struct weft_uct *uct)
{
	if (uct->sym.log_push_handler)
		uct->sym.log_push_handler(filter_ucx_log);
}

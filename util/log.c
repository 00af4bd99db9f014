/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"
#include "util/util.h"

enum weft_level weft_log_level = WEFT_LOG_WARN;

static void to_stderr(void *arg, enum weft_level level, const char *file,
		      int line, const char *text);

static weft_log_sink log_sink = to_stderr;
static void *log_arg;

static const char *const level_names[] = {
	[WEFT_LOG_ERROR] = "error",
	[WEFT_LOG_WARN] = "warning",
	[WEFT_LOG_INFO] = "info",
	[WEFT_LOG_DEBUG] = "debug",
};

/* One write() per message, so that lines of several processes stay whole. */
static void to_stderr(void *arg, enum weft_level level, const char *file,
		      int line, const char *text)
{
	char buf[1280];
	int n;

	if (level == WEFT_LOG_DEBUG)
		n = snprintf(buf, sizeof(buf), "weft: debug: %s:%d: %s\n",
			     file, line, text);
	else
		n = snprintf(buf, sizeof(buf), "weft: %s: %s\n",
			     level_names[level], text);
	if (n >= (int)sizeof(buf)) {
		n = sizeof(buf) - 1;
		buf[n - 1] = '\n';
	}
	/* Nowhere is left to report that stderr cannot be written. */
	if (write(STDERR_FILENO, buf, n) < 0)
		return;
}

void weft_log_set_sink(weft_log_sink sink, void *arg)
{
	log_sink = sink ? sink : to_stderr;
	log_arg = sink ? arg : NULL;
}

void weft_log_set_level(enum weft_level level)
{
	weft_log_level = level;
}

void weft_log(enum weft_level level, const char *file, int line,
	      const char *fmt, ...)
{
	int saved = errno;
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_sink(log_arg, level, file, line, text);
	errno = saved;
}

int weft_log_fail(enum weft_level level, const char *file, int line, int err,
		  const char *fmt, ...)
{
	int saved = errno;
	char text[1024], reason[128];
	size_t n;
	va_list ap;

	if (err < 0)
		err = -err;
	if (level <= weft_log_level) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
		n = strlen(text);
		/* _GNU_SOURCE's strerror_r: the text may lie elsewhere. */
		snprintf(text + n, sizeof(text) - n, ": %s",
			 strerror_r(err, reason, sizeof(reason)));
		log_sink(log_arg, level, file, line, text);
	}
	errno = saved;
	return -err;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/util.h"

#define SITES	  64
#define BURST	  20 /* messages per call site and period */
#define PERIOD_MS 60000

enum weft_level weft_log_level = WEFT_LOG_WARN;

static void write_stderr(void *arg, enum weft_level level, const char *file,
			 int line, const char *text);

static weft_log_sink log_sink = write_stderr;
static void *log_arg;
static void (*_Atomic log_watch)(enum weft_level level, const char *text);

static const char *const level_names[] = {
	[WEFT_LOG_ERROR] = "error",
	[WEFT_LOG_WARN] = "warning",
	[WEFT_LOG_INFO] = "info",
	[WEFT_LOG_DEBUG] = "debug",
};

/* One write() per message, so that lines of several processes do not mix. */
static void write_stderr(void *arg, enum weft_level level, const char *file,
			 int line, const char *text)
{
	char buf[1280];
	int n;

	if (level == WEFT_LOG_DEBUG)
		n = snprintf(buf, sizeof(buf), "weft: debug: %s:%d: %s\n", file,
			     line, text);
	else
		n = snprintf(buf, sizeof(buf), "weft: %s: %s\n",
			     level_names[level], text);
	if (n >= (int)sizeof(buf)) {
		n = sizeof(buf) - 1;
		buf[n - 1] = '\n';
	}
	/* there is nowhere to report that stderr fails */
	if (write(STDERR_FILENO, buf, n) < 0)
		return;
}

/* Rate limit per call site; a hash collision resets the entry. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct site {
	const char *file;
	int line;
	unsigned int written;
	uint64_t since_ms;
} sites[SITES];

void weft_log_set_sink(weft_log_sink sink, void *arg)
{
	log_sink = sink ? sink : write_stderr;
	log_arg = sink ? arg : NULL;
	/* a new sink has seen nothing yet */
	if (pthread_mutex_trylock(&lock))
		return;
	memset(sites, 0, sizeof(sites));
	pthread_mutex_unlock(&lock);
}

/*
 * How many more messages this call site may write now, including this one, so
 * that no peer can fill a disk by provoking warnings.
 */
static unsigned int count_left(enum weft_level level, const char *file,
			       int line)
{
	struct site *p =
		&sites[((uintptr_t)file / 16 + (unsigned int)line) % SITES];
	uint64_t now = weft_now_ms();
	unsigned int n;

	if (level > WEFT_LOG_WARN || pthread_mutex_trylock(&lock))
		return BURST;
	if (p->file != file || p->line != line ||
	    now - p->since_ms >= PERIOD_MS)
		*p = (struct site){ file, line, 0, now };
	n = BURST - p->written;
	if (n)
		p->written++;
	pthread_mutex_unlock(&lock);
	return n;
}

void weft_log_set_watch(void (*watch)(enum weft_level level, const char *text))
{
	atomic_store(&log_watch, watch);
}

static void write_message(enum weft_level level, const char *file, int line,
			  unsigned int more, char *text, size_t size)
{
	static const char last[] =
		" (similar messages are left out for a minute)";
	void (*watch)(enum weft_level level, const char *text) =
		atomic_load(&log_watch);
	size_t n = strlen(text);

	if (more == 1)
		snprintf(text + weft_min(n, size - sizeof(last)), sizeof(last),
			 "%s", last);
	if (watch)
		watch(level, text);
	log_sink(log_arg, level, file, line, text);
}

void weft_log_set_level(enum weft_level level)
{
	weft_log_level = level;
}

void weft_log(enum weft_level level, const char *file, int line,
	      const char *fmt, ...)
{
	int saved = errno;
	unsigned int more = count_left(level, file, line);
	char text[1024];
	va_list ap;

	if (more) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
		write_message(level, file, line, more, text, sizeof(text));
	}
	errno = saved;
}

int weft_log_fail(enum weft_level level, const char *file, int line, int err,
		  const char *fmt, ...)
{
	int saved = errno;
	char text[1024], reason[128];
	unsigned int more;
	size_t n;
	va_list ap;

	more = level <= weft_log_level ? count_left(level, file, line) : 0;
	if (more) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
		n = strlen(text);
		/* _GNU_SOURCE: strerror_r() may not use the buffer */
		snprintf(text + n, sizeof(text) - n, ": %s",
			 strerror_r(-err, reason, sizeof(reason)));
		write_message(level, file, line, more, text, sizeof(text));
	}
	errno = saved;
	return err;
}

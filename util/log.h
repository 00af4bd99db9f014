/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All messages of weft.
 *
 * The first function that detects an error logs it, once, and returns -errno;
 * its callers pass the code on.  A message says what failed, the value, where
 * the value came from and what to do.  Success prints nothing.
 *
 * The UCX and NCCL adaptors set a sink (ucs_log, ncclDebugLogger); without one,
 * messages go to stderr as "weft: warning: ...".  Repeated warnings of one call
 * site are rate limited.  All functions preserve errno, may be called from any
 * thread, and block only in the sink.
 */
#ifndef WEFT_UTIL_LOG_H
#define WEFT_UTIL_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

enum weft_level {
	WEFT_LOG_ERROR,
	WEFT_LOG_WARN,
	WEFT_LOG_INFO,
	WEFT_LOG_DEBUG,
};

typedef void (*weft_log_sink)(void *arg, enum weft_level level,
			      const char *file, int line, const char *text);

/* NULL @sink: stderr.  Do not call it while other threads log. */
void weft_log_set_sink(weft_log_sink sink, void *arg);
/* Also hand each message that is written to @watch, which may not log. */
void weft_log_set_watch(void (*watch)(enum weft_level level, const char *text));
/* Drop messages above @level; the default is WEFT_LOG_WARN. */
void weft_log_set_level(enum weft_level level);
extern enum weft_level weft_log_level;

void weft_log(enum weft_level level, const char *file, int line,
	      const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Log at @level, with ": reason" of @err appended; return -|err|. */
int weft_log_fail(enum weft_level level, const char *file, int line, int err,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#define weft_at(level, ...)                                                 \
	do {                                                                \
		if ((level) <= weft_log_level)                              \
			weft_log((level), __FILE__, __LINE__, __VA_ARGS__); \
	} while (0)
#define weft_error(...) weft_at(WEFT_LOG_ERROR, __VA_ARGS__)
#define weft_warn(...)	weft_at(WEFT_LOG_WARN, __VA_ARGS__)
#define weft_info(...)	weft_at(WEFT_LOG_INFO, __VA_ARGS__)
#define weft_debug(...) weft_at(WEFT_LOG_DEBUG, __VA_ARGS__)

/* "cannot bind '10.0.0.1': Address already in use"; returns @err, -errno. */
#define weft_fail(err, ...) \
	weft_log_fail(WEFT_LOG_ERROR, __FILE__, __LINE__, (err), __VA_ARGS__)

/* Warn once per process and call site. */
#define weft_warn_once(...)                                       \
	do {                                                      \
		static atomic_flag weft_once_ = ATOMIC_FLAG_INIT; \
		if (!atomic_flag_test_and_set(&weft_once_))       \
			weft_warn(__VA_ARGS__);                   \
	} while (0)

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>
#include "nccl_net/common/log.h"
#include "settings/settings.h"
#include "util/log.h"

static nccl_logger logger;
static unsigned long subsystem;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void log_to_nccl(void *arg, enum weft_level level, const char *file,
			int line, const char *text)
{
	static const enum nccl_log_level to[] = {
		[WEFT_LOG_ERROR] = NCCL_LOG_WARN,
		[WEFT_LOG_WARN] = NCCL_LOG_WARN,
		[WEFT_LOG_INFO] = NCCL_LOG_INFO,
		[WEFT_LOG_DEBUG] = NCCL_LOG_TRACE,
	};

	logger(to[level], subsystem, file, line, "NET/weft: %s", text);
}

/* Do not format messages that NCCL would drop. */
static enum weft_level wanted_level(void)
{
	const char *debug = getenv("NCCL_DEBUG");

	if (debug && !strcasecmp(debug, "TRACE"))
		return WEFT_LOG_DEBUG;
	if (debug && !strcasecmp(debug, "INFO"))
		return WEFT_LOG_INFO;
	return WEFT_LOG_WARN;
}

void weft_nccl_log_alone(void)
{
	weft_nccl_log_to(NULL, 0);
	pthread_mutex_lock(&lock);
	if (!logger) {
		weft_settings();
		if (wanted_level() > weft_log_level)
			weft_log_set_level(wanted_level());
	}
	pthread_mutex_unlock(&lock);
}

void weft_nccl_log_to(nccl_logger log, unsigned long subsys)
{
	/* Before settings are read: NCCL's names take precedence over UCX's. */
	weft_settings_set_runtime("NCCL_");
	if (!log)
		return;
	pthread_mutex_lock(&lock);
	if (!logger) {
		logger = log;
		subsystem = subsys;
		weft_log_set_sink(log_to_nccl, NULL);
		weft_settings();
		if (wanted_level() > weft_log_level)
			weft_log_set_level(wanted_level());
	}
	pthread_mutex_unlock(&lock);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs whose input makes weft log without end. */
#ifndef WEFT_TESTS_LIB_QUIET_H
#define WEFT_TESTS_LIB_QUIET_H

#include <stddef.h>

#include "util/log.h"

static inline void quiet_sink(void *arg, enum weft_level level,
			      const char *file, int line, const char *text)
{
}

/* Nothing that weft logs is written. */
static inline void log_quiet(void)
{
	weft_log_set_sink(quiet_sink, NULL);
}

#endif

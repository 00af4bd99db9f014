/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings of an environment that holds what a test sets, and no more. */
#ifndef WEFT_TESTS_UNIT_SETTINGS_WITH_H
#define WEFT_TESTS_UNIT_SETTINGS_WITH_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "settings/table.h"
#include "tests/lib/caught.h"

static inline bool has(const char *hay, const char *needle)
{
	return strstr(hay, needle) != NULL;
}

static inline void clean(void)
{
	catch_log();
	clearenv();
	weft_settings_reset();
}

static inline const struct weft_settings *with(const char *name,
					       const char *value)
{
	clearenv();
	setenv(name, value, 1);
	weft_settings_reset();
	memset(&caught, 0, sizeof(caught));
	return weft_settings();
}

#endif

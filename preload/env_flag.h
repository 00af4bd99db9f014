/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flags of the environment, for the preload library, which has no settings
 * table.
 */
#ifndef WEFT_PRELOAD_ENV_FLAG_H
#define WEFT_PRELOAD_ENV_FLAG_H

#include <stdlib.h>
#include <strings.h>

/* 1: yes, 0: no, -1: unset or neither. */
static inline int weft_env_flag(const char *name)
{
	static const char *const words[][2] = {
		{ "0", "1" },	 { "n", "y" },	      { "no", "yes" },
		{ "off", "on" }, { "false", "true" },
	};
	const char *value = secure_getenv(name);
	size_t i;

	for (i = 0; value && i < sizeof(words) / sizeof(*words); i++)
		if (!strcasecmp(value, words[i][0]) ||
		    !strcasecmp(value, words[i][1]))
			return !strcasecmp(value, words[i][1]);
	return -1;
}

#endif

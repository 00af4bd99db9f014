/* SPDX-License-Identifier: BSD-3-Clause */
/* For unit tests: what weft logs, kept instead of written. */
#ifndef WEFT_TESTS_LIB_CAUGHT_H
#define WEFT_TESTS_LIB_CAUGHT_H

#include <stdio.h>

#include "util/log.h"

static struct {
	int count;
	enum weft_level level; /* of the last one, and its text */
	char text[1100];
} caught;

static inline void catch_line(void *arg, enum weft_level level,
			      const char *file, int line, const char *text)
{
	caught.count++;
	caught.level = level;
	snprintf(caught.text, sizeof(caught.text), "%s", text);
}

#define expect_caught(words) \
	cr_expect(strstr(caught.text, words) != NULL, "%s", caught.text)

static inline void catch_log(void)
{
	weft_log_set_sink(catch_line, NULL);
}

#endif

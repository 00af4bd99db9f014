/* SPDX-License-Identifier: BSD-3-Clause */
/* The sides that unit tests of a device have, for Criterion. */
#ifndef WEFT_TESTS_UNIT_SIDES_H
#define WEFT_TESTS_UNIT_SIDES_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/lib/pair.h"

extern struct side a, b, c;
/* Progresses those that are open. */
void progress_all(void);

/* A WEFT_RUN_DIR of this test's own, until it ends. */
extern const char *const run_folder;
void begin_folder(void);
void end_folder(void);
/* The same, with the sides a and b, which it closes. */
void end_pair(void);

/* For Criterion, whose arguments may not begin with an operator. */
static inline bool yes(bool it_is)
{
	return it_is;
}

/* Endpoints both ways. */
void dial_both(void);

/* False: not within WAIT_MS. */
#define until(cond) yes(step_until(progress_all(), cond))

#endif

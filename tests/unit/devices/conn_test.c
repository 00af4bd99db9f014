/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection's states. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>
#include "devices/conn.h"
#include "util/log.h"

static unsigned int errors;

static void count(void *arg, enum weft_level level, const char *file, int line,
		  const char *text)
{
	if (level == WEFT_LOG_ERROR)
		errors += strstr(text, "cannot become") != NULL;
}

Test(conn, illegal_moves_are_logged_and_not_made)
{
	static const struct {
		enum weft_conn_state from, to;
		bool legal;
	} moves[] = {
		{ WEFT_CONN_DIALING, WEFT_CONN_WAITING, true },
		{ WEFT_CONN_DIALING, WEFT_CONN_JOINING, true },
		{ WEFT_CONN_DIALING, WEFT_CONN_OPEN, false },
		{ WEFT_CONN_JOINING, WEFT_CONN_OPEN, true },
		{ WEFT_CONN_JOINING, WEFT_CONN_WAITING, false },
		{ WEFT_CONN_WAITING, WEFT_CONN_DIALING, true },
		{ WEFT_CONN_OPEN, WEFT_CONN_CLOSED, true },
		{ WEFT_CONN_OPEN, WEFT_CONN_OPEN, false },
		{ WEFT_CONN_OPEN, WEFT_CONN_DIALING, false },
		{ WEFT_CONN_OPEN, WEFT_CONN_WAITING, false },
		{ WEFT_CONN_OPEN, WEFT_CONN_BROKEN, true },
		{ WEFT_CONN_BROKEN, WEFT_CONN_CLOSED, true },
		{ WEFT_CONN_BROKEN, WEFT_CONN_OPEN, false },
		{ WEFT_CONN_CLOSED, WEFT_CONN_OPEN, false },
		{ WEFT_CONN_CLOSED, WEFT_CONN_CLOSED, false },
	};
	struct weft_conn conn = { 0 };
	unsigned int i;

	weft_log_set_sink(count, NULL);
	for (i = 0; i < sizeof(moves) / sizeof(*moves); i++) {
		errors = 0;
		weft_conn_begin(&conn, NULL, 7, 0);
		conn.state = moves[i].from;
		weft_conn_set_state(&conn, moves[i].to);
		cr_expect(eq(int, conn.state,
			     moves[i].legal ? moves[i].to : moves[i].from));
		cr_expect(eq(u32, errors, moves[i].legal ? 0 : 1));
	}
	weft_log_set_sink(NULL, NULL);
}

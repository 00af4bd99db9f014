/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection's states. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>
#include "devices/tcp/tcp_conn.h"
#include "util/log.h"

static unsigned int errors;

static void count(void *arg, enum weft_level level, const char *file, int line,
		  const char *text)
{
	if (level == WEFT_LOG_ERROR)
		errors += strstr(text, "cannot become") != NULL;
}

Test(tcp_conn, illegal_moves_are_logged_and_not_made)
{
	static const struct {
		enum tcp_conn_state from, to;
		bool legal;
	} moves[] = {
		{ TCP_CONN_DIALING, TCP_CONN_WAITING, true },
		{ TCP_CONN_DIALING, TCP_CONN_OPEN, true },
		{ TCP_CONN_WAITING, TCP_CONN_DIALING, true },
		{ TCP_CONN_OPEN, TCP_CONN_CLOSED, true },
		{ TCP_CONN_OPEN, TCP_CONN_OPEN, false },
		{ TCP_CONN_OPEN, TCP_CONN_DIALING, false },
		{ TCP_CONN_OPEN, TCP_CONN_WAITING, false },
		{ TCP_CONN_CLOSED, TCP_CONN_OPEN, false },
		{ TCP_CONN_CLOSED, TCP_CONN_CLOSED, false },
	};
	struct tcp_conn conn = { 0 };
	unsigned int i;

	weft_log_set_sink(count, NULL);
	for (i = 0; i < sizeof(moves) / sizeof(*moves); i++) {
		errors = 0;
		conn.state = moves[i].from;
		tcp_conn_set_state(&conn, moves[i].to);
		cr_expect(eq(int, conn.state,
			     moves[i].legal ? moves[i].to : moves[i].from));
		cr_expect(eq(u32, errors, moves[i].legal ? 0 : 1));
	}
	weft_log_set_sink(NULL, NULL);
}

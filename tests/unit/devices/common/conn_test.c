/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection's states, and how it is found. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bootstrap/hello.h"
#include "devices/common/base.h"
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

/* ---- whose it is --------------------------------------------------------- */

static const uint8_t here[WEFT_KEY_LEN] = "the key of here!";
static const uint8_t peer[WEFT_KEY_LEN] = "the key of peer!";
static const uint8_t other[WEFT_KEY_LEN] = "key of another!!";

static unsigned int nothing_due(struct weft_events *ev, uint64_t now,
				uint64_t stood)
{
	return 0;
}

static void move_bytes(struct weft_hello *from, struct weft_hello *to)
{
	size_t n = from->out_len - from->out_done;

	if (from->state != WEFT_HELLO_SENDING ||
	    to->state != WEFT_HELLO_READING)
		return;
	n = n < to->want - to->have ? n : to->want - to->have;
	memcpy(to->in + to->have, from->out + from->out_done, n);
	weft_hello_moved(from, n);
	weft_hello_moved(to, n);
}

/* What is left of the hello of a dialler that has @key. */
static struct weft_hello *hello_of(const uint8_t *key)
{
	static const uint8_t purpose[WEFT_HELLO_PURPOSE];
	struct weft_hello *l = malloc(sizeof(*l)), d;
	unsigned int i;

	weft_hello_dial(&d, here, key, purpose);
	weft_hello_listen(l, here);
	for (i = 0; i < 50 && l->state != WEFT_HELLO_DONE; i++) {
		move_bytes(&d, l);
		move_bytes(l, &d);
		if (l->state == WEFT_HELLO_DECIDE)
			weft_hello_verdict(l, WEFT_HELLO_ACCEPTED);
	}
	cr_assert(eq(int, l->state, WEFT_HELLO_DONE));
	return l;
}

/* A hash is all that tells peers apart until the key is known. */
Test(conn, an_endpoint_gets_the_connection_of_its_key_and_no_other)
{
	const uint64_t id = weft_key_id(peer);
	struct weft_base base = { .id = 1 };
	struct weft_conn conns[3] = { 0 };
	unsigned int i, mine;
	int ep;

	cr_assert(zero(int, weft_events_open(&base.events, nothing_due)));
	weft_session_init(&base.session, &base.events);
	for (mine = 0; mine < 3; mine++) {
		memset(conns, 0, sizeof(conns));
		for (i = 0; i < 3; i++) {
			cr_assert(zero(int,
				       weft_conn_init(&conns[i], &base.session,
						      NULL, id, 5)));
			conns[i].hello = hello_of(i == mine ? peer : other);
			/* which it claims */
			conns[i].hello->peer_id = id;
		}
		cr_expect(eq(ptr, weft_conn_find_rival(&base.session, id, 5),
			     NULL));
		cr_expect(
			eq(ptr, weft_conn_adopt(&base.session, peer, 6), NULL));
		cr_expect(eq(ptr, weft_conn_adopt(&base.session, peer, 5),
			     &conns[mine]));
		cr_expect(
			eq(ptr, weft_conn_adopt(&base.session, peer, 5), NULL));
		conns[mine].ep = (struct weft_base_ep *)&ep;
		cr_expect(eq(ptr, weft_conn_find_rival(&base.session, id, 5),
			     &conns[mine]));
		for (i = 0; i < 3; i++)
			weft_conn_fini(&conns[i]);
	}
	weft_session_close(&base.session);
	weft_events_close(&base.events);
}

/* Which an endpoint here has, until one of its ends is gone. */
Test(conn, a_number_is_free_once_an_end_is_gone)
{
	struct weft_base base = { .id = 1 };
	struct weft_conn conn = { 0 };
	bool *const ends[] = { &conn.bye_sent, &conn.bye_received };
	unsigned int i;
	int ep;

	cr_assert(zero(int, weft_events_open(&base.events, nothing_due)));
	weft_session_init(&base.session, &base.events);
	cr_assert(zero(int, weft_conn_init(&conn, &base.session, NULL, 9, 5)));
	conn.ep = (struct weft_base_ep *)&ep;
	for (i = 0; i < 2; i++) {
		cr_expect(eq(ptr, weft_conn_find_rival(&base.session, 9, 5),
			     &conn));
		*ends[i] = true;
		cr_expect(eq(ptr, weft_conn_find_rival(&base.session, 9, 5),
			     NULL));
		*ends[i] = false;
	}
	conn.err = -EIO;
	cr_expect(eq(ptr, weft_conn_find_rival(&base.session, 9, 5), NULL));
	weft_conn_fini(&conn);
	weft_session_close(&base.session);
	weft_events_close(&base.events);
}

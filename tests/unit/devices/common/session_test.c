/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A dialler whose listener is busy, has no room, hangs up or yields; or whose
 * host does not answer.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/common/base.h"
#include "settings/settings.h"
#include "tests/lib/quiet.h"
#include "util/clock.h"
#include "util/util.h"

/* What the listener does with a dial. */
enum answer {
	FULL,	/* no place in its backlog */
	HANGUP, /* before its hello */
	YIELD,
	ACCEPT,
	BUSY,	 /* accepts after BUSY_MS */
	NO_PEER, /* the host does not answer */
	NONE,	 /* a socket cannot even be opened */
};

struct meeting {
	enum answer first[4]; /* of the first dials */
	enum answer rest;
	unsigned int nfirst;
	bool full; /* FULL, all of them */
	/* of the first dials: the dialler is busy till the listener hangs up,
	   before it has sent a word or (amid) its proof */
	unsigned int late;
	bool amid;
	bool at_once; /* it fails in the call */
	int err;      /* how it ends; 0: they meet */
	unsigned int min_dials, max_dials;
	uint64_t min_ms, max_ms; /* of the clock here; SOON, TIMEOUT */
};

enum { SOON = 200, TIMEOUT = 30000, BUSY_MS = 20 * TIMEOUT };

static struct {
	const struct meeting *meeting;
	unsigned int dials;
	uint64_t begin;
	int fd; /* the listener's end of the last dial; -1: none */
	struct weft_hello hello;
	unsigned int joined, lost;
	int err;
} t;
static uint64_t now_ms;
static const uint8_t listener_key[WEFT_KEY_LEN] = "the key of peer!";

static uint64_t test_clock(void)
{
	return now_ms * 1000000;
}

static enum answer answer(void)
{
	if (t.meeting->full && t.dials <= t.meeting->nfirst)
		return FULL;
	return t.dials <= t.meeting->nfirst ? t.meeting->first[t.dials - 1]
					    : t.meeting->rest;
}

static int open_socket(struct weft_conn *conn, bool *connecting)
{
	int sv[2];

	t.dials++;
	if (answer() == FULL)
		return -EAGAIN;
	if (answer() == NONE)
		return -EMFILE;
	cr_assert(zero(int, socketpair(AF_UNIX, SOCK_STREAM, 0, sv)));
	if (t.fd >= 0)
		close(t.fd);
	t.fd = sv[1];
	weft_hello_listen(&t.hello, listener_key);
	if (answer() == HANGUP) {
		close(t.fd);
		t.fd = -1;
	}
	*connecting = answer() == NO_PEER;
	while (*connecting && send(sv[0], "?", 1, MSG_DONTWAIT) == 1)
		; /* never writable: no answer to the first packet */
	return sv[0];
}

static struct weft_conn *new_conn(struct weft_session *s,
				  const struct weft_address *remote,
				  uint64_t peer_id, uint32_t number,
				  const char *where)
{
	struct weft_conn *conn = calloc(1, sizeof(*conn));

	cr_assert(zero(int, weft_conn_init(conn, s, remote, peer_id, number)));
	return conn;
}

static void joined(struct weft_handshake *hs, int fd)
{
	close(fd);
	t.joined++;
	weft_conn_set_state(hs->conn, WEFT_CONN_OPEN);
}

static void lost(struct weft_conn *conn, uint32_t kind, int err,
		 const char *where)
{
	t.lost++;
	t.err = conn->err = err;
}

static const struct weft_session_ops ops = {
	.open_socket = open_socket,
	.new_conn = new_conn,
	.joined = joined,
	.lost = lost,
};

/* The listener reads and writes what it can; true: it did. */
static bool listener_moves(void)
{
	struct weft_hello *h = &t.hello;
	ssize_t n = -1;

	if (t.fd < 0 || answer() == NO_PEER ||
	    (answer() == BUSY && now_ms < t.begin + BUSY_MS))
		return false;
	if (h->state == WEFT_HELLO_DECIDE) {
		weft_hello_verdict(h, answer() == YIELD ? WEFT_HELLO_YIELD
							: WEFT_HELLO_ACCEPTED);
		return true;
	}
	if (h->state == WEFT_HELLO_SENDING)
		n = write(t.fd, h->out + h->out_done, h->out_len - h->out_done);
	else if (h->state == WEFT_HELLO_READING)
		n = recv(t.fd, h->in + h->have, h->want - h->have,
			 MSG_DONTWAIT);
	if (n > 0)
		weft_hello_moved(h, n);
	return n > 0;
}

/* The dialler is away for a while, and finds its socket closed. */
static bool is_late(struct weft_base *base)
{
	if (t.fd < 0 || t.dials > t.meeting->late)
		return false;
	if (t.meeting->amid) {
		weft_events_handle(&base->events); /* its hello */
		while (listener_moves())	   /* the challenge */
			;
	}
	now_ms += TIMEOUT;
	close(t.fd);
	t.fd = -1;
	return true;
}

/* From timer to timer, until they have met or it is given up. */
static void pass_time(struct weft_base *base)
{
	const uint64_t end = now_ms + 2 * BUSY_MS;

	while (now_ms < end && !t.joined && !t.lost) {
		if (is_late(base))
			continue;
		if (listener_moves() || weft_events_handle(&base->events) ||
		    weft_events_pending(&base->events))
			continue;
		now_ms = weft_max(now_ms, weft_min(end, base->events.timer_ms));
	}
}

static void meet(const struct meeting *m)
{
	static const struct weft_iface_cb cb;
	const struct weft_iface_params params = { .cb = &cb };
	struct weft_address remote = { .wire_max = WEFT_WIRE_MAX };
	struct weft_base base = { 0 };
	struct weft_conn *conn;
	uint64_t begin = now_ms;

	memset(&t, 0, sizeof(t));
	t.meeting = m;
	t.begin = now_ms;
	t.fd = -1;
	cr_assert(zero(int, weft_base_open(&base, NULL, NULL, &params,
					   weft_base_on_timer)));
	base.session.ops = &ops;
	base.session.name = "test";
	base.session.where = "the test";
	memcpy(remote.key, listener_key, sizeof(remote.key));
	cr_expect(eq(int,
		     weft_session_connect(&base.session, &remote, 3, &conn),
		     m->at_once ? m->err : 0));
	pass_time(&base);
	cr_expect(eq(uint, t.joined, m->err ? 0 : 1));
	cr_expect(eq(uint, t.lost, m->err ? 1 : 0));
	cr_expect(eq(int, t.err, m->err));
	cr_expect(ge(uint, t.dials, m->min_dials));
	cr_expect(le(uint, t.dials, m->max_dials));
	cr_expect(ge(u64, now_ms - begin, m->min_ms));
	cr_expect(le(u64, now_ms - begin, m->max_ms));
	if (t.fd >= 0)
		close(t.fd);
	weft_conn_drop_handshakes(conn);
	weft_conn_fini(conn);
	free(conn);
	weft_session_reap(&base.session);
	weft_base_close(&base);
}

static void begin(void)
{
	now_ms = 1000;
	weft_clock_set(test_clock);
	log_quiet();
	cr_assert(eq(u64, weft_settings()->connect_timeout_ms, TIMEOUT));
}

TestSuite(session, .init = begin);

Test(session, a_full_backlog_is_dialled_again)
{
	meet(&(struct meeting){ .first = { FULL, FULL, FULL },
				.nfirst = 3,
				.rest = ACCEPT,
				.min_dials = 4,
				.max_dials = 4,
				.max_ms = SOON });
}

/* That of a process that lives: it is busy. */
Test(session, a_backlog_may_stay_full_for_longer_than_the_timeout)
{
	static struct meeting m = { .rest = ACCEPT,
				    .min_dials = 1000,
				    .max_dials = 1000,
				    .min_ms = 2 * TIMEOUT,
				    .max_ms = BUSY_MS };

	m.nfirst = 999;
	m.full = true;
	meet(&m);
}

/* Its own dial was preferred, and never comes. */
Test(session, a_peer_that_yielded_to_itself_is_dialled_again)
{
	meet(&(struct meeting){ .first = { YIELD },
				.nfirst = 1,
				.rest = ACCEPT,
				.min_dials = 2,
				.max_dials = 2,
				.min_ms = 1000,
				.max_ms = 5000 });
}

Test(session, a_peer_that_always_prefers_its_own_dial_is_given_up)
{
	meet(&(struct meeting){ .rest = YIELD,
				.err = -ECONNREFUSED,
				.min_dials = 10,
				.max_dials = 20,
				.min_ms = TIMEOUT / 2,
				.max_ms = 2 * TIMEOUT });
}

Test(session, a_listener_that_hung_up_is_dialled_again)
{
	meet(&(struct meeting){ .first = { HANGUP, HANGUP, HANGUP },
				.nfirst = 3,
				.rest = ACCEPT,
				.min_dials = 4,
				.max_dials = 4,
				.min_ms = 500,
				.max_ms = 5000 });
}

Test(session, a_listener_that_hangs_up_each_time_is_given_up)
{
	meet(&(struct meeting){ .rest = HANGUP,
				.err = -EPIPE, /* a Unix socket's */
				.min_dials = 4,
				.max_dials = 4,
				.min_ms = 500,
				.max_ms = 5000 });
}

Test(session, a_busy_listener_is_waited_for)
{
	meet(&(struct meeting){ .rest = BUSY,
				.min_dials = 1,
				.max_dials = 1,
				.min_ms = BUSY_MS,
				.max_ms = BUSY_MS + SOON });
}

Test(session, a_host_that_does_not_answer_is_given_up)
{
	meet(&(struct meeting){ .rest = NO_PEER,
				.err = -ETIMEDOUT,
				.min_dials = 1,
				.max_dials = 1,
				.min_ms = TIMEOUT,
				.max_ms = TIMEOUT + 2 * WEFT_TICK_MS });
}

/*
 * Before its hello, and amid it, as a listener does that has waited for long:
 * as often as the dialler is busy again.
 */
Test(session, a_dialler_that_was_too_busy_for_its_hello_dials_again)
{
	meet(&(struct meeting){ .late = 10,
				.rest = ACCEPT,
				.min_dials = 11,
				.max_dials = 11,
				.min_ms = 10 * TIMEOUT,
				.max_ms = 2 * BUSY_MS });
}

Test(session, a_dialler_that_was_too_busy_for_its_proof_dials_again)
{
	meet(&(struct meeting){ .late = 10,
				.amid = true,
				.rest = ACCEPT,
				.min_dials = 11,
				.max_dials = 11,
				.min_ms = 10 * TIMEOUT,
				.max_ms = 2 * BUSY_MS });
}

/* At once, not from progress(). */
Test(session, a_dial_without_a_socket_fails_in_the_call)
{
	meet(&(struct meeting){ .rest = NONE,
				.at_once = true,
				.err = -EMFILE,
				.min_dials = 1,
				.max_dials = 1,
				.max_ms = SOON });
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The InfiniBand device where verbs fail; what works is in conformance. */
#include <stdio.h>

#include "devices/ib/ib_conn.h"
#include "devices/ib/ib_done.h"
#include "tests/lib/fds.h"
#include "tests/unit/devices/ib/ib_pair.h"
#include "util/drivers/verbs.h"

/* ---- every call that may fail does -------------------------------------- */

/* Opens, connects, puts, sends and closes; the number of errors reported. */
static unsigned int life(void)
{
	struct weft_mem *mem = NULL;
	unsigned int errors = 0;

	memset(dst, 0, LEN);
	a.iface = b.iface = NULL;
	a.ep = b.ep = NULL;
	if (open_side(&a, "fake0:1") || open_side(&b, "fake1:1") ||
	    side_dial(&a, &b) || side_dial(&b, &a))
		errors++;
	if (!errors && !until((ib->ready(a.ep) && ib->ready(b.ep)) ||
			      a.errors || b.errors))
		cr_expect(false, "neither connected nor failed");
	errors += a.errors + b.errors;
	if (!errors && ib->mem_register(dst, LEN, WEFT_MEM_HOST, &mem))
		errors++;
	if (mem) {
		if (put_all(mem))
			errors++;
		else
			cr_expect(zero(int, memcmp(src, dst, LEN)));
		if (!a.errors && !b.errors && send_number(&b, 0))
			errors++;
		until(a.messages || a.errors || b.errors);
		ib->mem_release(mem);
	}
	errors += a.errors + b.errors;
	side_close(&a);
	/* what b sent was delivered, and a has said so */
	if (!errors && until(b.errors))
		errors += b.error != -ESHUTDOWN;
	side_close(&b);
	return errors;
}

Test(ib, every_failing_verbs_call_is_reported_and_leaks_nothing, .init = begin,
     .fini = end, .timeout = 300)
{
	unsigned int n, errors, before, calls;
	char when[64];

	fake_verbs_fail(0);
	life();
	before = count_fds();
	fake_verbs_fail(0);
	cr_assert(zero(uint, life()), "%s", logged);
	calls = fake_verbs_calls();
	cr_assert(gt(uint, calls, 40));
	for (n = 1; n <= calls; n++) {
		log_keep();
		fake_verbs_fail(n);
		errors = life();
		if (!fake_verbs_failed())
			continue; /* one call less than last time */
		snprintf(when, sizeof(when), "call %u, %s", n,
			 fake_verbs_failed());
		cr_expect(yes(errors || survived(fake_verbs_failed())),
			  "%s failed without an error", when);
		cr_expect(yes(*logged ||
			      (!errors && unneeded(fake_verbs_failed()))),
			  "%s: nothing was logged", when);
		nothing_lives(when);
		cr_expect(eq(uint, count_fds(), before), "%s", when);
	}
}

/* ---- endpoints that were not made, and peers that are gone -------------- */

/* The n-th endpoints of both sides pair up, so a failed one must not count. */
Test(ib, failed_endpoint_takes_no_number, .init = begin, .fini = end,
     .timeout = 120)
{
	struct fake_verbs_live live;

	cr_assert(zero(int, open_side(&a, "fake0:1")));
	cr_assert(zero(int, open_side(&b, "fake1:1")));
	fake_verbs_fail_call("reg_mr");
	cr_expect(eq(int, side_dial(&a, &b), -ENOMEM));
	dial_both();
	cr_assert(until(ib->ready(a.ep) && ib->ready(b.ep)));
	fake_verbs_live(&live);
	cr_expect(eq(uint, live.qps, 2), "they are not of one connection");
	pair_down();
}

Test(ib, peer_without_connections_is_freed, .init = begin, .fini = end,
     .timeout = 120)
{
	struct ib_peer *peer;

	pair_up();
	peer = weft_list_first(&ib_iface(a.iface)->peers, struct ib_peer, link);
	ib->ep_destroy(a.ep);
	ib->ep_destroy(b.ep);
	a.ep = b.ep = NULL;
	cr_assert(until(weft_list_empty(&peer->conns)));
	side_close(&b);
	cr_expect(until(weft_list_empty(&ib_iface(a.iface)->peers)));
	pair_down();
}

/* ---- a cause that the other side has ------------------------------------ */

/* @cause is logged once, by b, which has it from a alone. */
static void expect_said_once(const char *cause)
{
	static const char lost[] = "'fake1:1' lost its peer ";
	const char *line = strstr(logged, lost);
	char said[128];

	cr_assert(yes(line), "%s", logged);
	snprintf(said, sizeof(said), ": the peer said '%s'\n", cause);
	cr_expect(eq(ptr, strstr(line, said), strstr(line, ": the")), "%s",
		  logged);
	cr_expect(yes(strstr(line, said)), "%s", logged);
	cr_expect(yes(!strstr(line + 1, lost)), "%s", logged);
}

/* ---- completion queues that fail ---------------------------------------- */

/* @call fails; NULL: the adapter reports an event. */
static void fail_by(const char *call)
{
	uint64_t end = now_ms() + WAIT_MS;

	if (!call) {
		fake_verbs_event(0, IBV_EVENT_CQ_ERR);
		return;
	}
	fake_verbs_fail_call(call);
	while (!fake_verbs_failed() && now_ms() < end)
		ib->arm(a.iface);
	cr_assert(yes(fake_verbs_failed()));
}

/* The watchdog's deadline is a minute, so that it cannot be what finds this. */
static void fail_queue(const char *call, const char *text)
{
	struct fake_verbs_live live;

	logged[0] = '\0';
	setenv("WEFT_PEER_TIMEOUT", "60s", 1);
	weft_settings_reset();
	pair_up();
	fail_by(call);
	cr_expect(until(a.errors && b.errors));
	cr_expect(eq(int, a.error, -EIO));
	cr_expect(eq(int, b.error, -ECONNRESET));
	cr_expect(yes(strstr(logged, text)), "%s", logged);
	cr_expect(yes(strstr(logged, "'fake0:1'")), "%s", logged);
	expect_said_once("Input/output error");
	/* new endpoints get another queue */
	ib->ep_destroy(a.ep);
	ib->ep_destroy(b.ep);
	a.ep = b.ep = NULL;
	a.errors = b.errors = 0;
	dial_both();
	cr_assert(until(ib->ready(a.ep) && ib->ready(b.ep)), "%s", logged);
	cr_assert(zero(int, send_number(&a, 0)));
	cr_assert(zero(int, send_number(&b, 0)));
	cr_expect(until(a.messages == 1 && b.messages == 1));
	fake_verbs_live(&live);
	cr_expect(eq(uint, live.cqs, 2), "the failed one is still there");
	pair_down();
}

Test(ib, failed_cq_fails_both_endpoints_at_once, .init = begin, .fini = end,
     .timeout = 120)
{
	fail_queue("poll_cq", "cannot poll");
	fail_queue("req_notify_cq", "cannot ask for events");
	fail_queue(NULL, "'fake0:1' reports a fatal error of a completion "
			 "queue; its connections end\n");
}

/* Another interface of the device, as of another worker, keeps working. */
Test(ib, failed_cq_spares_other_interfaces, .init = begin, .fini = end,
     .timeout = 120)
{
	cr_assert(zero(int, open_side(&c, "fake0:1")));
	cr_assert(zero(int, open_side(&b, "fake1:1")));
	cr_assert(zero(int, side_dial(&c, &b)));
	cr_assert(zero(int, open_side(&a, "fake0:1")));
	dial_both();
	cr_assert(until(ib->ready(a.ep) && ib->ready(b.ep)));
	fake_verbs_event(0, IBV_EVENT_CQ_ERR);
	cr_expect(until(c.errors));
	cr_expect(eq(int, c.error, -EIO));
	cr_assert(zero(int, send_number(&a, 0)));
	cr_expect(until(b.messages == 1));
	cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
	side_close(&c);
	pair_down();
}

/* ---- a connection that ends ---------------------------------------------- */

static int poll_nothing(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	return 0;
}

/* One gathering is bounded: completions beyond it come after the failure. */
Test(ib, no_message_is_delivered_after_the_connection_failed, .init = begin,
     .fini = end, .timeout = 120)
{
	struct weft_verbs behind;
	struct ib_iface *iface;
	struct ib_conn *conn;

	pair_up();
	iface = ib_iface(a.iface);
	conn = ib_conn(weft_ep_conn(a.ep));
	behind = *iface->v;
	behind.poll_cq = poll_nothing;
	cr_assert(zero(int, send_number(&b, 0)));
	/* the adapter here has it */
	while (ib_conn(weft_ep_conn(b.ep))->user_used)
		ib->progress(b.iface);
	iface->v = &behind;
	ib_conn_fail(conn, -ECONNRESET);
	cr_assert(yes(conn->qp),
		  "a queue pair that is gone has no completions");
	iface->v = ib_iface(b.iface)->v;
	cr_expect(gt(uint, ib_done_gather(iface), 0));
	cr_expect(yes(!ib_done_undelivered(conn)));
	cr_expect(until(a.errors && b.errors));
	cr_expect(zero(uint, a.messages));
	pair_down();
}

Test(ib, credits_for_what_was_not_sent_end_the_connection, .init = begin,
     .fini = end, .timeout = 120)
{
	pair_up();
	cr_assert(zero(int, send_number(&a, 0)));
	cr_expect(until(b.messages == 1));
	ib_conn(weft_ep_conn(b.ep))->to_return++;
	cr_assert(zero(int, send_number(&b, 0)));
	cr_expect(until(a.errors && b.errors));
	cr_expect(eq(int, a.error, -EPROTO));
	cr_expect(eq(uint, log_lines("sent a malformed message"), 1), "%s",
		  logged);
	pair_down();
}

/* A message with an error completion has freed its buffer, too. */
Test(ib, flush_fails_on_a_broken_connection, .init = begin, .fini = end,
     .timeout = 120)
{
	struct wait_op early = WAIT_OP;
	struct wait_op late = WAIT_OP;
	uint64_t limit = now_ms() + WAIT_MS;
	struct ib_conn *conn;

	pair_up();
	conn = ib_conn(weft_ep_conn(a.ep));
	fake_verbs_all_status(IBV_WC_GENERAL_ERR);
	cr_assert(zero(int, send_number(&a, 0)));
	cr_assert(eq(int, ib->flush(a.ep, &early.op), -EINPROGRESS));
	while (!conn->base.err && now_ms() < limit)
		ib->arm(a.iface); /* gathers without callbacks */
	cr_assert(eq(int, conn->base.err, -EIO));
	cr_assert(zero(uint, conn->user_used));
	cr_expect(eq(int, ib->flush(a.ep, NULL), -EINPROGRESS));
	cr_assert(eq(int, ib->flush(a.ep, &late.op), -EINPROGRESS));
	cr_expect(until(a.errors));
	cr_expect(yes(early.done && late.done));
	cr_expect(eq(int, early.status, -EIO));
	cr_expect(eq(int, late.status, -EIO));
	cr_expect(eq(int, ib->flush(a.ep, NULL), -EIO));
	fake_verbs_all_status(0);
	pair_down();
}

/* A queue pair that cannot be ended is destroyed: nothing waits for it. */
Test(ib, put_is_cancelled_if_the_qp_cannot_be_moved_to_error, .init = begin,
     .fini = end, .timeout = 120)
{
	struct wait_op w = WAIT_OP;
	struct weft_iov iov = { src, LEN, NULL };
	uint8_t key[WEFT_RKEY_MAX];
	struct weft_mem *mem;

	pair_up();
	cr_assert(zero(int, ib->mem_register(dst, LEN, WEFT_MEM_HOST, &mem)));
	cr_assert(zero(int, put_all(mem)));
	ib->mem_pack(mem, &key);
	fake_verbs_cut(true);
	cr_assert(eq(int,
		     ib->put(a.ep, &iov, 1, (uintptr_t)dst, &key, NULL, &w.op),
		     -EINPROGRESS));
	fake_verbs_fail_call("modify_qp to ERR");
	ib->cancel(a.ep);
	cr_expect(yes(w.done));
	cr_expect(eq(int, w.status, -ECANCELED));
	cr_expect(
		yes(strstr(
			logged,
			"cannot move a queue pair of 'fake0:1' to the error state")),
		"%s", logged);
	fake_verbs_cut(false);
	cr_expect(until(b.errors));
	ib->mem_release(mem);
	pair_down();
}

/* ---- errors of the adapter ---------------------------------------------- */

static const struct {
	int status;
	int put;   /* what the put ends with */
	int error; /* and the endpoint */
	const char *text;
	bool refused; /* by the other adapter, which ends its own */
} statuses[] = {
	{ IBV_WC_REM_ACCESS_ERR, -EACCES, -ECONNRESET, "remote access", true },
	{ IBV_WC_REM_INV_REQ_ERR, -EACCES, -ECONNRESET, "remote invalid",
	  true },
	{ IBV_WC_LOC_PROT_ERR, -EFAULT, -ECONNRESET, "local protection" },
	{ IBV_WC_RETRY_EXC_ERR, -ETIMEDOUT, -ETIMEDOUT, "retry counter" },
	{ IBV_WC_RNR_RETRY_EXC_ERR, -EIO, -EIO, "RNR" },
	{ IBV_WC_LOC_QP_OP_ERR, -EIO, -EIO, "local QP operation" },
	{ IBV_WC_GENERAL_ERR, -EIO, -EIO, "general error" },
};

static const struct weft_counters *stats_of(struct side *s)
{
	struct weft_conn *conn = weft_ep_conn(s->ep);

	return container_of(conn, struct ib_conn, base)->stats;
}

Test(ib, each_completion_error_gives_its_errno, .init = begin, .fini = end,
     .timeout = 120)
{
	const struct weft_counters *stats;
	struct weft_mem *mem;
	size_t i;

	for (i = 0; i < sizeof(statuses) / sizeof(*statuses); i++) {
		log_keep();
		pair_up();
		cr_assert(zero(
			int, ib->mem_register(dst, LEN, WEFT_MEM_HOST, &mem)));
		cr_expect(zero(int, put_all(mem)));
		stats = stats_of(&a);
		fake_verbs_next_status(statuses[i].status);
		cr_expect(eq(int, put_all(mem), statuses[i].put), "status %d",
			  statuses[i].status);
		cr_expect(until(a.errors && b.errors));
		cr_expect(eq(ulong, stats->tx_puts, 1), "the first alone");
		cr_expect(eq(int, a.error, statuses[i].error));
		/* with the port and the cause */
		cr_expect(yes(strstr(logged, "fake0:1")), "%s", logged);
		cr_expect(yes(strstr(logged, statuses[i].text)), "%s", logged);
		cr_expect(eq(int, b.error, -ECONNRESET));
		if (statuses[i].refused)
			cr_expect(
				yes(strstr(logged, "'fake1:1' lost its peer")),
				"%s", logged);
		else
			expect_said_once(weft_wc_name(statuses[i].status));
		ib->mem_release(mem);
		pair_down();
	}
}

/* ---- faults of the network ---------------------------------------------- */

Test(ib, lasting_link_loss_fails_endpoints, .init = begin, .fini = end,
     .timeout = 120)
{
	pair_up();
	fake_verbs_link(false);
	cr_expect(until(a.errors && b.errors));
	/* the side that hears of it first reports to the other */
	cr_expect(yes(a.error == -ENETDOWN || a.error == -ECONNRESET));
	cr_expect(yes(a.error == -ENETDOWN || b.error == -ENETDOWN));
	cr_expect(yes(strstr(logged, "is down")), "%s", logged);
	cr_expect(eq(int, send_number(&a, 0), a.error));
	fake_verbs_link(true);
	pair_down();
}

Test(ib, fatal_device_event_fails_endpoints_at_once, .init = begin, .fini = end,
     .timeout = 120)
{
	setenv("WEFT_PEER_TIMEOUT", "60s", 1);
	weft_settings_reset();
	pair_up();
	fake_verbs_event(0, IBV_EVENT_DEVICE_FATAL);
	cr_expect(until(a.errors && b.errors));
	cr_expect(eq(int, a.error, -EIO));
	cr_expect(eq(int, b.error, -ECONNRESET));
	cr_expect(yes(strstr(logged, "'fake0:1' reports a fatal error\n")),
		  "%s", logged);
	expect_said_once("Input/output error");
	pair_down();
}

/* An event that does not concern connections. */
Test(ib, harmless_device_event_is_ignored, .init = begin, .fini = end,
     .timeout = 120)
{
	pair_up();
	fake_verbs_event(0, IBV_EVENT_GID_CHANGE);
	cr_assert(zero(int, send_number(&a, 0)));
	cr_expect(until(b.messages == 1));
	cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
	pair_down();
}

Test(ib, short_link_loss_is_no_error, .init = begin, .fini = end,
     .timeout = 120)
{
	pair_up();
	fake_verbs_link(false);
	fake_verbs_link(true);
	cr_assert(zero(int, send_number(&a, 0)));
	cr_expect(until(b.messages == 1));
	cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
	pair_down();
}

/* Without any event: the watchdogs of both sides find it. */
static void cut_off(bool busy)
{
	static const char *const what = "no answer for ";
	const char *said;

	logged[0] = '\0';
	setenv("WEFT_PEER_TIMEOUT", "2s", 1);
	weft_settings_reset();
	pair_up();
	fake_verbs_cut(true);
	if (busy)
		cr_expect(zero(int, send_number(&a, 0)));
	cr_expect(until(a.errors && b.errors));
	cr_expect(yes(a.error == -ETIMEDOUT || a.error == -ECONNRESET));
	cr_expect(yes(a.error == -ETIMEDOUT || b.error == -ETIMEDOUT));
	said = strstr(logged, what);
	cr_assert(yes(said), "%s", logged);
	/* not less: what was idle before does not count */
	cr_expect(ge(int, atoi(said + strlen(what)), 2000), "%s", logged);
	/* the slower side has it from the other */
	if (a.error == -ECONNRESET || b.error == -ECONNRESET)
		cr_expect(yes(strstr(logged,
				     "the peer said 'Connection timed out'")),
			  "%s", logged);
	pair_down();
}

Test(ib, watchdog_finds_silent_loss, .init = begin, .fini = end, .timeout = 120)
{
	cut_off(true);
	fake_verbs_cut(false);
	/* idle: the keepalive sends */
	cut_off(false);
}

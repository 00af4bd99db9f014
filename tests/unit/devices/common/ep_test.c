/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints of a device that moves nothing: what is alike in all of them. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <string.h>

#include "devices/common/ep.h"

static struct weft_base base;
static struct weft_conn conn;
static struct weft_ep *ep;
static bool is_ready, is_flushed;
static uint64_t sent_now = 1, taken; /* messages */
static int refuses;
static uint32_t asked;
static unsigned int readies, errors, cancels, leaves;
static int error;

static int connect_ep(struct weft_iface *iface,
		      const struct weft_address *remote, uint32_t number,
		      struct weft_conn **out)
{
	asked = number;
	*out = &conn;
	return refuses;
}

static bool ready(struct weft_conn *c)
{
	return c == &conn && is_ready;
}

static uint64_t count_sent(const struct weft_conn *c)
{
	return c == &conn ? sent_now : 0;
}

static bool flushed(struct weft_conn *c, uint64_t sent)
{
	return c == &conn && (is_flushed || sent <= taken);
}

static void cancel(struct weft_conn *c)
{
	cancels += c == &conn;
}

static void leave(struct weft_conn *c)
{
	leaves += c == &conn && !c->ep;
}

static const struct weft_ep_ops ops = {
	.max_iov = 4,
	.max_message = 100,
	.connect = connect_ep,
	.is_ready = ready,
	.sent = count_sent,
	.is_flushed = flushed,
	.cancel = cancel,
	.leave = leave,
};

static void on_ready(void *arg, struct weft_ep *e, void *user)
{
	readies += arg == &base && e == ep && user == &asked;
}

static void on_error(void *arg, struct weft_ep *e, void *user, int err)
{
	errors += arg == &base && e == ep && user == &asked;
	error = err;
}

static int create(void)
{
	static const struct weft_address remote;

	return weft_ep_create(&base.iface, &remote, &asked, &ep);
}

static unsigned int on_timer(struct weft_events *ev, uint64_t now,
			     uint64_t stood)
{
	return 0;
}

static void begin(void)
{
	static const struct weft_dev_ops none = { .name = "none" };
	const struct weft_iface_cb cb = {
		.arg = &base,
		.on_ready = on_ready,
		.on_error = on_error,
	};
	const struct weft_iface_params params = { .cb = &cb };

	cr_assert(zero(int,
		       weft_base_open(&base, &none, &ops, &params, on_timer)));
	weft_conn_begin(&conn, &base, 7, 0);
	cr_assert(zero(int, create()));
}

static void end(void)
{
	weft_base_close(&base);
}

TestSuite(ep, .init = begin, .fini = end, .timeout = 60);

struct told {
	struct weft_op op;
	unsigned int at; /* when, from 1 on */
	int status;
	bool cancels;
};

static unsigned int tells;

static void done(struct weft_op *op, int status)
{
	struct told *t = container_of(op, struct told, op);

	t->at = ++tells;
	t->status = status;
	if (t->cancels)
		weft_ep_cancel(ep);
}

static int flush(struct told *t)
{
	t->op.done = done;
	return weft_ep_flush(ep, &t->op);
}

Test(ep, an_error_comes_before_a_limit_and_that_before_room)
{
	const struct iovec iov[2] = { { NULL, 60 }, { NULL, 41 } };
	size_t len;

	cr_expect(eq(int, weft_ep_check(&ops, ep, 5, 0), -EMSGSIZE));
	cr_expect(eq(int, weft_ep_check(&ops, ep, 4, 101), -EMSGSIZE));
	cr_expect(eq(int, weft_ep_check_message(&ops, ep, iov, 2, &len),
		     -EMSGSIZE));
	cr_expect(not(conn.ready_owed), "a limit is no matter of room");
	cr_expect(eq(int, weft_ep_check(&ops, ep, 4, 100), -EAGAIN));
	cr_expect(conn.ready_owed);
	is_ready = true;
	cr_expect(zero(int, weft_ep_check_message(&ops, ep, iov, 1, &len)));
	cr_expect(eq(sz, len, 60));
	weft_ep_fail(&conn, -EIO);
	cr_expect(eq(int, weft_ep_check(&ops, ep, 5, 0), -EIO));
	cr_expect(weft_ep_ready(ep), "a dead endpoint is ready");
}

Test(ep, on_ready_is_called_once_and_only_if_owed)
{
	is_ready = true;
	cr_expect(zero(uint, weft_ep_notify(&conn)));
	is_ready = false;
	cr_expect(not(weft_ep_ready(ep)));
	cr_expect(zero(uint, weft_ep_notify(&conn)));
	is_ready = true;
	cr_expect(eq(uint, weft_ep_notify(&conn), 1));
	cr_expect(zero(uint, weft_ep_notify(&conn)));
	cr_expect(eq(uint, readies, 1));
}

Test(ep, flushes_end_in_order_and_together)
{
	struct told t[3] = { 0 };
	unsigned int i;

	for (i = 0; i < 3; i++)
		cr_expect(eq(int, flush(&t[i]), -EINPROGRESS));
	cr_expect(eq(int, weft_ep_flush(ep, NULL), -EINPROGRESS));
	cr_expect(zero(uint, weft_ep_notify(&conn)));
	is_flushed = true;
	cr_expect(eq(uint, weft_ep_notify(&conn), 3));
	for (i = 0; i < 3; i++) {
		cr_expect(eq(uint, t[i].at, i + 1));
		cr_expect(zero(int, t[i].status));
	}
	cr_expect(zero(int, weft_ep_flush(ep, NULL)));
}

Test(ep, a_flush_waits_for_what_was_sent_before_it)
{
	struct told first = { 0 }, second = { 0 };

	cr_expect(eq(int, flush(&first), -EINPROGRESS));
	sent_now = 2;
	cr_expect(eq(int, flush(&second), -EINPROGRESS));
	taken = 1;
	cr_expect(eq(uint, weft_ep_notify(&conn), 1));
	cr_expect(eq(uint, first.at, 1));
	cr_expect(eq(int, weft_ep_flush(ep, NULL), -EINPROGRESS));
	taken = 2;
	cr_expect(eq(uint, weft_ep_notify(&conn), 1));
	cr_expect(eq(uint, second.at, 2));
}

Test(ep, a_flush_may_cancel_those_behind_it)
{
	struct told first = { .cancels = true }, second = { 0 };

	cr_expect(eq(int, flush(&first), -EINPROGRESS));
	cr_expect(eq(int, flush(&second), -EINPROGRESS));
	is_flushed = true;
	conn.ready_owed = is_ready = true;
	cr_expect(eq(uint, weft_ep_notify(&conn), 1));
	cr_expect(zero(int, first.status));
	cr_expect(eq(int, second.status, -ECANCELED));
	cr_expect(zero(uint, readies), "of a dead one");
	cr_expect(eq(uint, cancels, 1));
}

/* No error after cancel(): the caller has lost nothing. */
Test(ep, a_cancelled_one_ends_quietly)
{
	struct told t = { 0 };

	cr_expect(eq(int, flush(&t), -EINPROGRESS));
	weft_ep_cancel(ep);
	weft_ep_cancel(ep);
	cr_expect(eq(int, t.status, -ECANCELED));
	cr_expect(eq(uint, cancels, 1));
	cr_expect(eq(int, weft_ep_check(&ops, ep, 1, 1), -ECANCELED));
	cr_expect(zero(int, weft_ep_flush(ep, NULL)));
	weft_ep_fail(&conn, -ECONNRESET);
	weft_ep_failed(&conn);
	cr_expect(zero(uint, errors));
	cr_expect(zero(int, weft_ep_flush(ep, NULL)));
	weft_ep_destroy(ep);
	cr_expect(zero(uint, leaves), "there is no connection to leave");
}

/* Its peer may say that it has all, and end, before progress() looks. */
Test(ep, a_flush_that_was_met_outlives_the_end)
{
	struct told met = { 0 }, lost = { 0 };

	cr_expect(eq(int, flush(&met), -EINPROGRESS));
	sent_now = 2;
	cr_expect(eq(int, flush(&lost), -EINPROGRESS));
	taken = 1;
	weft_ep_fail(&conn, -ECONNRESET);
	weft_ep_failed(&conn);
	cr_expect(eq(uint, met.at, 1));
	cr_expect(zero(int, met.status));
	cr_expect(eq(int, lost.status, -ECONNRESET));
}

/* Only what was lost is an error of a flush. */
Test(ep, the_end_of_a_connection_is_reported_once)
{
	static const int ends[] = { -ESHUTDOWN, -ECONNRESET };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct told t = { 0 };
		int lost = ends[i] == -ESHUTDOWN ? 0 : ends[i];

		errors = 0;
		is_flushed = false;
		cr_expect(eq(int, flush(&t), -EINPROGRESS));
		weft_ep_fail(&conn, ends[i]);
		weft_ep_failed(&conn);
		weft_ep_failed(&conn);
		cr_expect(eq(int, t.status, lost));
		cr_expect(eq(uint, errors, 1));
		cr_expect(eq(int, error, ends[i]));
		cr_expect(eq(int, weft_ep_flush(ep, NULL), lost));
		weft_ep_destroy(ep);
		cr_assert(zero(int, create()));
	}
	weft_ep_destroy(ep);
	cr_expect(eq(uint, leaves, 1));
}

/* A number that the peer has used up is not asked for forever. */
Test(ep, numbers_count_endpoints)
{
	cr_expect(zero(u32, asked));
	refuses = -ENOMEM;
	cr_expect(eq(int, create(), -ENOMEM));
	cr_expect(eq(u32, asked, 1));
	refuses = -ECONNRESET;
	cr_expect(eq(int, create(), -ECONNRESET));
	cr_expect(eq(u32, asked, 1), "nothing was made before");
	refuses = 0;
	cr_expect(zero(int, create()));
	cr_expect(eq(u32, asked, 2));
}

Test(ep, pieces_are_copied_in_order_and_empty_ones_have_no_address)
{
	const struct iovec iov[3] = { { "ab", 2 }, { NULL, 0 }, { "cde", 3 } };
	char to[6] = "......";

	weft_iov_copy(to, iov, 3);
	cr_expect(zero(int, memcmp(to, "abcde.", 6)));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What each side learns when a connection, or a transfer, ends badly. */
#include "tests/unit/nccl_net/pair.h"

TestSuite(end, .timeout = 20);

/* The rank that accepts has closed all when the other one looks again. */
Test(end, connection_accepted_and_closed_between_two_polls_is_handed_out,
     .init = init)
{
	char handle[WEFT_NET_HANDLE];
	struct weft_net_request *s;
	int i;

	cr_assert(eq(int, weft_net_listen(b, 0, handle, &listener), 0));
	tx = rx = NULL;
	cr_assert(eq(int, weft_net_connect(a, 0, handle, &tx), 0));
	cr_assert(tx == NULL);
	for (i = 0; i < 100 && !rx; i++)
		cr_assert(eq(int, weft_net_accept(listener, &rx), 0));
	cr_assert(rx != NULL);
	weft_net_close_comm(rx);
	weft_net_close_listener(listener);
	fake_break_all(-ESHUTDOWN);
	cr_assert(eq(int, weft_net_connect(a, 0, handle, &tx), 0), "%s",
		  last_error);
	cr_assert(tx != NULL);
	cr_expect(eq(uint, errors, 0), "%s", last_error);
	cr_expect(lt(int, weft_net_send(tx, src, 1, NULL, &s), 0));
	weft_net_close_comm(tx);
	cr_expect(eq(uint, fake.eps, 0));
	cr_expect(eq(uint, fake.ifaces, 0));
}

/* Where it cost nothing so far; else dead_peer_fails_pending_requests. */
Test(end, lost_connection_is_said_when_a_transfer_needs_it, .init = connected)
{
	struct weft_net_request *req;

	transfer(100000, BIG - 8);
	fake_break_all(-ECONNRESET);
	step();
	cr_expect(eq(uint, errors, 0), "%s", last_error);
	cr_expect(eq(int, weft_net_send(tx, src, 1, NULL, &req), -ECONNRESET));
	cr_expect(eq(uint, errors, 1));
	cr_expect(strstr(last_error, "lost the connection") != NULL, "%s",
		  last_error);
	cr_expect(eq(int, weft_net_recv(rx, dst, 1, rmr, &req), -ECONNRESET));
	cr_expect(eq(uint, errors, 2));
	cr_expect(eq(int, weft_net_send(tx, src, 1, NULL, &req), -ECONNRESET));
	cr_expect(eq(int, weft_net_recv(rx, dst, 1, rmr, &req), -ECONNRESET));
	cr_expect(eq(uint, errors, 2), "%s", last_error);
}

/* One connection for all comms between two processes. */
Test(end, put_that_fails_ends_all_comms_to_that_process, .init = connected)
{
	struct weft_net_request *r, *r2, *s;
	struct weft_net_comm *tx2, *rx2;
	struct weft_net_mr *mr2;
	size_t got;

	join(a, b, &tx2, &rx2);
	cr_assert(eq(int, weft_net_register(rx2, dst, BIG, 1, &mr2), 0));
	cr_assert(eq(int, weft_net_recv(rx2, dst, BIG, mr2, &r2), 0));
	fake.hold_puts = true;
	r = recv_now(dst, BIG);
	s = send_now(src, BIG);
	weft_net_deregister(rmr);
	fake.hold_puts = false;
	cr_expect(lt(int, finish(s, &got), 0));
	cr_expect(lt(int, finish(r, &got), 0));
	cr_expect(eq(int, finish(r2, &got), -ECONNRESET));
	cr_expect(eq(int, weft_net_send(tx2, src, BIG, NULL, &s), -ECONNRESET));
	weft_net_deregister(mr2);
	weft_net_close_comm(tx2);
	weft_net_close_comm(rx2);
	weft_net_close_comm(tx);
	weft_net_close_comm(rx);
	cr_expect(eq(uint, fake.eps, 0));
}

static int send_on_a_full_wire(void)
{
	struct weft_net_request *s = NULL;
	int ret = 0, i;

	step();
	for (i = 0; i < 50 && !ret; i++) {
		fake.busy = 3;
		ret = weft_net_send(tx, src, BIG, NULL, &s);
	}
	return ret;
}

/* The sender knows, and the wire takes nothing at that moment. */
Test(end, larger_send_fails_on_both_sides_by_a_full_wire, .init = connected)
{
	struct weft_net_request *r = recv_now(dst, 1000);
	size_t got;

	cr_expect(eq(int, send_on_a_full_wire(), -EMSGSIZE));
	cr_expect(eq(int, finish(r, &got), -EMSGSIZE));
	cr_expect(eq(uint, errors, 2), "each side says it");
	cr_expect(strstr(last_error, "1048576") && strstr(last_error, "1000"),
		  "%s", last_error);
	weft_net_close_comm(tx);
	weft_net_close_comm(rx);
}

/* The same, and closing is the next that it does. */
Test(end, larger_send_is_told_by_close, .init = connected)
{
	struct weft_net_request *r = recv_now(dst, 1000);
	size_t got;

	send_on_a_full_wire();
	weft_net_close_comm(tx);
	cr_expect(eq(int, finish(r, &got), -EMSGSIZE));
}

/* The receiver finds out, when the send was done long ago. */
Test(end, larger_small_send_says_what_has_failed, .init = connected)
{
	struct weft_net_request *s = send_now(src, 101), *r;
	size_t got;

	cr_expect(eq(int, finish(s, &got), 0));
	r = recv_now(dst, 100);
	cr_expect(eq(int, finish(r, &got), -EMSGSIZE));
	step();
	cr_expect(eq(uint, errors, 2));
	cr_expect(strstr(last_error, "101") && strstr(last_error, "100 bytes"),
		  "%s", last_error);
	cr_expect(strstr(last_error, "both") == NULL, "%s", last_error);
	cr_expect(eq(int, weft_net_send(tx, src, 1, NULL, &s), -EMSGSIZE));
}

/* Else the other side would wait. */
Test(end, refused_receive_ends_its_sender, .init = connected)
{
	struct weft_net_request *r = NULL, *s = NULL;
	int ret = 0, i;

	cr_expect(eq(int, weft_net_recv(rx, dst + 1, BIG, rmr, &r), -EINVAL));
	for (i = 0; i < 50 && !ret; i++) {
		ret = weft_net_send(tx, src, BIG, NULL, &s);
		step();
	}
	cr_expect(eq(int, ret, -ECONNRESET));
}

/* It is here, and its sender knows that it is done. */
Test(end, data_sent_before_death_arrives, .init = connected)
{
	struct weft_net_request *s, *r;
	size_t got;

	s = send_now(src, 100);
	cr_expect(eq(int, finish(s, &got), 0));
	fake_break_all(-ECONNRESET);
	step();
	r = recv_now(dst, 100);
	cr_expect(eq(int, finish(r, &got), 0));
	cr_expect(eq(sz, got, 100));
	cr_expect(memcmp(dst, src, 100) == 0);
	cr_expect(eq(int, weft_net_recv(rx, dst, 100, rmr, &r), -ECONNRESET));
}

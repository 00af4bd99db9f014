/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts as numbers: chunks, the window, what is sent again, acknowledgements. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/tcp/bulk/tcp_engine.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/bulk/tcp_land.h"
#include "devices/tcp/bulk/tcp_pool.h"

#define CHUNK	      (64u << 10)
#define RESEND(taken) tcp_bulk_resend(conn.bulk, &left, taken, &aborted)

static struct tcp_iface iface;
static struct tcp_conn conn;
static struct weft_counters counters;
static struct tcp_stream left, right;
static struct weft_op op;
static struct weft_list aborted;

static void stream_begin(struct tcp_stream *s, uint32_t id)
{
	memset(s, 0, sizeof(*s));
	s->id = id;
	s->conn = &conn;
	s->out = true;
	weft_list_init(&s->sent);
	tcp_bulk_add_stream(conn.bulk, s);
}

static void begin(void)
{
	setenv("WEFT_TCP_CHUNK", "64k", 1);
	setenv("WEFT_TCP_STREAMS", "2", 1);
	weft_settings_reset();
	memset(&iface, 0, sizeof(iface));
	memset(&conn, 0, sizeof(conn));
	memset(&counters, 0, sizeof(counters));
	tcp_events_init(&iface);
	weft_list_init(&iface.spare_puts);
	weft_list_init(&aborted);
	conn.iface = &iface;
	conn.stats = &counters;
	cr_assert(tcp_bulk_get(&conn) != NULL);
	stream_begin(&left, 1);
	stream_begin(&right, 2);
}

/* As progress() does with what has ended. */
static unsigned int collect(void)
{
	struct tcp_put *put, *next;
	unsigned int n = 0;

	weft_list_for_each (put, next, &iface.found.puts, done_link) {
		weft_list_del(&put->done_link);
		tcp_put_free(put);
		n++;
	}
	return n;
}

static void end(void)
{
	tcp_events_forget(&conn);
	collect();
	tcp_bulk_free(&conn);
	tcp_puts_spare_free(&iface);
}

TestSuite(tcp_bulk, .init = begin, .fini = end);

static struct tcp_put *new_put(size_t len)
{
	struct tcp_put *put = tcp_put_new(&conn);

	cr_assert(put != NULL);
	put->op = &op;
	put->total = len;
	put->iovcnt = 1;
	put->iov[0].iov_len = len;
	return put;
}

static struct tcp_put *submit(size_t len)
{
	struct tcp_put *put = new_put(len);

	tcp_bulk_submit(conn.bulk, put);
	return put;
}

static struct tcp_chunk *take(struct tcp_stream *s, struct tcp_chunk_head *head)
{
	uint8_t bytes[TCP_CHUNK_LEN];
	struct tcp_chunk *c;
	int err = 0;

	c = tcp_bulk_next_chunk(s, NULL, bytes, &err);
	cr_assert(zero(int, err));
	if (c)
		tcp_chunk_decode(bytes, head);
	return c;
}

/* @s has sent it, and takes no other. */
static void sent(struct tcp_stream *s, const struct tcp_chunk *c)
{
	uint8_t bytes[TCP_CHUNK_LEN];
	const bool suspended = s->suspended;
	int err;

	s->suspended = true;
	cr_assert(eq(ptr, tcp_bulk_next_chunk(s, c, bytes, &err), NULL));
	cr_assert(zero(int, err));
	s->suspended = suspended;
}

/* Takes and sends the next chunk; what its head says. */
static struct tcp_chunk_head send_one(struct tcp_stream *s)
{
	struct tcp_chunk_head head = { 0 };
	struct tcp_chunk *c = take(s, &head);

	cr_assert(c != NULL);
	sent(s, c);
	return head;
}

static bool nothing_to_send(void)
{
	struct tcp_chunk_head head;

	return !take(&left, &head);
}

static int acked(uint64_t seq, int status)
{
	return tcp_bulk_acked(&conn, seq, status, false);
}

/* ---- the source ---------------------------------------------------------- */

Test(tcp_bulk, a_put_is_cut_into_chunks_that_any_stream_takes)
{
	struct tcp_chunk_head a, b, c;
	struct tcp_put *put = new_put(2 * CHUNK + 5);

	put->remote_addr = 0x1000;
	put->flags = TCP_CHUNK_NOTIFY;
	put->tag = 77;
	tcp_bulk_submit(conn.bulk, put);
	a = send_one(&left);
	b = send_one(&right);
	c = send_one(&left);
	cr_expect(eq(u64, a.offset, 0));
	cr_expect(eq(u64, b.offset, CHUNK));
	cr_expect(eq(u64, c.offset, 2 * CHUNK));
	cr_expect(eq(u32, a.len, CHUNK));
	cr_expect(eq(u32, c.len, 5));
	cr_expect(eq(u64, c.total, 2 * CHUNK + 5));
	cr_expect(eq(u64, c.addr, 0x1000));
	cr_expect(eq(u64, c.tag, 77));
	cr_expect(eq(u32, c.flags, TCP_CHUNK_NOTIFY));
	cr_expect(nothing_to_send());
	cr_expect(zero(uint, collect()), "it is not acknowledged");
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, throughput_counts_the_time_until_all_is_acknowledged)
{
	submit(CHUNK);
	submit(CHUNK);
	send_one(&left);
	send_one(&right);
	cr_expect(nothing_to_send());
	cr_expect(ne(u64, conn.bulk->tune.busy_since_ns, 0));
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(ne(u64, conn.bulk->tune.busy_since_ns, 0), "one is left");
	cr_expect(zero(int, acked(1, 0)));
	cr_expect(zero(u64, conn.bulk->tune.busy_since_ns));
	cr_expect(eq(uint, collect(), 2));
}

Test(tcp_bulk, an_empty_put_is_a_chunk)
{
	struct tcp_chunk_head head;

	submit(0);
	head = send_one(&left);
	cr_expect(zero(u32, head.len));
	cr_expect(nothing_to_send());
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, the_oldest_put_is_sent_first)
{
	submit(CHUNK);
	submit(CHUNK);
	cr_expect(eq(u64, send_one(&left).seq, 0));
	cr_expect(eq(u64, send_one(&left).seq, 1));
}

Test(tcp_bulk, the_window_is_full_until_the_oldest_is_acknowledged)
{
	unsigned int i;

	for (i = 0; i < TCP_WINDOW; i++) {
		cr_expect(not(tcp_bulk_full(&conn)), "%u", i);
		submit(1);
		send_one(&left);
	}
	cr_expect(tcp_bulk_full(&conn));
	for (i = TCP_WINDOW - 1; i; i--) {
		cr_expect(zero(int, acked(i, 0)));
		cr_expect(tcp_bulk_full(&conn), "%u", i);
	}
	cr_expect(eq(uint, collect(), TCP_WINDOW - 1));
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(not(tcp_bulk_full(&conn)));
	cr_expect(eq(u64, atomic_load(&conn.bulk->acked), TCP_WINDOW));
}

Test(tcp_bulk, the_window_goes_round)
{
	unsigned int i;

	for (i = 0; i < 3 * TCP_WINDOW; i += 2) {
		submit(1);
		submit(1);
		send_one(&left);
		send_one(&left);
		cr_expect(zero(int, acked(i + 1, 0)));
		cr_expect(zero(int, acked(i, 0)));
		cr_assert(eq(uint, collect(), 2));
	}
}

Test(tcp_bulk, an_acknowledgement_that_comes_early_waits_for_its_sender)
{
	struct tcp_chunk_head head;
	struct tcp_chunk *c;

	submit(CHUNK);
	c = take(&left, &head);
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(zero(uint, collect()), "a stream still reads its memory");
	cr_expect(zero(u64, atomic_load(&conn.bulk->acked)));
	sent(&left, c);
	cr_expect(eq(uint, collect(), 1));
	cr_expect(eq(u64, atomic_load(&conn.bulk->acked), 1));
}

Test(tcp_bulk, the_last_of_its_senders_ends_an_acknowledged_put)
{
	struct tcp_chunk *c, *d;
	struct tcp_chunk_head head;

	submit(2 * CHUNK);
	c = take(&left, &head);
	d = take(&right, &head);
	cr_expect(zero(int, acked(0, 0)));
	sent(&left, c);
	cr_expect(zero(uint, collect()), "the other one reads it yet");
	sent(&right, d);
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, a_stream_takes_the_next_chunk_with_the_end_of_one)
{
	uint8_t bytes[TCP_CHUNK_LEN];
	struct tcp_chunk_head head;
	struct tcp_chunk *c;
	int err;

	submit(CHUNK);
	submit(7);
	c = take(&left, &head);
	cr_expect(zero(int, acked(0, 0)));
	c = tcp_bulk_next_chunk(&left, c, bytes, &err);
	cr_assert(c != NULL);
	cr_expect(eq(uint, collect(), 1), "the first put has ended");
	tcp_chunk_decode(bytes, &head);
	cr_expect(eq(u64, head.seq, 1));
	cr_expect(eq(ptr, tcp_bulk_next_chunk(&left, c, bytes, &err), NULL));
	cr_expect(zero(int, acked(1, 0)));
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, a_submit_says_what_there_is_to_do)
{
	struct tcp_queued q = tcp_bulk_submit(conn.bulk, new_put(3 * CHUNK));

	cr_expect(eq(uint, q.chunks, 3));
	cr_expect(not(q.few_streams));
	tcp_bulk_forget_stream(conn.bulk, &right);
	q = tcp_bulk_submit(conn.bulk, new_put(0));
	cr_expect(eq(uint, q.chunks, 4));
	cr_expect(q.few_streams);
	cr_expect(eq(uint, tcp_bulk_missing_streams(conn.bulk), 1));
}

Test(tcp_bulk, streams_above_the_limit_take_nothing)
{
	struct tcp_chunk_head head;
	struct tcp_stream third;

	stream_begin(&third, 3);
	submit(3 * CHUNK);
	cr_expect(eq(ptr, take(&third, &head), NULL));
	send_one(&left);
	/* one that is abandoned makes room */
	tcp_bulk_abandon_stream(conn.bulk, &left);
	cr_expect(take(&third, &head) != NULL);
	tcp_bulk_forget_stream(conn.bulk, &third);
}

Test(tcp_bulk, a_dial_that_fails_lowers_the_limit)
{
	conn.bulk->out_limit = 4;
	conn.bulk->out_dialing = 2;
	cr_expect(eq(uint, tcp_bulk_lose_dial(conn.bulk), 3));
	cr_expect(zero(uint, tcp_bulk_missing_streams(conn.bulk)));
	tcp_bulk_forget_stream(conn.bulk, &left);
	tcp_bulk_forget_stream(conn.bulk, &right);
	cr_expect(zero(uint, tcp_bulk_lose_dial(conn.bulk)));
	cr_expect(eq(uint, conn.bulk->out_limit, 1), "one is tried again");
}

Test(tcp_bulk, what_has_ended_is_used_again)
{
	struct tcp_chunk_head head;
	struct tcp_put *first = submit(CHUNK);
	struct tcp_chunk *c = take(&left, &head);

	sent(&left, c);
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(eq(uint, collect(), 1));
	cr_expect(eq(ptr, submit(CHUNK), first));
	cr_expect(eq(ptr, take(&left, &head), c));
	cr_expect(eq(u64, head.seq, 1));
	cr_expect(zero(u64, head.offset));
}

Test(tcp_bulk, what_was_never_sent_is_not_acknowledged)
{
	cr_expect(eq(int, acked(0, 0), -EPROTO));
	submit(2 * CHUNK);
	send_one(&left);
	cr_expect(eq(int, acked(0, 0), -EPROTO), "a half of it is unsent");
	cr_expect(eq(int, acked(1, 0), -EPROTO));
	send_one(&left);
	cr_expect(eq(int, acked(0, -EACCES), -EPROTO), "it was not withdrawn");
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(eq(int, acked(0, 0), -EPROTO), "twice");
	cr_expect(zero(int, tcp_bulk_acked(&conn, 0, 0, true)), "again");
}

Test(tcp_bulk, a_put_without_streams_goes_in_pieces)
{
	uint8_t bytes[TCP_CHUNK_LEN];
	struct tcp_put *put = submit(100);
	size_t off, len;

	cr_expect(eq(ptr, tcp_bulk_next_frame(conn.bulk, 60, &off, &len, bytes),
		     put));
	cr_expect(zero(sz, off));
	cr_expect(eq(sz, len, 60));
	tcp_bulk_release(&conn, put, false);
	cr_expect(eq(ptr, tcp_bulk_next_frame(conn.bulk, 60, &off, &len, bytes),
		     put));
	cr_expect(eq(sz, off, 60));
	cr_expect(eq(sz, len, 40));
	tcp_bulk_release(&conn, put, false);
	cr_expect(eq(ptr, tcp_bulk_next_frame(conn.bulk, 60, &off, &len, bytes),
		     NULL));
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(eq(uint, collect(), 1));
}

/* ---- streams that end ---------------------------------------------------- */

Test(tcp_bulk, what_a_stream_has_not_delivered_is_sent_again)
{
	struct tcp_chunk_head head;

	submit(3 * CHUNK);
	send_one(&left);
	send_one(&left);
	/* the peer has the first one */
	cr_expect(zero(int, RESEND(1)));
	tcp_bulk_forget_stream(conn.bulk, &left);
	cr_expect(weft_list_empty(&aborted));
	cr_expect(eq(int, acked(0, 0), -EPROTO));
	/* before what was never sent */
	head = send_one(&right);
	cr_expect(eq(u64, head.offset, CHUNK));
	head = send_one(&right);
	cr_expect(eq(u64, head.offset, 2 * CHUNK));
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, a_chunk_that_was_cut_off_is_sent_again)
{
	struct tcp_chunk_head head;
	struct tcp_chunk *c;

	submit(CHUNK);
	c = take(&left, &head);
	tcp_bulk_release(&conn, c->put, false);
	cr_expect(zero(int, RESEND(0)));
	head = send_one(&right);
	cr_expect(zero(u64, head.offset));
	cr_expect(eq(u32, head.len, CHUNK));
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, a_resend_without_streams_is_cut_to_frames)
{
	uint8_t bytes[TCP_CHUNK_LEN];
	struct tcp_put *put = submit(CHUNK);
	size_t off, len, at;

	send_one(&left);
	cr_expect(zero(int, RESEND(0)));
	for (at = 0; at < CHUNK; at += len) {
		cr_assert(eq(ptr,
			     tcp_bulk_next_frame(conn.bulk, 50000, &off, &len,
						 bytes),
			     put));
		cr_assert(eq(sz, off, at));
		tcp_bulk_release(&conn, put, false);
	}
	cr_expect(eq(sz, at, CHUNK));
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, the_peer_cannot_have_more_than_was_sent)
{
	submit(CHUNK);
	send_one(&left);
	cr_expect(eq(int, RESEND(2), -EPROTO));
}

Test(tcp_bulk, an_acknowledged_put_is_not_sent_again)
{
	submit(CHUNK);
	send_one(&left);
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(zero(int, RESEND(0)));
	cr_expect(nothing_to_send());
	cr_expect(eq(uint, collect(), 1));
}

/* ---- cancelling ---------------------------------------------------------- */

Test(tcp_bulk, a_put_that_was_sent_whole_is_only_forgotten)
{
	struct tcp_put *put = submit(CHUNK);
	bool abort = true;

	send_one(&left);
	cr_expect(eq(ptr, tcp_bulk_give_up(conn.bulk, put, &abort), &op));
	cr_expect(not(abort));
	cr_expect(eq(ptr, tcp_bulk_pending(conn.bulk, 0), NULL));
	cr_expect(zero(int, acked(0, 0)));
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, of_a_put_that_is_withdrawn_no_more_is_sent)
{
	struct tcp_put *put = submit(3 * CHUNK);
	bool abort = false;

	send_one(&left);
	cr_expect(eq(ptr, tcp_bulk_give_up(conn.bulk, put, &abort), &op));
	cr_expect(abort);
	cr_expect(nothing_to_send());
	/* the peer says so, whatever part it has */
	cr_expect(zero(int, acked(0, -ECANCELED)));
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, what_is_to_be_sent_again_goes_with_its_put)
{
	struct tcp_put *put = submit(CHUNK);
	bool abort = false;

	send_one(&left);
	cr_expect(zero(int, RESEND(0)));
	cr_expect(eq(ptr, tcp_bulk_give_up(conn.bulk, put, &abort), &op));
	cr_expect(abort, "a part of it is missing there");
	cr_expect(nothing_to_send());
	cr_expect(zero(int, acked(0, -ECANCELED)));
	cr_expect(eq(uint, collect(), 1));
}

Test(tcp_bulk, a_cancelled_put_whose_stream_is_lost_is_aborted)
{
	struct tcp_put *put = submit(CHUNK);
	bool abort = true;

	send_one(&left);
	tcp_bulk_give_up(conn.bulk, put, &abort);
	cr_expect(not(abort));
	/* its memory is the caller's again */
	cr_expect(zero(int, RESEND(0)));
	cr_expect(not(weft_list_empty(&aborted)));
	weft_list_del(&put->link);
	cr_expect(nothing_to_send());
	cr_expect(zero(int, acked(0, -ECANCELED)));
	cr_expect(eq(uint, collect(), 1));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts as numbers, at their target: when they are placed, and what fails. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <string.h>

#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/bulk/tcp_land.h"

static struct tcp_iface iface;
static struct tcp_conn conn;
static struct weft_counters counters;

static void begin(void)
{
	tcp_events_init(&iface);
	weft_list_init(&iface.spare_puts);
	conn.iface = &iface;
	conn.stats = &counters;
	cr_assert(tcp_bulk_get(&conn) != NULL);
}

static void end(void)
{
	tcp_events_forget(&conn);
	tcp_bulk_free(&conn);
}

TestSuite(tcp_land, .init = begin, .fini = end);

static struct tcp_chunk_head part(uint64_t seq, uint64_t off, uint32_t len,
				  uint64_t total)
{
	return (struct tcp_chunk_head){
		.seq = seq,
		.offset = off,
		.len = len,
		.total = total,
	};
}

static int arrive(struct tcp_chunk_head c, int status, int *result)
{
	int land = tcp_land_begin(&conn, &c);

	return land < 0 ? land : tcp_land_end(&conn, &c, status, 1, result);
}

Test(tcp_land, a_put_is_placed_with_its_last_byte)
{
	int result = -1;

	cr_expect(zero(int, arrive(part(0, 10, 20, 30), 0, &result)));
	cr_expect(zero(u64, atomic_load(&conn.bulk->placed)));
	cr_expect(eq(int, arrive(part(0, 0, 10, 30), 0, &result), 1));
	cr_expect(zero(int, result));
	cr_expect(eq(u64, atomic_load(&conn.bulk->placed), 1));
	cr_expect(eq(u64, counters.rx_put_bytes, 30));
}

Test(tcp_land, puts_count_as_placed_in_their_order)
{
	int result;

	cr_expect(eq(int, arrive(part(1, 0, 5, 5), 0, &result), 1));
	cr_expect(zero(u64, atomic_load(&conn.bulk->placed)));
	cr_expect(eq(int, arrive(part(0, 0, 5, 5), 0, &result), 1));
	cr_expect(eq(u64, atomic_load(&conn.bulk->placed), 2));
}

Test(tcp_land, malformed_chunks_are_refused)
{
	const struct tcp_chunk_head bad[] = {
		part(0, 31, 0, 30),	   part(0, 20, 11, 30),
		part(0, 0, 0, 30),	   part(0, 0, 1, UINT64_MAX),
		part(TCP_WINDOW, 0, 1, 1), part(UINT64_MAX, 0, 1, 1),
	};
	struct tcp_chunk_head far = part(0, 0, 10, 20);
	size_t i;
	int r;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect(eq(int, tcp_land_begin(&conn, &bad[i]), -EPROTO),
			  "%zu", i);
	far.addr = UINT64_MAX - 19;
	cr_expect(eq(int, tcp_land_begin(&conn, &far), -EPROTO));
	/* more bytes than the put has */
	cr_expect(zero(int, arrive(part(0, 0, 20, 30), 0, &r)));
	cr_expect(eq(int, arrive(part(0, 0, 20, 30), 0, &r), -EPROTO));
}

Test(tcp_land, a_failed_part_fails_the_put)
{
	struct tcp_chunk_head rest = part(0, 10, 20, 30);
	int result = 0;

	cr_expect(zero(int, arrive(part(0, 0, 10, 30), -EACCES, &result)));
	cr_expect(zero(int, tcp_land_begin(&conn, &rest)), "drained");
	cr_expect(eq(int, tcp_land_end(&conn, &rest, 0, 1, &result), 1));
	cr_expect(eq(int, result, -EACCES));
	cr_expect(zero(u64, counters.rx_puts));
}

Test(tcp_land, what_an_abort_overtakes_is_drained)
{
	struct tcp_chunk_head late = part(0, 10, 20, 30);
	int result;

	cr_expect(zero(int, arrive(part(0, 0, 10, 30), 0, &result)));
	cr_expect(tcp_land_abort(&conn, 0));
	cr_expect(not(tcp_land_abort(&conn, 0)), "answered once");
	cr_expect(eq(u64, atomic_load(&conn.bulk->placed), 1));
	cr_expect(zero(int, arrive(late, 0, &result)));
	cr_expect(zero(u64, counters.rx_puts));
}

Test(tcp_land, a_notification_comes_with_the_placement)
{
	struct tcp_chunk_head c = part(0, 0, 8, 8);
	int result;

	c.flags = TCP_CHUNK_NOTIFY;
	c.tag = 9;
	cr_expect(eq(int, arrive(c, 0, &result), 1));
	cr_expect(eq(uint, atomic_load(&conn.nlandings), 1));
	c.seq = 1;
	cr_expect(eq(int, arrive(c, -EACCES, &result), 1));
	cr_expect(eq(uint, atomic_load(&conn.nlandings), 1), "it has failed");
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring of weft_shm by itself, in states that take luck in two programs. */
#include "devices/shm/shm_ring.h"
#include "tests/unit/devices/sides.h"

/* A get's reply is begun for the bytes that were promised: none is no reply. */
Test(shm_ring, what_is_promised_is_there_when_the_reader_starts_again)
{
	static struct shm_conn conn;
	struct shm_ring *ring = &conn.tx;
	size_t promised;

	ring->shared = calloc(1, SHM_SIZE);
	cr_assert(ne(ptr, ring->shared, NULL));
	/* seen before its end, with too little room, but by now behind it */
	ring->tail[SHM_IN_SHORT] = SHM_SHORT + (450 << 10);
	shm_ring_turn_to(ring, SHM_IN_SHORT, ring->tail[SHM_IN_SHORT]);
	ring->head[SHM_IN_SHORT] = 500 << 10;
	atomic_store(&ring->shared->head[SHM_IN_SHORT], SHM_SHORT + (20 << 10));
	promised = shm_ring_bulk(&conn, SHM_PIECE);
	cr_expect(eq(sz, shm_ring_bulk(&conn, SHM_PIECE), promised));
	free(ring->shared);
}

static const struct iovec byte = { "", 1 };

static void begin_idle(void)
{
	begin_folder();
	cr_assert(zero(int, side_init(&a, &weft_shm_ops, "shm", AF_UNSPEC)));
	cr_assert(zero(int, side_init(&b, &weft_shm_ops, "shm", AF_UNSPEC)));
	dial_both();
	cr_assert(until(a.ops->ready(a.ep)));
	while (b.ops->progress(b.iface))
		;
}

/* It is delivered before anything looks whether more follow: they do. */
Test(shm_ring, message_that_ends_a_wait_comes_first, .init = begin_idle,
     .fini = end_pair)
{
	for (unsigned int i = 0; i < 3; i++)
		cr_assert(zero(int, a.ops->message(a.ep, 1, &byte, 1)));
	b.ops->progress(b.iface);
	cr_expect(eq(uint, b.messages, 1));
	cr_expect(eq(int, b.ops->arm(b.iface), -EBUSY));
	b.ops->progress(b.iface);
	cr_expect(eq(uint, b.messages, 3));
}

/* A reader that looked too early, as one without a fence may, wakes nothing. */
Test(shm_ring, writer_that_its_reader_has_missed_looks_again,
     .init = begin_idle, .fini = end_pair)
{
	const struct shm_conn *conn = shm_conn(weft_ep_conn(a.ep));

	cr_assert(zero(int, a.ops->message(a.ep, 1, &byte, 1)));
	cr_expect(eq(int, a.ops->flush(a.ep, NULL), -EINPROGRESS));
	while (a.ops->arm(a.iface))
		a.ops->progress(a.iface);
	/* the timer of the statistics would wake it as well, later */
	cr_expect(le(u64, shm_iface(a.iface)->base.events.timer_ms,
		     now_ms() + SHM_AGAIN_MS));
	atomic_store(&conn->tx.shared->wants, 0);
	b.ops->progress(b.iface);
	cr_expect(eq(uint, b.messages, 1));
	cr_expect(yes(side_is_woken(&a, WAIT_MS)));
	cr_expect(zero(int, a.ops->flush(a.ep, NULL)));
	cr_expect(not(conn->asked), "nothing waits any more");
}

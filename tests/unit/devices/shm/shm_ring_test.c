/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring of weft_shm by itself, in states that take luck in two programs. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "devices/shm/shm_ring.h"

/* A get's reply is begun for the bytes that were promised: none is no reply. */
Test(shm_ring, what_is_promised_is_there_when_the_reader_starts_again)
{
	static struct shm_conn conn = { .tx = { .in = SHM_IN_SHORT } };
	struct shm_ring *ring = &conn.tx;
	size_t promised;

	ring->shared = calloc(1, SHM_SIZE);
	cr_assert(ne(ptr, ring->shared, NULL));
	/* seen before its end, with too little room, but by now behind it */
	ring->tail[SHM_IN_SHORT] = SHM_SHORT + (450 << 10);
	ring->head[SHM_IN_SHORT] = 500 << 10;
	atomic_store(&ring->shared->head[SHM_IN_SHORT], SHM_SHORT + (20 << 10));
	promised = shm_ring_bulk(&conn, SHM_PIECE);
	cr_expect(eq(sz, shm_ring_bulk(&conn, SHM_PIECE), promised));
	free(ring->shared);
}

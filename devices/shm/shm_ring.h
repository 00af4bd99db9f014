/* SPDX-License-Identifier: BSD-3-Clause */
/* Records. */
#ifndef WEFT_DEVICES_SHM_RING_H
#define WEFT_DEVICES_SHM_RING_H

#include <errno.h>
#include <string.h>

#include "devices/shm/shm.h"

/*
 * Creates the ring to read; *@fd, for the peer, is the caller's.  -errno,
 * logged.
 */
int shm_ring_make(struct shm_ring *ring, int *fd);
/*
 * Maps the peer's ring to write; takes @fd.  -EINVAL, logged: not such a file.
 */
int shm_ring_map(struct shm_ring *ring, int fd);
void shm_ring_close(struct shm_ring *ring);
/* The next record is in @which, at @pos. */
void shm_ring_turn_to(struct shm_ring *ring, enum shm_which which,
		      uint64_t pos);
/*
 * Is there room for a record of @len bytes?  Looks at the peer's position; if
 * that is impossible, there is none, and the connection breaks with -EPROTO.
 */
bool shm_ring_find_room(struct shm_conn *conn, size_t len);
/*
 * How much of @want the next record may carry, leaving room for messages.  The
 * same, or more, for the next call, if nothing was written.
 */
size_t shm_ring_bulk(struct shm_conn *conn, size_t want);
/* Skips what is left of the ring, if a record of @len bytes is longer. */
void shm_ring_skip(struct shm_conn *conn, size_t len);
/* Wakes a peer that sleeps, after anything that it may wait for. */
void shm_ring_wake(struct shm_conn *conn);
/*
 * Called by progress(); @wants: something waits for room.  Is the small ring
 * full?  Then the next records are in the short one.  Has the reader stopped?
 * Then they are in the long one, and when it runs again in the short one.
 */
void shm_ring_watch(struct shm_conn *conn, bool wants);
/* The timer has fired: rings that are not used give their pages back. */
void shm_ring_tick(struct shm_conn *conn, uint64_t now);
/* The interface has no more of those of @conn. */
void shm_ring_drop_counts(struct shm_conn *conn);
/* Bytes that the peer has read and handled. */
uint64_t shm_ring_read(const struct shm_conn *conn);
/* Notes how many: a flush that asked for all of them asks no more. */
void shm_ring_note_read(struct shm_conn *conn);
/* Wakes a peer that waits for what was released. */
void shm_ring_wake_writer(struct shm_conn *conn);
/* Before the caller sleeps, perhaps until the peer has read; and after it. */
void shm_ring_sleep(struct shm_conn *conn, bool on, bool wants);

/* Bytes of records, in all rings, since the start. */
static inline uint64_t shm_ring_sum(const uint64_t at[SHM_RINGS])
{
	return at[SHM_IN_SMALL] + at[SHM_IN_SHORT] + at[SHM_IN_LONG];
}

/* Where it lies, and its size. */
static inline size_t shm_ring_at(enum shm_which in)
{
	return in == SHM_IN_SMALL   ? SHM_SMALL_AT
	       : in == SHM_IN_SHORT ? SHM_SHORT_AT
				    : SHM_LONG_AT;
}

static inline size_t shm_ring_size(enum shm_which in)
{
	return in == SHM_IN_SMALL   ? SHM_SMALL
	       : in == SHM_IN_SHORT ? SHM_SHORT
				    : SHM_LONG;
}

/* The first word of a record's header. */
static inline _Atomic uint64_t *shm_word(uint8_t *p)
{
	return (_Atomic uint64_t *)p;
}

/* Bytes of the ring for a record of @len. */
static inline size_t shm_record_size(size_t len)
{
	return sizeof(struct shm_record) + ((len + 15) & ~(size_t)15);
}

/* Bytes from where the next record begins up to the end of the ring. */
static inline size_t shm_ring_to_end(const struct shm_ring *ring)
{
	return ring->size - ring->at;
}

/* Where the record behind one of @len begins: none goes over the end. */
static inline size_t shm_ring_behind(const struct shm_ring *ring, size_t len)
{
	const size_t at = ring->at + shm_record_size(len);

	return at == ring->size ? 0 : at;
}

/* No record is there yet. */
static inline void shm_ring_clear(const struct shm_ring *ring, size_t at)
{
	atomic_store_explicit(shm_word(ring->bytes + at), 0,
			      memory_order_relaxed);
}

/* Is there a record? */
static inline bool shm_ring_has_next(const struct shm_conn *conn)
{
	const struct shm_ring *ring = &conn->rx;

	return atomic_load_explicit(shm_word(ring->bytes + ring->at),
				    memory_order_relaxed);
}

/* The same as shm_ring_find_room(), which few calls need. */
static inline bool shm_ring_has_room(struct shm_conn *conn, size_t len)
{
	return shm_record_size(len) <= conn->tx.room ||
	       shm_ring_find_room(conn, len);
}

/* Where at most @len bytes may be written, if there is room, ... */
static inline void *shm_ring_begin(struct shm_conn *conn, size_t len)
{
	if (shm_record_size(len) > conn->tx.room)
		shm_ring_skip(conn, len);
	return conn->tx.bytes + conn->tx.at + sizeof(struct shm_record);
}

/*
 * ... and, if it will be exactly so many, the peer sees them sooner: the line
 * behind the record comes while they are written.
 */
static inline void shm_ring_expect(struct shm_conn *conn, size_t len)
{
	shm_ring_clear(&conn->tx, shm_ring_behind(&conn->tx, len));
}

/* The reader sees it, and all that was written before. */
static inline void shm_ring_write(struct shm_ring *ring, struct shm_record r)
{
	const size_t size = shm_record_size(r.len);
	uint8_t *at = ring->bytes + ring->at;
	uint64_t words[2];

	memcpy(words, &r, sizeof(r));
	ring->tail[ring->in] += size;
	ring->room -= weft_min(size, ring->room);
	ring->at = shm_ring_behind(ring, r.len);
	shm_ring_clear(ring, ring->at);
	memcpy(at + sizeof(words[0]), &words[1], sizeof(words[1]));
	atomic_store_explicit(shm_word(at), words[0], memory_order_release);
}

/* Is a larger ring worth its pages? */
static inline bool shm_ring_is_busy(const struct shm_conn *conn)
{
	return conn->grown < SHM_SHORT_REST &&
	       shm_ring_sum(conn->tx.tail) - conn->looked >= SHM_BUSY;
}

/*
 * What was written to where shm_ring_begin() says becomes a record, which the
 * peer sees if it is awake: see shm_ring_wake().
 */
static inline void shm_ring_end(struct shm_conn *conn, struct shm_record r)
{
	shm_ring_write(&conn->tx, r);
	weft_count_owned(conn->stats, wire_tx_bytes, r.len + sizeof(r));
	if (r.kind == SHM_MESSAGE)
		conn->sent = shm_ring_sum(conn->tx.tail);
	if (shm_ring_is_busy(conn))
		shm_conn_attend(conn);
}

/* 1: *@r is the next record, *@data its bytes; 0: none; -EPROTO. */
static inline int shm_ring_next(struct shm_conn *conn, struct shm_record *r,
				uint8_t **data)
{
	const struct shm_ring *ring = &conn->rx;
	uint8_t *at = ring->bytes + ring->at;
	uint64_t words[2];

	words[0] = atomic_load_explicit(shm_word(at), memory_order_acquire);
	if (!words[0] ||
	    (conn->hung_up && shm_ring_sum(ring->head) >= conn->rx_end))
		return 0;
	memcpy(&words[1], at + sizeof(words[0]), sizeof(words[1]));
	memcpy(r, words, sizeof(*r));
	*data = at + sizeof(*r);
	if (r->len > ring->size ||
	    shm_record_size(r->len) > shm_ring_to_end(ring))
		return -EPROTO;
	return 1;
}

/*
 * Does the peer sleep until something is read?  Without a fence behind
 * shm_ring_release() it may be missed, and looks again after SHM_AGAIN_MS.
 */
static inline bool shm_ring_is_wanted(const struct shm_conn *conn)
{
	return atomic_load_explicit(&conn->rx.shared->wants,
				    memory_order_relaxed);
}

/* Lets the peer overwrite it. */
static inline void shm_ring_release(struct shm_conn *conn,
				    const struct shm_record *r)
{
	struct shm_ring *ring = &conn->rx;

	ring->head[ring->in] += shm_record_size(r->len);
	ring->at = shm_ring_behind(ring, r->len);
	atomic_store_explicit(&ring->shared->head[ring->in],
			      ring->head[ring->in], memory_order_release);
	if (r->kind == SHM_SWITCH)
		shm_ring_turn_to(ring, r->id, ring->head[r->id]);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings of records, made and sealed by their reader, so that no size can change
 * while it is used.
 *
 * Sleeping and waking is a Dekker pair: the side that goes to sleep sets
 * `sleeping`, then looks again; the side that has written something reads
 * `sleeping` afterwards.  With a full fence between the two on both sides, at
 * least one of them sees the other.  So do a writer that sleeps until something
 * is read, and its reader, except one that takes a message by itself, which has
 * no fence: that writer looks again after SHM_AGAIN_MS.
 *
 * A record is there when the first word of its header is: its reader fetches
 * one cache line for a small message, not another for a count of bytes.  So the
 * word behind the last record is 0, as it is in a ring whose pages are new.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/common/memfd.h"
#include "devices/shm/shm_break.h"
#include "devices/shm/shm_ring.h"
#include "util/clock.h"
#include "util/log.h"

/* Shorter pieces are not worth one: the rest of the ring is skipped. */
#define PIECE_MIN 1024u

static uint8_t *bytes_of(const struct shm_ring *ring, enum shm_which which)
{
	return (uint8_t *)ring->shared + shm_ring_at(which);
}

void shm_ring_turn_to(struct shm_ring *ring, enum shm_which which, uint64_t pos)
{
	ring->in = which;
	ring->bytes = bytes_of(ring, which);
	ring->size = shm_ring_size(which);
	ring->at = pos % ring->size;
	ring->room = 0;
}

int shm_ring_make(struct shm_ring *ring, int *fd)
{
	/* else its writer cannot give pages to the short one */
	const unsigned int there = weft_memfd_can_fill()
					   ? SHM_SMALL_END
					   : SHM_SHORT_AT + SHM_BEGIN_PAGES;
	void *p;

	*fd = weft_memfd_make_sparse("weft-shm", SHM_SIZE, there, &p);
	if (*fd < 0)
		return weft_fail(
			*fd,
			"cannot set up %u KiB of shared memory for a peer on this host",
			there >> 10);
	ring->shared = p;
	shm_ring_turn_to(ring, SHM_IN_SMALL, 0);
	return 0;
}

int shm_ring_map(struct shm_ring *ring, int fd)
{
	void *p;
	int err = weft_memfd_map(fd, SHM_SIZE, PROT_READ | PROT_WRITE, &p);

	if (!err) {
		ring->shared = p;
		shm_ring_turn_to(ring, SHM_IN_SMALL, 0);
	}
	close(fd);
	return err;
}

void shm_ring_close(struct shm_ring *ring)
{
	if (!ring->shared)
		return;
	munmap(ring->shared, SHM_SIZE);
	ring->shared = NULL;
}

/* ---- waking -------------------------------------------------------------- */

static void wake(const struct shm_conn *conn)
{
	const struct shm_frame f = { SHM_FRAME_MAGIC, SHM_FRAME_WAKE, 0 };

	/* a full socket wakes as well; its reader finds an end */
	if (atomic_exchange(&conn->tx.shared->sleeping, 0))
		send(conn->fd, &f, sizeof(f), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Not inline: there gcc refuses a fence, with -fsanitize=thread. */
void shm_ring_wake(struct shm_conn *conn)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&conn->tx.shared->sleeping,
				 memory_order_relaxed))
		wake(conn);
}

void shm_ring_wake_writer(struct shm_conn *conn)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (shm_ring_is_wanted(conn))
		shm_ring_wake(conn);
}

void shm_ring_sleep(struct shm_conn *conn, bool on, bool wants)
{
	atomic_store_explicit(&conn->tx.shared->wants, wants,
			      memory_order_relaxed);
	atomic_store_explicit(&conn->rx.shared->sleeping, on,
			      memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

/* ---- writing ------------------------------------------------------------- */

static bool read_head(struct shm_conn *conn, enum shm_which which)
{
	struct shm_ring *ring = &conn->tx;
	const uint64_t head = atomic_load_explicit(&ring->shared->head[which],
						   memory_order_acquire);

	if (head < ring->head[which] || head > ring->tail[which]) {
		weft_error(
			"a peer on this host reports more bytes read than were sent (%llu of %llu)",
			(unsigned long long)head,
			(unsigned long long)ring->tail[which]);
		shm_conn_break(conn, -EPROTO);
		return false;
	}
	ring->head[which] = head;
	return true;
}

/* Bytes up to the end of what may be used of the ring. */
static size_t to_limit(const struct shm_conn *conn)
{
	const struct shm_ring *ring = &conn->tx;
	const size_t limit = ring->in == SHM_IN_SHORT
				     ? SHM_SHORT_BEGIN + conn->grown
				     : ring->size;

	return ring->at < limit ? limit - ring->at : 0;
}

/*
 * Of the head that was last seen.  A SWITCH has room in any case, and the word
 * behind it, so `used` may exceed the size.
 */
static size_t free_bytes(const struct shm_ring *ring)
{
	const uint64_t used = ring->tail[ring->in] - ring->head[ring->in] +
			      2 * shm_record_size(0);

	return used < ring->size ? ring->size - used : 0;
}

/* Bytes of the ring that a record of @len takes, with what is skipped. */
static size_t taken_by(const struct shm_conn *conn, size_t len)
{
	const struct shm_ring *ring = &conn->tx;
	const size_t need = shm_record_size(len);

	return need > to_limit(conn) ? need + shm_ring_to_end(ring) : need;
}

bool shm_ring_find_room(struct shm_conn *conn, size_t len)
{
	struct shm_ring *ring = &conn->tx;
	const size_t need = taken_by(conn, len);

	if (need > free_bytes(ring) &&
	    !(read_head(conn, ring->in) && need <= free_bytes(ring)))
		return false;
	ring->room = weft_min(to_limit(conn), free_bytes(ring));
	return true;
}

/* Left to messages by bulk: the largest, two of them where there is room. */
static size_t reserve_of(const struct shm_ring *ring)
{
	const unsigned int n = ring->in == SHM_IN_SMALL ? 1 : 2;

	/* each may come to the end of the ring */
	return 2 * n * shm_record_size(SHM_MAX_MESSAGE);
}

/* What is skipped, after a record of @len, before the ring starts again. */
static size_t gap_behind(const struct shm_conn *conn, size_t len)
{
	const struct shm_ring *ring = &conn->tx;

	if (ring->in != SHM_IN_SHORT || shm_record_size(len) > to_limit(conn) ||
	    ring->head[ring->in] % SHM_SHORT > ring->at)
		return 0;
	return SHM_SHORT_REST - conn->grown;
}

static bool has_bulk(const struct shm_conn *conn, size_t len)
{
	return taken_by(conn, len) + gap_behind(conn, len) +
		       reserve_of(&conn->tx) <=
	       free_bytes(&conn->tx);
}

size_t shm_ring_bulk(struct shm_conn *conn, size_t want)
{
	const struct shm_ring *ring = &conn->tx;
	const size_t end = to_limit(conn);
	size_t n = weft_min(want, ring->in == SHM_IN_SMALL ? SHM_SMALL_PIECE
							   : SHM_PIECE);

	if (end >= shm_record_size(weft_min(n, PIECE_MIN)))
		n = weft_min(n, end - sizeof(struct shm_record));
	/* what is skipped depends on the head, too */
	if (has_bulk(conn, n) ||
	    (read_head(conn, ring->in) && has_bulk(conn, n)))
		return n;
	return 0;
}

void shm_ring_skip(struct shm_conn *conn, size_t len)
{
	struct shm_ring *ring = &conn->tx;

	if (shm_record_size(len) <= to_limit(conn))
		return;
	shm_ring_write(ring, (struct shm_record){
				     .kind = SHM_PAD,
				     .len = shm_ring_to_end(ring) -
					    sizeof(struct shm_record),
			     });
}

/* Records have one order: those of all rings say how far it is. */
uint64_t shm_ring_read(const struct shm_conn *conn)
{
	struct shm_head *h = conn->tx.shared;
	uint64_t sum = 0;

	for (unsigned int i = 0; h && i < SHM_RINGS; i++)
		sum += atomic_load(&h->head[i]);
	return sum;
}

void shm_ring_note_read(struct shm_conn *conn)
{
	conn->asked_read = shm_ring_read(conn);
	if (conn->asked_read >= conn->sent)
		conn->asked = false;
}

/* ---- small, short and long ----------------------------------------------- */

static void go_on_in(struct shm_conn *conn, enum shm_which which)
{
	shm_ring_write(&conn->tx,
		       (struct shm_record){ .kind = SHM_SWITCH, .id = which });
	shm_ring_wake(conn);
	shm_ring_turn_to(&conn->tx, which, conn->tx.tail[which]);
	conn->tx_stuck = 0;
	conn->look_ms = weft_now_ms() + SHM_IDLE_MS;
	weft_events_wake_at(&conn->iface->base.events, conn->look_ms);
}

/* Of the pages of all that this interface writes to, and @more. */
static bool may_make(const struct shm_iface *iface, size_t shorts, size_t more)
{
	const size_t peers = weft_max(iface->base.session.conns.n, 1u);
	/* each process of the host that this one has met takes as much */
	const size_t share = weft_min((size_t)SHM_MOST, SHM_ALL / (peers + 1));

	return peers * SHM_SMALL_END + shorts * SHM_BEGIN_PAGES + iface->grown +
		       iface->nmade[SHM_IN_LONG] * (size_t)SHM_LONG + more <=
	       share;
}

/* The first part, and the page where the next record comes. */
static bool fill_begin(struct shm_conn *conn)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *bytes = bytes_of(&conn->tx, SHM_IN_SHORT);
	const size_t at = conn->tx.tail[SHM_IN_SHORT] % SHM_SHORT & ~(page - 1);

	if (!weft_memfd_can_fill())
		return true;
	return weft_memfd_fill(bytes, SHM_BEGIN_PAGES) &&
	       (at < SHM_BEGIN_PAGES || weft_memfd_fill(bytes + at, page));
}

static bool may_ask(const struct shm_conn *conn, enum shm_which which)
{
	return !conn->made[which] && !conn->lacks[which];
}

static void note_made(struct shm_conn *conn, enum shm_which which, bool made)
{
	conn->made[which] = made;
	conn->lacks[which] = !made;
	conn->iface->nmade[which] += made;
}

static bool has_short(struct shm_conn *conn)
{
	const struct shm_iface *iface = conn->iface;

	if (may_ask(conn, SHM_IN_SHORT) &&
	    may_make(iface, iface->nmade[SHM_IN_SHORT] + 1, 0))
		note_made(conn, SHM_IN_SHORT, fill_begin(conn));
	return conn->made[SHM_IN_SHORT];
}

/* It leaves room for a short one of each peer. */
static bool has_long(struct shm_conn *conn)
{
	const size_t peers = weft_max(conn->iface->base.session.conns.n, 1u);

	if (may_ask(conn, SHM_IN_LONG) &&
	    may_make(conn->iface, peers, SHM_LONG))
		note_made(conn, SHM_IN_LONG,
			  weft_memfd_fill(bytes_of(&conn->tx, SHM_IN_LONG),
					  SHM_LONG));
	return conn->made[SHM_IN_LONG];
}

/*
 * It is busy: more of the short ring, if it can have one.  A step at a time:
 * the caller waits while the kernel clears its pages.
 */
static bool grow_short(struct shm_conn *conn)
{
	struct shm_iface *iface = conn->iface;
	const size_t left = SHM_SHORT_REST - conn->grown;
	uint8_t *rest = bytes_of(&conn->tx, SHM_IN_SHORT) + SHM_SHORT_BEGIN;

	if (!has_short(conn))
		return false;
	/* the word behind its last record, too */
	if (may_make(iface, iface->nmade[SHM_IN_SHORT], SHM_STEP) &&
	    weft_memfd_fill(rest + conn->grown,
			    weft_min(left, (size_t)SHM_STEP + 1))) {
		conn->grown += SHM_STEP;
		iface->grown += SHM_STEP;
	} else {
		/* asked again when as much was sent */
		conn->looked = shm_ring_sum(conn->tx.tail);
	}
	return true;
}

static void drop_grown(struct shm_conn *conn)
{
	conn->iface->grown -= conn->grown;
	conn->grown = 0;
}

void shm_ring_drop_counts(struct shm_conn *conn)
{
	for (unsigned int i = 0; i < SHM_RINGS; i++)
		conn->iface->nmade[i] -= conn->made[i];
	drop_grown(conn);
}

static bool is_read(struct shm_conn *conn, enum shm_which which)
{
	return read_head(conn, which) &&
	       conn->tx.head[which] == conn->tx.tail[which];
}

/* It is left, and its reader has left it, too. */
static void give_back(struct shm_conn *conn, enum shm_which which)
{
	if (!conn->made[which] || !is_read(conn, which) ||
	    !weft_memfd_drop(bytes_of(&conn->tx, which), shm_ring_size(which)))
		return;
	conn->made[which] = false;
	conn->iface->nmade[which]--;
	if (which == SHM_IN_SHORT)
		drop_grown(conn);
}

void shm_ring_tick(struct shm_conn *conn, uint64_t now)
{
	const struct shm_ring *ring = &conn->tx;

	if (!conn->made[SHM_IN_SHORT] || !shm_conn_is_open(conn) ||
	    !weft_memfd_can_fill())
		return;
	if (now >= conn->look_ms) {
		if (ring->in != SHM_IN_LONG)
			give_back(conn, SHM_IN_LONG);
		if (ring->in == SHM_IN_SMALL)
			give_back(conn, SHM_IN_SHORT);
		else if (ring->in == SHM_IN_SHORT &&
			 conn->looked == shm_ring_sum(ring->tail) &&
			 is_read(conn, SHM_IN_SHORT))
			go_on_in(conn, SHM_IN_SMALL);
		conn->looked = shm_ring_sum(ring->tail);
		conn->look_ms = now + SHM_IDLE_MS;
	}
	if (conn->made[SHM_IN_SHORT] && shm_conn_is_open(conn))
		weft_events_wake_at(&conn->iface->base.events, conn->look_ms);
}

/* Has the reader read nothing since the last time? */
static bool is_stuck(struct shm_conn *conn)
{
	const uint64_t sum = conn->tx_read;

	for (unsigned int i = 0; i < SHM_RINGS; i++)
		if (!read_head(conn, i))
			return false;
	conn->tx_read = shm_ring_sum(conn->tx.head);
	return conn->tx_read == sum;
}

static void watch_short(struct shm_conn *conn, bool wants)
{
	if (!wants || !is_stuck(conn))
		conn->tx_stuck = 0;
	else if (++conn->tx_stuck >= SHM_STUCK && has_long(conn))
		go_on_in(conn, SHM_IN_LONG);
}

void shm_ring_watch(struct shm_conn *conn, bool wants)
{
	switch (conn->tx.in) {
	case SHM_IN_SMALL:
		if (shm_ring_is_busy(conn)
			    ? grow_short(conn)
			    : wants && !shm_ring_bulk(conn, SHM_SMALL_PIECE) &&
				      has_short(conn))
			go_on_in(conn, SHM_IN_SHORT);
		return;
	case SHM_IN_LONG:
		/* it runs when it has come to the SWITCH */
		if (is_read(conn, SHM_IN_SHORT))
			go_on_in(conn, SHM_IN_SHORT);
		return;
	default:
		if (shm_ring_is_busy(conn))
			grow_short(conn);
		watch_short(conn, wants);
	}
}

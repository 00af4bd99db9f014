/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings of records, made and sealed by their reader, so that no size can change
 * while it is used.
 *
 * Sleeping and waking is a Dekker pair: the side that goes to sleep sets
 * `sleeping`, then looks once more; the side that has written something reads
 * `sleeping` afterwards.  With a full fence between the two on both sides, at
 * least one of them sees the other.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/memfd.h"
#include "devices/shm/shm.h"
#include "util/log.h"

#define RECORD(len) (sizeof(struct shm_record) + (((len) + 15) & ~(size_t)15))
/* Left to messages by bulk: two of the largest, one at the end of the ring. */
#define RESERVE (4 * RECORD(SHM_MAX_MESSAGE))
/* Shorter pieces are not worth one: the rest of the ring is skipped. */
#define PIECE_MIN 1024u

static void set_ring(struct shm_ring *ring, void *p)
{
	ring->head = p;
	ring->bytes = (uint8_t *)p + SHM_RING_AT;
}

int shm_ring_make(struct shm_ring *ring, int *fd)
{
	void *p;

	*fd = weft_memfd_make("weft-shm", SHM_SIZE, &p);
	if (*fd < 0)
		return weft_fail(*fd,
				 "cannot set up %u KiB of shared memory for a "
				 "peer on this host",
				 SHM_SIZE >> 10);
	set_ring(ring, p);
	return 0;
}

int shm_ring_map(struct shm_ring *ring, int fd)
{
	void *p;
	int err = weft_memfd_map(fd, SHM_SIZE, PROT_READ | PROT_WRITE, &p);

	if (!err)
		set_ring(ring, p);
	close(fd);
	return err;
}

void shm_ring_close(struct shm_ring *ring)
{
	if (!ring->head)
		return;
	munmap(ring->head, SHM_SIZE);
	ring->head = NULL;
}

/* ---- waking -------------------------------------------------------------- */

/* After anything it waits for was written. */
static void wake_peer(struct shm_conn *conn)
{
	const struct shm_frame wake = { SHM_FRAME_MAGIC, SHM_FRAME_WAKE, 0 };
	struct shm_head *h = conn->tx.head;

	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&h->sleeping, memory_order_relaxed) ||
	    !atomic_exchange(&h->sleeping, 0))
		return;
	/* a full socket wakes as well; its reader finds an end */
	send(conn->fd, &wake, sizeof(wake), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void shm_ring_wake_writer(struct shm_conn *conn)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&conn->rx.head->wants, memory_order_relaxed))
		wake_peer(conn);
}

void shm_ring_sleep(struct shm_conn *conn, bool on, bool wants)
{
	atomic_store_explicit(&conn->tx.head->wants, wants,
			      memory_order_relaxed);
	atomic_store_explicit(&conn->rx.head->sleeping, on,
			      memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

/* ---- writing ------------------------------------------------------------- */

static size_t to_end(uint64_t pos)
{
	return SHM_RING - (pos & (SHM_RING - 1));
}

static bool find_room(struct shm_conn *conn, size_t need)
{
	uint64_t head;

	if (SHM_RING - (conn->tx_tail - conn->tx_head) >= need)
		return true;
	head = atomic_load_explicit(&conn->tx.head->head, memory_order_acquire);
	if (head < conn->tx_head || head > conn->tx_tail) {
		weft_error("a peer on this host has read what was never sent "
			   "(%llu of %llu)",
			   (unsigned long long)head,
			   (unsigned long long)conn->tx_tail);
		shm_conn_break(conn, -EPROTO);
		return false;
	}
	conn->tx_head = head;
	return SHM_RING - (conn->tx_tail - head) >= need;
}

/* Bytes of the ring that a record of @len takes, with what is skipped. */
static size_t taken_by(const struct shm_conn *conn, size_t len)
{
	const size_t end = to_end(conn->tx_tail), need = RECORD(len);

	return need > end ? need + end : need;
}

bool shm_ring_has_room(struct shm_conn *conn, size_t len)
{
	return find_room(conn, taken_by(conn, len));
}

size_t shm_ring_bulk(struct shm_conn *conn, size_t want)
{
	const size_t end = to_end(conn->tx_tail);
	size_t n = weft_min(want, SHM_PIECE);

	if (end >= RECORD(weft_min(n, PIECE_MIN)))
		n = weft_min(n, end - sizeof(struct shm_record));
	return find_room(conn, taken_by(conn, n) + RESERVE) ? n : 0;
}

static void write_header(struct shm_conn *conn, enum shm_kind kind, uint8_t id,
			 int status, size_t len)
{
	const struct shm_record r = {
		.len = len, .kind = kind, .id = id, .status = status
	};

	memcpy(conn->tx.bytes + (conn->tx_tail & (SHM_RING - 1)), &r,
	       sizeof(r));
}

void *shm_ring_begin(struct shm_conn *conn, size_t len)
{
	const size_t end = to_end(conn->tx_tail);

	if (RECORD(len) > end) {
		write_header(conn, SHM_PAD, 0, 0,
			     end - sizeof(struct shm_record));
		conn->tx_tail += end;
	}
	return conn->tx.bytes + (conn->tx_tail & (SHM_RING - 1)) +
	       sizeof(struct shm_record);
}

void shm_ring_end(struct shm_conn *conn, enum shm_kind kind, uint8_t id,
		  int status, size_t len)
{
	write_header(conn, kind, id, status, len);
	conn->tx_tail += RECORD(len);
	weft_count(conn->stats, wire_tx_bytes, len + sizeof(struct shm_record));
}

void shm_ring_publish(struct shm_conn *conn)
{
	atomic_store_explicit(&conn->tx.head->tail, conn->tx_tail,
			      memory_order_release);
	wake_peer(conn);
}

/* ---- reading ------------------------------------------------------------- */

int shm_ring_next(struct shm_conn *conn, struct shm_record *r, uint8_t **data)
{
	const size_t at = conn->rx_head & (SHM_RING - 1);
	size_t there;

	if (conn->rx_tail == conn->rx_head)
		conn->rx_tail = atomic_load_explicit(&conn->rx.head->tail,
						     memory_order_acquire);
	there = conn->rx_tail - conn->rx_head;
	if (!there)
		return 0;
	if (there > SHM_RING || there % sizeof(*r))
		return -EPROTO;
	memcpy(r, conn->rx.bytes + at, sizeof(*r));
	if (r->len > SHM_RING || RECORD(r->len) > there ||
	    RECORD(r->len) > SHM_RING - at)
		return -EPROTO;
	*data = conn->rx.bytes + at + sizeof(*r);
	return 1;
}

void shm_ring_release(struct shm_conn *conn, const struct shm_record *r)
{
	conn->rx_head += RECORD(r->len);
	atomic_store_explicit(&conn->rx.head->head, conn->rx_head,
			      memory_order_release);
}

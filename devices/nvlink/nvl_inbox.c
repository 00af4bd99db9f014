/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared memory of a connection: one inbox per direction, made and sealed
 * by its reader, so that no size of it can change under anybody's feet.
 *
 * Sleeping and waking is a Dekker pair: a reader that goes to sleep sets
 * `sleeping`, then looks again; a writer that has written looks at `sleeping`
 * afterwards.  With a full fence between the two on both sides, at least one
 * of them sees the other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/memfd.h"
#include "devices/nvlink/nvl_direct.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_sock.h"
#include "util/log.h"

#define RECORD(len) (sizeof(struct nvl_msg) + (((len) + 15) & ~(size_t)15))
#define SHARE	    (WEFT_PROGRESS_MAX / 2) /* of one peer */
#define LATER_MAX   (2 * (NVL_PUTS + NVL_GETS) + NVL_RINGS * NVL_RING_CHUNKS)

static void set_inbox(struct nvl_inbox *box, void *p)
{
	box->head = p;
	box->msgs = (uint8_t *)p + NVL_INBOX_MSGS;
	box->ops = (struct nvl_op *)((uint8_t *)p + NVL_INBOX_OPS);
}

int nvl_inbox_make(struct nvl_inbox *box, int *fd)
{
	void *p;

	*fd = weft_memfd_make("weft-inbox", NVL_INBOX_SIZE, &p);
	if (*fd < 0)
		return weft_fail(*fd,
				 "cannot set up %zu KiB of shared memory for a "
				 "peer on this host",
				 NVL_INBOX_SIZE >> 10);
	set_inbox(box, p);
	return 0;
}

int nvl_inbox_map(struct nvl_inbox *box, int fd)
{
	void *p;
	int err;

	err = weft_memfd_map(fd, NVL_INBOX_SIZE, PROT_READ | PROT_WRITE, &p);
	if (!err)
		set_inbox(box, p);
	return err;
}

void nvl_inbox_close(struct nvl_inbox *box)
{
	if (!box->head)
		return;
	munmap(box->head, NVL_INBOX_SIZE);
	box->head = NULL;
}

static void send_wake(struct nvl_conn *conn)
{
	const struct nvl_frame f = { .magic = NVL_FRAME_MAGIC,
				     .type = NVL_FRAME_WAKE };

	/* a full socket wakes as well; its reader finds an end */
	send(conn->fd, &f, sizeof(f), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* After anything it waits for was written. */
void nvl_inbox_wake(struct nvl_conn *conn)
{
	struct nvl_inbox_head *h = conn->tx.head;

	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&h->sleeping, memory_order_relaxed) &&
	    atomic_exchange(&h->sleeping, 0))
		send_wake(conn);
}

/* Wakes a writer that said what it sleeps for. */
static void wake_if_wanted(struct nvl_conn *conn, uint32_t what)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&conn->rx.head->wants, memory_order_relaxed) &
	    what)
		nvl_inbox_wake(conn);
}

void nvl_inbox_wake_for_credit(struct nvl_conn *conn)
{
	wake_if_wanted(conn, NVL_WANTS_CREDIT);
}

/* ---- messages ----------------------------------------------------------- */

static bool find_room(struct nvl_conn *conn, size_t need)
{
	uint64_t head;

	if (NVL_MSG_RING - (conn->msg_tail - conn->msg_room) >= need)
		return true;
	head = atomic_load_explicit(&conn->tx.head->msg_head,
				    memory_order_acquire);
	if (head < conn->msg_room || head > conn->msg_tail) {
		weft_error("a peer on this host has read messages that were "
			   "never sent (%llu of %llu)",
			   (unsigned long long)head,
			   (unsigned long long)conn->msg_tail);
		nvl_conn_break(conn, -EPROTO);
		return false;
	}
	conn->msg_room = head;
	return NVL_MSG_RING - (conn->msg_tail - head) >= need;
}

bool nvl_msg_room(struct nvl_conn *conn, size_t len)
{
	size_t to_end = NVL_MSG_RING - (conn->msg_tail & (NVL_MSG_RING - 1));
	size_t need = RECORD(len);

	return find_room(conn, need > to_end ? need + to_end : need);
}

bool nvl_conn_is_ready(struct weft_conn *base)
{
	struct nvl_conn *conn = nvl_conn(base);

	return conn->base.state == WEFT_CONN_OPEN && !conn->hung_up &&
	       !conn->deferred_n && conn->ngets < NVL_GETS - NVL_MAX_IOV &&
	       conn->put_next - conn->put_acked < NVL_PUTS &&
	       conn->ndirects < NVL_DIRECTS &&
	       conn->direct_next - conn->direct_placed < NVL_DIRECTS &&
	       nvl_msg_room(conn, NVL_MAX_MESSAGE);
}

static void write_header(struct nvl_conn *conn, uint8_t kind, uint8_t id,
			 uint64_t fence, size_t len)
{
	struct nvl_msg m = {
		.len = len, .kind = kind, .id = id, .fence = fence
	};

	memcpy(conn->tx.msgs + (conn->msg_tail & (NVL_MSG_RING - 1)), &m,
	       sizeof(m));
}

/* Where @len bytes may be written; nvl_msg_room() has said yes. */
void *nvl_msg_begin(struct nvl_conn *conn, size_t len)
{
	size_t to_end = NVL_MSG_RING - (conn->msg_tail & (NVL_MSG_RING - 1));

	if (RECORD(len) > to_end) {
		write_header(conn, NVL_MSG_PAD, 0, 0,
			     to_end - sizeof(struct nvl_msg));
		conn->msg_tail += to_end;
	}
	return conn->tx.msgs + (conn->msg_tail & (NVL_MSG_RING - 1)) +
	       sizeof(struct nvl_msg);
}

/* With 32 bits of each number a fence of long ago would seem to be ahead. */
static uint64_t pack_fence(const struct nvl_conn *conn)
{
	const uint64_t puts = weft_max(conn->put_fence, conn->put_acked);
	const uint64_t directs =
		weft_max(conn->direct_fence, conn->direct_placed);

	return directs << 32 | (uint32_t)puts;
}

void nvl_msg_cut(struct nvl_conn *conn)
{
	struct nvl_inbox_head *h = conn->tx.head;

	/* once: later, puts that were cut have ended, too */
	if (!h || atomic_load_explicit(&h->cut, memory_order_relaxed) & NVL_CUT)
		return;
	atomic_store_explicit(&h->cut_fence,
			      conn->direct_placed << 32 |
				      (uint32_t)conn->put_acked,
			      memory_order_relaxed);
	atomic_fetch_or_explicit(&h->cut, NVL_CUT, memory_order_release);
}

void nvl_msg_fail(struct nvl_conn *conn)
{
	nvl_msg_cut(conn);
	atomic_fetch_or_explicit(&conn->tx.head->cut, NVL_FAILED,
				 memory_order_release);
}

bool nvl_msg_has_failed(const struct nvl_conn *conn)
{
	const struct nvl_inbox_head *h = conn->rx.head;

	return atomic_load_explicit(&h->cut, memory_order_acquire) & NVL_FAILED;
}

void nvl_msg_end(struct nvl_conn *conn, uint8_t kind, uint8_t id, size_t len)
{
	write_header(conn, kind, id, pack_fence(conn), len);
	conn->msg_tail += RECORD(len);
	atomic_store_explicit(&conn->tx.head->msg_tail, conn->msg_tail,
			      memory_order_release);
	nvl_inbox_wake(conn);
}

/* Both numbers of @fence: those of the ring, and those of the peer's copies. */
static bool is_placed(const struct nvl_conn *conn, uint64_t fence)
{
	uint32_t direct = atomic_load_explicit(&conn->rx.head->direct_placed,
					       memory_order_acquire);

	return (int32_t)((uint32_t)fence - (uint32_t)conn->placed) <= 0 &&
	       (int32_t)((uint32_t)(fence >> 32) - direct) <= 0;
}

/* Behind puts that were cut?  Asked when is_placed(), which orders the two. */
static bool is_cut(const struct nvl_conn *conn, uint64_t fence)
{
	const struct nvl_inbox_head *h = conn->rx.head;
	uint64_t cut;

	if (!(atomic_load_explicit(&h->cut, memory_order_acquire) & NVL_CUT))
		return false;
	cut = atomic_load_explicit(&h->cut_fence, memory_order_relaxed);
	return (int32_t)((uint32_t)fence - (uint32_t)cut) > 0 ||
	       (int32_t)((uint32_t)(fence >> 32) - (uint32_t)(cut >> 32)) > 0;
}

/* 1: *@m is the next message, @data its bytes; 0: none now; -EPROTO */
static int peek_message(struct nvl_conn *conn, struct nvl_msg *m,
			uint8_t **data)
{
	uint64_t tail = atomic_load_explicit(&conn->rx.head->msg_tail,
					     memory_order_acquire);
	size_t at = conn->msg_head & (NVL_MSG_RING - 1);
	size_t there = tail - conn->msg_head;

	if (!there)
		return 0;
	if (there > NVL_MSG_RING || there % 16)
		return -EPROTO;
	memcpy(m, conn->rx.msgs + at, sizeof(*m));
	if (m->len > NVL_MSG_RING || RECORD(m->len) > there ||
	    RECORD(m->len) > NVL_MSG_RING - at)
		return -EPROTO;
	if (m->kind == NVL_MSG_USER &&
	    (m->len > NVL_MAX_MESSAGE || m->id >= WEFT_MSG_IDS))
		return -EPROTO;
	*data = conn->rx.msgs + at + sizeof(*m);
	return m->kind == NVL_MSG_PAD || is_placed(conn, m->fence);
}

static void deliver_message(struct nvl_conn *conn, const struct nvl_msg *m,
			    void *data)
{
	struct nvl_iface *iface = conn->iface;

	switch (m->kind) {
	case NVL_MSG_USER:
		if (is_cut(conn, m->fence))
			break;
		weft_count(conn->stats, rx_messages, 1);
		weft_count(conn->stats, rx_message_bytes, m->len);
		weft_count(conn->stats, wire_rx_bytes, RECORD(m->len));
		iface->base.iface.cb.on_message(iface->base.iface.cb.arg, m->id,
						data, m->len);
		break;
	case NVL_MSG_PAD:
		break;
	case NVL_MSG_BYE:
		conn->base.bye_received = true;
		break;
	case NVL_MSG_CLOSE:
		conn->base.bye_received = conn->close_received = true;
		break;
	default:
		nvl_conn_break(conn, -EPROTO);
	}
}

unsigned int nvl_msg_progress(struct nvl_conn *conn)
{
	const unsigned int max = weft_min(SHARE, conn->iface->messages);
	unsigned int n = 0;
	struct nvl_msg m;
	uint8_t *data;
	int r = 0;

	while (n < max && (r = peek_message(conn, &m, &data)) > 0) {
		conn->iface->messages--;
		/* the callback may destroy the endpoint, never @conn */
		deliver_message(conn, &m, data);
		conn->msg_head += RECORD(m.len);
		n++;
		if (conn->base.state != WEFT_CONN_OPEN)
			return n;
		atomic_store_explicit(&conn->rx.head->msg_head, conn->msg_head,
				      memory_order_release);
	}
	if (r < 0) {
		weft_error("a peer on this host has damaged the messages it "
			   "shares with us");
		nvl_conn_break(conn, r);
	}
	if (n)
		wake_if_wanted(conn, NVL_WANTS_ROOM);
	return n;
}

/* ---- operation records -------------------------------------------------- */

/* 1: written; 0: no room; a peer that lies breaks it */
static int write_op(struct nvl_conn *conn, const struct nvl_op *op)
{
	uint64_t head;

	if (conn->op_tail - conn->op_room == NVL_OP_SLOTS) {
		head = atomic_load_explicit(&conn->tx.head->op_head,
					    memory_order_acquire);
		if (head < conn->op_room || head > conn->op_tail) {
			weft_error("a peer on this host has read operations "
				   "that were never sent");
			nvl_conn_break(conn, -EPROTO);
			return 1;
		}
		conn->op_room = head;
		if (conn->op_tail - head == NVL_OP_SLOTS)
			return 0;
	}
	memcpy(&conn->tx.ops[conn->op_tail & (NVL_OP_SLOTS - 1)], op,
	       sizeof(*op));
	conn->op_tail++;
	atomic_store_explicit(&conn->tx.head->op_tail, conn->op_tail,
			      memory_order_release);
	return 1;
}

/* What waits is bounded by puts, gets and chunks under way. */
static int queue_op(struct nvl_conn *conn, const struct nvl_op *op)
{
	unsigned int cap = conn->deferred_cap ? 2 * conn->deferred_cap : 64, i;
	struct nvl_op *q;

	if (conn->deferred_n == conn->deferred_cap) {
		if (cap > 2 * LATER_MAX)
			return -ENOBUFS;
		q = malloc(cap * sizeof(*q));
		if (!q)
			return -ENOMEM;
		for (i = 0; i < conn->deferred_n; i++)
			q[i] = conn->deferred[(conn->deferred_at + i) %
					      conn->deferred_cap];
		free(conn->deferred);
		conn->deferred = q;
		conn->deferred_at = 0;
		conn->deferred_cap = cap;
	}
	i = (conn->deferred_at + conn->deferred_n++) % conn->deferred_cap;
	conn->deferred[i] = *op;
	return 0;
}

void nvl_op_send(struct nvl_conn *conn, const struct nvl_op *op)
{
	int err = 0;

	if (conn->base.state != WEFT_CONN_OPEN)
		return;
	if (conn->deferred_n || !write_op(conn, op))
		err = queue_op(conn, op);
	else
		nvl_inbox_wake(conn);
	if (err)
		nvl_conn_break(conn, weft_fail(err, "no room for what a peer "
						    "on this host must know"));
}

void nvl_op_retry(struct nvl_conn *conn)
{
	unsigned int n = 0;

	while (conn->deferred_n && conn->base.state == WEFT_CONN_OPEN &&
	       write_op(conn, &conn->deferred[conn->deferred_at])) {
		conn->deferred_at =
			(conn->deferred_at + 1) % conn->deferred_cap;
		conn->deferred_n--;
		n++;
	}
	if (n && conn->base.state == WEFT_CONN_OPEN)
		nvl_inbox_wake(conn);
}

int nvl_op_next(struct nvl_conn *conn, struct nvl_op *op)
{
	uint64_t tail = atomic_load_explicit(&conn->rx.head->op_tail,
					     memory_order_acquire);

	if (tail == conn->op_head)
		return 0;
	if (tail - conn->op_head > NVL_OP_SLOTS)
		return -EPROTO;
	memcpy(op, &conn->rx.ops[conn->op_head & (NVL_OP_SLOTS - 1)],
	       sizeof(*op));
	return 1;
}

void nvl_op_release(struct nvl_conn *conn)
{
	conn->op_head++;
	atomic_store_explicit(&conn->rx.head->op_head, conn->op_head,
			      memory_order_release);
	/* half empty is soon enough for a writer that sleeps */
	if (conn->op_head % (NVL_OP_SLOTS / 2) == 0)
		wake_if_wanted(conn, NVL_WANTS_ROOM);
}

/* ---- sleeping ----------------------------------------------------------- */

static bool ops_have_room(struct nvl_conn *conn)
{
	return conn->op_tail - atomic_load(&conn->tx.head->op_head) <
	       NVL_OP_SLOTS;
}

bool nvl_inbox_pending(struct nvl_conn *conn)
{
	struct nvl_msg m;
	uint8_t *data;

	if (atomic_load(&conn->rx.head->op_tail) != conn->op_head ||
	    nvl_sock_waiting(conn) || peek_message(conn, &m, &data))
		return true;
	if (conn->deferred_n && ops_have_room(conn))
		return true;
	return conn->base.ready_owed && nvl_conn_is_ready(&conn->base);
}

void nvl_inbox_sleep(struct nvl_conn *conn, bool on)
{
	uint32_t wants = 0;

	if (on && (conn->base.ready_owed || conn->deferred_n))
		wants |= NVL_WANTS_ROOM;
	if (on && conn->ntransfers)
		wants |= NVL_WANTS_CREDIT;
	atomic_store_explicit(&conn->tx.head->wants, wants,
			      memory_order_relaxed);
	atomic_store_explicit(&conn->rx.head->sleeping, on,
			      memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

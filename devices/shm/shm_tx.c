/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending: records are made of transfers in their order, as there is room. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/shm/shm_break.h"
#include "devices/shm/shm_ring.h"
#include "devices/shm/shm_stage.h"
#include "devices/shm/shm_tx.h"
#include "util/log.h"
#include "util/util.h"

/* Of one connection and progress(): others get on, and so does the caller. */
#define STEP (256u << 10)

int shm_tx_add(struct shm_conn *conn, enum shm_transfer_kind kind,
	       const struct weft_iov *iov, unsigned int niov,
	       const struct weft_cuda_ptr *where, const struct shm_op *what,
	       struct weft_op *op)
{
	const size_t n = weft_max(niov, 1u) * sizeof(*where);
	struct shm_transfer *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	if (where) {
		t->where = malloc(n);
		if (!t->where) {
			free(t);
			return -ENOMEM;
		}
		memcpy(t->where, where, n);
	}
	t->kind = kind;
	t->op = op;
	t->what = *what;
	for (unsigned int i = 0; i < niov; i++)
		t->iov[i] = iov[i];
	if (kind == SHM_TX_REPLY)
		conn->nreplies++;
	else
		conn->nops++;
	if (kind == SHM_TX_PUT)
		conn->puts++;
	conn->nwindowed += kind == SHM_TX_PUT && where;
	conn->nstaging += shm_stage_waits(t);
	weft_list_add_tail(&conn->queue, &t->link);
	shm_conn_attend(conn);
	return 0;
}

size_t shm_tx_piece(struct shm_transfer *t, size_t max, void **p)
{
	struct weft_iov *v = &t->iov[t->iov_i];

	while (t->iov_off == v->len) {
		v = &t->iov[++t->iov_i];
		t->iov_off = 0;
	}
	*p = (char *)v->addr + t->iov_off;
	max = weft_min(max, v->len - t->iov_off);
	t->iov_off += max;
	return max;
}

/* linux/mman.h of 5.14 */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/*
 * Can this process read (or write) the program's memory without a signal?  True
 * on Linux before 5.14, which cannot tell.
 */
static bool is_mapped(const void *p, size_t len, bool write)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	const uintptr_t begin = (uintptr_t)p & ~page;
	const int how = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	if (!madvise((void *)begin, (uintptr_t)p + len - begin, how))
		return true;
	if (errno == EFAULT || errno == ENOMEM)
		return false;
	/* -EINVAL: protected, or unknown to the kernel */
	return errno != EINVAL ||
	       madvise((void *)((uintptr_t)&page & ~page), page + 1, how);
}

bool shm_tx_may_copy(const struct shm_transfer *t, const void *p, size_t n,
		     bool write)
{
	return t->what.len <= SHM_MAX_MESSAGE || is_mapped(p, n, write);
}

/* ---- ends ---------------------------------------------------------------- */

/* What waits at the peer for puts is delivered before they are acknowledged. */
static void finish_put(struct shm_conn *conn, const struct shm_transfer *t)
{
	conn->puts_acked++;
	conn->nwindowed -= t->where != NULL;
	if (!conn->nwindowed || conn->puts_acked >= conn->fence)
		conn->fenced = 0;
}

static void free_transfer(struct shm_transfer *t)
{
	if (t->in_flight)
		return; /* an engine never came back: its memory stays */
	free(t->where);
	free(t);
}

void shm_tx_finish(struct shm_conn *conn, struct shm_transfer *t, int status)
{
	struct weft_op *op = t->op;

	if (t->where)
		shm_stage_drop(conn, t);
	if (t->kind == SHM_TX_PUT)
		finish_put(conn, t);
	if (t->status)
		status = t->status;
	weft_list_del(&t->link);
	conn->failed |= status && status != -ECANCELED;
	if (t->kind == SHM_TX_REPLY) {
		conn->nreplies--;
		if (!status) {
			weft_count_owned(conn->stats, tx_gets, 1);
			weft_count_owned(conn->stats, tx_get_bytes,
					 t->what.len);
		}
	} else {
		conn->nops--;
		if (!status && t->kind == SHM_TX_PUT) {
			weft_count_owned(conn->stats, tx_puts, 1);
			weft_count_owned(conn->stats, tx_put_bytes,
					 t->what.len);
		} else if (!status) {
			weft_count_owned(conn->stats, gets, 1);
			weft_count_owned(conn->stats, get_bytes, t->what.len);
		}
	}
	free_transfer(t);
	if (op)
		op->done(op, status);
}

static struct shm_transfer *find_op(struct weft_list *list)
{
	struct shm_transfer *t, *tmp;

	weft_list_for_each (t, tmp, list, link)
		if (t->op)
			return t;
	return NULL;
}

/* The peer does not know of it yet. */
static bool is_unknown(const struct shm_conn *conn,
		       const struct shm_transfer *t)
{
	return !shm_conn_is_open(conn) ||
	       (!t->begun && t->kind != SHM_TX_REPLY);
}

void shm_tx_give_up(struct shm_conn *conn, int status)
{
	struct weft_list *const lists[] = { &conn->queue, &conn->placing,
					    &conn->asking, &conn->filling };
	struct shm_transfer *t;
	struct weft_op *op;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(lists); i++) {
		/* a done() may change the list */
		while ((t = find_op(lists[i]))) {
			if (is_unknown(conn, t)) {
				shm_tx_finish(conn, t, status);
				continue;
			}
			if (t->where)
				shm_stage_drop(conn, t);
			op = t->op;
			t->op = NULL;
			t->status = status;
			op->done(op, status);
		}
	}
	if (shm_conn_is_open(conn))
		return;
	for (i = 0; i < ARRAY_SIZE(lists); i++)
		while (!weft_list_empty(lists[i]))
			shm_tx_finish(conn,
				      weft_list_first(lists[i],
						      struct shm_transfer,
						      link),
				      status);
}

/* ---- acknowledgements ---------------------------------------------------- */

static void send_empty(struct shm_conn *conn, enum shm_kind kind, int status)
{
	shm_ring_begin(conn, 0);
	shm_ring_end(conn,
		     (struct shm_record){ .kind = kind, .status = status });
}

int shm_tx_ack(struct shm_conn *conn, int status)
{
	if (conn->nacks == SHM_OPS)
		return -EPROTO;
	conn->acks[(conn->ack_at + conn->nacks++) % SHM_OPS] = status;
	shm_conn_attend(conn);
	return 0;
}

/*
 * Sends acknowledgements as far as there is room; how many.  None while there
 * are messages which the peer takes for delivered with them, unless it @ends.
 */
static unsigned int send_acks(struct shm_conn *conn, bool ends)
{
	unsigned int n = 0;

	/* the peer relies on the delivery of messages after those puts */
	if (!ends && shm_conn_owes_messages(conn))
		return 0;
	while (conn->nacks && shm_ring_has_room(conn, 0)) {
		send_empty(conn, SHM_ACK, conn->acks[conn->ack_at]);
		conn->ack_at = (conn->ack_at + 1) % SHM_OPS;
		conn->nacks--;
		n++;
	}
	return n;
}

/* ---- failures ------------------------------------------------------------ */

void shm_tx_fail(struct shm_conn *conn, const char *what)
{
	if (!shm_conn_is_open(conn))
		return;
	weft_error(
		"cannot %s (peer %016llx): its key was revoked or does not cover it, or the memory is unmapped, protected or in a full file system; the connection is closed",
		what, (unsigned long long)conn->base.peer_id);
	send_acks(conn, true);
	atomic_store(&conn->tx.shared->failed, 1);
	shm_ring_wake(conn);
	shm_conn_break(conn, -EIO);
}

/* ---- transfers ----------------------------------------------------------- */

static void send_what(struct shm_conn *conn, enum shm_kind kind,
		      const struct shm_op *what)
{
	memcpy(shm_ring_begin(conn, sizeof(*what)), what, sizeof(*what));
	shm_ring_end(conn,
		     (struct shm_record){ .kind = kind, .len = sizeof(*what) });
}

/* Reads the program's memory directly, ... */
static bool fill_put(struct shm_transfer *t, uint8_t *to, size_t len)
{
	size_t n;
	void *p;

	for (; len; len -= n, to += n) {
		n = shm_tx_piece(t, len, &p);
		if (!shm_tx_may_copy(t, p, n, false))
			return false;
		weft_copy(to, p, n);
	}
	return true;
}

/*
 * ... and memory that the peer has named through the kernel: it may be
 * unmapped.
 */
static int fill_reply(struct shm_conn *conn, struct shm_transfer *t,
		      uint8_t *to, size_t len)
{
	const struct weft_rkey key = { t->what.slot, t->what.generation,
				       t->what.token };
	uint8_t *from = weft_region_get(&key, t->what.addr, t->what.len);
	bool ok;

	if (!from)
		return -EACCES;
	ok = !weft_bounce_in(&conn->iface->base.bounce, to, from + t->moved,
			     len);
	weft_region_put(&key);
	return ok ? 0 : -EACCES;
}

/* Its records are sent: it waits in @list for the peer's. */
static void hand_on(struct weft_list *list, struct shm_transfer *t)
{
	weft_list_del(&t->link);
	weft_list_add_tail(list, &t->link);
}

/* Is there room for what comes next of it? */
static bool has_room_for(struct shm_conn *conn, const struct shm_transfer *t)
{
	const size_t left = t->what.len - t->moved;

	if (t->kind != SHM_TX_REPLY && !t->begun)
		return shm_ring_bulk(conn, sizeof(t->what));
	if (t->where && !t->status && !shm_stage_next(conn, t))
		return false;
	return left && !t->status ? shm_ring_bulk(conn, left)
				  : shm_ring_has_room(conn, 0);
}

/* The same for the bytes alone: how many of them. */
static size_t next_piece(struct shm_conn *conn, const struct shm_transfer *t)
{
	const size_t left = t->what.len - t->moved;

	return left ? shm_ring_bulk(conn, left) : 0;
}

static void run_put(struct shm_conn *conn, struct shm_transfer *t)
{
	size_t n;

	if (!t->begun) {
		send_what(conn, SHM_PUT, &t->what);
		t->begun = true;
	} else if (t->status) {
		send_empty(conn, SHM_ABORT, 0);
		t->moved = t->what.len;
	}
	n = next_piece(conn, t);
	if (n && !fill_put(t, shm_ring_begin(conn, n), n)) {
		t->status = -EACCES;
		shm_tx_fail(conn, "read memory of a put");
		return;
	}
	if (n) {
		shm_ring_end(conn,
			     (struct shm_record){ .kind = SHM_DATA, .len = n });
		t->moved += n;
	}
	if (t->moved == t->what.len) {
		hand_on(&conn->placing, t);
		conn->puts_sent++;
	}
}

static void send_place(struct shm_conn *conn, struct shm_transfer *t,
		       struct shm_chunk *c)
{
	const struct shm_place place = { c->pos, c->len };

	memcpy(shm_ring_begin(conn, sizeof(place)), &place, sizeof(place));
	shm_ring_end(conn, (struct shm_record){
				   .kind = t->kind == SHM_TX_PUT ? SHM_DATA_AT
								 : SHM_REPLY_AT,
				   .len = sizeof(place),
			   });
	t->moved += c->len;
	shm_stage_sent(conn, c);
}

/* The same of bytes that are in the window. */
static void run_staged_put(struct shm_conn *conn, struct shm_transfer *t)
{
	struct shm_chunk *c = NULL;

	if (!t->begun) {
		send_what(conn, SHM_PUT, &t->what);
		t->begun = true;
		return;
	}
	if (!t->status)
		c = shm_stage_next(conn, t);
	if (c && c->status) {
		t->status = c->status;
		shm_tx_fail(conn, "read memory of a put");
		return;
	}
	if (c) {
		send_place(conn, t, c);
	} else {
		send_empty(conn, SHM_ABORT, 0);
		t->moved = t->what.len;
	}
	if (t->moved == t->what.len) {
		hand_on(&conn->placing, t);
		conn->puts_sent++;
	}
}

static void run_get(struct shm_conn *conn, struct shm_transfer *t)
{
	send_what(conn, SHM_GET, &t->what);
	t->begun = true;
	hand_on(&conn->asking, t);
}

static void run_reply(struct shm_conn *conn, struct shm_transfer *t)
{
	const size_t n = next_piece(conn, t);
	int err = fill_reply(conn, t, shm_ring_begin(conn, n), n);

	if (err) {
		send_empty(conn, SHM_FAIL, err);
	} else {
		shm_ring_end(conn, (struct shm_record){ .kind = SHM_REPLY,
							.len = n });
		t->moved += n;
	}
	if (err || t->moved == t->what.len)
		shm_tx_finish(conn, t, err);
	if (err)
		shm_tx_fail(conn, "read what a get names");
}

static void run_staged_reply(struct shm_conn *conn, struct shm_transfer *t)
{
	struct shm_chunk *c = shm_stage_next(conn, t);
	const int err = c->status;

	if (err)
		send_empty(conn, SHM_FAIL, err);
	else
		send_place(conn, t, c);
	if (err || t->moved == t->what.len)
		shm_tx_finish(conn, t, err);
	if (err)
		shm_tx_fail(conn, "read what a get names");
}

/* False: there is nothing to send, or no room. */
static bool run_first(struct shm_conn *conn)
{
	struct shm_transfer *t;

	if (weft_list_empty(&conn->queue))
		return false;
	t = weft_list_first(&conn->queue, struct shm_transfer, link);
	if (!has_room_for(conn, t))
		return false;
	if (t->kind == SHM_TX_GET)
		run_get(conn, t);
	else if (t->where && t->kind == SHM_TX_PUT)
		run_staged_put(conn, t);
	else if (t->where)
		run_staged_reply(conn, t);
	else if (t->kind == SHM_TX_PUT)
		run_put(conn, t);
	else
		run_reply(conn, t);
	return true;
}

unsigned int shm_tx_run(struct shm_conn *conn)
{
	const uint64_t end = shm_ring_sum(conn->tx.tail) + STEP;
	unsigned int n;

	if (!shm_conn_is_open(conn) || !shm_tx_waits(conn))
		return 0;
	n = send_acks(conn, false);
	if (n)
		shm_ring_wake(conn);
	n += shm_stage_run(conn);
	while (shm_conn_is_open(conn) && shm_ring_sum(conn->tx.tail) < end &&
	       run_first(conn)) {
		/* the peer copies while we copy the next */
		shm_ring_wake(conn);
		n++;
	}
	return n;
}

bool shm_tx_can_run(struct shm_conn *conn)
{
	if (conn->nacks && !shm_conn_owes_messages(conn) &&
	    shm_ring_has_room(conn, 0))
		return true;
	if (shm_stage_can_run(conn))
		return true;
	return !weft_list_empty(&conn->queue) &&
	       has_room_for(conn, weft_list_first(&conn->queue,
						  struct shm_transfer, link));
}

bool shm_tx_waits(const struct shm_conn *conn)
{
	return conn->nacks || !weft_list_empty(&conn->queue);
}

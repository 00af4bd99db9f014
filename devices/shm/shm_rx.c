/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving: records are handled in their order.  A put's bytes are copied to
 * the place that its key allows, piece by piece.  Engines may end later: puts
 * are acknowledged, and gets completed, in their order all the same.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/shm/shm_break.h"
#include "devices/shm/shm_place.h"
#include "devices/shm/shm_ring.h"
#include "devices/shm/shm_rx.h"
#include "devices/shm/shm_tx.h"
#include "devices/shm/shm_window.h"
#include "util/log.h"
#include "util/util.h"

#define SHARE (WEFT_PROGRESS_MAX / 2) /* messages of one peer */
#define STEP  (256u << 10)	      /* bytes of one peer */

/* ---- messages ------------------------------------------------------------ */

static void call_back(struct shm_conn *conn, const struct shm_record *r,
		      uint8_t *data)
{
	const struct weft_iface_cb *cb = &conn->iface->base.iface.cb;

	weft_count_owned(conn->stats, rx_messages, 1);
	weft_count_owned(conn->stats, rx_message_bytes, r->len);
	/* the callback may destroy the endpoint, never @conn */
	cb->on_message(cb->arg, r->id, data, r->len);
}

/* Earlier puts are with an engine, or still to come. */
static int hold(struct shm_conn *conn, const struct shm_record *r,
		const uint8_t *data)
{
	struct shm_held *held;

	shm_conn_attend(conn);
	conn->held_bytes += sizeof(*r) + r->len;
	if (conn->held_bytes > SHM_HELD)
		return -EPROTO;
	held = malloc(sizeof(*held) + r->len);
	if (!held)
		return -ENOMEM;
	held->r = *r;
	weft_copy(held->data, data, r->len);
	weft_list_add_tail(&conn->held, &held->link);
	return 0;
}

static bool is_valid(const struct shm_record *message)
{
	return message->len <= SHM_MAX_MESSAGE && message->id < WEFT_MSG_IDS;
}

static int deliver(struct shm_conn *conn, const struct shm_record *r,
		   uint8_t *data)
{
	if (!is_valid(r))
		return -EPROTO;
	if (!weft_list_empty(&conn->held) || !shm_record_is_due(conn, r))
		return hold(conn, r, data);
	conn->iface->messages--;
	call_back(conn, r, data);
	return 0;
}

/* Down to @least messages that are left to this progress(). */
static unsigned int deliver_held(struct shm_conn *conn, unsigned int least)
{
	struct shm_held *held;
	unsigned int n = 0;

	while (shm_conn_is_open(conn) && conn->iface->messages > least &&
	       shm_conn_owes_messages(conn)) {
		held = weft_list_first(&conn->held, struct shm_held, link);
		weft_list_del(&held->link);
		conn->held_bytes -= sizeof(held->r) + held->r.len;
		conn->iface->messages--;
		call_back(conn, &held->r, held->data);
		free(held);
		n++;
	}
	return n;
}

/* ---- the peer's puts ----------------------------------------------------- */

static struct shm_landing *landing_at(struct shm_conn *conn, uint64_t number)
{
	return &conn->landings[number % SHM_OPS];
}

/* The put that has begun; NULL: none has. */
static struct shm_landing *current(struct shm_conn *conn)
{
	struct shm_landing *l = landing_at(conn, conn->begun - 1);

	return conn->begun != conn->landed && !l->ended ? l : NULL;
}

static bool land(struct shm_conn *conn, const struct shm_landing *l,
		 const uint8_t *data, size_t len)
{
	const struct weft_rkey key = { l->what.slot, l->what.generation,
				       l->what.token };
	uint8_t *to = weft_region_get(&key, l->what.addr, l->what.len);
	bool ok = false;

	if (to) {
		ok = !weft_bounce_out(&conn->iface->base.bounce, to + l->seen,
				      data, len);
		weft_region_put(&key);
	}
	return ok;
}

static bool has_failed(const struct shm_landing *l)
{
	return l->status && l->status != -ECANCELED;
}

/* Stops reading what the peer sends. */
static int fail_landing(struct shm_conn *conn)
{
	int err = shm_tx_ack(conn, -EACCES);

	weft_count_owned(conn->stats, key_errors, 1);
	if (!err)
		shm_tx_fail(conn, "write a put");
	return err;
}

static int finish_landing(struct shm_conn *conn, const struct shm_landing *l)
{
	const struct weft_iface_cb *cb = &conn->iface->base.iface.cb;
	int err;

	conn->landed++;
	err = shm_tx_ack(conn, l->status);
	if (err || l->status)
		return err;
	/* a put that was cut is not placed, nor anything after it */
	conn->placed += conn->placed + 1 == conn->landed;
	weft_count_owned(conn->stats, rx_puts, 1);
	weft_count_owned(conn->stats, rx_put_bytes, l->what.len);
	if (l->what.flags & SHM_OP_NOTIFY) {
		conn->iface->notices--;
		cb->on_notify(cb->arg, l->what.tag, l->what.len);
	}
	return 0;
}

static bool can_finish(const struct shm_conn *conn)
{
	const struct shm_landing *l = &conn->landings[conn->landed % SHM_OPS];

	return conn->begun != conn->landed &&
	       (has_failed(l) || (l->ended && !l->in_flight));
}

/* Those of which all is placed, or no more comes: in order. */
static int finish_landings(struct shm_conn *conn)
{
	struct shm_landing *l;
	int err = 0;

	while (!err && shm_conn_is_open(conn) && conn->iface->notices &&
	       can_finish(conn)) {
		l = landing_at(conn, conn->landed);
		err = has_failed(l) ? fail_landing(conn)
				    : finish_landing(conn, l);
	}
	return err;
}

static int begin_put(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct shm_landing *l;

	if (current(conn) || conn->begun - conn->landed == SHM_OPS ||
	    len != sizeof(l->what))
		return -EPROTO;
	l = landing_at(conn, conn->begun++);
	shm_conn_attend(conn);
	l->ended = false;
	l->status = 0;
	l->in_flight = 0;
	l->seen = 0;
	memcpy(&l->what, data, sizeof(l->what));
	if (l->what.len)
		return 0;
	l->ended = true;
	if (!land(conn, l, data, 0))
		shm_landing_fail(conn, l, -EACCES);
	return finish_landings(conn);
}

static int land_data(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct shm_landing *l = current(conn);

	if (!l || !len || len > l->what.len - l->seen)
		return -EPROTO;
	if (!land(conn, l, data, len))
		shm_landing_fail(conn, l, -EACCES);
	l->seen += len;
	l->ended = l->seen == l->what.len;
	return finish_landings(conn);
}

static bool read_place(const uint8_t *data, size_t len, struct shm_place *place)
{
	if (len != sizeof(*place))
		return false;
	memcpy(place, data, len);
	return true;
}

static int land_place(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct shm_landing *l = current(conn);
	struct shm_place place;
	int err;

	if (!l || !read_place(data, len, &place))
		return -EPROTO;
	err = shm_place_put(conn, l, &place);
	if (err)
		return err;
	l->ended = l->seen == l->what.len;
	return finish_landings(conn);
}

static int abort_put(struct shm_conn *conn)
{
	struct shm_landing *l = current(conn);

	if (!l)
		return -EPROTO;
	if (!l->status)
		l->status = -ECANCELED;
	l->ended = true;
	return finish_landings(conn);
}

/* ---- answers to ours, and the peer's gets -------------------------------- */

static struct shm_transfer *first_of(struct weft_list *list)
{
	return weft_list_empty(list)
		       ? NULL
		       : weft_list_first(list, struct shm_transfer, link);
}

/* The put that is answered next; one that fails may not be sent whole yet. */
static struct shm_transfer *first_put(struct shm_conn *conn, int status)
{
	struct shm_transfer *t = first_of(&conn->placing);

	if (t || !status || status == -ECANCELED)
		return t;
	t = first_of(&conn->queue);
	return t && t->kind == SHM_TX_PUT && t->begun ? t : NULL;
}

/* -EIO: it has failed, and the peer has ended the connection. */
static int end_transfer(struct shm_conn *conn, struct shm_transfer *t,
			int status)
{
	if (!t || status > 0 || status == -EINPROGRESS)
		return -EPROTO;
	/* what an engine reads ends with the connection, as gets do */
	if (!t->in_flight)
		shm_tx_finish(conn, t, status);
	else if (!t->status)
		t->status = status;
	return status && status != -ECANCELED ? -EIO : 0;
}

/* The get that is replied to. */
static struct shm_transfer *first_get(struct shm_conn *conn)
{
	return first_of(&conn->asking);
}

/* Those of which all is here: in order. */
static unsigned int finish_gets(struct shm_conn *conn)
{
	struct shm_transfer *t;
	unsigned int n = 0;

	while (shm_conn_is_open(conn) && (t = first_of(&conn->filling)) &&
	       !t->in_flight) {
		shm_tx_finish(conn, t, 0);
		n++;
	}
	return n;
}

static void check_get(struct shm_conn *conn, struct shm_transfer *t)
{
	if (t->moved != t->what.len || !shm_conn_is_open(conn))
		return;
	if (!t->in_flight && weft_list_empty(&conn->filling)) {
		shm_tx_finish(conn, t, 0);
		return;
	}
	weft_list_del(&t->link);
	weft_list_add_tail(&conn->filling, &t->link);
	shm_conn_attend(conn);
}

static int take_reply(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct shm_transfer *t = first_get(conn);
	size_t n;
	void *to;

	/* the processor cannot write GPU memory */
	if (!t || len > t->what.len - t->moved || (!len && t->what.len) ||
	    t->where)
		return -EPROTO;
	t->moved += len;
	/* given up: the memory is the program's again */
	for (; len && !t->status; len -= n, data += n) {
		n = shm_tx_piece(t, len, &to);
		if (!shm_tx_may_copy(t, to, n, true)) {
			t->status = -EACCES;
			shm_tx_fail(conn, "write memory of a get");
			return 0;
		}
		weft_copy(to, data, n);
	}
	check_get(conn, t);
	return 0;
}

static int take_reply_place(struct shm_conn *conn, const uint8_t *data,
			    size_t len)
{
	struct shm_transfer *t = first_get(conn);
	struct shm_place place;
	int err;

	if (!t || !read_place(data, len, &place))
		return -EPROTO;
	err = shm_place_get(conn, t, &place);
	if (!err)
		check_get(conn, t);
	return err;
}

/* -EIO: it has failed, and the peer has ended the connection. */
static int fail_get(struct shm_conn *conn, int status)
{
	struct shm_transfer *t = first_get(conn);

	if (!t || status >= 0 || status == -EINPROGRESS)
		return -EPROTO;
	if (!t->status)
		t->status = status;
	/* it ends with the connection, when no engine has any of it */
	return -EIO;
}

/* Where the memory lies that a peer gets, if that may be a GPU's. */
static bool find_source(const struct shm_op *what, struct weft_cuda_ptr *where)
{
	const struct weft_rkey key = { what->slot, what->generation,
				       what->token };
	bool gpu;
	void *p;

	memset(where, 0, sizeof(*where));
	/* what the key does not allow is refused when it is read */
	p = weft_cuda() ? weft_region_get(&key, what->addr, what->len) : NULL;
	if (!p)
		return false;
	gpu = shm_place_is_gpu(p, where) > 0;
	weft_region_put(&key);
	if (!gpu)
		memset(where, 0, sizeof(*where));
	return gpu;
}

static int take_get(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct weft_cuda_ptr where;
	struct shm_op what;
	bool window;

	if (len != sizeof(what) || conn->nreplies == SHM_OPS)
		return -EPROTO;
	memcpy(&what, data, sizeof(what));
	window = find_source(&what, &where) || what.flags & SHM_OP_WINDOW;
	return shm_tx_add(conn, SHM_TX_REPLY, NULL, 0,
			  window && what.len ? &where : NULL, &what, NULL);
}

/* ---- records ------------------------------------------------------------- */

static int handle(struct shm_conn *conn, const struct shm_record *r,
		  uint8_t *data)
{
	switch (r->kind) {
	case SHM_MESSAGE:
		return deliver(conn, r, data);
	case SHM_PAD:
		return 0;
	case SHM_SWITCH:
		return r->id < SHM_RINGS && r->id != conn->rx.in ? 0 : -EPROTO;
	case SHM_BYE:
		conn->base.bye_received = true;
		return 0;
	case SHM_PUT:
		return begin_put(conn, data, r->len);
	case SHM_DATA:
		return land_data(conn, data, r->len);
	case SHM_ABORT:
		return abort_put(conn);
	case SHM_ACK:
		return end_transfer(conn, first_put(conn, r->status),
				    r->status);
	case SHM_GET:
		return take_get(conn, data, r->len);
	case SHM_REPLY:
		return take_reply(conn, data, r->len);
	case SHM_FAIL:
		return fail_get(conn, r->status);
	case SHM_DATA_AT:
		return land_place(conn, data, r->len);
	case SHM_REPLY_AT:
		return take_reply_place(conn, data, r->len);
	case SHM_WANT:
		return shm_window_offer(conn);
	case SHM_LEAVE:
		return shm_window_left(conn);
	default:
		return -EPROTO;
	}
}

/* What waited for engines; most programs have none. */
static int finish_copies(struct shm_conn *conn, unsigned int least,
			 unsigned int *n)
{
	int err = 0;

	if (can_finish(conn)) {
		err = finish_landings(conn);
		++*n;
	}
	*n += finish_gets(conn);
	*n += deliver_held(conn, least);
	return err;
}

bool shm_rx_awaits_engines(const struct shm_conn *conn)
{
	return conn->begun != conn->landed || !weft_list_empty(&conn->held) ||
	       !weft_list_empty(&conn->filling);
}

unsigned int shm_rx_run(struct shm_conn *conn)
{
	struct shm_iface *iface = conn->iface;
	unsigned int least, n = 0;
	struct shm_record r;
	size_t done = 0;
	uint8_t *data;
	int ret = 0;

	/* the share of one peer in this progress() */
	least = iface->messages > SHARE ? iface->messages - SHARE : 0;
	if (shm_rx_awaits_engines(conn))
		ret = finish_copies(conn, least, &n);
	/* send what is due first: nothing waits behind it */
	while (!ret && shm_conn_is_open(conn) && !conn->landing_failed &&
	       !shm_conn_owes_messages(conn) && done < STEP &&
	       iface->messages > least && iface->notices) {
		ret = shm_ring_next(conn, &r, &data);
		if (ret <= 0)
			break;
		done += sizeof(r) + r.len;
		weft_count_owned(conn->stats, wire_rx_bytes, sizeof(r) + r.len);
		ret = handle(conn, &r, data);
		if (ret)
			break;
		n++;
		/* it has failed, or a callback may have ended it */
		if (!shm_conn_is_open(conn))
			return n;
		shm_ring_release(conn, &r);
		/* who waited gets it at once: see iface_progress() */
		if (iface->idle && r.kind == SHM_MESSAGE)
			break;
	}
	if (ret == -EPROTO)
		weft_error(
			"a peer on this host has damaged the ring that it shares; the connection is closed");
	if (ret == -EIO)
		shm_conn_told(conn);
	else if (ret < 0)
		shm_conn_break(conn, ret);
	else if (n)
		shm_ring_wake_writer(conn);
	return n;
}

bool shm_rx_take(struct shm_conn *conn)
{
	struct shm_record r;
	uint8_t *data;

	/* still: nothing is held, landing or failed */
	if (shm_ring_next(conn, &r, &data) <= 0 || r.kind != SHM_MESSAGE ||
	    r.fenced || !is_valid(&r))
		return false;
	weft_count_owned(conn->stats, wire_rx_bytes, sizeof(r) + r.len);
	call_back(conn, &r, data);
	if (shm_conn_is_open(conn)) {
		shm_ring_release(conn, &r);
		/* a fence would take as long as the rest */
		if (shm_ring_is_wanted(conn))
			shm_ring_wake(conn);
	}
	return true;
}

bool shm_rx_can_run(struct shm_conn *conn)
{
	struct shm_transfer *t = first_of(&conn->filling);
	struct shm_record r;
	uint8_t *data;

	return can_finish(conn) || shm_conn_owes_messages(conn) ||
	       (t && !t->in_flight) ||
	       (!conn->landing_failed && shm_ring_next(conn, &r, &data));
}

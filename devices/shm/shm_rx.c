/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving: records are handled in their order.  A put's bytes are copied to
 * the place that its key allows, piece by piece.
 */
#include <errno.h>
#include <string.h>

#include "devices/shm/shm.h"
#include "util/log.h"

#define SHARE (WEFT_PROGRESS_MAX / 2) /* messages of one peer */
#define STEP  (256u << 10)	      /* bytes of one peer */

/* ---- the peer's puts ----------------------------------------------------- */

static bool land(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct shm_landing *l = &conn->landing;
	const struct weft_rkey key = { l->what.slot, l->what.generation,
				       l->what.token };
	uint8_t *to = weft_region_get(&key, l->what.addr, l->what.len);
	bool ok = false;

	if (to) {
		ok = shm_bounce_out(conn->iface, to + l->seen, data, len);
		weft_region_put(&key);
	}
	return ok;
}

/* Nothing of the peer's is read any more. */
static int fail_landing(struct shm_conn *conn)
{
	int err = shm_tx_ack(conn, -EACCES);

	weft_count(conn->stats, key_errors, 1);
	if (!err)
		shm_conn_fail(conn, "write a put");
	return err;
}

/* All of it is here, or no more comes. */
static int finish_landing(struct shm_conn *conn)
{
	const struct weft_iface_cb *cb = &conn->iface->base.iface.cb;
	struct shm_landing *l = &conn->landing;
	int err;

	l->live = false;
	err = shm_tx_ack(conn, l->status);
	if (err || l->status)
		return err;
	weft_count(conn->stats, rx_puts, 1);
	weft_count(conn->stats, rx_put_bytes, l->what.len);
	if (l->what.notify) {
		conn->iface->notices--;
		cb->on_notify(cb->arg, l->what.tag, l->what.len);
	}
	return 0;
}

static int begin_put(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct shm_landing *l = &conn->landing;

	if (l->live || len != sizeof(l->what))
		return -EPROTO;
	l->live = true;
	l->status = 0;
	l->seen = 0;
	memcpy(&l->what, data, sizeof(l->what));
	if (l->what.len)
		return 0;
	return land(conn, data, 0) ? finish_landing(conn) : fail_landing(conn);
}

static int land_data(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct shm_landing *l = &conn->landing;

	if (!l->live || !len || len > l->what.len - l->seen)
		return -EPROTO;
	if (!land(conn, data, len))
		return fail_landing(conn);
	l->seen += len;
	return l->seen == l->what.len ? finish_landing(conn) : 0;
}

static int abort_put(struct shm_conn *conn)
{
	if (!conn->landing.live)
		return -EPROTO;
	conn->landing.status = -ECANCELED;
	return finish_landing(conn);
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

	if (t || !status)
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
	shm_tx_finish(conn, t, status);
	return status && status != -ECANCELED ? -EIO : 0;
}

static int take_reply(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct shm_transfer *t = first_of(&conn->asking);
	size_t n;
	void *to;

	if (!t || len > t->what.len - t->moved || (!len && t->what.len))
		return -EPROTO;
	t->moved += len;
	/* given up: the memory is the program's again */
	for (; len && !t->status; len -= n, data += n) {
		n = shm_tx_piece(t, len, &to);
		if (!shm_tx_may_copy(t, to, n, true)) {
			t->status = -EACCES;
			shm_conn_fail(conn, "write memory of a get");
			return 0;
		}
		memcpy(to, data, n);
	}
	if (t->moved == t->what.len)
		shm_tx_finish(conn, t, 0);
	return 0;
}

static int take_get(struct shm_conn *conn, const uint8_t *data, size_t len)
{
	struct shm_op what;

	if (len != sizeof(what) || conn->nreplies == SHM_OPS)
		return -EPROTO;
	memcpy(&what, data, sizeof(what));
	return shm_tx_add(conn, SHM_TX_REPLY, NULL, 0, &what, NULL);
}

/* ---- records ------------------------------------------------------------- */

static int deliver(struct shm_conn *conn, const struct shm_record *r,
		   uint8_t *data)
{
	const struct weft_iface_cb *cb = &conn->iface->base.iface.cb;

	if (r->len > SHM_MAX_MESSAGE || r->id >= WEFT_MSG_IDS)
		return -EPROTO;
	weft_count(conn->stats, rx_messages, 1);
	weft_count(conn->stats, rx_message_bytes, r->len);
	conn->iface->messages--;
	/* the callback may destroy the endpoint, never @conn */
	cb->on_message(cb->arg, r->id, data, r->len);
	return 0;
}

static int handle(struct shm_conn *conn, const struct shm_record *r,
		  uint8_t *data)
{
	switch (r->kind) {
	case SHM_MESSAGE:
		return deliver(conn, r, data);
	case SHM_PAD:
	case SHM_SWITCH:
		return 0;
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
		return r->status < 0
			       ? end_transfer(conn, first_of(&conn->asking),
					      r->status)
			       : -EPROTO;
	default:
		return -EPROTO;
	}
}

unsigned int shm_rx_run(struct shm_conn *conn)
{
	const uint64_t end = shm_ring_sum(conn->rx.head) + STEP;
	struct shm_iface *iface = conn->iface;
	unsigned int least, n = 0;
	struct shm_record r;
	uint8_t *data;
	int ret = 0;

	/* what one peer may take of this progress() */
	least = iface->messages > SHARE ? iface->messages - SHARE : 0;
	while (shm_ring_sum(conn->rx.head) < end && iface->messages > least &&
	       iface->notices) {
		ret = shm_ring_next(conn, &r, &data);
		if (ret <= 0)
			break;
		weft_count(conn->stats, wire_rx_bytes, sizeof(r) + r.len);
		ret = handle(conn, &r, data);
		if (ret)
			break;
		n++;
		/* it has failed, or a callback may have ended it */
		if (!shm_conn_is_open(conn))
			return n;
		shm_ring_release(conn, &r);
	}
	if (ret == -EPROTO)
		weft_error("a peer on this host has damaged what it shares "
			   "with us");
	if (ret == -EIO)
		shm_conn_told(conn);
	else if (ret < 0)
		shm_conn_break(conn, ret);
	else if (n)
		shm_ring_wake_writer(conn);
	return n;
}

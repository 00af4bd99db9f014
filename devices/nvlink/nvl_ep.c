/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's end of a connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/nvlink/nvl_close.h"
#include "devices/engine/copy.h"
#include "devices/nvlink/nvl_dial.h"
#include "devices/nvlink/nvl_direct.h"
#include "devices/nvlink/nvl_ep.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_rx.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/log.h"

/* ---- life ---------------------------------------------------------------- */

static void cancel_ops(struct weft_conn *base)
{
	struct nvl_conn *conn = nvl_conn(base);

	if (conn->put_acked == conn->put_next && !conn->ngets &&
	    !conn->ndirects && weft_list_empty(&conn->iface->done))
		return;
	nvl_conn_stop_copies(conn);
	nvl_conn_drop_ops(conn, -ECANCELED);
}

static void leave_conn(struct weft_conn *base)
{
	if (weft_conn_give_up(base))
		nvl_conn_break(nvl_conn(base), 0);
	else
		nvl_conn_maybe_end(nvl_conn(base));
}

/*
 * A message in the peer's inbox outlives this process.  The end of a connection
 * whose operation failed comes after that operation's.
 */
static bool is_flushed(struct weft_conn *base, uint64_t sent)
{
	const struct nvl_conn *conn = nvl_conn(base);

	(void)sent;
	return conn->put_acked == conn->put_next && !conn->ngets &&
	       !conn->ndirects && !conn->failed;
}

const struct weft_ep_ops nvl_ep_ops = {
	.max_iov = NVL_MAX_IOV,
	.max_message = NVL_MAX_MESSAGE,
	.connect = weft_local_connect,
	.is_ready = nvl_conn_is_ready,
	.is_flushed = is_flushed,
	.cancel = cancel_ops,
	.leave = leave_conn,
};

/* The connection of an endpoint that lives. */
static struct nvl_conn *live_conn(struct weft_ep *ep)
{
	struct weft_conn *conn = weft_ep_conn(ep);

	return conn ? nvl_conn(conn) : NULL;
}

static void note_staging(enum weft_staging *best, const struct nvl_mapping *map)
{
	*best = weft_max(*best, map->kind == NVL_RING_CUDA ? WEFT_STAGING_GPU
							   : WEFT_STAGING_HOST);
}

void nvl_ep_query(struct weft_ep *base, struct weft_ep_attr *attr)
{
	struct nvl_conn *conn = live_conn(base);
	unsigned int i;

	memset(attr, 0, sizeof(*attr));
	if (!conn)
		return;
	attr->connected = conn->base.state == WEFT_CONN_OPEN;
	attr->unsent = conn->deferred_n || conn->ntransfers || conn->copies ||
		       conn->ndirects || !weft_list_empty(&conn->frames_out);
	for (i = 0; i < NVL_RINGS; i++) {
		attr->streams += !!conn->txrings[i];
		if (conn->txrings[i] && conn->txrings[i]->made)
			note_staging(&attr->staged_out, &conn->txrings[i]->map);
		if (conn->rxrings[i] && conn->rxrings[i]->in)
			note_staging(&attr->staged_in, &conn->rxrings[i]->map);
	}
}

/* ---- operations ---------------------------------------------------------- */

static void count_message(struct nvl_conn *conn, size_t len)
{
	weft_count(conn->stats, tx_messages, 1);
	weft_count(conn->stats, tx_message_bytes, len);
	weft_count(conn->stats, wire_tx_bytes, len + sizeof(struct nvl_msg));
}

int nvl_ep_message(struct weft_ep *base, uint8_t id, const struct iovec *iov,
		   unsigned int n, struct weft_op *op)
{
	struct nvl_conn *conn = live_conn(base);
	size_t len;
	int err;

	(void)op; /* always copied */
	err = weft_ep_check_message(weft_base_ep(base), iov, n, &len);
	if (err)
		return err;
	weft_iov_copy(nvl_msg_begin(conn, len), iov, n);
	nvl_msg_end(conn, NVL_MSG_USER, id, len);
	count_message(conn, len);
	return 0;
}

ssize_t nvl_ep_message_pack(struct weft_ep *base, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	struct nvl_conn *conn = live_conn(base);
	size_t len;
	int err;

	err = weft_ep_check(weft_base_ep(base), 0, 0);
	if (err)
		return err;
	len = pack(nvl_msg_begin(conn, NVL_MAX_MESSAGE), arg);
	nvl_msg_end(conn, NVL_MSG_USER, id, len);
	count_message(conn, len);
	return len;
}

int nvl_ep_put(struct weft_ep *base, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op)
{
	int err = weft_ep_check(weft_base_ep(base), n, 0);
	struct nvl_conn *conn;

	if (err)
		return err;
	conn = live_conn(base);
	/* a notification is the target's to give, in its order */
	if (!notify)
		err = nvl_direct_start(conn, false, iov, n, addr, rkey, op);
	return err ? err : nvl_tx_put(conn, iov, n, addr, rkey, notify, op);
}

int nvl_ep_get(struct weft_ep *base, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey, struct weft_op *op)
{
	int err = weft_ep_check(weft_base_ep(base), n, 0);
	struct nvl_conn *conn;

	if (err)
		return err;
	conn = live_conn(base);
	err = nvl_direct_start(conn, true, iov, n, addr, rkey, op);
	return err ? err : nvl_rx_get(conn, iov, n, addr, rkey, op);
}

void nvl_ep_fence(struct weft_ep *base)
{
	struct nvl_conn *conn = live_conn(base);

	if (!conn)
		return;
	conn->put_fence = conn->put_next;
	conn->direct_fence = conn->direct_next;
}

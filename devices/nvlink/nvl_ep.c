/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's end of a connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/nvlink/nvl_addr.h"
#include "devices/nvlink/nvl_close.h"
#include "devices/nvlink/nvl_copy.h"
#include "devices/nvlink/nvl_dial.h"
#include "devices/nvlink/nvl_ep.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_rx.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/log.h"

/* ---- life ---------------------------------------------------------------- */

static void bind_conn(struct nvl_ep *ep, struct nvl_conn *conn)
{
	ep->conn = conn;
	conn->ep = ep;
	conn->had_ep = true;
	/* on_ready() tells that the endpoint can be used */
	if (conn->state == NVL_CONN_OPEN)
		conn->was_full = true;
}

int nvl_ep_create(struct weft_iface *base, const struct weft_address *remote,
		  void *user, struct weft_ep **out)
{
	struct nvl_iface *iface = nvl_iface(base);
	uint64_t peer_id = weft_key_id(remote->key);
	struct weft_ep_sn *sn;
	struct nvl_conn *conn;
	struct nvl_ep *ep;

	if (!nvl_addr_reaches(iface, remote, NULL))
		return -EHOSTUNREACH;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -ENOMEM;
	sn = weft_ep_sn_get(&iface->sns, peer_id);
	if (!sn) {
		free(ep);
		return -ENOMEM;
	}
	ep->sn = sn->next;
	ep->base.iface = base;
	ep->base.user = user;
	ep->peer_id = peer_id;
	weft_flushes_init(&ep->flushes);
	conn = peer_id == iface->my_id
		       ? NULL
		       : nvl_conn_find(iface, peer_id, ep->sn, remote->key);
	if (!conn) {
		conn = nvl_conn_new(iface, remote, peer_id, ep->sn);
		if (!conn) {
			free(ep);
			return -ENOMEM;
		}
		nvl_conn_dial(conn);
	}
	bind_conn(ep, conn);
	sn->next++;
	weft_ep_sn_hold(&iface->sns, sn);
	ep->numbers = sn;
	weft_list_add_tail(&iface->eps, &ep->link);
	*out = &ep->base;
	return 0;
}

static bool has_pending(struct nvl_ep *ep)
{
	struct nvl_conn *conn = ep->conn;

	return conn->put_acked != conn->put_next || conn->ngets ||
	       ep->flushes.n || !weft_list_empty(&conn->iface->done);
}

/* The endpoint leaves its connection, which may go on for the peer. */
static void unbind_conn(struct nvl_ep *ep, int err)
{
	struct nvl_conn *conn = ep->conn;
	bool pending;

	if (!conn)
		return;
	pending = has_pending(ep);
	/* what a done() asks for is refused */
	ep->err = err;
	ep->conn = NULL;
	if (pending) {
		nvl_conn_stop_copies(conn);
		nvl_conn_drop_ops(conn, ep, -ECANCELED);
	}
	conn->ep = NULL;
	if (conn->state == NVL_CONN_OPEN)
		nvl_conn_maybe_end(conn);
	else
		nvl_conn_break(conn, 0);
}

void nvl_ep_destroy(struct weft_ep *base)
{
	struct nvl_ep *ep = nvl_ep(base);

	unbind_conn(ep, -ECANCELED);
	weft_list_del(&ep->link);
	weft_ep_sn_release(&nvl_iface(base->iface)->sns, ep->numbers);
	free(ep);
}

void nvl_ep_cancel(struct weft_ep *base)
{
	unbind_conn(nvl_ep(base), -ECANCELED);
}

static void note_staging(enum weft_staging *best, const struct nvl_mapping *map)
{
	*best = weft_max(*best, map->kind == NVL_RING_CUDA ? WEFT_STAGING_GPU
							   : WEFT_STAGING_HOST);
}

void nvl_ep_query(struct weft_ep *base, struct weft_ep_attr *attr)
{
	struct nvl_conn *conn = nvl_ep(base)->conn;
	unsigned int i;

	memset(attr, 0, sizeof(*attr));
	if (!conn)
		return;
	attr->connected = conn->state == NVL_CONN_OPEN;
	attr->unsent = conn->later_n || conn->njobs || conn->copies ||
		       !weft_list_empty(&conn->frames_out);
	for (i = 0; i < NVL_RINGS; i++) {
		attr->streams += !!conn->txrings[i];
		if (conn->txrings[i] && conn->txrings[i]->made)
			note_staging(&attr->staged_out, &conn->txrings[i]->map);
		if (conn->rxrings[i] && conn->rxrings[i]->in)
			note_staging(&attr->staged_in, &conn->rxrings[i]->map);
	}
}

/* ---- operations ---------------------------------------------------------- */

bool nvl_ep_ready(struct weft_ep *base)
{
	struct nvl_conn *conn = nvl_ep(base)->conn;

	/* a dead endpoint takes anything: it answers with its error */
	if (!conn || nvl_conn_ready(conn))
		return true;
	conn->was_full = true;
	return false;
}

/* May it take @n entries now, of a message that is @len bytes (else 0)? */
static int check_ready(struct nvl_ep *ep, unsigned int n, size_t len)
{
	if (!ep->conn)
		return ep->err;
	if (n > NVL_MAX_IOV || len > NVL_MAX_MESSAGE)
		return -EMSGSIZE;
	if (nvl_conn_ready(ep->conn))
		return 0;
	ep->conn->was_full = true;
	return -EAGAIN;
}

static void count_message(struct nvl_conn *conn, size_t len)
{
	weft_count(conn->stats, tx_messages, 1);
	weft_count(conn->stats, tx_message_bytes, len);
	weft_count(conn->stats, wire_tx_bytes, len + sizeof(struct nvl_msg));
}

int nvl_ep_message(struct weft_ep *base, uint8_t id, const struct iovec *iov,
		   unsigned int n, struct weft_op *op)
{
	struct nvl_conn *conn = nvl_ep(base)->conn;
	size_t len = 0;
	unsigned int i;
	char *p;
	int err;

	(void)op; /* always copied */
	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	err = check_ready(nvl_ep(base), n, len);
	if (err)
		return err;
	p = nvl_msg_begin(conn, len);
	/* an empty piece may have no address at all */
	for (i = 0; i < n; p += iov[i++].iov_len)
		if (iov[i].iov_len)
			memcpy(p, iov[i].iov_base, iov[i].iov_len);
	nvl_msg_end(conn, NVL_MSG_USER, id, conn->fence, len);
	count_message(conn, len);
	return 0;
}

ssize_t nvl_ep_message_pack(struct weft_ep *base, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	struct nvl_conn *conn = nvl_ep(base)->conn;
	size_t len;
	int err;

	err = check_ready(nvl_ep(base), 0, 0);
	if (err)
		return err;
	len = pack(nvl_msg_begin(conn, NVL_MAX_MESSAGE), arg);
	nvl_msg_end(conn, NVL_MSG_USER, id, conn->fence, len);
	count_message(conn, len);
	return len;
}

int nvl_ep_put(struct weft_ep *base, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op)
{
	int err = check_ready(nvl_ep(base), n, 0);

	return err ? err
		   : nvl_tx_put(nvl_ep(base)->conn, iov, n, addr, rkey, notify,
				op);
}

int nvl_ep_get(struct weft_ep *base, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey, struct weft_op *op)
{
	int err = check_ready(nvl_ep(base), n, 0);

	return err ? err
		   : nvl_rx_get(nvl_ep(base)->conn, iov, n, addr, rkey, op);
}

void nvl_ep_fence(struct weft_ep *base)
{
	struct nvl_conn *conn = nvl_ep(base)->conn;

	if (conn)
		conn->fence = conn->put_next;
}

static bool is_flushed(const struct nvl_conn *conn)
{
	return conn->put_acked == conn->put_next && !conn->ngets;
}

int nvl_ep_flush(struct weft_ep *base, struct weft_op *op)
{
	struct nvl_ep *ep = nvl_ep(base);

	if (!ep->conn)
		return ep->lost ? ep->err : 0;
	if (is_flushed(ep->conn))
		return 0;
	return weft_flushes_add(&ep->flushes, op);
}

unsigned int nvl_ep_check_flush(struct nvl_ep *ep)
{
	if (!ep->conn || !ep->flushes.n || !is_flushed(ep->conn))
		return 0;
	return weft_flushes_end(&ep->flushes, 0);
}

/* ---- ahead of traffic ---------------------------------------------------- */

int nvl_ep_prepare(struct weft_ep *base, struct weft_mem *mem)
{
	struct nvl_ep *ep = nvl_ep(base);
	struct nvl_conn *conn = ep->conn;
	struct nvl_gpu *gpu = NULL;
	unsigned int i;
	int err;

	if (!conn)
		return ep->err;
	if (mem && mem->where.where == WEFT_CUDA_DEVICE) {
		gpu = nvl_gpu_get(conn->iface, &mem->where, &err);
		if (!gpu)
			return err;
	}
	if (conn->state != NVL_CONN_OPEN)
		return -EINPROGRESS;
	err = nvl_ring_offer(conn, NVL_LOC_HOST, true);
	if (err)
		return err;
	/* who is connected to itself prepares one end of the two */
	nvl_ring_ask(conn, NVL_LOC_HOST);
	for (i = 0; i < NVL_RINGS; i++) {
		if (conn->rxrings[i] && gpu)
			nvl_map_reach(&conn->rxrings[i]->map, gpu);
		if (conn->txrings[i] && gpu)
			nvl_map_reach(&conn->txrings[i]->map, gpu);
		if (conn->rxrings[i] &&
		    conn->rxrings[i]->state == NVL_RXRING_OFFERED)
			return -EINPROGRESS;
	}
	return conn->paths[NVL_LOC_HOST].ring == NVL_NO_RING ? -EINPROGRESS : 0;
}

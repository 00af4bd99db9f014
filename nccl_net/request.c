/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends and receives.
 *
 * Both sides count: the n-th send of a comm meets its n-th receive.  A receive
 * is told to the sender (POST: key, address, size); a send puts straight into
 * it, and the put's notification {comm, n} with the true size completes the
 * receive.  A small send goes as a message (EAGER) and waits for nothing.
 *
 * While only small ones come, telling each receive would double the messages:
 * after WEFT_NET_QUIET_AFTER of them the receiver says QUIET, and the sender
 * asks (NEED) when it has something large again, at one round trip.
 *
 * By NVLink a message is no cheaper than a put into GPU memory, and POSTs cost
 * next to nothing: there a send always waits for its receive, and goes as a
 * message if both ends are host memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nccl_net/internal.h"
#include "util/log.h"

void weft_net_request_end(struct weft_net_request *req, int status)
{
	struct weft_net_mr *mr = req->mr;

	weft_list_del(&req->staged);
	req->mr = NULL;
	if (mr)
		weft_net_mr_put(mr);
	req->status = status;
	req->comm->active--;
	atomic_store_explicit(&req->state, REQ_DONE, memory_order_release);
}

struct weft_net_request *weft_net_request_start(struct weft_net_comm *comm,
						size_t size)
{
	struct weft_net_request *req = &comm->req[WEFT_NET_SLOT(comm->seq)];

	req->status = 0;
	req->size = size;
	req->seq = comm->seq++;
	req->calls = comm->net->calls;
	comm->active++;
	atomic_store_explicit(&req->state, REQ_ACTIVE, memory_order_relaxed);
	return req;
}

bool weft_net_slot_free(struct weft_net_comm *comm)
{
	return atomic_load_explicit(&comm->req[WEFT_NET_SLOT(comm->seq)].state,
				    memory_order_acquire) == REQ_FREE;
}

int weft_net_send_seq(struct weft_net_comm *comm, enum weft_net_msg id,
		      uint32_t seq)
{
	struct weft_msg_seq m = { .to = comm->remote_id, .seq = seq };
	uint8_t buf[WEFT_MSG_SEQ_LEN];

	weft_msg_seq_pack(&m, buf);
	return weft_net_peer_send(comm->peer, id, buf, sizeof(buf));
}

void weft_net_comm_push(struct weft_net_comm *comm)
{
	if (comm->err || comm->bye || !comm->answered)
		return;
	if (!comm->sender)
		weft_net_recv_push(comm);
	else if (comm->need &&
		 !weft_net_send_seq(comm, WEFT_MSG_NEED, comm->seq))
		comm->need = false;
}

void weft_net_too_large(struct weft_net_comm *comm, uint32_t seq, uint64_t sent,
			uint64_t posted)
{
	struct weft_msg_too_large m = {
		.to = comm->remote_id, .seq = seq,
		.sent = sent, .posted = posted,
	};
	uint8_t buf[WEFT_MSG_TOO_LARGE_LEN];

	weft_msg_too_large_pack(&m, buf);
	/* Where the wire is full, BYE tells the other side instead. */
	weft_net_peer_send(comm->peer, WEFT_MSG_TOO_LARGE, buf, sizeof(buf));
	weft_net_comm_fail(comm, -EMSGSIZE);
	weft_error("a send of %llu bytes met a receive of %llu bytes; both "
		   "sides fail",
		   (unsigned long long)sent, (unsigned long long)posted);
}

int weft_net_comm_error(struct weft_net_comm *comm)
{
	if (comm->net->closed)
		return -ECANCELED;
	if (comm->err)
		return comm->err;
	return comm->bye ? -ECONNRESET : 0;
}

int weft_net_test(struct weft_net_request *req, bool *done, size_t *size)
{
	struct weft_net *net = req->comm->net;
	int status;

	*done = false;
	if (atomic_load_explicit(&req->state, memory_order_acquire) !=
	    REQ_DONE) {
		pthread_mutex_lock(&net->lock);
		if (net->closed) {
			pthread_mutex_unlock(&net->lock);
			return -ECANCELED;
		}
		weft_net_may_progress(net, &req->calls);
		pthread_mutex_unlock(&net->lock);
		if (atomic_load_explicit(&req->state, memory_order_acquire) !=
		    REQ_DONE)
			return 0;
	}
	/* what is watched leaves nothing behind; a comm keeps its peer for life */
	if (!req->comm->peer->port->kernels_wait) {
		pthread_mutex_lock(&net->lock);
		if (!net->closed && !req->comm->err)
			weft_net_keeper_look(req->comm->peer);
		pthread_mutex_unlock(&net->lock);
	}
	status = req->status;
	*size = req->size;
	*done = true;
	atomic_store_explicit(&req->state, REQ_FREE, memory_order_release);
	return status;
}

/* What comes in. */

static void on_too_large(struct weft_net *net, const void *buf, size_t len)
{
	struct weft_msg_too_large m;
	struct weft_net_comm *comm;

	if (weft_msg_too_large_unpack(buf, len, &m) < 0)
		return;
	comm = weft_net_comm_find(net, m.to);
	if (!comm || comm->err)
		return;
	weft_error("a send of %llu bytes met a receive of %llu bytes; both "
		   "sides fail",
		   (unsigned long long)m.sent, (unsigned long long)m.posted);
	weft_net_comm_fail(comm, -EMSGSIZE);
}

static void on_bye(struct weft_net_comm *comm)
{
	unsigned int i;

	comm->bye = true;
	/* Whatever it had sent is placed: what is still open stays so. */
	for (i = 0; i < WEFT_NET_REQUESTS && !comm->sender; i++)
		if (atomic_load(&comm->req[i].state) == REQ_ACTIVE &&
		    weft_list_empty(&comm->req[i].staged))
			weft_net_request_end(&comm->req[i], -ECONNRESET);
}

void weft_net_on_request(struct weft_net *net, enum weft_net_msg id, void *buf,
			 size_t len)
{
	struct weft_net_comm *comm;
	struct weft_msg_seq m;

	switch (id) {
	case WEFT_MSG_POST:
		weft_net_on_post(net, buf, len);
		return;
	case WEFT_MSG_EAGER:
		weft_net_on_eager(net, buf, len);
		return;
	case WEFT_MSG_TOO_LARGE:
		on_too_large(net, buf, len);
		return;
	default:
		break;
	}
	if (weft_msg_seq_unpack(buf, len, &m) < 0)
		return;
	comm = weft_net_comm_find(net, m.to);
	if (!comm || !comm->answered)
		return;
	if (id == WEFT_MSG_BYE) {
		on_bye(comm);
	} else if (id == WEFT_MSG_SEEN && comm->sender) {
		if ((int32_t)(m.seq - comm->known) > 0)
			comm->known = m.seq;
	} else if (id == WEFT_MSG_QUIET && comm->sender) {
		comm->peer_quiet = true;
	} else if (id == WEFT_MSG_NEED && !comm->sender) {
		comm->quiet = comm->tell_quiet = false;
		comm->small = 0;
		/* Receives that it knows of, as far as they are still open. */
		if (comm->seq - m.seq <= WEFT_NET_REQUESTS)
			comm->told = m.seq;
		weft_net_comm_push(comm);
	}
}


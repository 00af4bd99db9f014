/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives; see request.c for how they meet sends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nccl_net/internal.h"
#include "util/log.h"

/* Not done, and its data has not come (to be copied to the GPU). */
static bool open_for_data(struct weft_net_request *req)
{
	return atomic_load(&req->state) == REQ_ACTIVE &&
	       weft_list_empty(&req->staged);
}

static int send_post(struct weft_net_comm *comm, struct weft_net_request *req)
{
	struct weft_net_mr *mr = req->mr;
	struct weft_msg_post m = {
		.to = comm->remote_id,
		.seq = req->seq,
		.addr = (uintptr_t)(mr->shadow ?
				    weft_net_shadow(mr, req->data) : req->data),
		.size = req->size,
		.gpu = mr->gpu && !mr->shadow,
		.rkey_len = mr->ops->rkey_len,
		.rkey = mr->rkey,
	};

	return weft_net_peer_post(comm->peer, &m);
}

void weft_net_recv_push(struct weft_net_comm *comm)
{
	struct weft_net_request *req;

	if (comm->tell_quiet) {
		if (weft_net_send_seq(comm, WEFT_MSG_QUIET, comm->seq))
			return;
		comm->tell_quiet = false;
	}
	if (comm->quiet)
		comm->told = comm->seq;
	while (comm->told != comm->seq) {
		req = &comm->req[WEFT_NET_SLOT(comm->told)];
		/* Its data came first: there is nothing to tell. */
		if (req->seq == comm->told && open_for_data(req)) {
			if (send_post(comm, req))
				return;
			comm->seen = comm->told + 1;
		}
		comm->told++;
	}
	if (comm->seq - comm->seen >= WEFT_NET_AHEAD / 2 &&
	    !weft_net_send_seq(comm, WEFT_MSG_SEEN, comm->seq))
		comm->seen = comm->seq;
}

/* All its bytes are here, or in its double. */
static void arrived(struct weft_net_request *req)
{
	int ret;

	if (!req->mr->shadow || !req->size) {
		weft_net_request_end(req, 0);
		return;
	}
	ret = weft_net_stage(req, req->data, req->size, true);
	if (ret < 0)
		weft_net_request_end(req, ret);
}

/*
 * NCCL's abort takes memory back under its receives, and frees it: what a peer
 * sent meanwhile has no place any more.
 */
static bool taken_back(struct weft_net_request *req)
{
	if (req->mr->mem)
		return false;
	weft_net_request_end(req, -ECANCELED);
	return true;
}

/* A small receive is complete: @data is copied, or freed from the stash. */
static void recv_small(struct weft_net_comm *comm, struct weft_net_request *req,
		       const void *data, uint32_t size)
{
	if (taken_back(req))
		return;
	if (size > req->size) {
		weft_net_too_large(comm, req->seq, size, req->size);
		return;
	}
	if (size && req->mr->gpu && !req->mr->shadow) {
		weft_net_comm_fail(comm, weft_fail(EPROTO, "a rank sent a "
						   "message into GPU memory"));
		return;
	}
	if (size)
		memcpy(req->mr->shadow ? weft_net_shadow(req->mr, req->data) :
		       req->data, data, size);
	req->size = size;
	arrived(req);
	if (comm->peer->port->kernels_wait)
		return;
	if (comm->quiet || ++comm->small < WEFT_NET_QUIET_AFTER)
		return;
	comm->quiet = comm->tell_quiet = true;
}

int weft_net_recv(struct weft_net_comm *comm, void *data, size_t size,
		  struct weft_net_mr *mr, struct weft_net_request **out)
{
	struct weft_net *net = comm->net;
	struct weft_net_request *req;
	struct weft_net_stash *stash;
	int ret;

	*out = NULL;
	pthread_mutex_lock(&net->lock);
	ret = weft_net_comm_error(comm);
	stash = &comm->stash[WEFT_NET_SLOT(comm->seq)];
	/* What came before its sender closed is still there to be had. */
	if (ret < 0 && !(comm->bye && !comm->err && stash->there))
		goto unlock;
	ret = 0;
	if (!weft_net_slot_free(comm))
		goto unlock;
	if (!mr || !weft_net_mr_covers(mr, data, size)) {
		ret = weft_fail(EINVAL, "a receive of %zu bytes lies outside "
				"its registered memory", size);
		goto unlock;
	}
	req = weft_net_request_start(comm, size);
	req->data = data;
	req->mr = mr;
	mr->posted++;
	if (stash->there) {
		recv_small(comm, req, stash->data, stash->size);
		free(stash->data);
		stash->data = NULL;
		stash->there = false;
	}
	weft_net_comm_push(comm);
	*out = req;
unlock:
	pthread_mutex_unlock(&net->lock);
	return ret;
}

void weft_net_on_eager(struct weft_net *net, uint8_t *buf, size_t len)
{
	struct weft_net_comm *comm;
	struct weft_net_request *req;
	struct weft_net_stash *stash;
	struct weft_msg_seq m;

	if (weft_msg_seq_unpack(buf, len, &m) < 0)
		return;
	buf += WEFT_MSG_SEQ_LEN;
	len -= WEFT_MSG_SEQ_LEN;
	comm = weft_net_comm_find(net, m.to);
	if (!comm || comm->sender || comm->err || len > comm->eager)
		return;
	req = &comm->req[WEFT_NET_SLOT(m.seq)];
	if (comm->seq - m.seq - 1 < WEFT_NET_REQUESTS) {
		if (req->seq == m.seq && open_for_data(req))
			recv_small(comm, req, buf, len);
		return;
	}
	if (m.seq - comm->seq >= WEFT_NET_REQUESTS)
		return;
	stash = &comm->stash[WEFT_NET_SLOT(m.seq)];
	if (stash->there)
		return;
	stash->data = malloc(len ? len : 1);
	if (!stash->data) {
		weft_net_comm_fail(comm, weft_fail(ENOMEM, "cannot keep %zu "
						   "received bytes", len));
		return;
	}
	memcpy(stash->data, buf, len);
	stash->size = len;
	stash->there = true;
}

void weft_net_on_notify(void *arg, uint64_t tag, uint64_t size)
{
	struct weft_net_port *port = arg;
	struct weft_tag t = weft_tag_unpack(tag);
	struct weft_net_comm *comm = weft_net_comm_tagged(port->net, &t);
	struct weft_net_request *req;

	if (!comm || comm->sender)
		return;
	req = &comm->req[WEFT_NET_SLOT(t.seq)];
	if ((uint8_t)req->seq != t.seq || !open_for_data(req) ||
	    size > req->size)
		return;
	if (taken_back(req))
		return;
	comm->small = 0;
	req->size = size;
	arrived(req);
}

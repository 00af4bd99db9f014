/* SPDX-License-Identifier: BSD-3-Clause */
/* Comms: one direction of one NCCL connection, and its requests. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nccl_net/net/comm.h"
#include "nccl_net/net/context.h"
#include "nccl_net/net/memory.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "nccl_net/net/progress.h"
#include "nccl_net/net/wire.h"
#include "util/clock.h"
#include "util/log.h"

#define COMMS_MAX 65536u
/* How long closing waits for sends under way before it cuts them off. */
#define CLOSE_MS 2000

static int take_slot(struct weft_net *net, struct weft_net_comm *comm)
{
	struct weft_net_comm **grown;
	unsigned int i, size;

	for (i = 0; i < net->comms_size && net->comms[i]; i++)
		;
	if (i == COMMS_MAX)
		return weft_fail(-ENOSPC, "%u connections are open", COMMS_MAX);
	if (i == net->comms_size) {
		size = i ? 2 * i : 16;
		grown = realloc(net->comms, size * sizeof(*grown));
		if (!grown)
			return weft_fail(-ENOMEM, "cannot create a connection");
		memset(grown + i, 0, (size - i) * sizeof(*grown));
		net->comms = grown;
		net->comms_size = size;
	}
	net->comms[i] = comm;
	comm->id = (uint32_t)++net->generation << 16 | i;
	return 0;
}

static struct weft_net_comm *comm_in_slot(const struct weft_net *net,
					  unsigned int i)
{
	return i < net->comms_size ? net->comms[i] : NULL;
}

struct weft_net_comm *weft_net_comm_find(struct weft_net *net, uint32_t id)
{
	struct weft_net_comm *comm = comm_in_slot(net, id & 0xffff);

	return comm && comm->id == id ? comm : NULL;
}

struct weft_net_comm *weft_net_comm_tagged(struct weft_net *net,
					   const struct weft_tag *t)
{
	struct weft_net_comm *comm = comm_in_slot(net, t->slot);

	if (!comm || ((comm->id >> 16) & WEFT_TAG_GENERATIONS) != t->generation)
		return NULL;
	return comm;
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

void weft_net_request_end(struct weft_net_request *req, int status)
{
	struct weft_net_mr *mr = req->mr;

	req->mr = NULL;
	if (mr)
		weft_net_mr_put(mr);
	req->status = status;
	req->comm->active--;
	atomic_store_explicit(&req->state, REQ_DONE, memory_order_release);
}

int weft_net_comm_new(struct weft_net *net, bool sender,
		      struct weft_net_comm **out)
{
	struct weft_net_comm *comm = calloc(1, sizeof(*comm));
	unsigned int i;
	int ret;

	if (!comm)
		return weft_fail(-ENOMEM, "cannot create a connection");
	ret = weft_net_ports_get(net);
	if (ret < 0)
		goto free_comm;
	ret = take_slot(net, comm);
	if (ret < 0)
		goto unuse;
	comm->net = net;
	comm->sender = sender;
	weft_list_init(&comm->link);
	for (i = 0; i < WEFT_NET_REQUESTS; i++)
		comm->req[i].comm = comm;
	*out = comm;
	return 0;

unuse:
	weft_net_ports_put(net);
free_comm:
	free(comm);
	return ret;
}

void weft_net_comm_attach(struct weft_net_comm *comm,
			  struct weft_net_peer *peer)
{
	comm->peer = peer;
	weft_list_del(&comm->link);
	weft_list_add_tail(&peer->comms, &comm->link);
}

void weft_net_comm_free(struct weft_net_comm *comm)
{
	struct weft_net *net = comm->net;
	unsigned int i;

	weft_list_del(&comm->link);
	if (comm->peer)
		weft_net_peer_put(comm->peer);
	for (i = 0; i < WEFT_NET_REQUESTS; i++)
		free(comm->early_data[i].data);
	net->comms[comm->id & 0xffff] = NULL;
	free(comm);
	weft_net_ports_put(net);
}

/* The connection, or the other side of it, is gone. */
void weft_net_comm_fail(struct weft_net_comm *comm, int err)
{
	unsigned int i;

	if (comm->err)
		return;
	comm->err = err;
	/* Sends are completed by their device. */
	for (i = 0; i < WEFT_NET_REQUESTS && !comm->sender; i++)
		if (atomic_load(&comm->req[i].state) == REQ_ACTIVE)
			weft_net_request_end(&comm->req[i], err);
}

int weft_net_comm_send_last(struct weft_net_comm *comm)
{
	int ret;

	if (!comm->last_word_len)
		return 0;
	ret = weft_net_peer_send(comm->peer, comm->last_word_id,
				 comm->last_word, comm->last_word_len);
	if (ret != -EAGAIN)
		comm->last_word_len = 0;
	return ret;
}

/* Sent after everything else of @comm. */
static void end_for_peer(struct weft_net_comm *comm,
			 const struct weft_msg_too_large *why)
{
	const struct weft_msg_seq bye = { .to = comm->remote_id };

	if (comm->ended || comm->peer_closed || comm->peer->err)
		return;
	comm->ended = true;
	comm->peer->port->ops->fence(comm->peer->ep);
	if (why) {
		comm->last_word_id = WEFT_MSG_TOO_LARGE;
		comm->last_word_len = WEFT_MSG_TOO_LARGE_LEN;
		weft_msg_too_large_pack(why, comm->last_word);
	} else {
		comm->last_word_id = WEFT_MSG_BYE;
		comm->last_word_len = WEFT_MSG_SEQ_LEN;
		weft_msg_seq_pack(&bye, comm->last_word);
	}
	weft_net_comm_send_last(comm);
}

void weft_net_comm_break(struct weft_net_comm *comm, int err,
			 const struct weft_msg_too_large *why)
{
	weft_net_comm_fail(comm, err);
	end_for_peer(comm, why);
}

/* Nothing may be written to posted receives after this. */
static void revoke_posted(struct weft_net_comm *comm)
{
	struct weft_net_request *req;
	unsigned int i;

	for (i = 0; i < WEFT_NET_REQUESTS; i++) {
		req = &comm->req[i];
		if (atomic_load(&req->state) != REQ_ACTIVE)
			continue;
		weft_net_mr_revoke(req->mr);
		weft_net_request_end(req, -ECANCELED);
	}
}

/*
 * Closing waits, but other comms of the context must not: they get the lock
 * between two rounds of progress.  The comm stays valid meanwhile: NCCL holds
 * it until this call returns.  -ECANCELED: the context was closed.
 */
static int progress_and_yield(struct weft_net *net)
{
	/*
	 * Unlocking is not enough: a thread that sleeps for the lock would not
	 * get it.
	 */
	weft_net_yield(net, weft_net_progress(net) ? 50 : 500);
	return net->closed ? -ECANCELED : 0;
}

/* After this no device uses the comm's memory or requests. */
static int drain_sends(struct weft_net_comm *comm)
{
	const uint64_t deadline = weft_now_ms() + CLOSE_MS;
	struct weft_net_peer *peer = comm->peer;
	int ret = 0;

	while (!ret && comm->active && !peer->err && weft_now_ms() < deadline)
		ret = progress_and_yield(comm->net);
	if (!ret && comm->active && !peer->err) {
		weft_warn(
			"the peer takes no data; closing a connection with %u sends under way ends all connections to it",
			comm->active);
		peer->port->ops->cancel(peer->ep);
		weft_net_peer_fail(peer, -ECANCELED);
	}
	return ret;
}

static int send_close(struct weft_net_comm *comm)
{
	const uint64_t deadline = weft_now_ms() + CLOSE_MS;
	int ret = 0;

	end_for_peer(comm, NULL);
	while (!ret && weft_now_ms() < deadline &&
	       weft_net_comm_send_last(comm) == -EAGAIN)
		ret = progress_and_yield(comm->net);
	return ret;
}

void weft_net_close_comm(struct weft_net_comm *comm)
{
	struct weft_net *net = comm->net;
	int ret;

	if (weft_net_inherited(net))
		return;
	pthread_mutex_lock(&net->lock);
	net->closing++;
	ret = net->closed ? -ECANCELED : 0;
	if (!ret && comm->sender && comm->active)
		ret = drain_sends(comm);
	if (!ret && !comm->sender)
		revoke_posted(comm);
	if (!ret)
		ret = send_close(comm);
	if (!ret)
		weft_net_comm_free(comm);
	weft_net_close_done(net);
	weft_net_unlock(net);
}

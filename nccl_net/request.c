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
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nccl_net/internal.h"
#include "util/log.h"

#define SLOT(seq)	((seq) % WEFT_NET_REQUESTS)

void weft_net_request_end(struct weft_net_request *req, int status)
{
	if (req->mr)
		weft_net_mr_put(req->mr);
	req->mr = NULL;
	req->status = status;
	req->comm->active--;
	atomic_store_explicit(&req->state, REQ_DONE, memory_order_release);
}

static struct weft_net_request *request_start(struct weft_net_comm *comm,
					      size_t size)
{
	struct weft_net_request *req = &comm->req[SLOT(comm->seq)];

	req->status = 0;
	req->size = size;
	req->seq = comm->seq++;
	comm->active++;
	atomic_store_explicit(&req->state, REQ_ACTIVE, memory_order_relaxed);
	return req;
}

static bool slot_free(struct weft_net_comm *comm)
{
	return atomic_load_explicit(&comm->req[SLOT(comm->seq)].state,
				    memory_order_acquire) == REQ_FREE;
}

static int send_seq(struct weft_net_comm *comm, enum weft_net_msg id,
		    uint32_t seq)
{
	struct weft_msg_seq m = { .to = comm->remote_id, .seq = seq };
	uint8_t buf[WEFT_MSG_SEQ_LEN];

	weft_msg_seq_pack(&m, buf);
	return weft_net_peer_send(comm->peer, id, buf, sizeof(buf));
}

static int send_post(struct weft_net_comm *comm, struct weft_net_request *req)
{
	struct weft_msg_post m = {
		.to = comm->remote_id,
		.seq = req->seq,
		.addr = (uintptr_t)req->data,
		.size = req->size,
		.rkey = req->mr->rkey,
	};
	uint8_t buf[WEFT_MSG_POST_LEN];

	weft_msg_post_pack(&m, buf);
	return weft_net_peer_send(comm->peer, WEFT_MSG_POST, buf, sizeof(buf));
}

static void push_receiver(struct weft_net_comm *comm)
{
	struct weft_net_request *req;

	if (comm->tell_quiet) {
		if (send_seq(comm, WEFT_MSG_QUIET, comm->seq))
			return;
		comm->tell_quiet = false;
	}
	if (comm->quiet)
		comm->told = comm->seq;
	while (comm->told != comm->seq) {
		req = &comm->req[SLOT(comm->told)];
		/* Its data came first: there is nothing to tell. */
		if (req->seq == comm->told &&
		    atomic_load(&req->state) == REQ_ACTIVE) {
			if (send_post(comm, req))
				return;
			comm->seen = comm->told + 1;
		}
		comm->told++;
	}
	if (comm->seq - comm->seen >= WEFT_NET_AHEAD / 2 &&
	    !send_seq(comm, WEFT_MSG_SEEN, comm->seq))
		comm->seen = comm->seq;
}

void weft_net_comm_push(struct weft_net_comm *comm)
{
	if (comm->err || comm->bye || !comm->answered)
		return;
	if (!comm->sender)
		push_receiver(comm);
	else if (comm->need && !send_seq(comm, WEFT_MSG_NEED, comm->seq))
		comm->need = false;
}

static void too_large(struct weft_net_comm *comm, uint32_t seq, uint64_t sent,
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

static int send_eager(struct weft_net_comm *comm, const void *data, size_t size)
{
	struct weft_msg_seq m = { .to = comm->remote_id, .seq = comm->seq };
	uint8_t head[WEFT_MSG_SEQ_LEN];
	struct iovec iov[2] = {
		{ head, sizeof(head) }, { (void *)data, size },
	};

	weft_msg_seq_pack(&m, head);
	return comm->peer->port->ops->message(comm->peer->ep, WEFT_MSG_EAGER,
					      iov, size ? 2 : 1, NULL);
}

static int send_put(struct weft_net_comm *comm, const void *data, size_t size,
		    struct weft_net_post *post)
{
	struct weft_net_request *req = &comm->req[SLOT(comm->seq)];
	struct weft_notify notify = {
		.tag = weft_tag_pack(comm->remote_id, comm->seq),
	};
	struct iovec iov = { (void *)data, size };

	return comm->peer->port->ops->put(comm->peer->ep, &iov, size ? 1 : 0,
					  post->addr, &post->rkey, &notify,
					  &req->op);
}

/* May the next send run ahead of its receive? */
static bool may_run_ahead(struct weft_net_comm *comm)
{
	return (int32_t)(comm->seq - comm->known) < (int32_t)WEFT_NET_AHEAD;
}

static int comm_error(struct weft_net_comm *comm)
{
	if (comm->net->closed)
		return -ECANCELED;
	if (comm->err)
		return comm->err;
	return comm->bye ? -ECONNRESET : 0;
}

/* -EAGAIN: not now; 0 with *@out set, else an error. */
static int try_send(struct weft_net_comm *comm, const void *data, size_t size,
		    struct weft_net_request **out)
{
	struct weft_net_post *post = &comm->post[SLOT(comm->seq)];
	struct weft_net_request *req;
	const bool posted = post->there && post->seq == comm->seq;
	int ret;

	ret = comm_error(comm);
	if (ret < 0)
		return ret;
	if (!slot_free(comm))
		return -EAGAIN;
	if (posted && size > post->size) {
		too_large(comm, comm->seq, size, post->size);
		return -EMSGSIZE;
	}
	if (size <= comm->eager && (posted || may_run_ahead(comm))) {
		ret = send_eager(comm, data, size);
		if (ret < 0)
			return ret;
		post->there = false;
		req = request_start(comm, size);
		weft_net_request_end(req, 0);
		*out = req;
		return 0;
	}
	if (!posted) {
		if (comm->peer_quiet) {
			comm->peer_quiet = false;
			comm->need = true;
			weft_net_comm_push(comm);
		}
		return -EAGAIN;
	}
	ret = send_put(comm, data, size, post);
	if (ret != -EINPROGRESS)
		return ret;
	post->there = false;
	*out = request_start(comm, size);
	return 0;
}

int weft_net_send(struct weft_net_comm *comm, const void *data, size_t size,
		  struct weft_net_mr *mr, struct weft_net_request **out)
{
	struct weft_net *net = comm->net;
	int ret;

	(void)mr;
	*out = NULL;
	pthread_mutex_lock(&net->lock);
	ret = try_send(comm, data, size, out);
	if (ret == -EAGAIN) {
		weft_net_progress(net);
		ret = try_send(comm, data, size, out);
	}
	pthread_mutex_unlock(&net->lock);
	return ret == -EAGAIN ? 0 : ret;
}

/* A small receive is complete: @data is copied, or freed from the stash. */
static void recv_small(struct weft_net_comm *comm, struct weft_net_request *req,
		       const void *data, uint32_t size)
{
	if (size > req->size) {
		too_large(comm, req->seq, size, req->size);
		return;
	}
	if (size)
		memcpy(req->data, data, size);
	req->size = size;
	weft_net_request_end(req, 0);
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
	ret = comm_error(comm);
	stash = &comm->stash[SLOT(comm->seq)];
	/* What came before its sender closed is still there to be had. */
	if (ret < 0 && !(comm->bye && !comm->err && stash->there))
		goto unlock;
	ret = 0;
	if (!slot_free(comm))
		goto unlock;
	if (!mr || !mr->mem || (uintptr_t)data < mr->addr ||
	    size > mr->size || (uintptr_t)data - mr->addr > mr->size - size) {
		ret = weft_fail(EINVAL, "a receive of %zu bytes lies outside "
				"its registered memory", size);
		goto unlock;
	}
	req = request_start(comm, size);
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
		weft_net_progress(net);
		pthread_mutex_unlock(&net->lock);
		if (atomic_load_explicit(&req->state, memory_order_acquire) !=
		    REQ_DONE)
			return 0;
	}
	pthread_mutex_lock(&net->lock);
	if (!net->closed && !req->comm->err)
		weft_net_keeper_look(req->comm->peer);
	pthread_mutex_unlock(&net->lock);
	status = req->status;
	*size = req->size;
	*done = true;
	atomic_store_explicit(&req->state, REQ_FREE, memory_order_release);
	return status;
}

/* What comes in. */

static void on_post(struct weft_net *net, const void *buf, size_t len)
{
	struct weft_net_comm *comm;
	struct weft_net_post *post;
	struct weft_msg_post m;

	if (weft_msg_post_unpack(buf, len, &m) < 0)
		return;
	comm = weft_net_comm_find(net, m.to);
	if (!comm || !comm->sender || !comm->answered)
		return;
	if ((int32_t)(m.seq + 1 - comm->known) > 0)
		comm->known = m.seq + 1;
	/* Its send has gone as a message already, or is too far off. */
	if (m.seq - comm->seq >= WEFT_NET_REQUESTS)
		return;
	post = &comm->post[SLOT(m.seq)];
	post->addr = m.addr;
	post->size = m.size;
	post->rkey = m.rkey;
	post->seq = m.seq;
	post->there = true;
}

static void on_eager(struct weft_net *net, uint8_t *buf, size_t len)
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
	req = &comm->req[SLOT(m.seq)];
	if (comm->seq - m.seq - 1 < WEFT_NET_REQUESTS) {
		if (req->seq == m.seq && atomic_load(&req->state) == REQ_ACTIVE)
			recv_small(comm, req, buf, len);
		return;
	}
	if (m.seq - comm->seq >= WEFT_NET_REQUESTS)
		return;
	stash = &comm->stash[SLOT(m.seq)];
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
		if (atomic_load(&comm->req[i].state) == REQ_ACTIVE)
			weft_net_request_end(&comm->req[i], -ECONNRESET);
}

void weft_net_on_request(struct weft_net *net, enum weft_net_msg id, void *buf,
			 size_t len)
{
	struct weft_net_comm *comm;
	struct weft_msg_seq m;

	switch (id) {
	case WEFT_MSG_POST:
		on_post(net, buf, len);
		return;
	case WEFT_MSG_EAGER:
		on_eager(net, buf, len);
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

void weft_net_on_notify(void *arg, uint64_t tag, uint64_t size)
{
	struct weft_net_port *port = arg;
	struct weft_msg_seq m = weft_tag_unpack(tag);
	struct weft_net_comm *comm = weft_net_comm_find(port->net, m.to);
	struct weft_net_request *req;

	if (!comm || comm->sender)
		return;
	req = &comm->req[SLOT(m.seq)];
	if (req->seq != m.seq || atomic_load(&req->state) != REQ_ACTIVE ||
	    size > req->size)
		return;
	comm->small = 0;
	req->size = size;
	weft_net_request_end(req, 0);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends and receives.
 *
 * Both sides count: the n-th send of a comm meets its n-th receive.  The
 * receiver announces each receive (POST: key, address, size); a send puts
 * straight into it, and the put's notification {comm, n} with the true size
 * completes it.  A small send goes as a message (EAGER) and waits for nothing.
 *
 * While only small ones come, POSTs would double the messages: after
 * WEFT_NET_QUIET_AFTER of them the receiver sends QUIET, and the sender sends
 * NEED when it has something large again, at one round trip.
 */
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
#include "nccl_net/net/xfer.h"
#include "util/log.h"
#include "util/util.h"

static bool slot_free(struct weft_net_comm *comm)
{
	return atomic_load_explicit(&comm->req[WEFT_NET_SLOT(comm->seq)].state,
				    memory_order_acquire) == REQ_FREE;
}

static int comm_error(struct weft_net_comm *comm)
{
	if (comm->net->closed)
		return -ECANCELED;
	/* unless it closed first, as a rank does that has finished */
	if (comm->err && comm->err == comm->peer->err && !comm->peer_closed)
		weft_net_peer_log_lost(comm->peer, 0);
	if (comm->err)
		return comm->err;
	return comm->peer_closed ? -ECONNRESET : 0;
}

static int send_seq(struct weft_net_comm *comm, enum weft_net_msg id,
		    uint32_t seq)
{
	struct weft_msg_seq m = { .to = comm->remote_id, .seq = seq };
	uint8_t buf[WEFT_MSG_SEQ_LEN];

	weft_msg_seq_pack(&m, buf);
	return weft_net_peer_send(comm->peer, id, buf, sizeof(buf));
}

/* @found: the receiver has detected it, after the send completed. */
static void log_too_large(const struct weft_msg_too_large *m, bool found)
{
	weft_error("a send of %llu bytes met a receive of %llu bytes; %s",
		   (unsigned long long)m->sent, (unsigned long long)m->posted,
		   found ? "the receive fails, and all that follows the send"
			 : "both fail");
}

static void too_large(struct weft_net_comm *comm, uint32_t seq, uint64_t sent,
		      uint64_t posted)
{
	const struct weft_msg_too_large m = {
		.to = comm->remote_id,
		.seq = seq,
		.sent = sent,
		.posted = posted,
	};

	weft_net_comm_break(comm, -EMSGSIZE, &m);
	log_too_large(&m, !comm->sender);
}

/* Messages that a comm still has to send. */

static bool is_active(struct weft_net_request *req)
{
	return atomic_load(&req->state) == REQ_ACTIVE;
}

static int send_post(struct weft_net_comm *comm, struct weft_net_request *req)
{
	struct weft_net_mr *mr = req->mr;
	struct weft_msg_post m = {
		.to = comm->remote_id,
		.seq = req->seq,
		.addr = (uintptr_t)req->data,
		.size = req->size,
		.rkey_len = mr->ops->rkey_len,
		.rkey = mr->rkey,
	};

	return weft_net_peer_post(comm->peer, &m);
}

static void announce_receives(struct weft_net_comm *comm)
{
	struct weft_net_request *req;

	if (comm->announce_eager) {
		if (send_seq(comm, WEFT_MSG_QUIET, comm->seq))
			return;
		comm->announce_eager = false;
	}
	if (comm->eager_only)
		comm->announced_seq = comm->seq;
	while (comm->announced_seq != comm->seq) {
		req = &comm->req[WEFT_NET_SLOT(comm->announced_seq)];
		/* not if its data came before the POST was sent */
		if (req->seq == comm->announced_seq && is_active(req)) {
			if (send_post(comm, req))
				return;
			comm->acked_seq = comm->announced_seq + 1;
		}
		comm->announced_seq++;
	}
	if (comm->seq - comm->acked_seq >= WEFT_NET_AHEAD / 2 &&
	    !send_seq(comm, WEFT_MSG_SEEN, comm->seq))
		comm->acked_seq = comm->seq;
}

void weft_net_comm_push(struct weft_net_comm *comm)
{
	if (comm->last_word_len)
		weft_net_comm_send_last(comm);
	if (comm->err || comm->peer_closed || !comm->answered)
		return;
	if (!comm->sender)
		announce_receives(comm);
	else if (comm->post_wanted && !send_seq(comm, WEFT_MSG_NEED, comm->seq))
		comm->post_wanted = false;
}

/* Sends. */

static void put_done(struct weft_op *op, int status)
{
	struct weft_net_request *req =
		container_of(op, struct weft_net_request, op);

	/* The key was revoked with its registration, as the receiver closed. */
	if (status == -EACCES && req->comm->peer_closed)
		status = -ECONNRESET;
	else if (status == -EACCES)
		weft_error(
			"a send of %zu bytes failed: its memory, or its receive's, cannot be accessed (any more)",
			req->size);
	if (status < 0) /* which ends the connection */
		req->comm->peer->failed_puts++;
	weft_net_request_end(req, status);
}

/* 0: it has gone; -errno. */
static int send_eager(struct weft_net_comm *comm, const void *data, size_t size)
{
	struct weft_msg_seq m = { .to = comm->remote_id, .seq = comm->seq };
	uint8_t head[WEFT_MSG_SEQ_LEN];
	struct iovec iov[2] = {
		{ head, sizeof(head) },
		{ (void *)data, size },
	};

	weft_msg_seq_pack(&m, head);
	return comm->peer->port->ops->message(comm->peer->ep, WEFT_MSG_EAGER,
					      iov, size ? 2 : 1);
}

/* -EINPROGRESS: put_done() will be called; another -errno. */
static int send_put(struct weft_net_comm *comm,
		    const struct weft_net_post *post, const void *data,
		    size_t size, struct weft_mem *mem)
{
	struct weft_net_request *req = &comm->req[WEFT_NET_SLOT(comm->seq)];
	struct weft_net_peer *peer = comm->peer;
	struct weft_notify notify = {
		.tag = weft_tag_pack(comm->remote_id, comm->seq),
	};
	struct weft_iov iov = { (void *)data, size, mem };

	req->op.done = put_done;
	return peer->port->ops->put(peer->ep, &iov, size ? 1 : 0, post->addr,
				    post->rkey, &notify, &req->op);
}

/* The receive that the next send meets; NULL: not known. */
static struct weft_net_post *next_post(struct weft_net_comm *comm)
{
	struct weft_net_post *post = &comm->post[WEFT_NET_SLOT(comm->seq)];

	return post->valid && post->seq == comm->seq ? post : NULL;
}

/*
 * Small, and (unless its receive is known) not so far ahead that the receiver
 * would have to keep too many.
 */
static bool may_send_eager(const struct weft_net_comm *comm, size_t size,
			   const struct weft_net_post *post)
{
	return size <= comm->eager &&
	       (post || (int32_t)(comm->seq - comm->posted_seq) <
				(int32_t)WEFT_NET_AHEAD);
}

/* The receiver has to say where; -EAGAIN. */
static int await_post(struct weft_net_comm *comm)
{
	if (comm->peer_eager_only) {
		comm->peer_eager_only = false;
		comm->post_wanted = true;
	}
	weft_net_comm_push(comm);
	return -EAGAIN;
}

/* -EAGAIN: not now; 0 with *@out set, else an error. */
static int try_send(struct weft_net_comm *comm, const void *data, size_t size,
		    struct weft_net_mr *mr, struct weft_net_request **out)
{
	struct weft_net_post *post = next_post(comm);
	int ret = comm_error(comm);

	if (ret)
		return ret;
	if (!slot_free(comm))
		return -EAGAIN;
	if (post && size > post->size) {
		too_large(comm, comm->seq, size, post->size);
		return -EMSGSIZE;
	}
	if (may_send_eager(comm, size, post))
		ret = send_eager(comm, data, size);
	else if (post)
		ret = send_put(comm, post, data, size, mr ? mr->mem : NULL);
	else
		ret = await_post(comm);
	if (ret && ret != -EINPROGRESS)
		return ret;
	if (post)
		post->valid = false;
	*out = weft_net_request_start(comm, size);
	if (!ret)
		weft_net_request_end(*out, 0);
	return 0;
}

/* If a call fails, the other side must not wait for its request. */
static void end_refused(struct weft_net_comm *comm, int ret)
{
	if (ret < 0 && ret != -EAGAIN && !comm->net->closed)
		weft_net_comm_break(comm, ret, NULL);
}

int weft_net_send(struct weft_net_comm *comm, const void *data, size_t size,
		  struct weft_net_mr *mr, struct weft_net_request **out)
{
	struct weft_net *net = comm->net;
	int ret;

	*out = NULL;
	if (weft_net_inherited(net))
		return -ECANCELED;
	pthread_mutex_lock(&net->lock);
	ret = try_send(comm, data, size, mr, out);
	if (ret == -EAGAIN && weft_net_may_progress(net, &comm->calls))
		ret = try_send(comm, data, size, mr, out);
	end_refused(comm, ret);
	pthread_mutex_unlock(&net->lock);
	return ret == -EAGAIN ? 0 : ret;
}

/* Receives. */

/*
 * NCCL's abort deregisters and frees the memory of posted receives: drop what a
 * peer sent meanwhile.
 */
static bool cancel_post(struct weft_net_request *req)
{
	if (req->mr->mem)
		return false;
	weft_net_request_end(req, -ECANCELED);
	return true;
}

/* The data of a small receive has come; @data stays the caller's. */
static void receive_small(struct weft_net_comm *comm,
			  struct weft_net_request *req, const void *data,
			  uint32_t size)
{
	if (cancel_post(req))
		return;
	if (size > req->size) {
		weft_net_request_end(req, -EMSGSIZE);
		too_large(comm, req->seq, size, req->size);
		return;
	}
	if (size)
		weft_copy(req->data, data, size);
	req->size = size;
	weft_net_request_end(req, 0);
	if (comm->eager_only || ++comm->small < WEFT_NET_QUIET_AFTER)
		return;
	comm->eager_only = comm->announce_eager = true;
}

/* Data that arrived before the sender closed or died are delivered. */
static bool is_early_data_good(const struct weft_net_comm *comm)
{
	return !comm->net->closed &&
	       (!comm->err || comm->err == comm->peer->err);
}

int weft_net_recv(struct weft_net_comm *comm, void *data, size_t size,
		  struct weft_net_mr *mr, struct weft_net_request **out)
{
	struct weft_net *net = comm->net;
	struct weft_net_request *req;
	struct weft_net_early_data *early_data;
	int ret = 0;

	*out = NULL;
	if (weft_net_inherited(net))
		return -ECANCELED;
	pthread_mutex_lock(&net->lock);
	early_data = &comm->early_data[WEFT_NET_SLOT(comm->seq)];
	if (!early_data->valid || !is_early_data_good(comm))
		ret = comm_error(comm);
	if (ret < 0 || !slot_free(comm))
		goto unlock;
	if (!mr || !weft_net_mr_covers(mr, data, size)) {
		ret = weft_fail(
			-EINVAL,
			"a receive of %zu bytes lies outside its registered memory",
			size);
		goto unlock;
	}
	req = weft_net_request_start(comm, size);
	req->data = data;
	req->mr = mr;
	mr->posted++;
	if (early_data->valid) {
		receive_small(comm, req, early_data->data, early_data->size);
		free(early_data->data);
		early_data->data = NULL;
		early_data->valid = false;
	}
	weft_net_comm_push(comm);
	*out = req;
unlock:
	end_refused(comm, ret);
	pthread_mutex_unlock(&net->lock);
	return ret;
}

int weft_net_test(struct weft_net_request *req, bool *done, size_t *size)
{
	struct weft_net *net = req->comm->net;
	int status;

	*done = false;
	if (weft_net_inherited(net))
		return -ECANCELED;
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
	pthread_mutex_lock(&net->lock);
	if (!net->closed && !req->comm->err)
		weft_net_flusher_start(req->comm->peer);
	pthread_mutex_unlock(&net->lock);
	status = req->status;
	*size = req->size;
	*done = true;
	atomic_store_explicit(&req->state, REQ_FREE, memory_order_release);
	return status;
}

/* What comes in. */

static void on_post(struct weft_net *net, const struct weft_msg_post *m)
{
	struct weft_net_comm *comm = weft_net_comm_find(net, m->to);
	struct weft_net_post *post;

	if (!comm || !comm->sender || !comm->answered ||
	    m->rkey_len != comm->peer->port->ops->rkey_len)
		return;
	if ((int32_t)(m->seq + 1 - comm->posted_seq) > 0)
		comm->posted_seq = m->seq + 1;
	/* Its send was a message already, or is out of range. */
	if (m->seq - comm->seq >= WEFT_NET_REQUESTS)
		return;
	post = &comm->post[WEFT_NET_SLOT(m->seq)];
	post->addr = m->addr;
	post->size = m->size;
	memcpy(post->rkey, m->rkey, m->rkey_len);
	post->seq = m->seq;
	post->valid = true;
}

static void on_posts(struct weft_net *net, const void *buf, size_t len)
{
	const uint8_t *p = buf, *end = p + len;
	struct weft_msg_post m;
	ssize_t n;

	for (; (n = weft_msg_post_unpack(p, end - p, &m)) > 0; p += n)
		on_post(net, &m);
}

static void on_eager(struct weft_net *net, uint8_t *buf, size_t len)
{
	struct weft_net_comm *comm;
	struct weft_net_request *req;
	struct weft_net_early_data *early_data;
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
		if (req->seq == m.seq && is_active(req))
			receive_small(comm, req, buf, len);
		return;
	}
	if (m.seq - comm->seq >= WEFT_NET_REQUESTS)
		return;
	early_data = &comm->early_data[WEFT_NET_SLOT(m.seq)];
	if (early_data->valid)
		return;
	early_data->data = malloc(len ? len : 1);
	if (!early_data->data) {
		weft_net_comm_break(comm,
				    weft_fail(-ENOMEM,
					      "cannot keep %zu received bytes",
					      len),
				    NULL);
		return;
	}
	weft_copy(early_data->data, buf, len);
	early_data->size = len;
	early_data->valid = true;
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
	if ((uint8_t)req->seq != t.seq || !is_active(req) || size > req->size)
		return;
	if (cancel_post(req))
		return;
	comm->small = 0;
	req->size = size;
	weft_net_request_end(req, 0);
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
	log_too_large(&m, comm->sender);
	weft_net_comm_fail(comm, -EMSGSIZE);
}

static void on_close(struct weft_net_comm *comm)
{
	unsigned int i;

	comm->peer_closed = true;
	/*
	 * Everything that it sent has been placed: open receives get no data.
	 */
	for (i = 0; i < WEFT_NET_REQUESTS && !comm->sender; i++)
		if (is_active(&comm->req[i]))
			weft_net_request_end(&comm->req[i], -ECONNRESET);
}

void weft_net_on_request(struct weft_net *net, enum weft_net_msg id, void *buf,
			 size_t len)
{
	struct weft_net_comm *comm;
	struct weft_msg_seq m;

	switch (id) {
	case WEFT_MSG_POST:
		on_posts(net, buf, len);
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
		on_close(comm);
	} else if (id == WEFT_MSG_SEEN && comm->sender) {
		if ((int32_t)(m.seq - comm->posted_seq) > 0)
			comm->posted_seq = m.seq;
	} else if (id == WEFT_MSG_QUIET && comm->sender) {
		comm->peer_eager_only = true;
	} else if (id == WEFT_MSG_NEED && !comm->sender) {
		comm->eager_only = comm->announce_eager = false;
		comm->small = 0;
		/*
		 * Announce receives from that one on, if they are still open.
		 */
		if (comm->seq - m.seq <= WEFT_NET_REQUESTS)
			comm->announced_seq = m.seq;
		weft_net_comm_push(comm);
	}
}

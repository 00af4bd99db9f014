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
#include "nccl_net/bounce.h"
#include "nccl_net/comm.h"
#include "nccl_net/context.h"
#include "nccl_net/memory.h"
#include "nccl_net/peer.h"
#include "nccl_net/ports.h"
#include "nccl_net/progress.h"
#include "nccl_net/wire.h"
#include "nccl_net/xfer.h"
#include "util/log.h"

static bool slot_free(struct weft_net_comm *comm)
{
	return atomic_load_explicit(&comm->req[WEFT_NET_SLOT(comm->seq)].state,
				    memory_order_acquire) == REQ_FREE;
}

static int comm_error(struct weft_net_comm *comm)
{
	if (comm->net->closed)
		return -ECANCELED;
	if (comm->err)
		return comm->err;
	return comm->bye ? -ECONNRESET : 0;
}

static int send_seq(struct weft_net_comm *comm, enum weft_net_msg id,
		    uint32_t seq)
{
	struct weft_msg_seq m = { .to = comm->remote_id, .seq = seq };
	uint8_t buf[WEFT_MSG_SEQ_LEN];

	weft_msg_seq_pack(&m, buf);
	return weft_net_peer_send(comm->peer, id, buf, sizeof(buf));
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

/* What a comm owes its peer. */

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

static void recv_push(struct weft_net_comm *comm)
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
	    !send_seq(comm, WEFT_MSG_SEEN, comm->seq))
		comm->seen = comm->seq;
}

void weft_net_comm_push(struct weft_net_comm *comm)
{
	if (comm->err || comm->bye || !comm->answered)
		return;
	if (!comm->sender)
		recv_push(comm);
	else if (comm->need &&
		 !send_seq(comm, WEFT_MSG_NEED, comm->seq))
		comm->need = false;
}

/* Sends. */

static void put_done(struct weft_op *op, int status)
{
	struct weft_net_request *req =
		container_of(op, struct weft_net_request, op);

	/* The key went with its registration, that is with the receiver. */
	if (status == -EACCES && req->comm->bye)
		status = -ECONNRESET;
	else if (status == -EACCES)
		weft_error("the receiver revoked the memory that a send of %zu "
			   "bytes was going to", req->size);
	else if (status < 0)
		req->comm->peer->cut++;
	weft_net_request_end(req, status);
}

static int send_eager(struct weft_net_comm *comm, uint32_t seq,
		      const void *data, size_t size)
{
	struct weft_msg_seq m = { .to = comm->remote_id, .seq = seq };
	uint8_t head[WEFT_MSG_SEQ_LEN];
	struct iovec iov[2] = {
		{ head, sizeof(head) }, { (void *)data, size },
	};

	weft_msg_seq_pack(&m, head);
	return comm->peer->port->ops->message(comm->peer->ep, WEFT_MSG_EAGER,
					      iov, size ? 2 : 1, NULL);
}

static int send_put(struct weft_net_comm *comm, uint32_t seq, const void *data,
		    size_t size, struct weft_mem *mem)
{
	struct weft_net_request *req = &comm->req[WEFT_NET_SLOT(seq)];
	struct weft_net_post *post = &comm->post[WEFT_NET_SLOT(seq)];
	struct weft_net_peer *peer = comm->peer;
	struct weft_notify notify = {
		.tag = weft_tag_pack(comm->remote_id, seq),
	};
	struct weft_iov iov = { (void *)data, size, mem };

	req->op.done = put_done;
	return peer->port->ops->put(peer->ep, &iov, size ? 1 : 0, post->addr,
				    post->rkey, &notify, &req->op);
}

/* May the next send run ahead of its receive? */
static bool may_run_ahead(struct weft_net_comm *comm)
{
	return !comm->peer->port->kernels_wait &&
	       (int32_t)(comm->seq - comm->known) < (int32_t)WEFT_NET_AHEAD;
}

/* May it go as a message, its receive being posted? */
static bool fits_message(struct weft_net_comm *comm, size_t size, bool gpu,
			 const struct weft_net_post *post)
{
	return size <= comm->eager && !gpu && !post->gpu;
}

/* 0: it is with the peer; -EINPROGRESS: its put ends it; -EAGAIN: not now */
static int send_staged(struct weft_net_request *req)
{
	struct weft_net_comm *comm = req->comm;
	struct weft_net_post *post = &comm->post[WEFT_NET_SLOT(req->seq)];
	const void *data = weft_net_shadow(req->mr, req->data);
	int ret;

	ret = comm_error(comm);
	if (ret < 0)
		return ret;
	if (fits_message(comm, req->size, false, post))
		ret = send_eager(comm, req->seq, data, req->size);
	else
		ret = send_put(comm, req->seq, data, req->size, req->mr->mem);
	if (ret != -EAGAIN)
		post->there = false;
	return ret;
}

/* A send's data is in the double; -EAGAIN: to be called again. */
static int send_copied(struct weft_net_request *req, int status)
{
	if (!status)
		status = send_staged(req);
	/* a send that is on its way now ends with its put */
	if (status != -EAGAIN && status != -EINPROGRESS)
		weft_net_request_end(req, status ? status : req->comm->err);
	return status;
}

/*
 * From GPU memory that the wire does not take: its receive is posted, and its
 * double gets it first.
 */
static int send_by_double(struct weft_net_comm *comm, const void *data,
			  size_t size, struct weft_net_mr *mr,
			  struct weft_net_request **out)
{
	struct weft_net_request *req = weft_net_request_start(comm, size);
	int ret;

	req->data = (void *)data;
	req->mr = mr;
	mr->posted++;
	ret = weft_net_stage(req, data, size, false, send_copied);
	if (ret < 0)
		weft_net_request_end(req, ret);
	*out = req;
	return 0;
}

/* -EAGAIN: not now; 0 with *@out set, else an error. */
static int try_send(struct weft_net_comm *comm, const void *data, size_t size,
		    struct weft_net_mr *mr, struct weft_net_request **out)
{
	const bool gpu = mr && mr->gpu;
	struct weft_net_post *post = &comm->post[WEFT_NET_SLOT(comm->seq)];
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
	if (gpu && !weft_net_mr_covers(mr, data, size))
		return weft_fail(EINVAL, "a send of %zu bytes lies outside its "
				 "registered memory", size);
	if (posted && mr && mr->shadow)
		return send_by_double(comm, data, size, mr, out);
	if (posted ? fits_message(comm, size, gpu, post) :
	    !gpu && size <= comm->eager && may_run_ahead(comm)) {
		ret = send_eager(comm, comm->seq, data, size);
		if (ret < 0)
			return ret;
		post->there = false;
		req = weft_net_request_start(comm, size);
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
	ret = send_put(comm, comm->seq, data, size, mr ? mr->mem : NULL);
	if (ret != -EINPROGRESS)
		return ret;
	post->there = false;
	*out = weft_net_request_start(comm, size);
	return 0;
}

int weft_net_send(struct weft_net_comm *comm, const void *data, size_t size,
		  struct weft_net_mr *mr, struct weft_net_request **out)
{
	struct weft_net *net = comm->net;
	int ret;

	*out = NULL;
	pthread_mutex_lock(&net->lock);
	ret = try_send(comm, data, size, mr, out);
	if (ret == -EAGAIN && weft_net_may_progress(net, &comm->calls))
		ret = try_send(comm, data, size, mr, out);
	pthread_mutex_unlock(&net->lock);
	return ret == -EAGAIN ? 0 : ret;
}

/* Receives. */

/* A receive's data is in GPU memory. */
static int recv_copied(struct weft_net_request *req, int status)
{
	weft_net_request_end(req, status ? status : req->comm->err);
	return 0;
}

/* All its bytes are here, or in its double. */
static void arrived(struct weft_net_request *req)
{
	int ret;

	if (!req->mr->shadow || !req->size) {
		weft_net_request_end(req, 0);
		return;
	}
	ret = weft_net_stage(req, req->data, req->size, true,
			     recv_copied);
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
		too_large(comm, req->seq, size, req->size);
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
	ret = comm_error(comm);
	stash = &comm->stash[WEFT_NET_SLOT(comm->seq)];
	/* What came before its sender closed is still there to be had. */
	if (ret < 0 && !(comm->bye && !comm->err && stash->there))
		goto unlock;
	ret = 0;
	if (!slot_free(comm))
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

static void on_post(struct weft_net *net, const struct weft_msg_post *m)
{
	struct weft_net_comm *comm = weft_net_comm_find(net, m->to);
	struct weft_net_post *post;

	if (!comm || !comm->sender || !comm->answered ||
	    m->rkey_len != comm->peer->port->ops->rkey_len)
		return;
	if ((int32_t)(m->seq + 1 - comm->known) > 0)
		comm->known = m->seq + 1;
	/* Its send has gone as a message already, or is too far off. */
	if (m->seq - comm->seq >= WEFT_NET_REQUESTS)
		return;
	post = &comm->post[WEFT_NET_SLOT(m->seq)];
	post->addr = m->addr;
	post->size = m->size;
	memcpy(post->rkey, m->rkey, m->rkey_len);
	post->gpu = m->gpu;
	post->seq = m->seq;
	post->there = true;
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

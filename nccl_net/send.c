/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends; see request.c for how they meet receives. */
#include <errno.h>
#include <string.h>
#include "nccl_net/internal.h"
#include "util/log.h"

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
	ret = weft_net_stage(req, data, size, false);
	if (ret < 0)
		weft_net_request_end(req, ret);
	*out = req;
	return 0;
}

/* 0: it is with the peer; -EINPROGRESS: its put ends it; -EAGAIN: not now */
int weft_net_send_staged(struct weft_net_request *req)
{
	struct weft_net_comm *comm = req->comm;
	struct weft_net_post *post = &comm->post[WEFT_NET_SLOT(req->seq)];
	const void *data = weft_net_shadow(req->mr, req->data);
	int ret;

	ret = weft_net_comm_error(comm);
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

/* -EAGAIN: not now; 0 with *@out set, else an error. */
static int try_send(struct weft_net_comm *comm, const void *data, size_t size,
		    struct weft_net_mr *mr, struct weft_net_request **out)
{
	const bool gpu = mr && mr->gpu;
	struct weft_net_post *post = &comm->post[WEFT_NET_SLOT(comm->seq)];
	struct weft_net_request *req;
	const bool posted = post->there && post->seq == comm->seq;
	int ret;

	ret = weft_net_comm_error(comm);
	if (ret < 0)
		return ret;
	if (!weft_net_slot_free(comm))
		return -EAGAIN;
	if (posted && size > post->size) {
		weft_net_too_large(comm, comm->seq, size, post->size);
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

void weft_net_on_post(struct weft_net *net, const void *buf, size_t len)
{
	const uint8_t *p = buf, *end = p + len;
	struct weft_msg_post m;
	ssize_t n;

	for (; (n = weft_msg_post_unpack(p, end - p, &m)) > 0; p += n)
		on_post(net, &m);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening and accepting; connect.c connects. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nccl_net/net/accept.h"
#include "nccl_net/common/channels.h"
#include "nccl_net/net/comm.h"
#include "nccl_net/net/connect.h"
#include "nccl_net/net/context.h"
#include "nccl_net/net/devlist.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "nccl_net/net/progress.h"
#include "nccl_net/net/wire.h"
#include "util/log.h"

/* More connections than this waiting at one listener are refused. */
#define QUEUE_MAX 4096

static void add_path(struct weft_handle *h, const struct weft_net_port *port)
{
	if (h->n == WEFT_PATHS_MAX)
		return;
	h->wire[h->n] = port->wire;
	h->path[h->n++] = port->attr.addr;
}

/*
 * The paths to @dev, which the other side tries in its own order (connect.c).
 * There is room for three: one over TCP comes before one over InfiniBand, since
 * it is the only one for some peers.
 */
static void add_paths(struct weft_net *net, int dev, struct weft_handle *h)
{
	struct weft_net_port *hca = weft_net_hca_port(net, dev), *port, *tmp;

	weft_list_for_each (port, tmp, &net->ports, link) {
		if (port->wire != WEFT_WIRE_TCP)
			continue;
		add_path(h, port);
		if (hca)
			add_path(h, hca);
		hca = NULL;
	}
	if (hca)
		add_path(h, hca);
}

int weft_net_listen(struct weft_net *net, int dev, void *handle,
		    struct weft_net_listener **out)
{
	struct weft_net_listener *l;
	struct weft_handle h = { 0 };
	int ret;

	ret = weft_net_check_device(dev);
	if (ret < 0)
		return ret;
	l = calloc(1, sizeof(*l));
	if (!l)
		return weft_fail(-ENOMEM, "cannot listen");
	ret = weft_net_lock(net);
	if (ret < 0) {
		free(l);
		return ret;
	}
	weft_net_dials_drop_expired(net);
	ret = weft_net_random_token(&l->token);
	if (!ret)
		ret = weft_net_ports_get(net);
	if (ret < 0) {
		weft_net_unlock(net);
		free(l);
		return ret;
	}
	l->net = net;
	weft_list_init(&l->queue);
	weft_list_add_tail(&net->listeners, &l->link);
	h.token = l->token;
	add_paths(net, dev, &h);
	h.channels = weft_nccl_channels_set();
	h.buffer = weft_nccl_buffer_set();
	weft_handle_pack(&h, handle);
	pthread_mutex_unlock(&net->lock);
	*out = l;
	return 0;
}

static void send_refuse(struct weft_net_peer *peer, uint64_t token, uint32_t to,
			uint8_t path)
{
	const struct weft_msg_accept m = {
		.token = token,
		.to = to,
		.path = path,
	};
	uint8_t buf[WEFT_MSG_ACCEPT_LEN];

	weft_msg_accept_pack(&m, buf);
	/* If it cannot be sent, the other side fails at its deadline. */
	weft_net_peer_send(peer, WEFT_MSG_REFUSE, buf, sizeof(buf));
}

void weft_net_close_listener(struct weft_net_listener *l)
{
	struct weft_net *net = l->net;
	struct weft_net_comm *comm, *tmp;

	if (weft_net_inherited(net) || weft_net_lock(net) < 0)
		return;
	weft_net_dials_drop_expired(net);
	weft_list_for_each (comm, tmp, &l->queue, link) {
		send_refuse(comm->peer, comm->token, comm->remote_id,
			    comm->path);
		weft_net_comm_free(comm);
	}
	weft_list_del(&l->link);
	free(l);
	weft_net_ports_put(net);
	weft_net_unlock(net);
}

static struct weft_net_listener *find_listener(struct weft_net *net,
					       uint64_t token)
{
	struct weft_net_listener *l, *tmp;

	weft_list_for_each (l, tmp, &net->listeners, link)
		if (l->token == token)
			return l;
	return NULL;
}

/*
 * The same comm asks over each path it tries; the first to arrive counts,
 * unless that path has failed before it was answered.
 */
static bool is_token_known(struct weft_net *net, struct weft_net_listener *l,
			   uint64_t token)
{
	struct weft_net_comm *comm;
	unsigned int i;

	for (i = 0; i < net->comms_size; i++) {
		comm = net->comms[i];
		if (!comm || comm->sender || comm->token != token)
			continue;
		if (!l || comm->answered || !comm->peer->err)
			return true;
		l->queued--;
		weft_net_comm_free(comm);
		return false;
	}
	return false;
}

void weft_net_on_connect(struct weft_net_port *port, const void *buf,
			 size_t len)
{
	struct weft_net *net = port->net;
	struct weft_net_listener *l;
	struct weft_net_comm *comm;
	struct weft_net_peer *peer;
	struct weft_msg_connect m;

	if (weft_msg_connect_unpack(buf, len, &m) < 0) {
		weft_warn("a damaged request to connect was ignored");
		return;
	}
	l = find_listener(net, m.listener);
	if (is_token_known(net, l, m.token))
		return;
	if (weft_net_peer_get(port, &m.from, &peer) < 0)
		return;
	if (!l || l->queued >= QUEUE_MAX ||
	    weft_net_comm_new(net, false, &comm) < 0) {
		send_refuse(peer, m.token, m.id, m.path);
		weft_net_peer_put(peer);
		return;
	}
	comm->peer = peer;
	comm->remote_id = m.id;
	comm->token = m.token;
	comm->path = m.path;
	comm->eager = weft_min(WEFT_NET_EAGER,
			       port->attr.max_message - WEFT_MSG_SEQ_LEN);
	weft_list_add_tail(&l->queue, &comm->link);
	l->queued++;
}

/* The peer that requested the connection has given up before it got it. */
void weft_net_on_withdraw(struct weft_net *net, const void *buf, size_t len)
{
	struct weft_net_comm *comm;
	struct weft_msg_accept m;
	unsigned int i;

	if (weft_msg_accept_unpack(buf, len, &m) < 0)
		return;
	for (i = 0; i < net->comms_size; i++) {
		comm = net->comms[i];
		if (!comm || comm->sender || comm->token != m.token)
			continue;
		if (comm->answered && !comm->err)
			weft_error(
				"a rank gave up its connection before it was accepted");
		weft_net_comm_fail(comm, -ECONNRESET);
	}
}

int weft_net_accept(struct weft_net_listener *l, struct weft_net_comm **out)
{
	struct weft_net *net = l->net;
	struct weft_net_comm *comm;
	struct weft_msg_accept m;
	uint8_t buf[WEFT_MSG_ACCEPT_LEN];
	int ret;

	*out = NULL;
	ret = weft_net_lock(net);
	if (ret < 0)
		return ret;
	if (weft_list_empty(&l->queue))
		weft_net_progress(net);
	if (weft_list_empty(&l->queue))
		goto unlock;
	comm = weft_list_first(&l->queue, struct weft_net_comm, link);
	ret = comm->err ? comm->err : comm->peer->err;
	m = (struct weft_msg_accept){
		.token = comm->token,
		.to = comm->remote_id,
		.id = comm->id,
		.eager = comm->eager,
		.path = comm->path,
	};
	weft_msg_accept_pack(&m, buf);
	if (!ret)
		ret = weft_net_peer_send(comm->peer, WEFT_MSG_ACCEPT, buf,
					 sizeof(buf));
	if (ret == -EAGAIN) {
		weft_net_progress(net);
		ret = 0;
		goto unlock;
	}
	l->queued--;
	if (ret < 0) {
		/*
		 * Do not report a peer that went away while it waited.  A peer
		 * that still exists must not wait for an answer.
		 */
		if (!comm->peer->err && !comm->err) {
			weft_error(
				"a connection is refused: cannot allocate what it needs (%s)",
				strerror(-ret));
			send_refuse(comm->peer, comm->token, comm->remote_id,
				    comm->path);
		}
		weft_net_comm_free(comm);
		ret = 0;
		goto unlock;
	}
	comm->answered = true;
	weft_net_comm_attach(comm, comm->peer);
	weft_net_flusher_start(comm->peer);
	*out = comm;
unlock:
	pthread_mutex_unlock(&net->lock);
	return ret;
}

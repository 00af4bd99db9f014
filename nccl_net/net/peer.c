/* SPDX-License-Identifier: BSD-3-Clause */
/* One endpoint per process at the other end, shared by the comms to it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nccl_net/net/comm.h"
#include "nccl_net/net/context.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "util/log.h"

static void flush_done(struct weft_op *op, int status)
{
	struct weft_net_peer *peer =
		container_of(op, struct weft_net_peer, flushed);

	peer->flushing = false;
}

int weft_net_peer_get(struct weft_net_port *port,
		      const struct weft_address *addr,
		      struct weft_net_peer **out)
{
	struct weft_net_peer *peer, *tmp;
	int ret;

	weft_list_for_each (peer, tmp, &port->peers, link) {
		if (memcmp(peer->addr.key, addr->key, WEFT_KEY_LEN))
			continue;
		peer->refs++;
		*out = peer;
		return 0;
	}
	weft_list_for_each (peer, tmp, &port->closing, link) {
		if (peer->err ||
		    memcmp(peer->addr.key, addr->key, WEFT_KEY_LEN))
			continue;
		weft_list_del(&peer->link);
		weft_list_add_tail(&port->peers, &peer->link);
		peer->refs++;
		*out = peer;
		return 0;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return weft_fail(-ENOMEM, "cannot create a peer");
	peer->port = port;
	peer->addr = *addr;
	peer->refs = 1;
	peer->flushed.done = flush_done;
	weft_list_init(&peer->comms);
	weft_list_init(&peer->posts_link);
	ret = port->ops->ep_create(port->iface, addr, peer, &peer->ep);
	if (ret < 0) {
		free(peer);
		return ret;
	}
	weft_list_add_tail(&port->peers, &peer->link);
	*out = peer;
	return 0;
}

static void drop_posts(struct weft_net_peer *peer)
{
	peer->posts_len = 0;
	weft_list_del(&peer->posts_link);
}

void weft_net_peer_put(struct weft_net_peer *peer)
{
	struct weft_net_port *port = peer->port;

	if (--peer->refs)
		return;
	drop_posts(peer);
	if (!peer->err && !peer->flushing)
		peer->flushing = port->ops->flush(peer->ep, &peer->flushed) ==
				 -EINPROGRESS;
	weft_list_del(&peer->link);
	weft_list_add_tail(&port->closing, &peer->link);
}

void weft_net_peer_reap(struct weft_net_port *port, bool force)
{
	struct weft_net_peer *peer, *tmp;

	weft_list_for_each (peer, tmp, &port->closing, link) {
		if (peer->refs || (!force && peer->flushing))
			continue;
		weft_list_del(&peer->link);
		if (peer->ep)
			port->ops->ep_destroy(peer->ep);
		free(peer);
	}
}

void weft_net_peer_log_lost(struct weft_net_peer *peer, unsigned int transfers)
{
	char addr[WEFT_SOCKADDR_STR], what[64];

	if (peer->lost_logged || peer->err == -ECANCELED)
		return;
	peer->lost_logged = true;
	snprintf(what, sizeof(what),
		 transfers ? "with %u transfers under way"
			   : "before a transfer that needs it",
		 transfers);
	weft_fail(peer->err,
		  "lost the connection to the rank at %s over %s, %s",
		  weft_sockaddr_str(&peer->addr.sa, addr, sizeof(addr)),
		  peer->port->netdev, what);
}

static unsigned int transfers_cut_off(struct weft_net_peer *peer)
{
	struct weft_net_comm *comm, *tmp;
	unsigned int n = peer->failed_puts;

	weft_list_for_each (comm, tmp, &peer->comms, link)
		n += comm->active;
	return n;
}

void weft_net_peer_fail(struct weft_net_peer *peer, int err)
{
	struct weft_ep *ep = peer->ep;
	unsigned int transfers;

	if (peer->err)
		return;
	peer->err = err < 0 ? err : -EIO;
	drop_posts(peer);
	/* else report it when it is used: every job ends with lost peers */
	transfers = transfers_cut_off(peer);
	if (transfers)
		weft_net_peer_log_lost(peer, transfers);
	peer->ep = NULL;
	/* A dead peer is not found any more, and freed with its last comm. */
	weft_list_del(&peer->link);
	weft_list_add_tail(&peer->port->closing, &peer->link);
	peer->port->ops->ep_destroy(ep);
	peer->flushing = false;
	peer->port->net->ops->peer_failed(peer);
}

bool weft_net_peer_has_unsent(struct weft_net_peer *peer)
{
	return peer->ep && peer->port->ops->unsent(peer->ep);
}

static int flush_posts(struct weft_net_peer *peer)
{
	struct iovec iov = { peer->batched_posts, peer->posts_len };
	int ret;

	if (!peer->posts_len)
		return 0;
	ret = peer->port->ops->message(peer->ep, WEFT_MSG_POST, &iov, 1);
	if (!ret)
		drop_posts(peer);
	return ret;
}

void weft_net_flush_posts(struct weft_net *net)
{
	struct weft_net_peer *peer, *tmp;

	weft_list_for_each (peer, tmp, &net->peers_with_posts, posts_link)
		flush_posts(peer);
}

int weft_net_peer_post(struct weft_net_peer *peer,
		       const struct weft_msg_post *post)
{
	int ret = peer->err;

	if (!ret && peer->posts_len + WEFT_MSG_POST_LEN(post->rkey_len) >
			    WEFT_NET_POSTS)
		ret = flush_posts(peer);
	if (ret)
		return ret;
	peer->posts_len +=
		weft_msg_post_pack(post, peer->batched_posts + peer->posts_len);
	if (weft_list_empty(&peer->posts_link))
		weft_list_add_tail(&peer->port->net->peers_with_posts,
				   &peer->posts_link);
	return 0;
}

/* Send earlier POSTs first. */
int weft_net_peer_send(struct weft_net_peer *peer, enum weft_net_msg id,
		       const void *buf, size_t len)
{
	struct iovec iov = { (void *)buf, len };
	int ret = peer->err;

	if (!ret)
		ret = flush_posts(peer);
	if (ret)
		return ret;
	return peer->port->ops->message(peer->ep, id, &iov, 1);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes at the other end. */
#ifndef WEFT_NCCL_NET_NET_PEER_H
#define WEFT_NCCL_NET_NET_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include "bootstrap/address.h"
#include "devices/device.h"
#include "nccl_net/net/net.h"
#include "nccl_net/net/wire.h"
#include "util/list.h"

struct weft_net_port;

/* POSTs are gathered into messages of at most this many bytes. */
#define WEFT_NET_POSTS 512u

struct weft_net_peer {
	struct weft_list link; /* in port->peers or leaving */
	struct weft_net_port *port;
	struct weft_address addr;
	struct weft_ep *ep; /* NULL once dead */
	int err;
	unsigned int failed_puts;
	bool lost_logged;
	bool flushing;
	unsigned int refs;
	struct weft_op flushed;
	struct weft_list comms;
	struct weft_list posts_link; /* net->peers_with_posts */
	size_t posts_len;	     /* that progress() sends */
	uint8_t batched_posts[WEFT_NET_POSTS];
};

int weft_net_peer_get(struct weft_net_port *port,
		      const struct weft_address *addr,
		      struct weft_net_peer **peer);
void weft_net_peer_put(struct weft_net_peer *peer);
void weft_net_peer_fail(struct weft_net_peer *peer, int err);
/*
 * Logs once that @peer is lost, which cut off @transfers; 0: a new one could
 * not begin.
 */
void weft_net_peer_log_lost(struct weft_net_peer *peer, unsigned int transfers);
/* Frees peers of @port->leaving that are not needed any more; @force: all. */
void weft_net_peer_reap(struct weft_net_port *port, bool force);
/* -EAGAIN: not now; other errors are the peer's. */
int weft_net_peer_send(struct weft_net_peer *peer, enum weft_net_msg id,
		       const void *buf, size_t len);

/*
 * Sends a POST together with others until the next progress(): one message
 * costs as much as eleven.
 */
int weft_net_peer_post(struct weft_net_peer *peer,
		       const struct weft_msg_post *post);
/* Sends the POSTs of all peers. */
void weft_net_flush_posts(struct weft_net *net);

/* Does it have data that only progress() sends? */
bool weft_net_peer_has_unsent(struct weft_net_peer *peer);

#endif

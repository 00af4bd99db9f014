/* SPDX-License-Identifier: BSD-3-Clause */
/* Comms: one direction of one NCCL connection, and its requests. */
#ifndef WEFT_NCCL_NET_NET_COMM_H
#define WEFT_NCCL_NET_NET_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "devices/device.h"
#include "nccl_net/net/net.h"
#include "nccl_net/net/wire.h"
#include "util/list.h"

struct weft_net_dial;
struct weft_net_peer;

#define WEFT_NET_REQUESTS  32 /* NCCL_NET_MAX_REQUESTS */
#define WEFT_NET_SLOT(seq) ((seq) % WEFT_NET_REQUESTS)
/*
 * Sends up to this size travel as a message, receive posted or not: no round
 * trip, no acknowledgement, one copy.  Above, the copy costs more than both.
 */
#define WEFT_NET_EAGER 65536u

enum weft_net_state {
	REQ_FREE,
	REQ_ACTIVE,
	REQ_DONE,
};

struct weft_net_request {
	struct weft_op op;
	struct weft_net_comm *comm;
	atomic_int state;
	int status;
	uint32_t seq;
	uint64_t calls;		/* net->calls at last test */
	void *data;		/* receives */
	struct weft_net_mr *mr; /* receives */
	size_t size;		/* posted, then true */
};

struct weft_net_post { /* a receive posted by the peer */
	uint64_t addr, size;
	uint8_t rkey[WEFT_RKEY_MAX];
	uint32_t seq;
	bool valid;
};

struct weft_net_early_data { /* came before its receive */
	void *data;
	uint32_t size;
	bool valid;
};

struct weft_net_comm {
	struct weft_net *net;
	struct weft_list link; /* in peer->comms, or in the
				  listener's queue */
	struct weft_net_peer *peer;
	struct weft_net_dial *dial; /* until answered */
	bool sender;
	bool answered; /* ACCEPT was sent, or received */
	bool peer_closed;
	bool ended;	       /* the peer knows of the end, or will */
	uint8_t last_word_len; /* 0: BYE was sent */
	enum weft_net_msg last_word_id;
	uint8_t last_word[WEFT_MSG_TOO_LARGE_LEN];
	uint8_t path; /* named in ACCEPT */
	uint32_t id, remote_id;
	uint64_t token; /* of the connecting side */
	int err;
	uint32_t eager;	     /* bytes */
	uint32_t seq;	     /* of the next isend or irecv */
	uint64_t calls;	     /* net->calls at last isend */
	unsigned int active; /* requests not done */

	/* sender */
	struct weft_net_post post[WEFT_NET_REQUESTS];
	uint32_t posted_seq; /* receives below: posted */
	bool peer_eager_only, post_wanted;

	/* receiver */
	uint32_t announced_seq; /* POSTs below: sent */
	uint32_t acked_seq;	/* below: SEEN or POST sent */
	unsigned int small;	/* in a row */
	bool eager_only, announce_eager;
	struct weft_net_early_data early_data[WEFT_NET_REQUESTS];

	struct weft_net_request req[WEFT_NET_REQUESTS];
};

int weft_net_comm_new(struct weft_net *net, bool sender,
		      struct weft_net_comm **comm);
/* Frees one that NCCL never got, or has closed. */
void weft_net_comm_free(struct weft_net_comm *comm);
struct weft_net_comm *weft_net_comm_find(struct weft_net *net, uint32_t id);
/* The comm that a notification names; NULL: it was freed. */
struct weft_net_comm *weft_net_comm_tagged(struct weft_net *net,
					   const struct weft_tag *t);
void weft_net_comm_attach(struct weft_net_comm *comm,
			  struct weft_net_peer *peer);
void weft_net_comm_fail(struct weft_net_comm *comm, int err);
/*
 * Fails @comm and tells the peer, which must not wait; @why: TOO_LARGE, NULL:
 * BYE.
 */
void weft_net_comm_break(struct weft_net_comm *comm, int err,
			 const struct weft_msg_too_large *why);
/* Sends what weft_net_comm_break() could not; -EAGAIN: not now. */
int weft_net_comm_send_last(struct weft_net_comm *comm);

/* Starts a send or receive in its slot, which is free. */
struct weft_net_request *weft_net_request_start(struct weft_net_comm *comm,
						size_t size);
void weft_net_request_end(struct weft_net_request *req, int status);

#endif

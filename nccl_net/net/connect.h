/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting to a listener. */
#ifndef WEFT_NCCL_NET_NET_CONNECT_H
#define WEFT_NCCL_NET_NET_CONNECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "bootstrap/address.h"
#include "nccl_net/net/net.h"
#include "nccl_net/net/wire.h"
#include "util/list.h"

struct weft_net_peer;
struct weft_net_port;

#define WEFT_NET_ATTEMPTS (WEFT_PATHS_MAX * 8)

/* One attempt to reach the listener: a local port, a path of the handle. */
struct weft_net_attempt {
	enum {
		ATTEMPT_WAITING,
		ATTEMPT_STARTED,
		ATTEMPT_ASKED,
		ATTEMPT_FAILED,
	} state;
	struct weft_net_port *port;
	struct weft_address addr;
	struct weft_net_peer *peer;
	int err;
};

struct weft_net_dial {
	struct weft_list link; /* in net->dialing */
	struct weft_net_comm *comm;
	uint64_t listener;	 /* the handle's token */
	uint64_t stage;		 /* what the handle remembers */
	uint64_t deadline, next; /* ms */
	bool refused;
	unsigned int n;
	struct weft_net_attempt attempt[WEFT_NET_ATTEMPTS];
};

int weft_net_random_token(uint64_t *token);
void weft_net_on_accept(struct weft_net *net, const void *buf, size_t len,
			bool refused);
void weft_net_dials_fail_peer(struct weft_net *net, struct weft_net_peer *peer,
			      int err);
/* Frees dials that NCCL has abandoned and cannot close. */
void weft_net_dials_drop_expired(struct weft_net *net);
/* Frees all: NCCL has none, since connect() has not returned them. */
void weft_net_dials_drop_all(struct weft_net *net);

#endif

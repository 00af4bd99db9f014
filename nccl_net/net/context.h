/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context, shared by the files behind net.h.
 *
 * Ownership: a context owns its ports (weft ifaces), a port its peers
 * (endpoints).  A peer is shared by all comms between two processes, whichever
 * direction they go, and lives as long as a reference does, then until all its
 * messages are out; where its endpoint fails, all of them do.  Everything is
 * guarded by the context's lock, except a request's state, which test() reads
 * without it.
 *
 * Calls go one way: versions -> net -> accept, connect -> xfer -> comm ->
 * memory, ports -> progress -> peer -> wire.
 */
#ifndef WEFT_NCCL_NET_NET_CONTEXT_H
#define WEFT_NCCL_NET_NET_CONTEXT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "devices/device.h"
#include "nccl_net/net/net.h"
#include "nccl_net/net/wire.h"
#include "util/fork.h"
#include "util/list.h"

struct weft_net_peer;
struct weft_net_port;

/* What peers and ports call in net.c. */
struct weft_net_ops {
	struct weft_iface_cb events; /* arg: the port */
	/* @peer's err is set, its endpoint gone. */
	void (*peer_failed)(struct weft_net_peer *peer);
};

struct weft_net_thread {
	pthread_t id;
	bool on; /* the thread may run */
};

struct weft_net {
	struct weft_list link; /* of all contexts */
	const struct weft_net_ops *ops;
	unsigned int forks; /* util/fork.h: whose it is */
	pthread_mutex_t lock;
	struct weft_list ports;
	struct weft_list listeners;
	struct weft_list dialing;	   /* comms not yet answered */
	struct weft_list peers_with_posts; /* peers that POSTs wait for */
	/* Listeners and comms; the ports are open while there are any. */
	unsigned int users;
	struct weft_net_comm **comms; /* by slot of their id */
	unsigned int comms_size;
	uint16_t generation;
	bool closed;	      /* by weft_net_close() */
	unsigned int closing; /* calls that weft_net_close() waits for */
	struct weft_net_thread flusher_thread; /* see progress.c */
	pthread_cond_t flusher_wake;
	pthread_cond_t pause; /* weft_net_close() signals */
	uint64_t calls;	      /* of weft_net_progress() */
};

/*
 * Was it inherited by fork()?  Then its threads do not exist here, and one may
 * have held the lock: calls fail or do nothing.
 */
static inline bool weft_net_inherited(const struct weft_net *net)
{
	return net->forks != weft_forks();
}

#endif

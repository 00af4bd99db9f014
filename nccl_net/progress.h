/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress: in NCCL's calls and in threads. */
#ifndef WEFT_NCCL_NET_PROGRESS_H
#define WEFT_NCCL_NET_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include "nccl_net/context.h"

struct weft_net_peer;

void weft_net_progress_init(struct weft_net *net);
unsigned int weft_net_progress(struct weft_net *net);
/*
 * NCCL asks for each of its requests in turn, tens of times a round: one who
 * asks makes progress unless somebody has since it last asked, which @calls
 * remembers.
 */
static inline bool weft_net_may_progress(struct weft_net *net, uint64_t *calls)
{
	const bool mine = *calls == net->calls;

	if (mine)
		weft_net_progress(net);
	*calls = net->calls;
	return mine;
}

/* What calls of NCCL begin with: the lock, unless it fails. */
int weft_net_begin(struct weft_net *net);
/* With the lock, which is others' until the threads have ended. */
void weft_net_threads_end(struct weft_net *net);
/* One of net->leaving less; the lock is held. */
void weft_net_left(struct weft_net *net);
/* Of a call that may have closed the last user: ends the threads, too. */
void weft_net_unlock(struct weft_net *net);

/* The caller is about to be told that it need not come again. */
void weft_net_keeper_look(struct weft_net_peer *peer);

/* The lock is others' for so long, or until the context is closed. */
void weft_net_pause(struct weft_net *net, unsigned int us);

int weft_net_watch_start(struct weft_net *net);
/* The watched port comes or goes. */
void weft_net_watch_look(struct weft_net *net);

#endif

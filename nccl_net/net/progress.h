/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress, in NCCL's calls and in a thread. */
#ifndef WEFT_NCCL_NET_NET_PROGRESS_H
#define WEFT_NCCL_NET_NET_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include "nccl_net/net/context.h"

struct weft_net_peer;

void weft_net_progress_init(struct weft_net *net);
unsigned int weft_net_progress(struct weft_net *net);
/*
 * NCCL tests each of its requests in turn, tens of times a round.  A call makes
 * progress only if none has since @calls was last set.
 */
static inline bool weft_net_may_progress(struct weft_net *net, uint64_t *calls)
{
	const bool mine = *calls == net->calls;

	if (mine)
		weft_net_progress(net);
	*calls = net->calls;
	return mine;
}

/* Takes the lock; -ECANCELED, without it: the context is closed, or inherited.
 */
int weft_net_lock(struct weft_net *net);
/* Lock held; releases it until the thread has ended. */
void weft_net_flusher_stop(struct weft_net *net);
/* Decrements net->closing; lock held. */
void weft_net_close_done(struct weft_net *net);
/* Unlocks; ends the thread if the call has closed the last user. */
void weft_net_unlock(struct weft_net *net);

/* NCCL may not call again: the flusher sends what @peer still has. */
void weft_net_flusher_start(struct weft_net_peer *peer);

/* Releases the lock for @us microseconds, or until the context is closed. */
void weft_net_yield(struct weft_net *net, unsigned int us);

#endif

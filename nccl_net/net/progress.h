/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress: in NCCL's calls and in a thread. */
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
/* With the lock, which it gives away until the thread has ended. */
void weft_net_flusher_stop(struct weft_net *net);
/* One of net->closing less; the lock is held. */
void weft_net_close_done(struct weft_net *net);
/* Of a call that may have closed the last user: ends the thread, too. */
void weft_net_unlock(struct weft_net *net);

/* NCCL may not call again: the flusher sends what @peer still has. */
void weft_net_flusher_start(struct weft_net_peer *peer);

/* Gives the lock away for @us, or until the context is closed. */
void weft_net_yield(struct weft_net *net, unsigned int us);

#endif

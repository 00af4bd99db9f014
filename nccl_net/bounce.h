/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory over a wire that takes host memory. */
#ifndef WEFT_NCCL_NET_BOUNCE_H
#define WEFT_NCCL_NET_BOUNCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "nccl_net/comm.h"
#include "nccl_net/memory.h"
#include "nccl_net/net.h"

/* How long a copy may be with an engine before it counts as lost. */
#define WEFT_NET_COPIES_MS	20000u

/*
 * Both without the lock, or with it where there is no other way: the driver may
 * take its time.  @own: NCCL's own buffer, which has to be taken; -ENOMEM: a
 * user's, and there are enough.
 */
int weft_net_stage_register(struct weft_net_comm *comm, struct weft_net_mr *mr,
			    bool own);
void weft_net_stage_release(struct weft_net_mr *mr);
/* The same place in the double. */
static inline void *weft_net_shadow(const struct weft_net_mr *mr,
				    const void *data)
{
	return mr->shadow + ((uintptr_t)data - mr->addr);
}
/* Copies @size bytes from (@in) or to the double; then @on_copied. */
int weft_net_stage(struct weft_net_request *req, const void *data, size_t size,
		   bool in, weft_net_copied on_copied);
void weft_net_stage_progress(struct weft_net *net);
/* No copy of @mr's (NULL: any) is under way any more. */
void weft_net_stage_drain(struct weft_net *net, struct weft_net_mr *mr);
/* Says that one was longer under way than WEFT_NET_COPIES_MS. */
void weft_net_stage_late(void);
/* The events that @comm's requests have. */
void weft_net_stage_forget(struct weft_net_comm *comm);
void weft_net_stage_close(struct weft_net *net);

#endif

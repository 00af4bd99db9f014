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
#define WEFT_NET_COPIES_MS 20000u

/*
 * Both without the lock where possible: the driver may be slow.  @own: NCCL's
 * own buffer, which must be taken; -ENOMEM: a user's, and there are enough.
 */
int weft_net_bounce_register(struct weft_net_comm *comm, struct weft_net_mr *mr,
			     bool own);
void weft_net_bounce_release(struct weft_net_mr *mr);
/* The same place in the bounce buffer. */
static inline void *weft_net_bounce_address(const struct weft_net_mr *mr,
					    const void *data)
{
	return mr->bounce_mem + ((uintptr_t)data - mr->addr);
}
/* Copies @size bytes from (@in) or to the bounce buffer, then @on_copied. */
int weft_net_bounce_copy(struct weft_net_request *req, const void *data,
			 size_t size, bool in, weft_net_copied on_copied);
void weft_net_bounce_progress(struct weft_net *net);
/* Waits until no copy of @mr (NULL: any) is under way. */
void weft_net_bounce_drain(struct weft_net *net, struct weft_net_mr *mr);
/* Logs that a copy took longer than WEFT_NET_COPIES_MS. */
void weft_net_bounce_log_overdue(void);
/* Destroys the events of @comm's requests. */
void weft_net_bounce_destroy_events(struct weft_net_comm *comm);
void weft_net_bounce_close(struct weft_net *net);

#endif

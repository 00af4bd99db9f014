/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory, all of it the host's: NCCL copies what is on a GPU.  It
 * registers beside isend, without the lock.
 */
#include <errno.h>
#include <stdlib.h>
#include "nccl_net/abi/net.h"
#include "nccl_net/net/comm.h"
#include "nccl_net/net/context.h"
#include "nccl_net/net/memory.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "nccl_net/net/progress.h"
#include "util/log.h"

int weft_net_register(struct weft_net_comm *comm, void *data, size_t size,
		      int ptr_type, struct weft_net_mr **out)
{
	struct weft_net_mr *mr;
	int ret;

	if (ptr_type != NCCL_PTR_HOST)
		return weft_fail(
			-EINVAL,
			"cannot register memory of type %d; host memory (%d) alone was offered",
			ptr_type, NCCL_PTR_HOST);
	if (weft_net_inherited(comm->net))
		return -ECANCELED;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return weft_fail(-ENOMEM, "cannot register %zu bytes", size);
	mr->net = comm->net;
	mr->addr = (uintptr_t)data;
	mr->size = size;
	/* A comm keeps its peer for life, and a peer its port. */
	mr->ops = comm->peer->port->ops;
	ret = mr->ops->mem_register(data, size, WEFT_MEM_HOST, &mr->mem);
	if (ret < 0) {
		free(mr);
		return ret;
	}
	mr->ops->mem_pack(mr->mem, mr->rkey);
	*out = mr;
	return 0;
}

void weft_net_mr_revoke(struct weft_net_mr *mr)
{
	if (mr->mem)
		mr->ops->mem_release(mr->mem);
	mr->mem = NULL;
}

/* Drops a request's reference. */
void weft_net_mr_put(struct weft_net_mr *mr)
{
	if (!--mr->posted && mr->deregistered)
		free(mr);
}

/* NCCL's abort deregisters memory of receives that are still posted. */
void weft_net_deregister(struct weft_net_mr *mr)
{
	struct weft_net *net = mr->net;
	bool last;

	if (weft_net_inherited(net))
		return;
	pthread_mutex_lock(&net->lock);
	weft_net_mr_revoke(mr);
	mr->deregistered = true;
	last = !mr->posted;
	weft_net_unlock(net);
	if (last)
		free(mr);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory.  NCCL registers beside isend: without the lock, except to
 * prepare the NVLink device for GPU memory.  Over TCP and InfiniBand GPU memory
 * gets a bounce buffer in host memory.
 */
#include <errno.h>
#include <stdlib.h>
#include "nccl_net/abi/net.h"
#include "nccl_net/bounce.h"
#include "nccl_net/comm.h"
#include "nccl_net/context.h"
#include "nccl_net/gpu_support.h"
#include "nccl_net/memory.h"
#include "nccl_net/peer.h"
#include "nccl_net/ports.h"
#include "nccl_net/progress.h"
#include "util/log.h"

#define NCCL_NUM_PROTOCOLS 3 /* include/plugin/nccl_tuner.h */

/* Over NVLink all that copies need is made before NCCL's kernels run. */
static int register_prepared(struct weft_net_comm *comm, struct weft_net_mr *mr,
			     void *data)
{
	struct weft_net *net = comm->net;
	int ret;

	ret = mr->ops->mem_register(data, mr->size, WEFT_MEM_CUDA, &mr->mem);
	if (ret < 0)
		return ret;
	pthread_mutex_lock(&net->lock);
	if (net->closed)
		ret = -ECANCELED;
	else if (!comm->peer->err)
		ret = mr->ops->prepare(comm->peer->ep, mr->mem);
	/* a failure ends the peer, which requests report */
	if (ret == -EINPROGRESS)
		ret = 0;
	if (ret < 0)
		weft_net_mr_revoke(mr);
	pthread_mutex_unlock(&net->lock);
	return ret;
}

/* Without the lock: the driver may be slow, and requests go on. */
static int register_bounced(struct weft_net_comm *comm, struct weft_net_mr *mr,
			    bool own)
{
	int ret;

	ret = weft_net_bounce_register(comm, mr, own);
	if (ret < 0)
		return ret;
	ret = mr->ops->mem_register(mr->bounce_mem, mr->size, WEFT_MEM_HOST,
				    &mr->mem);
	if (ret < 0)
		weft_net_bounce_release(mr);
	return ret;
}

/*
 * NCCL registers its own buffers before the first request: one for each
 * protocol that the connection has (transport/net.cc, sendProxyConnect).  What
 * comes later is its user's, and there it takes no for an answer.
 */
static bool is_nccls_own(struct weft_net_comm *comm)
{
	return !comm->seq && comm->gpu_buffers++ < NCCL_NUM_PROTOCOLS;
}

/*
 * What cuMemAlloc() gave is copied in its context's queues, whatever context we
 * work in: see weft_cuda_own_get().
 */
static int refuse_old_memory(const void *data, bool own)
{
	if (weft_cuda_is_vmm(data))
		return 0;
	if (!own) {
		weft_info(
			"a user's GPU memory at %p is not registered, because it was not allocated by cuMemCreate() (ncclMemAlloc); NCCL uses its own buffers",
			data);
		return -EOPNOTSUPP;
	}
	weft_warn_once(
		"NCCL's own GPU memory was not allocated by cuMemCreate() "
		"(NCCL_CUMEM_ENABLE=0, or an old NCCL, whose default "
		"that is): collectives may hang, at the latest when the "
		"program loads code or frees GPU memory meanwhile; set "
		"NCCL_CUMEM_ENABLE=1 for all ranks, or "
		"WEFT_NCCL_NVLINK=off");
	return 0;
}

static int register_gpu(struct weft_net_comm *comm, struct weft_net_mr *mr,
			void *data)
{
	struct weft_net *net = comm->net;
	bool own = false;
	int ret;

	ret = weft_cuda_init();
	if (!ret)
		ret = weft_cuda_query(data, &mr->where);
	if (ret < 0)
		return ret;
	if (mr->where.where != WEFT_CUDA_DEVICE || mr->where.managed)
		return weft_fail(EINVAL, "%p is no GPU memory", data);
	mr->gpu = true;
	pthread_mutex_lock(&net->lock);
	if (net->closed)
		ret = -ECANCELED;
	else
		own = is_nccls_own(comm);
	pthread_mutex_unlock(&net->lock);
	if (!ret)
		ret = refuse_old_memory(data, own);
	if (ret < 0)
		return ret;
	return mr->ops->prepare ? register_prepared(comm, mr, data)
				: register_bounced(comm, mr, own);
}

int weft_net_register(struct weft_net_comm *comm, void *data, size_t size,
		      int ptr_type, struct weft_net_mr **out)
{
	const bool gpu = weft_nccl_nvlink_offered();
	struct weft_net_mr *mr;
	int ret;

	if (ptr_type != NCCL_PTR_HOST && !(ptr_type == NCCL_PTR_CUDA && gpu))
		return weft_fail(EINVAL,
				 "cannot register memory of type %d; "
				 "host memory (%d)%s was offered",
				 ptr_type, NCCL_PTR_HOST,
				 gpu ? " and the GPU's (2)" : " alone");
	if (weft_net_inherited(comm->net))
		return -ECANCELED;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return weft_fail(ENOMEM, "cannot register %zu bytes", size);
	mr->net = comm->net;
	mr->addr = (uintptr_t)data;
	mr->size = size;
	/* A comm keeps its peer for life, and a peer its port. */
	mr->ops = comm->peer->port->ops;
	ret = ptr_type == NCCL_PTR_HOST
		      ? mr->ops->mem_register(data, size, WEFT_MEM_HOST,
					      &mr->mem)
		      : register_gpu(comm, mr, data);
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
	if (mr->bounce_mem)
		weft_net_bounce_drain(mr->net, mr);
}

static void mr_free(struct weft_net_mr *mr)
{
	weft_net_bounce_release(mr);
	free(mr);
}

/* One request less names it. */
void weft_net_mr_put(struct weft_net_mr *mr)
{
	if (!--mr->posted && mr->deregistered)
		mr_free(mr);
}

/* NCCL's abort deregisters under receives that are still posted. */
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
		mr_free(mr);
}

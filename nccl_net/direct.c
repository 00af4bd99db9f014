/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory that an adapter reads and writes itself (GPUDirect RDMA), where
 * kernel, driver, adapter and settings all allow it.  A rank that has it needs
 * no peer that has it, too: who does not, or is reached by TCP, has a double in
 * host memory (stage.c), each buffer by itself.
 */
#include "nccl_net/internal.h"

#include <errno.h>
#include <string.h>
#include "config.h"
#include "nccl_net/abi/net.h"
#include "nccl_net/hcas.h"
#include "nccl_net/net.h"
#include "nccl_net/offer.h"
#include "util/log.h"
#ifdef HAVE_VERBS_H
#include "devices/ib.h"
#endif

#ifdef HAVE_VERBS_H
static int look(const char *dev)
{
	unsigned int ways = weft_ib_gpu_ways(dev);

	if (!weft_cuda_has_dmabuf())
		ways &= ~WEFT_IB_DMABUF;
	return (ways ? NCCL_PTR_CUDA : 0) |
	       (ways & WEFT_IB_DMABUF ? NCCL_PTR_DMABUF : 0);
}

/* Once for each device: NCCL asks often, and asking opens it. */
int weft_net_direct(const struct weft_verbs_port *hca)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct {
		char dev[WEFT_VERBS_NAME];
		int is;
	} known[WEFT_NET_HCAS_MAX];
	static unsigned int n;
	unsigned int i;
	int is = 0;

	if (!weft_nccl_direct_offered())
		return 0;
	pthread_mutex_lock(&lock);
	for (i = 0; i < n && strcmp(known[i].dev, hca->dev); i++)
		;
	if (i < n) {
		is = known[i].is;
	} else if (n < WEFT_NET_HCAS_MAX) {
		is = look(hca->dev);
		memcpy(known[n].dev, hca->dev, sizeof(known[n].dev));
		known[n++].is = is;
	}
	pthread_mutex_unlock(&lock);
	return is;
}

/* What flushes need is made before NCCL's kernels wait for any. */
static int prepare(struct weft_net_comm *comm)
{
	struct weft_net *net = comm->net;
	int ret;

	if (comm->sender)
		return 0;
	pthread_mutex_lock(&net->lock);
	ret = net->closed ? -ECANCELED :
			    weft_ib_flush_prepare(comm->peer->port->iface);
	pthread_mutex_unlock(&net->lock);
	return ret;
}

/* Did this comm's own port take it, and not another one alone? */
static int check_port(struct weft_net_comm *comm, struct weft_net_mr *mr)
{
	struct weft_net *net = comm->net;
	int ret;

	pthread_mutex_lock(&net->lock);
	ret = net->closed ? -ECANCELED :
	      weft_ib_takes(comm->peer->port->iface, mr->mem) ? 0 : -EOPNOTSUPP;
	pthread_mutex_unlock(&net->lock);
	if (ret) {
		mr->ops->mem_release(mr->mem);
		mr->mem = NULL;
	}
	return ret;
}

int weft_net_direct_register(struct weft_net_comm *comm, struct weft_net_mr *mr,
			     void *data, int fd, uint64_t offset)
{
	int ret;

	if (!comm->peer->port->direct)
		return -EOPNOTSUPP;
	ret = prepare(comm);
	if (ret < 0)
		return ret;
	ret = fd >= 0 ? weft_ib_register_dmabuf(data, mr->size, fd, offset,
						&mr->mem) :
			mr->ops->mem_register(data, mr->size, WEFT_MEM_CUDA,
					      &mr->mem);
	if (!ret)
		ret = check_port(comm, mr);
	if (ret < 0) {
		/* other errors have been told */
		if (ret == -EOPNOTSUPP)
			weft_warn_once("'%s' takes none of this GPU's memory, neither by dma-buf nor by nvidia_peermem: it is copied through host memory",
				       comm->peer->port->netdev);
		return ret;
	}
	mr->direct = true;
	return 0;
}

static int start(struct weft_net_request *req, uint64_t addr)
{
	return weft_ib_flush_gpu(req->comm->peer->port->iface, req->mr->mem,
				 addr, &req->op);
}

static void forget(struct weft_net_request *req)
{
	weft_ib_flush_forget(req->comm->peer->port->iface, &req->op);
}
#else
int weft_net_direct(const struct weft_verbs_port *hca)
{
	(void)hca;
	return 0;
}

int weft_net_direct_register(struct weft_net_comm *comm, struct weft_net_mr *mr,
			     void *data, int fd, uint64_t offset)
{
	(void)comm;
	(void)mr;
	(void)data;
	(void)fd;
	(void)offset;
	return -EOPNOTSUPP;
}

static int start(struct weft_net_request *req, uint64_t addr)
{
	(void)req;
	(void)addr;
	return -EOPNOTSUPP;
}

static void forget(struct weft_net_request *req)
{
	(void)req;
}
#endif

static void flush_done(struct weft_op *op, int status)
{
	weft_net_request_end(container_of(op, struct weft_net_request, op),
			     status);
}

void weft_net_flush_init(struct weft_net_comm *comm)
{
	struct weft_net_request *req;

	for (req = comm->flush; req < comm->flush + WEFT_NET_REQUESTS; req++) {
		req->comm = comm;
		req->op.done = flush_done;
		weft_list_init(&req->staged);
	}
}

static struct weft_net_request *free_slot(struct weft_net_comm *comm)
{
	struct weft_net_request *req;

	for (req = comm->flush; req < comm->flush + WEFT_NET_REQUESTS; req++)
		if (atomic_load(&req->state) == REQ_FREE)
			return req;
	return NULL;
}

static int flush(struct weft_net_comm *comm, uint64_t addr,
		 struct weft_net_mr *mr, struct weft_net_request **out)
{
	struct weft_net_request *req;
	int ret;

	ret = comm->net->closed ? -ECANCELED : comm->err;
	if (ret < 0)
		return ret;
	if (!mr->mem)
		return weft_fail(EINVAL, "cannot flush memory that is "
				 "deregistered");
	req = free_slot(comm);
	if (!req)
		return weft_fail(EBUSY, "more than %u flushes at once",
				 WEFT_NET_REQUESTS);
	req->size = 0;
	req->mr = mr;
	mr->posted++;
	comm->active++;
	atomic_store(&req->state, REQ_ACTIVE);
	ret = start(req, addr);
	if (ret != -EINPROGRESS)
		weft_net_request_end(req, ret);
	*out = req;
	return 0;
}

int weft_net_flush(struct weft_net_comm *comm, void *data, size_t size,
		   struct weft_net_mr *mr, struct weft_net_request **out)
{
	struct weft_net *net = comm->net;
	int ret;

	*out = NULL;
	/*
	 * Elsewhere it was written by the processor, or copied before a stream
	 * write or an event that we have seen.
	 */
	if (!size || !mr || !mr->direct)
		return 0;
	pthread_mutex_lock(&net->lock);
	ret = flush(comm, (uintptr_t)data + size - 1, mr, out);
	pthread_mutex_unlock(&net->lock);
	return ret;
}

void weft_net_flush_end(struct weft_net_comm *comm, int err)
{
	struct weft_net_request *req;

	for (req = comm->flush; req < comm->flush + WEFT_NET_REQUESTS; req++) {
		if (atomic_load(&req->state) != REQ_ACTIVE)
			continue;
		forget(req);
		weft_net_request_end(req, err);
	}
}

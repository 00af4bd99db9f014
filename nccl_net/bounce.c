/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory over TCP and InfiniBand: each registered region has a bounce
 * buffer in pinned host memory, and only that is ever on the wire.  A send is
 * copied there first; a receive is copied from there before it is complete.
 *
 * NCCL registers one region many times (its pool for sends and receives on
 * every connection, a user's buffer on every channel): all of a context's
 * registrations of it share one bounce buffer.  NCCL's own buffers, which would
 * be host memory of the same size if weft took no GPU memory, are always taken;
 * a user's (ncclCommRegister, CUDA graphs) up to USERS_MAX bytes, beyond which
 * registration fails and NCCL uses its own.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "nccl_net/bounce.h"
#include "nccl_net/comm.h"
#include "nccl_net/context.h"
#include "nccl_net/memory.h"
#include "util/cuda.h"
#include "util/clock.h"
#include "util/log.h"

#define PAGE	  4096u
#define USERS_MAX (256ul << 20)

/* A CUDA stream of weft's context, for the memory of a CUDA context. */
struct weft_net_copy_queue {
	struct weft_list link; /* net->copy_queues */
	void *of, *ctx, *stream;
	int ordinal;
};

/* The bounce buffer of a region; net->bounce_lock guards it. */
struct weft_net_bounce {
	struct weft_list link; /* net->bounces */
	struct weft_cuda_ptr where;
	uintptr_t addr;
	size_t size;
	unsigned int refs;
	bool own; /* NCCL's */
	char *mem;
};

static int open_copy_queue(struct weft_net_copy_queue *queue)
{
	struct weft_cuda_scope s;
	int r, err;

	err = weft_cuda_own_get(queue->ordinal, &queue->ctx);
	if (err)
		return err;
	err = weft_cuda_enter(&s, queue->ctx);
	if (!err) {
		r = s.cu->stream_create(&queue->stream,
					WEFT_CU_STREAM_NON_BLOCKING);
		weft_cuda_leave(&s);
		if (r)
			err = weft_fail(-weft_cuda_errno(r),
					"cannot create a CUDA stream (%s)",
					weft_cuda_error_name(r));
	}
	if (err)
		weft_cuda_own_put(queue->ordinal);
	return err;
}

static int find_copy_queue(struct weft_net *net,
			   const struct weft_cuda_ptr *where,
			   struct weft_net_copy_queue **out)
{
	struct weft_net_copy_queue *queue, *tmp;
	int err;

	weft_list_for_each (queue, tmp, &net->copy_queues, link) {
		if (queue->of == where->ctx) {
			*out = queue;
			return 0;
		}
	}
	queue = calloc(1, sizeof(*queue));
	if (!queue)
		return -ENOMEM;
	queue->of = where->ctx;
	queue->ordinal = where->ordinal;
	err = open_copy_queue(queue);
	if (err) {
		free(queue);
		return err;
	}
	weft_list_add_tail(&net->copy_queues, &queue->link);
	*out = queue;
	return 0;
}

static size_t whole_pages(size_t size)
{
	return (size + PAGE) & ~(size_t)(PAGE - 1);
}

/* One event per request: nothing may be created once traffic runs. */
static int make_events(struct weft_net_comm *comm, const struct weft_cuda *cu)
{
	unsigned int i;
	int r = 0;

	for (i = 0; i < WEFT_NET_REQUESTS && !r; i++)
		if (!comm->req[i].event)
			r = cu->event_create(&comm->req[i].event,
					     WEFT_CU_EVENT_DISABLE_TIMING);
	return r;
}

static struct weft_net_bounce *find_bounce(struct weft_net *net,
					   const struct weft_net_mr *mr)
{
	struct weft_net_bounce *b, *tmp;

	weft_list_for_each (b, tmp, &net->bounces, link)
		if (b->where.buffer_id == mr->where.buffer_id &&
		    b->where.ctx == mr->where.ctx && b->addr == mr->addr &&
		    b->size == mr->size)
			return b;
	return NULL;
}

static bool room_for_users(struct weft_net *net, size_t size)
{
	struct weft_net_bounce *b, *tmp;
	size_t held = 0;

	weft_list_for_each (b, tmp, &net->bounces, link)
		held += b->own ? 0 : b->size;
	return size <= USERS_MAX && held <= USERS_MAX - size;
}

static int pin_bounce(struct weft_net_bounce *b)
{
	const size_t len = whole_pages(b->size);
	struct weft_cuda_scope s;
	int r, err;

	/* Private pages of a pinned region are the child's after a fork(). */
	b->mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b->mem == MAP_FAILED)
		return weft_fail(errno,
				 "cannot allocate %zu bytes of host memory "
				 "for GPU memory that is sent over TCP",
				 b->size);
	err = weft_cuda_enter(&s, b->where.ctx);
	if (!err) {
		r = s.cu->host_register(b->mem, len,
					WEFT_CU_HOSTREGISTER_PORTABLE);
		weft_cuda_leave(&s);
		if (r)
			err = weft_fail(-weft_cuda_errno(r),
					"cannot register "
					"%zu bytes of host memory with CUDA "
					"(%s)",
					b->size, weft_cuda_error_name(r));
	}
	if (err)
		munmap(b->mem, len);
	return err;
}

static int new_bounce(struct weft_net *net, struct weft_net_mr *mr, bool own)
{
	struct weft_net_bounce *b;
	int ret;

	if (!own && !room_for_users(net, mr->size)) {
		weft_info("%zu bytes of a user's GPU memory are not registered "
			  "for TCP, which takes %lu MiB of it; NCCL uses its "
			  "own buffers",
			  mr->size, USERS_MAX >> 20);
		return -ENOMEM;
	}
	b = calloc(1, sizeof(*b));
	if (!b)
		return weft_fail(ENOMEM, "cannot register %zu bytes", mr->size);
	b->where = mr->where;
	b->addr = mr->addr;
	b->size = mr->size;
	b->own = own;
	ret = pin_bounce(b);
	if (ret < 0) {
		free(b);
		return ret;
	}
	weft_list_add_tail(&net->bounces, &b->link);
	mr->bounce = b;
	return 0;
}

static int make_comm_events(struct weft_net_comm *comm, void *ctx)
{
	struct weft_cuda_scope s;
	int r, err;

	err = weft_cuda_enter(&s, ctx);
	if (err)
		return weft_fail(err, "weft's CUDA context is gone");
	r = make_events(comm, s.cu);
	weft_cuda_leave(&s);
	return r ? weft_fail(-weft_cuda_errno(r),
			     "cannot create a CUDA event "
			     "(%s)",
			     weft_cuda_error_name(r))
		 : 0;
}

int weft_net_bounce_register(struct weft_net_comm *comm, struct weft_net_mr *mr,
			     bool own)
{
	struct weft_net *net = comm->net;
	int ret;

	pthread_mutex_lock(&net->bounce_lock);
	ret = find_copy_queue(net, &mr->where, &mr->copy_queue);
	if (!ret)
		ret = make_comm_events(comm, mr->copy_queue->ctx);
	if (!ret) {
		mr->bounce = find_bounce(net, mr);
		if (!mr->bounce)
			ret = new_bounce(net, mr, own);
	}
	if (!ret) {
		mr->bounce->refs++;
		mr->bounce->own |= own;
		mr->bounce_mem = mr->bounce->mem;
	}
	pthread_mutex_unlock(&net->bounce_lock);
	return ret;
}

void weft_net_bounce_release(struct weft_net_mr *mr)
{
	struct weft_net_bounce *b = mr->bounce;
	struct weft_cuda_scope s;

	if (!b)
		return;
	mr->bounce = NULL;
	mr->bounce_mem = NULL;
	pthread_mutex_lock(&mr->net->bounce_lock);
	if (!--b->refs) {
		weft_list_del(&b->link);
		if (!weft_cuda_enter(&s, b->where.ctx)) {
			s.cu->host_unregister(b->mem);
			weft_cuda_leave(&s);
		}
		munmap(b->mem, whole_pages(b->size));
		free(b);
	}
	pthread_mutex_unlock(&mr->net->bounce_lock);
}

int weft_net_bounce_copy(struct weft_net_request *req, const void *data,
			 size_t size, bool in, weft_net_copied on_copied)
{
	struct weft_net_mr *mr = req->mr;
	uint64_t gpu = (uintptr_t)data;
	uint64_t host = (uintptr_t)weft_net_bounce_address(mr, data);
	struct weft_cuda_scope s;
	int r = 0, err;

	err = weft_cuda_enter(&s, mr->copy_queue->ctx);
	if (err)
		return weft_fail(err, "weft's CUDA context is gone");
	if (size && in)
		r = weft_cuda_from_host(s.cu, gpu, host, size,
					mr->copy_queue->stream);
	else if (size)
		r = s.cu->memcpy_async(host, gpu, size, mr->copy_queue->stream);
	if (!r)
		r = s.cu->event_record(req->event, mr->copy_queue->stream);
	weft_cuda_leave(&s);
	if (r)
		return weft_fail(-weft_cuda_errno(r),
				 "cannot copy %zu bytes "
				 "between GPU and host memory (%s)",
				 size, weft_cuda_error_name(r));
	req->copied = false;
	req->on_copied = on_copied;
	weft_list_add_tail(&req->comm->net->copying, &req->copying);
	return 0;
}

/* -EINPROGRESS: the engine still has it. */
static int copy_state(struct weft_net_request *req)
{
	struct weft_cuda_scope s;
	int r, err;

	err = weft_cuda_enter(&s, req->mr->copy_queue->ctx);
	if (err)
		return err;
	r = s.cu->event_query(req->event);
	weft_cuda_leave(&s);
	return weft_cuda_errno(r);
}

static void advance_copy(struct weft_net_request *req)
{
	int ret = req->copied ? 0 : copy_state(req);

	if (ret == -EINPROGRESS)
		return;
	req->copied = true;
	if (req->on_copied(req, ret) != -EAGAIN)
		weft_list_del(&req->copying);
}

void weft_net_bounce_progress(struct weft_net *net)
{
	struct weft_net_request *req, *tmp;

	weft_list_for_each (req, tmp, &net->copying, copying)
		advance_copy(req);
}

void weft_net_bounce_log_overdue(void)
{
	weft_error("copies between GPU and host memory did not end within %u s",
		   WEFT_NET_COPIES_MS / 1000);
}

void weft_net_bounce_drain(struct weft_net *net, struct weft_net_mr *mr)
{
	const uint64_t end = weft_now_ms() + WEFT_NET_COPIES_MS;
	struct weft_net_request *req, *tmp;
	bool flying = true;

	while (flying && weft_now_ms() < end) {
		flying = false;
		weft_list_for_each (req, tmp, &net->copying, copying)
			flying |= (!mr || req->mr == mr) && !req->copied &&
				  copy_state(req) == -EINPROGRESS;
		if (flying)
			sched_yield();
	}
	if (flying)
		weft_net_bounce_log_overdue();
}

void weft_net_bounce_destroy_events(struct weft_net_comm *comm)
{
	const struct weft_cuda *cu = weft_cuda();
	unsigned int i;

	for (i = 0; i < WEFT_NET_REQUESTS; i++) {
		weft_list_del(&comm->req[i].copying);
		if (comm->req[i].event)
			cu->event_destroy(comm->req[i].event);
		comm->req[i].event = NULL;
	}
}

void weft_net_bounce_close(struct weft_net *net)
{
	struct weft_net_copy_queue *queue, *tmp;
	struct weft_cuda_scope s;
	unsigned int i;

	weft_net_bounce_drain(net, NULL);
	pthread_mutex_lock(&net->bounce_lock);
	/* comms that are left keep no event of the context */
	for (i = 0; i < net->comms_size; i++)
		if (net->comms[i])
			weft_net_bounce_destroy_events(net->comms[i]);
	weft_list_for_each (queue, tmp, &net->copy_queues, link) {
		if (!weft_cuda_enter(&s, queue->ctx)) {
			s.cu->stream_destroy(queue->stream);
			weft_cuda_leave(&s);
		}
		weft_cuda_own_put(queue->ordinal);
		weft_list_del(&queue->link);
		free(queue);
	}
	pthread_mutex_unlock(&net->bounce_lock);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory over TCP and InfiniBand: each registered region has a double in
 * pinned host memory, and only that is ever on the wire.
 * A send is copied there first; a receive is copied from there before NCCL is
 * told.
 *
 * NCCL registers one region many times (its pool for sends and receives on
 * every connection, a user's buffer on every channel): all of a context's
 * registrations of it share one double.  NCCL's own buffers, which would be host
 * memory of the same size if weft took none of the GPU's, are always taken; a
 * user's (ncclCommRegister, CUDA graphs) up to USERS_MAX bytes, beyond which
 * NCCL hears no and goes by its own.
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

#define PAGE		4096u
#define USERS_MAX	(256ul << 20)

/* A stream for the memory of a CUDA context, in one of ours. */
struct weft_net_lane {
	struct weft_list link;			/* net->lanes */
	void *of, *ctx, *stream;
	int ordinal;
};

/* The double of a region; with its context's stage_lock. */
struct weft_net_double {
	struct weft_list link;			/* net->doubles */
	struct weft_cuda_ptr where;
	uintptr_t addr;
	size_t size;
	unsigned int refs;
	bool own;				/* NCCL's */
	char *mem;
};

static int make_lane(struct weft_net_lane *lane)
{
	struct weft_cuda_scope s;
	int r, err;

	err = weft_cuda_own_get(lane->ordinal, &lane->ctx);
	if (err)
		return err;
	err = weft_cuda_enter(&s, lane->ctx);
	if (!err) {
		r = s.cu->stream_create(&lane->stream,
					WEFT_CU_STREAM_NON_BLOCKING);
		weft_cuda_leave(&s);
		if (r)
			err = weft_fail(-weft_cuda_errno(r), "cannot make a "
					"CUDA stream (%s)",
					weft_cuda_error_name(r));
	}
	if (err)
		weft_cuda_own_put(lane->ordinal);
	return err;
}

static int lane_of(struct weft_net *net, const struct weft_cuda_ptr *where,
		   struct weft_net_lane **out)
{
	struct weft_net_lane *lane, *tmp;
	int err;

	weft_list_for_each(lane, tmp, &net->lanes, link) {
		if (lane->of == where->ctx) {
			*out = lane;
			return 0;
		}
	}
	lane = calloc(1, sizeof(*lane));
	if (!lane)
		return -ENOMEM;
	lane->of = where->ctx;
	lane->ordinal = where->ordinal;
	err = make_lane(lane);
	if (err) {
		free(lane);
		return err;
	}
	weft_list_add_tail(&net->lanes, &lane->link);
	*out = lane;
	return 0;
}

static size_t whole_pages(size_t size)
{
	return (size + PAGE) & ~(size_t)(PAGE - 1);
}

/* One event per request, since nothing may be made once traffic runs. */
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

static struct weft_net_double *find(struct weft_net *net,
				    const struct weft_net_mr *mr)
{
	struct weft_net_double *d, *tmp;

	weft_list_for_each(d, tmp, &net->doubles, link)
		if (d->where.buffer_id == mr->where.buffer_id &&
		    d->where.ctx == mr->where.ctx && d->addr == mr->addr &&
		    d->size == mr->size)
			return d;
	return NULL;
}

static bool room_for_users(struct weft_net *net, size_t size)
{
	struct weft_net_double *d, *tmp;
	size_t held = 0;

	weft_list_for_each(d, tmp, &net->doubles, link)
		held += d->own ? 0 : d->size;
	return size <= USERS_MAX && held <= USERS_MAX - size;
}

static int pin(struct weft_net_double *d)
{
	const size_t len = whole_pages(d->size);
	struct weft_cuda_scope s;
	int r, err;

	/* Private pages of a pinned region are the child's after a fork(). */
	d->mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (d->mem == MAP_FAILED)
		return weft_fail(errno, "no %zu bytes of host memory for GPU "
				 "memory that goes by TCP", d->size);
	err = weft_cuda_enter(&s, d->where.ctx);
	if (!err) {
		r = s.cu->host_register(d->mem, len,
					WEFT_CU_HOSTREGISTER_PORTABLE);
		weft_cuda_leave(&s);
		if (r)
			err = weft_fail(-weft_cuda_errno(r), "cannot register "
					"%zu bytes of host memory with CUDA "
					"(%s)", d->size,
					weft_cuda_error_name(r));
	}
	if (err)
		munmap(d->mem, len);
	return err;
}

static int make_double(struct weft_net *net, struct weft_net_mr *mr, bool own)
{
	struct weft_net_double *d;
	int ret;

	if (!own && !room_for_users(net, mr->size)) {
		weft_info("%zu bytes of a user's GPU memory are not registered "
			  "for TCP, which takes %lu MiB of it; NCCL goes by its "
			  "own buffers", mr->size, USERS_MAX >> 20);
		return -ENOMEM;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return weft_fail(ENOMEM, "cannot register %zu bytes", mr->size);
	d->where = mr->where;
	d->addr = mr->addr;
	d->size = mr->size;
	d->own = own;
	ret = pin(d);
	if (ret < 0) {
		free(d);
		return ret;
	}
	weft_list_add_tail(&net->doubles, &d->link);
	mr->twin = d;
	return 0;
}

static int comm_events(struct weft_net_comm *comm, void *ctx)
{
	struct weft_cuda_scope s;
	int r, err;

	err = weft_cuda_enter(&s, ctx);
	if (err)
		return weft_fail(err, "weft's CUDA context is gone");
	r = make_events(comm, s.cu);
	weft_cuda_leave(&s);
	return r ? weft_fail(-weft_cuda_errno(r), "cannot make a CUDA event "
			     "(%s)", weft_cuda_error_name(r)) : 0;
}

int weft_net_stage_register(struct weft_net_comm *comm, struct weft_net_mr *mr,
			    bool own)
{
	struct weft_net *net = comm->net;
	int ret;

	pthread_mutex_lock(&net->stage_lock);
	ret = lane_of(net, &mr->where, &mr->lane);
	if (!ret)
		ret = comm_events(comm, mr->lane->ctx);
	if (!ret) {
		mr->twin = find(net, mr);
		if (!mr->twin)
			ret = make_double(net, mr, own);
	}
	if (!ret) {
		mr->twin->refs++;
		mr->twin->own |= own;
		mr->shadow = mr->twin->mem;
	}
	pthread_mutex_unlock(&net->stage_lock);
	return ret;
}

void weft_net_stage_release(struct weft_net_mr *mr)
{
	struct weft_net_double *d = mr->twin;
	struct weft_cuda_scope s;

	if (!d)
		return;
	mr->twin = NULL;
	mr->shadow = NULL;
	pthread_mutex_lock(&mr->net->stage_lock);
	if (!--d->refs) {
		weft_list_del(&d->link);
		if (!weft_cuda_enter(&s, d->where.ctx)) {
			s.cu->host_unregister(d->mem);
			weft_cuda_leave(&s);
		}
		munmap(d->mem, whole_pages(d->size));
		free(d);
	}
	pthread_mutex_unlock(&mr->net->stage_lock);
}

int weft_net_stage(struct weft_net_request *req, const void *data, size_t size,
		   bool in, weft_net_copied on_copied)
{
	struct weft_net_mr *mr = req->mr;
	uint64_t gpu = (uintptr_t)data;
	uint64_t host = (uintptr_t)weft_net_shadow(mr, data);
	struct weft_cuda_scope s;
	int r = 0, err;

	err = weft_cuda_enter(&s, mr->lane->ctx);
	if (err)
		return weft_fail(err, "weft's CUDA context is gone");
	if (size && in)
		r = weft_cuda_from_host(s.cu, gpu, host, size,
					mr->lane->stream);
	else if (size)
		r = s.cu->memcpy_async(host, gpu, size, mr->lane->stream);
	if (!r)
		r = s.cu->event_record(req->event, mr->lane->stream);
	weft_cuda_leave(&s);
	if (r)
		return weft_fail(-weft_cuda_errno(r), "cannot copy %zu bytes "
				 "between GPU and host memory (%s)", size,
				 weft_cuda_error_name(r));
	req->copied = false;
	req->on_copied = on_copied;
	weft_list_add_tail(&req->comm->net->staged, &req->staged);
	return 0;
}

/* -EINPROGRESS: the engine still has it. */
static int copy_state(struct weft_net_request *req)
{
	struct weft_cuda_scope s;
	int r, err;

	err = weft_cuda_enter(&s, req->mr->lane->ctx);
	if (err)
		return err;
	r = s.cu->event_query(req->event);
	weft_cuda_leave(&s);
	return weft_cuda_errno(r);
}

static void step(struct weft_net_request *req)
{
	int ret = req->copied ? 0 : copy_state(req);

	if (ret == -EINPROGRESS)
		return;
	req->copied = true;
	if (req->on_copied(req, ret) != -EAGAIN)
		weft_list_del(&req->staged);
}

void weft_net_stage_progress(struct weft_net *net)
{
	struct weft_net_request *req, *tmp;

	weft_list_for_each(req, tmp, &net->staged, staged)
		step(req);
}

void weft_net_stage_late(void)
{
	weft_error("copies between GPU and host memory did not end within %u s",
		   WEFT_NET_COPIES_MS / 1000);
}

void weft_net_stage_drain(struct weft_net *net, struct weft_net_mr *mr)
{
	const uint64_t end = weft_now_ms() + WEFT_NET_COPIES_MS;
	struct weft_net_request *req, *tmp;
	bool flying = true;

	while (flying && weft_now_ms() < end) {
		flying = false;
		weft_list_for_each(req, tmp, &net->staged, staged)
			flying |= (!mr || req->mr == mr) && !req->copied &&
				  copy_state(req) == -EINPROGRESS;
		if (flying)
			sched_yield();
	}
	if (flying)
		weft_net_stage_late();
}

void weft_net_stage_forget(struct weft_net_comm *comm)
{
	const struct weft_cuda *cu = weft_cuda();
	unsigned int i;

	for (i = 0; i < WEFT_NET_REQUESTS; i++) {
		weft_list_del(&comm->req[i].staged);
		if (comm->req[i].event)
			cu->event_destroy(comm->req[i].event);
		comm->req[i].event = NULL;
	}
}

void weft_net_stage_close(struct weft_net *net)
{
	struct weft_net_lane *lane, *tmp;
	struct weft_cuda_scope s;
	unsigned int i;

	weft_net_stage_drain(net, NULL);
	pthread_mutex_lock(&net->stage_lock);
	/* whoever still has a comm has nothing of its context */
	for (i = 0; i < net->comms_size; i++)
		if (net->comms[i])
			weft_net_stage_forget(net->comms[i]);
	weft_list_for_each(lane, tmp, &net->lanes, link) {
		if (!weft_cuda_enter(&s, lane->ctx)) {
			s.cu->stream_destroy(lane->stream);
			weft_cuda_leave(&s);
		}
		weft_cuda_own_put(lane->ordinal);
		weft_list_del(&lane->link);
		free(lane);
	}
	pthread_mutex_unlock(&net->stage_lock);
}

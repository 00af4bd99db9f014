/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/gpu/side.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "tests/gpu/pods.h"

const struct weft_dev_ops *const ops = &weft_nvlink_ops;
struct weft_iface *iface;
struct weft_ep *ep;
static bool closing;

unsigned int messages, notifies;
uint64_t tags[TAGS];
static uint8_t last_message[16];

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	(void)arg;
	(void)id;
	memcpy(last_message, data, weft_min(len, sizeof(last_message)));
	messages++;
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	(void)arg;
	(void)size;
	tags[notifies++ % TAGS] = tag;
}

static void on_error(void *arg, struct weft_ep *e, void *user, int err)
{
	(void)arg;
	(void)e;
	(void)user;
	if (!closing || err != -ESHUTDOWN)
		pods_fail("the endpoint failed: %s", strerror(-err));
}

static void on_ready(void *arg, struct weft_ep *e, void *user)
{
	(void)arg;
	(void)e;
	(void)user;
}

void progress(void)
{
	/* the fake driver runs where others need the processors */
	if (!ops->progress(iface) && gpumem_is_fake())
		sched_yield();
}

static void op_done(struct weft_op *op, int status)
{
	struct wop *w = container_of(op, struct wop, op);

	w->done = true;
	w->status = status;
	if (status)
		pods_fail("an operation failed: %s", strerror(-status));
}

void start(struct wop *w, bool get, void *p, size_t len, uint64_t addr,
	   const void *key, const struct weft_notify *n)
{
	struct weft_iov iov = { p, len, NULL };
	int r;

	*w = (struct wop){ .op.done = op_done };
	for (;;) {
		r = get ? ops->get(ep, &iov, 1, addr, key, &w->op)
			: ops->put(ep, &iov, 1, addr, key, n, &w->op);
		if (r != -EAGAIN)
			break;
		progress();
	}
	if (r != -EINPROGRESS)
		pods_fail("put or get: %s", strerror(-r));
}

void move(bool get, struct buf *local, struct buf *remote, size_t off,
	  size_t len, const struct weft_notify *n)
{
	struct wop w;

	start(&w, get, local->p + off, len, remote->theirs.addr + off,
	      &remote->theirs.key, n);
	wait_until(w.done);
}

void message(uint8_t id)
{
	struct iovec iov = { last_message, 8 };
	int r;

	while ((r = ops->message(ep, id, &iov, 1, NULL)) == -EAGAIN)
		progress();
	if (r)
		pods_fail("message: %s", strerror(-r));
}

void buf_open(struct buf *b, enum gpumem_kind kind, size_t size)
{
	int err;

	memset(b, 0, sizeof(*b));
	b->kind = kind;
	b->size = size;
	b->p = gpumem_alloc(kind, size);
	err = ops->mem_register(b->p, size, WEFT_MEM_CUDA, &b->mem);
	if (err)
		pods_fail("mem_register: %s", strerror(-err));
	b->mine.addr = (uintptr_t)b->p;
	ops->mem_pack(b->mem, &b->mine.key);
	pods_exchange(&b->mine, &b->theirs, sizeof(b->mine), progress);
}

void buf_close(struct buf *b)
{
	pods_barrier(progress);
	ops->mem_release(b->mem);
	gpumem_free(b->kind, b->p, b->size);
}

void device_open(void)
{
	static const struct weft_iface_cb cb = {
		.on_message = on_message,
		.on_notify = on_notify,
		.on_error = on_error,
		.on_ready = on_ready,
	};
	const struct weft_iface_params params = { .netdev = "nvl", .cb = &cb };
	struct weft_iface_attr attr;
	struct weft_address remote;
	double t;
	int err;

	pods_step("connect");
	err = ops->iface_open(&params, &iface);
	if (err)
		pods_fail("iface_open: %s", strerror(-err));
	ops->iface_query(iface, &attr);
	pods_exchange(&attr.addr, &remote, sizeof(remote), NULL);
	if (!ops->reaches(iface, &remote, NULL))
		pods_fail("the other pod is out of reach");
	t = pods_now();
	err = ops->ep_create(iface, &remote, NULL, &ep);
	if (err)
		pods_fail("ep_create: %s", strerror(-err));
	wait_until(ops->ready(ep));
	if (!pods_rank())
		pods_result(0, "ms", (pods_now() - t) * 1e3,
			    "connecting, proof included");
	pods_barrier(progress);
}

void device_close(void)
{
	closing = true;
	pods_barrier(progress);
	ops->ep_destroy(ep);
	ops->iface_close(iface);
}

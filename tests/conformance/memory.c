/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reference device: the contract of devices/device.h with nothing below it.
 * The interfaces of one process are its network.  It is part of the conformance
 * program alone; docs/dev/add-a-device.md walks through it.
 *
 * Each endpoint has one queue, in the order of the calls.  Progress moves the
 * first of it: the peer's takes a message or a notification, the owner's copies
 * a piece of a put or get, as an adapter would.  So fence() has nothing to do,
 * and a flush is complete when it comes first.
 *
 * Threads: both interfaces look at an endpoint, so a lock guards all of them.
 * Only the owner's caller changes err and ready_owed.  No callback runs under
 * the lock, nor is its endpoint touched afterwards, as it may be gone.
 */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "devices/common/region.h"
#include "util/list.h"
#include "util/log.h"

#define MAX_MESSAGE 65536u
#define MAX_IOV	    16u
#define MAX_TAKEN   64u	  /* operations of one endpoint */
#define PIECE	    8192u /* bytes copied at a time */

enum kind { MESSAGE, PUT, GET, FLUSH, NOTIFY };

struct frame {
	struct weft_list link; /* ep->queue */
	enum kind kind;
	struct weft_op *op; /* NULL: cancelled */
	size_t len;
	size_t copied;		   /* of them: PUT, GET */
	struct iovec iov[MAX_IOV]; /* what is left of it */
	uint64_t remote;
	struct weft_rkey rkey;
	bool notifies;
	uint64_t tag;
	uint8_t id; /* MESSAGE */
	uint8_t data[];
};

struct mem_iface {
	struct weft_iface base;
	struct weft_list link; /* ifaces */
	struct weft_address addr;
	int event_fd;
};

struct mem_ep {
	struct weft_ep base;
	struct weft_list link; /* eps */
	struct mem_iface *owner;
	struct mem_ep *twin; /* the peer's endpoint back; NULL: none */
	_Atomic(struct mem_iface *) peer; /* NULL: it has closed */
	int end;			  /* the error then, if no frame is */
	int err;			  /* the endpoint is dead */
	bool ready_owed;		  /* a caller waits for on_ready() */
	struct weft_list queue;
	atomic_uint taken; /* frames in it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list ifaces = { &ifaces, &ifaces }, eps = { &eps, &eps };

#define mem_iface(b) container_of(b, struct mem_iface, base)
#define mem_ep(b)    container_of(b, struct mem_ep, base)

/* Both sides of @ep may have work now. */
static void wake(const struct mem_ep *ep)
{
	struct mem_iface *peer = ep->peer;

	eventfd_write(ep->owner->event_fd, 1);
	if (peer)
		eventfd_write(peer->event_fd, 1);
}

static bool can_take(const struct mem_ep *ep)
{
	return ep->peer && ep->taken < MAX_TAKEN;
}

static struct frame *first_frame(const struct mem_ep *ep)
{
	return weft_list_empty(&ep->queue)
		       ? NULL
		       : weft_list_first(&ep->queue, struct frame, link);
}

static struct frame *take_frame(struct mem_ep *ep)
{
	struct frame *f = first_frame(ep);

	weft_list_del(&f->link);
	ep->taken--;
	wake(ep);
	return f;
}

/* Ends what is pending.  Afterwards @ep has no work. */
static void end_ep(struct mem_ep *ep, int err)
{
	struct frame *f;

	pthread_mutex_lock(&lock);
	ep->err = err;
	ep->peer = NULL;
	pthread_mutex_unlock(&lock);
	while (ep->taken) {
		f = take_frame(ep);
		if (f->op)
			f->op->done(f->op, err);
		free(f);
	}
}

/*
 * The next piece; -EINPROGRESS: there are more.  The kernel copies: it says
 * EFAULT where memory that a peer named is not mapped any more.
 */
static int copy_piece(struct frame *f)
{
	uint8_t *at = weft_region_get(&f->rkey, f->remote, f->len);
	struct iovec remote, *iov = f->iov;
	ssize_t n;
	size_t m;

	if (!at)
		return -EACCES;
	remote.iov_base = at + f->copied;
	remote.iov_len = weft_min(PIECE, f->len - f->copied);
	n = f->kind == PUT
		    ? process_vm_writev(getpid(), iov, MAX_IOV, &remote, 1, 0)
		    : process_vm_readv(getpid(), iov, MAX_IOV, &remote, 1, 0);
	weft_region_put(&f->rkey);
	if (n < 0)
		return errno == EFAULT ? -EACCES : -errno;
	f->copied += n;
	for (; n; n -= m, iov++) {
		m = weft_min(n, iov->iov_len);
		iov->iov_base = (uint8_t *)iov->iov_base + m;
		iov->iov_len -= m;
	}
	return f->copied == f->len ? 0 : -EINPROGRESS;
}

enum work { NONE, END, READY, DELIVER, MOVE };

/* What @iface has to do at @ep; the lock is held. */
static enum work find_work(const struct mem_iface *iface,
			   const struct mem_ep *ep)
{
	const struct frame *f = ep->err ? NULL : first_frame(ep);
	bool delivers = f && (f->kind == MESSAGE || f->kind == NOTIFY);

	if (delivers && ep->peer == iface)
		return DELIVER;
	if (ep->err || ep->owner != iface)
		return NONE;
	if (!ep->peer)
		return END;
	if (ep->ready_owed && can_take(ep))
		return READY;
	return f && !delivers ? MOVE : NONE;
}

static enum work next_work(const struct mem_iface *iface, struct mem_ep **out)
{
	enum work work = NONE;
	struct mem_ep *ep, *next;

	weft_list_for_each (ep, next, &eps, link) {
		work = find_work(iface, ep);
		if (work == NONE)
			continue;
		/* the others come before it next time */
		weft_list_del(&ep->link);
		weft_list_add_tail(&eps, &ep->link);
		*out = ep;
		break;
	}
	return work;
}

/* Nothing of @ep is delivered or moved any more; the lock is held. */
static void break_ep(struct mem_ep *ep)
{
	wake(ep);
	ep->peer = NULL;
	ep->end = -ECONNRESET;
}

/*
 * The operation that this completes, with *@status; the lock is held.  One that
 * fails ends both endpoints.
 */
static struct weft_op *move(struct mem_ep *ep, int *status)
{
	struct frame *f = first_frame(ep);
	struct weft_op *op = f->op;

	*status = f->kind == FLUSH ? 0 : copy_piece(f);
	if (*status == -EINPROGRESS)
		return NULL;
	f->op = NULL;
	if (!*status && f->notifies) {
		f->kind = NOTIFY;
		wake(ep);
	} else {
		free(take_frame(ep));
	}
	if (*status) {
		break_ep(ep);
		if (ep->twin)
			break_ep(ep->twin);
	}
	return op;
}

static bool progress_one(struct mem_iface *iface)
{
	const struct weft_iface_cb *cb = &iface->base.cb;
	struct weft_op *op = NULL;
	struct mem_ep *ep = NULL;
	struct frame *f = NULL;
	enum work work;
	int status;

	pthread_mutex_lock(&lock);
	work = next_work(iface, &ep);
	if (work == DELIVER)
		f = take_frame(ep);
	else if (work == MOVE)
		op = move(ep, &status);
	pthread_mutex_unlock(&lock);
	if (op)
		op->done(op, status);
	if (f && f->kind == MESSAGE)
		cb->on_message(cb->arg, f->id, f->data, f->len);
	else if (f)
		cb->on_notify(cb->arg, f->tag, f->len);
	free(f);
	if (work == END) {
		end_ep(ep, ep->taken ? -ECONNRESET : ep->end);
		cb->on_error(cb->arg, &ep->base, ep->base.user, ep->err);
	} else if (work == READY) {
		ep->ready_owed = false;
		cb->on_ready(cb->arg, &ep->base, ep->base.user);
	}
	return work != NONE;
}

static unsigned int progress(struct weft_iface *base)
{
	unsigned int n = 0;
	eventfd_t rings;

	/* before looking: what comes later rings again */
	eventfd_read(mem_iface(base)->event_fd, &rings);
	while (n < WEFT_PROGRESS_MAX && progress_one(mem_iface(base)))
		n++;
	return n;
}

static int event_fd(struct weft_iface *base)
{
	return mem_iface(base)->event_fd;
}

static int arm(struct weft_iface *base)
{
	struct mem_ep *ep;
	enum work work;

	pthread_mutex_lock(&lock);
	work = next_work(mem_iface(base), &ep);
	pthread_mutex_unlock(&lock);
	return work == NONE ? 0 : -EBUSY;
}

static bool ready(struct weft_ep *base)
{
	struct mem_ep *ep = mem_ep(base);

	ep->ready_owed = !ep->err && !can_take(ep);
	return !ep->ready_owed;
}

/* The checks in the order that the contract asks for. */
static int new_frame(struct weft_ep *base, enum kind kind, unsigned int iovcnt,
		     size_t len, struct frame **f)
{
	if (mem_ep(base)->err)
		return mem_ep(base)->err;
	if (iovcnt > MAX_IOV || (kind == MESSAGE && len > MAX_MESSAGE))
		return -EMSGSIZE;
	if (kind != FLUSH && !ready(base))
		return -EAGAIN;
	*f = calloc(1, sizeof(**f) + (kind == MESSAGE ? len : 0));
	if (!*f)
		return -ENOMEM;
	(*f)->kind = kind;
	(*f)->len = len;
	return 0;
}

static void queue_frame(struct weft_ep *base, struct frame *f)
{
	struct mem_ep *ep = mem_ep(base);

	pthread_mutex_lock(&lock);
	weft_list_add_tail(&ep->queue, &f->link);
	ep->taken++;
	wake(ep);
	pthread_mutex_unlock(&lock);
}

static int message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int iovcnt)
{
	size_t len = 0, at = 0;
	struct frame *f;
	unsigned int i;
	int err;

	for (i = 0; i < iovcnt; i++)
		len += iov[i].iov_len;
	err = new_frame(ep, MESSAGE, iovcnt, len, &f);
	if (err)
		return err;
	f->id = id;
	for (i = 0; i < iovcnt; at += iov[i++].iov_len)
		if (iov[i].iov_len)
			memcpy(f->data + at, iov[i].iov_base, iov[i].iov_len);
	queue_frame(ep, f);
	return 0;
}

static ssize_t message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	struct frame *f;
	int err = new_frame(ep, MESSAGE, 0, MAX_MESSAGE, &f);
	size_t len;

	if (err)
		return err;
	f->id = id;
	len = f->len = pack(f->data, arg);
	queue_frame(ep, f);
	return len;
}

static int start_copy(struct weft_ep *ep, enum kind kind,
		      const struct weft_iov *iov, unsigned int iovcnt,
		      uint64_t remote, const void *rkey,
		      const struct weft_notify *notify, struct weft_op *op)
{
	struct frame *f;
	int err = new_frame(ep, kind, iovcnt, 0, &f);
	unsigned int i;

	if (err)
		return err;
	for (i = 0; i < iovcnt; f->len += iov[i++].len)
		f->iov[i] = (struct iovec){ iov[i].addr, iov[i].len };
	weft_rkey_unpack(rkey, &f->rkey);
	f->remote = remote;
	f->notifies = notify;
	f->tag = notify ? notify->tag : 0;
	f->op = op;
	queue_frame(ep, f);
	return -EINPROGRESS;
}

static int put(struct weft_ep *ep, const struct weft_iov *iov,
	       unsigned int iovcnt, uint64_t remote, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op)
{
	return start_copy(ep, PUT, iov, iovcnt, remote, rkey, notify, op);
}

static int get(struct weft_ep *ep, const struct weft_iov *iov,
	       unsigned int iovcnt, uint64_t remote, const void *rkey,
	       struct weft_op *op)
{
	return start_copy(ep, GET, iov, iovcnt, remote, rkey, NULL, op);
}

static void fence(struct weft_ep *ep)
{
}

static int flush(struct weft_ep *base, struct weft_op *op)
{
	struct mem_ep *ep = mem_ep(base);
	struct frame *f;
	int err;

	if (ep->err || (!ep->taken && ep->end != -ECONNRESET))
		return ep->err == -ECONNRESET ? ep->err : 0;
	err = op ? new_frame(base, FLUSH, 0, 0, &f) : -EINPROGRESS;
	if (err)
		return err;
	f->op = op;
	queue_frame(base, f);
	return -EINPROGRESS;
}

static int ep_create(struct weft_iface *base, const struct weft_address *remote,
		     void *user, struct weft_ep **out)
{
	struct mem_ep *ep = calloc(1, sizeof(*ep));
	struct mem_iface *iface, *next;
	struct mem_ep *back, *tback;

	if (!ep)
		return -ENOMEM;
	ep->base = (struct weft_ep){ base, user };
	ep->owner = mem_iface(base);
	weft_list_init(&ep->queue);
	pthread_mutex_lock(&lock);
	weft_list_for_each (iface, next, &ifaces, link)
		if (!memcmp(iface->addr.key, remote->key, WEFT_KEY_LEN))
			ep->peer = iface;
	/* without a peer progress() finds its end */
	ep->end = ep->peer ? -ESHUTDOWN : -ECONNREFUSED;
	weft_list_for_each (back, tback, &eps, link) {
		if (ep->twin || back->twin || back->owner != ep->peer ||
		    back->peer != ep->owner)
			continue;
		ep->twin = back;
		back->twin = ep;
	}
	weft_list_add_tail(&eps, &ep->link);
	wake(ep);
	pthread_mutex_unlock(&lock);
	*out = &ep->base;
	return 0;
}

static void cancel(struct weft_ep *base)
{
	if (!mem_ep(base)->err)
		end_ep(mem_ep(base), -ECANCELED);
}

static void ep_destroy(struct weft_ep *base)
{
	cancel(base);
	pthread_mutex_lock(&lock);
	weft_list_del(&mem_ep(base)->link);
	if (mem_ep(base)->twin)
		mem_ep(base)->twin->twin = NULL;
	pthread_mutex_unlock(&lock);
	free(mem_ep(base));
}

static bool has_unsent(struct weft_ep *base)
{
	return mem_ep(base)->taken;
}

static int iface_open(const struct weft_iface_params *params,
		      struct weft_iface **out)
{
	struct mem_iface *iface = calloc(1, sizeof(*iface));
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (!iface || fd < 0 || weft_random(iface->addr.key, WEFT_KEY_LEN)) {
		if (fd >= 0)
			close(fd);
		free(iface);
		return weft_fail(-ENOMEM, "cannot open '%s'", params->netdev);
	}
	iface->base = (struct weft_iface){ &memory_ops, *params->cb };
	iface->event_fd = fd;
	iface->addr.wire_min = WEFT_WIRE_MIN;
	iface->addr.wire_max = WEFT_WIRE_MAX;
	iface->addr.ns_id = getpid(); /* its network is this process */
	iface->addr.sa.sa.sa_family = AF_INET;
	pthread_mutex_lock(&lock);
	weft_list_add_tail(&ifaces, &iface->link);
	pthread_mutex_unlock(&lock);
	*out = &iface->base;
	return 0;
}

static void iface_close(struct weft_iface *base)
{
	struct mem_iface *iface = mem_iface(base);
	struct mem_ep *ep, *next;

	pthread_mutex_lock(&lock);
	weft_list_del(&iface->link);
	weft_list_for_each (ep, next, &eps, link) {
		if (ep->peer != iface)
			continue;
		wake(ep);
		ep->peer = NULL;
	}
	pthread_mutex_unlock(&lock);
	close(iface->event_fd);
	free(iface);
}

static void iface_query(struct weft_iface *base, struct weft_iface_attr *attr)
{
	*attr = (struct weft_iface_attr){
		.max_message = MAX_MESSAGE,
		.max_iov = MAX_IOV,
		.mem_kinds = BIT(WEFT_MEM_HOST),
		.bandwidth = 5e9,
		.latency = 1e-6,
		.overhead = 1e-6,
		.addr = mem_iface(base)->addr,
	};
}

static bool reaches(struct weft_iface *base, const struct weft_address *remote,
		    const char **why)
{
	const char *reason = !weft_address_has_version(remote) ? weft_other_wire
			     : remote->ns_id != mem_iface(base)->addr.ns_id
				     ? "it is in another process"
				     : NULL;

	if (reason && why)
		*why = reason;
	return !reason;
}

static int mem_register(void *addr, size_t len, enum weft_mem_kind kind,
			struct weft_mem **mem)
{
	return kind == WEFT_MEM_HOST ? weft_region_add(addr, len, kind, mem)
				     : -EOPNOTSUPP;
}

static void mem_pack(struct weft_mem *mem, void *rkey)
{
	weft_rkey_pack(&mem->rkey, rkey);
}

const struct weft_dev_ops memory_ops = {
	.name = "memory",
	.rkey_len = WEFT_RKEY_LEN,
	.iface_open = iface_open,
	.iface_close = iface_close,
	.iface_query = iface_query,
	.reaches = reaches,
	.progress = progress,
	.event_fd = event_fd,
	.arm = arm,
	.ep_create = ep_create,
	.ep_destroy = ep_destroy,
	.unsent = has_unsent,
	.ready = ready,
	.message = message,
	.message_pack = message_pack,
	.put = put,
	.get = get,
	.fence = fence,
	.flush = flush,
	.cancel = cancel,
	.mem_register = mem_register,
	.mem_pack = mem_pack,
	.mem_release = weft_region_remove,
};

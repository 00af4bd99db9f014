/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/forked.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "devices/common/base.h"
#include "util/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/*
 * A child never frees its copies of the parent's objects: another thread may
 * have been changing them.
 */
static struct weft_list all = { &all, &all };

/* ---- the contract in a child --------------------------------------------- */

static int refuse(void)
{
	weft_warn_once(
		"this process was forked off another one, whose connections it cannot use; start it by exec (Python: multiprocessing's \"spawn\"), or open UCX or NCCL in it again");
	return -ECONNRESET;
}

static void close_iface(struct weft_iface *iface)
{
	weft_forked_close(&weft_base(iface)->events.epfd);
}

static void query_iface(struct weft_iface *iface, struct weft_iface_attr *attr)
{
	*attr = (struct weft_iface_attr){ .addr = *weft_base(iface)->addr };
}

static bool iface_reaches(struct weft_iface *iface,
			  const struct weft_address *remote, const char **why)
{
	if (why)
		*why = "this process was forked off the one that may reach it";
	return false;
}

static unsigned int progress_iface(struct weft_iface *iface)
{
	return 0;
}

static int arm_iface(struct weft_iface *iface)
{
	return 0;
}

static int create_ep(struct weft_iface *iface,
		     const struct weft_address *remote, void *user,
		     struct weft_ep **ep)
{
	return refuse();
}

static void ignore_ep(struct weft_ep *ep)
{
}

static bool has_unsent(struct weft_ep *ep)
{
	return false;
}

static bool is_ready(struct weft_ep *ep)
{
	return true; /* no caller waits */
}

static int send_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
			unsigned int iovcnt)
{
	return refuse();
}

static ssize_t pack_message(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	(void)pack;
	return refuse();
}

static int start_put(struct weft_ep *ep, const struct weft_iov *iov,
		     unsigned int iovcnt, uint64_t remote_addr,
		     const void *rkey, const struct weft_notify *notify,
		     struct weft_op *op)
{
	return refuse();
}

static int start_get(struct weft_ep *ep, const struct weft_iov *iov,
		     unsigned int iovcnt, uint64_t remote_addr,
		     const void *rkey, struct weft_op *op)
{
	return start_put(ep, iov, iovcnt, remote_addr, rkey, NULL, op);
}

/* The child has sent nothing. */
static int flush_ep(struct weft_ep *ep, struct weft_op *op)
{
	return 0;
}

static const struct weft_dev_ops forked_ops = {
	.name = "forked",
	.iface_close = close_iface,
	.iface_query = query_iface,
	.reaches = iface_reaches,
	.progress = progress_iface,
	.event_fd = weft_base_event_fd,
	.arm = arm_iface,
	.ep_create = create_ep,
	.ep_destroy = ignore_ep,
	.unsent = has_unsent,
	.ready = is_ready,
	.message = send_message,
	.message_pack = pack_message,
	.put = start_put,
	.get = start_get,
	.fence = ignore_ep,
	.flush = flush_ep,
	.cancel = ignore_ep,
};

/* ---- while forking ------------------------------------------------------- */

static void lock_all(void)
{
	pthread_mutex_lock(&lock);
}

static void unlock_all(void)
{
	pthread_mutex_unlock(&lock);
}

static void disown_all(void)
{
	struct weft_base *base, *tmp;

	weft_list_for_each (base, tmp, &all, live_link) {
		if (base->iface.ops == &forked_ops)
			continue; /* the parent had inherited it already */
		base->iface.ops->iface_forget(&base->iface);
		base->iface.ops = &forked_ops;
	}
	unlock_all();
}

static void begin(void)
{
	pthread_atfork(lock_all, unlock_all, disown_all);
}

void weft_forked_watch(struct weft_base *base)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, begin);
	lock_all();
	weft_list_add_tail(&all, &base->live_link);
	unlock_all();
}

void weft_forked_unwatch(struct weft_base *base)
{
	lock_all();
	weft_list_del(&base->live_link);
	unlock_all();
}

void weft_forked_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests for which there was no room, in order.
 *
 * UCP loops until a request is queued or sent (ucp_request_send), so
 * pending_add() may return BUSY only if the failed operation would now
 * succeed: the queue is empty and the device's predicate that made it fail is
 * true.  While the queue is not empty, new sends queue behind it (ep.c), or
 * stream and tag data would overtake each other.  A put that waits for the
 * puts before a fence is at the head, since nothing else fails while the
 * device is ready; their completion is progress, and progress runs the queue
 * again.
 */
#include "ucx_tl/uct.h"

struct queued_req { /* lives in weft_uct_pending.priv */
	struct weft_list link;
	bool fence; /* after it */
};
_Static_assert(sizeof(struct queued_req) <= WEFT_UCT_PENDING_PRIV, "priv");

static struct queued_req *get_queued(struct weft_uct_pending *req)
{
	return (struct queued_req *)req->priv;
}

static struct weft_uct_pending *first_request(struct weft_uct_ep *ep)
{
	struct queued_req *q =
		weft_list_first(&ep->pending, struct queued_req, link);

	return container_of((char(*)[WEFT_UCT_PENDING_PRIV])q,
			    struct weft_uct_pending, priv);
}

static void del_if_empty(struct weft_uct_ep *ep)
{
	if (weft_list_empty(&ep->pending))
		weft_list_del(&ep->waiting);
}

enum weft_ucs_status weft_uct_pending_add(struct weft_uct_ep *ep,
					  struct weft_uct_pending *req,
					  unsigned int flags)
{
	if (ep->err || (!weft_uct_must_queue(ep) && !weft_uct_rma_waits(ep) &&
			ep->iface->iface->ops->ready(ep->ep)))
		return WEFT_UCS_BUSY;
	get_queued(req)->fence = false;
	weft_list_add_tail(&ep->pending, &get_queued(req)->link);
	if (weft_list_empty(&ep->waiting))
		weft_list_add_tail(&ep->iface->waiting, &ep->waiting);
	return WEFT_UCS_OK;
}

void weft_uct_pending_purge(struct weft_uct_ep *ep,
			    void (*cb)(struct weft_uct_pending *req, void *arg),
			    void *arg)
{
	while (!weft_list_empty(&ep->pending)) {
		struct weft_uct_pending *req = first_request(ep);

		weft_list_del(&get_queued(req)->link);
		del_if_empty(ep);
		if (cb)
			cb(req, arg);
	}
}

static void fence_ep(struct weft_uct_ep *ep)
{
	if (ep->err)
		return;
	ep->iface->iface->ops->fence(ep->ep);
	ep->rma_waits = ep->rma_out > 0;
}

/* Runs requests while the device has room; returns how many. */
static unsigned int run_pending(struct weft_uct_ep *ep)
{
	unsigned int ran = 0;

	if (ep->dispatching)
		return 0;
	ep->dispatching = true;
	while (!weft_list_empty(&ep->pending) && !ep->err &&
	       ep->iface->iface->ops->ready(ep->ep)) {
		struct weft_uct_pending *req = first_request(ep);
		bool fence = get_queued(req)->fence;
		enum weft_ucs_status status;

		/*
		 * Not in the queue while it runs: it may free itself, or queue
		 * on another endpoint.  Back to the front if it is not done.
		 */
		weft_list_del(&get_queued(req)->link);
		ep->turn = true;
		status = req->func(req);
		ep->turn = false;
		ran++;
		if (status == WEFT_UCS_OK) {
			if (fence)
				fence_ep(ep);
			continue;
		}
		weft_list_add_tail(ep->pending.next, &get_queued(req)->link);
		if (status != WEFT_UCS_INPROGRESS)
			break;
	}
	del_if_empty(ep);
	ep->dispatching = false;
	return ran;
}

void weft_uct_fence_all(struct weft_uct_ep *ep)
{
	/* the fence covers requests that UCP has queued */
	if (weft_list_empty(&ep->pending))
		fence_ep(ep);
	else
		container_of(ep->pending.prev, struct queued_req, link)->fence =
			true;
}

void weft_uct_pending_ready(void *arg, struct weft_ep *ep, void *user)
{
	run_pending(user);
}

bool weft_uct_pending_runnable(struct weft_uct_iface *iface)
{
	struct weft_uct_ep *ep, *tmp;

	weft_list_for_each (ep, tmp, &iface->waiting, waiting)
		if (!ep->err && !weft_uct_rma_waits(ep) &&
		    iface->iface->ops->ready(ep->ep))
			return true;
	return false;
}

unsigned int weft_uct_pending_run_all(struct weft_uct_iface *iface)
{
	struct weft_list todo;
	unsigned int ran = 0;

	if (weft_list_empty(&iface->waiting))
		return 0;
	/* a request may purge any other endpoint: keep no pointer to one */
	todo = iface->waiting;
	todo.next->prev = todo.prev->next = &todo;
	weft_list_init(&iface->waiting);
	while (!weft_list_empty(&todo)) {
		struct weft_uct_ep *ep =
			weft_list_first(&todo, struct weft_uct_ep, waiting);

		weft_list_del(&ep->waiting);
		weft_list_add_tail(&iface->waiting, &ep->waiting);
		ran += run_pending(ep);
	}
	return ran;
}

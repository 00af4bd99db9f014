/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that found no room, in the order in which they came.
 *
 * UCP loops on "no room" until the request is queued or takes effect
 * (ucp_request_send), so BUSY may be said only when the operation that failed
 * would now be taken: the queue is empty and the device's own predicate, the
 * one that made it fail, is true.  As long as the queue is not empty, new sends
 * queue behind it (ep.c), or stream and tag data would overtake each other.  A
 * put that waits for the ones before a fence is at the head, since nothing else
 * fails while the device is ready; their completion is progress, and progress
 * looks at the queue again.
 */
#include "ucx_tl/uct.h"

struct queued { /* lives in weft_uct_pending.priv */
	struct weft_list link;
	bool fence; /* one stands behind it */
};
_Static_assert(sizeof(struct queued) <= WEFT_UCT_PENDING_PRIV, "priv");

static struct queued *queued_of(struct weft_uct_pending *req)
{
	return (struct queued *)req->priv;
}

static struct weft_uct_pending *first(struct weft_uct_ep *ep)
{
	struct queued *q = weft_list_first(&ep->pending, struct queued, link);

	return container_of((char(*)[WEFT_UCT_PENDING_PRIV])q,
			    struct weft_uct_pending, priv);
}

static void emptied(struct weft_uct_ep *ep)
{
	if (weft_list_empty(&ep->pending))
		weft_list_del(&ep->waiting);
}

enum weft_ucs_status weft_uct_pending_add(struct weft_uct_ep *ep,
					  struct weft_uct_pending *req,
					  unsigned int flags)
{
	(void)flags;
	if (ep->err || (!weft_uct_must_queue(ep) && !weft_uct_rma_waits(ep) &&
			ep->iface->dev->ready(ep->ep)))
		return WEFT_UCS_BUSY;
	queued_of(req)->fence = false;
	weft_list_add_tail(&ep->pending, &queued_of(req)->link);
	if (weft_list_empty(&ep->waiting))
		weft_list_add_tail(&ep->iface->waiting, &ep->waiting);
	return WEFT_UCS_OK;
}

void weft_uct_pending_purge(struct weft_uct_ep *ep,
			    void (*cb)(struct weft_uct_pending *req, void *arg),
			    void *arg)
{
	while (!weft_list_empty(&ep->pending)) {
		struct weft_uct_pending *req = first(ep);

		weft_list_del(&queued_of(req)->link);
		emptied(ep);
		if (cb)
			cb(req, arg);
	}
}

static void fence_now(struct weft_uct_ep *ep)
{
	if (ep->err)
		return;
	ep->iface->dev->fence(ep->ep);
	ep->rma_waits = ep->rma_out > 0;
}

unsigned int weft_uct_pending_run(struct weft_uct_ep *ep)
{
	unsigned int ran = 0;

	if (ep->dispatching)
		return 0;
	ep->dispatching = true;
	while (!weft_list_empty(&ep->pending) && !ep->err &&
	       ep->iface->dev->ready(ep->ep)) {
		struct weft_uct_pending *req = first(ep);
		bool fence = queued_of(req)->fence;
		enum weft_ucs_status status;

		/*
		 * Out of the queue while it runs: it may free itself, or queue
		 * on another endpoint.  Back to the front when it is not done.
		 */
		weft_list_del(&queued_of(req)->link);
		ep->turn = true;
		status = req->func(req);
		ep->turn = false;
		ran++;
		if (status == WEFT_UCS_OK) {
			if (fence)
				fence_now(ep);
			continue;
		}
		weft_list_add_tail(ep->pending.next, &queued_of(req)->link);
		if (status != WEFT_UCS_INPROGRESS)
			break;
	}
	emptied(ep);
	ep->dispatching = false;
	return ran;
}

void weft_uct_fence_all(struct weft_uct_ep *ep)
{
	/* What UCP queued before is before the fence, too. */
	if (weft_list_empty(&ep->pending))
		fence_now(ep);
	else
		container_of(ep->pending.prev, struct queued, link)->fence =
			true;
}

void weft_uct_pending_ready(void *arg, struct weft_ep *ep, void *user)
{
	(void)arg;
	(void)ep;
	weft_uct_pending_run(user);
}

bool weft_uct_pending_runnable(struct weft_uct_iface *iface)
{
	struct weft_uct_ep *ep, *tmp;

	weft_list_for_each (ep, tmp, &iface->waiting, waiting)
		if (!ep->err && !weft_uct_rma_waits(ep) &&
		    iface->dev->ready(ep->ep))
			return true;
	return false;
}

unsigned int weft_uct_pending_run_all(struct weft_uct_iface *iface)
{
	struct weft_list todo;
	unsigned int ran = 0;

	if (weft_list_empty(&iface->waiting))
		return 0;
	/* A request may purge any other endpoint: hold on to none of them. */
	todo = iface->waiting;
	todo.next->prev = todo.prev->next = &todo;
	weft_list_init(&iface->waiting);
	while (!weft_list_empty(&todo)) {
		struct weft_uct_ep *ep =
			weft_list_first(&todo, struct weft_uct_ep, waiting);

		weft_list_del(&ep->waiting);
		weft_list_add_tail(&iface->waiting, &ep->waiting);
		ran += weft_uct_pending_run(ep);
	}
	return ran;
}

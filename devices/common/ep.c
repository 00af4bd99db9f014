/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/ep.h"

#include <errno.h>
#include <stdlib.h>

/* A pending flush, in the order of the calls. */
struct flush {
	struct weft_list link;
	struct weft_op *op;
	uint64_t sent; /* before it */
};

static uint64_t count_sent(const struct weft_base_ep *ep)
{
	const struct weft_ep_ops *ops = weft_ep_ops_of(ep);

	return ops->sent ? ops->sent(ep->conn) : 0;
}

static bool is_flushed(struct weft_base_ep *ep, uint64_t sent)
{
	return weft_ep_ops_of(ep)->is_flushed(ep->conn, sent);
}

/*
 * Completes flushes that are pending now, not those that a done() adds; @met:
 * only those whose messages the peer has.
 */
static unsigned int end_flushes(struct weft_base_ep *ep, bool met, int status)
{
	unsigned int left = ep->nflushes, ended = 0;
	struct weft_op *op;
	struct flush *f;

	/* a done() may cancel the endpoint, which ends the rest */
	while (left-- && ep->nflushes) {
		f = weft_list_first(&ep->flushes, struct flush, link);
		if (met && !is_flushed(ep, f->sent))
			break;
		weft_list_del(&f->link);
		ep->nflushes--;
		op = f->op;
		free(f);
		op->done(op, status);
		ended++;
	}
	return ended;
}

int weft_ep_create(struct weft_iface *iface, const struct weft_address *remote,
		   void *user, struct weft_ep **out)
{
	struct weft_base *base = weft_base(iface);
	struct weft_base_ep *ep = calloc(1, sizeof(*ep));
	struct weft_ep_number *n;
	int err;

	if (!ep)
		return -ENOMEM;
	ep->ep = (struct weft_ep){ iface, user };
	weft_list_init(&ep->flushes);
	/*
	 * The caller is awake: UCP creates endpoints on interfaces that it has
	 * armed, and calls progress() from then on.  UCP 1.23 does not for one
	 * without messages that only the peer uses: that stays armed.
	 */
	if (base->ep_ops->max_message)
		base->events.sleeps = false;
	n = weft_ep_number_get(&base->numbers, weft_key_id(remote->key));
	err = n ? base->ep_ops->connect(iface, remote, n->next, &ep->conn)
		: -ENOMEM;
	if (err) {
		if (err == -ECONNRESET) /* the number is used up */
			n->next++;
		free(ep);
		return err;
	}
	n->next++;
	weft_ep_number_hold(&base->numbers, n);
	ep->numbers = n;
	ep->conn->ep = ep;
	ep->conn->had_ep = true;
	*out = &ep->ep;
	return 0;
}

void weft_ep_cancel(struct weft_ep *base)
{
	struct weft_base_ep *ep = weft_base_ep(base);

	ep->cancelled = true;
	if (ep->err)
		return;
	ep->err = -ECANCELED; /* refuse what a done() starts */
	ep->conn->ready_owed = false;
	weft_ep_ops_of(ep)->cancel(ep->conn);
	end_flushes(ep, false, -ECANCELED);
}

void weft_ep_destroy(struct weft_ep *base)
{
	struct weft_base_ep *ep = weft_base_ep(base);

	weft_ep_cancel(base);
	if (ep->conn) {
		ep->conn->ep = NULL;
		weft_ep_ops_of(ep)->leave(ep->conn);
	}
	weft_ep_number_release(&weft_base(base->iface)->numbers, ep->numbers);
	free(ep);
}

struct weft_conn *weft_ep_conn(struct weft_ep *base)
{
	struct weft_base_ep *ep = weft_base_ep(base);

	return ep->err ? NULL : ep->conn;
}

bool weft_ep_ready(struct weft_ep *base)
{
	struct weft_base_ep *ep = weft_base_ep(base);

	/* a dead endpoint returns its error, never -EAGAIN */
	if (ep->err || weft_ep_ops_of(ep)->is_ready(ep->conn))
		return true;
	ep->conn->ready_owed = true;
	return false;
}

int weft_ep_flush(struct weft_ep *base, struct weft_op *op)
{
	struct weft_base_ep *ep = weft_base_ep(base);
	struct flush *f;
	uint64_t sent;

	if (ep->err)
		return ep->err == -ESHUTDOWN || ep->cancelled ? 0 : ep->err;
	sent = count_sent(ep);
	if (is_flushed(ep, sent))
		return 0;
	if (!op)
		return -EINPROGRESS;
	f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->op = op;
	f->sent = sent;
	weft_list_add_tail(&ep->flushes, &f->link);
	ep->nflushes++;
	return -EINPROGRESS;
}

unsigned int weft_ep_notify(struct weft_conn *conn)
{
	struct weft_base_ep *ep = conn->ep;
	const struct weft_iface_cb *cb;
	unsigned int n;

	if (!ep || ep->err)
		return 0;
	n = end_flushes(ep, true, 0);
	if (conn->ep != ep || ep->err || !conn->ready_owed ||
	    !weft_ep_ops_of(ep)->is_ready(conn))
		return n;
	conn->ready_owed = false;
	cb = &ep->ep.iface->cb;
	cb->on_ready(cb->arg, &ep->ep, ep->ep.user);
	return n + 1;
}

void weft_ep_fail(struct weft_conn *conn, int err)
{
	struct weft_base_ep *ep = conn->ep;

	if (!ep)
		return;
	/* the peer's answer may have come with its close */
	end_flushes(ep, true, 0);
	ep->err = err;
}

void weft_ep_failed(struct weft_conn *conn)
{
	struct weft_base_ep *ep = conn->ep;
	const struct weft_iface_cb *cb;
	int err;

	if (!ep)
		return;
	conn->ep = NULL;
	ep->conn = NULL;
	err = ep->err;
	end_flushes(ep, false, err == -ESHUTDOWN ? 0 : err);
	if (ep->cancelled)
		return;
	cb = &ep->ep.iface->cb;
	cb->on_error(cb->arg, &ep->ep, ep->ep.user, err);
}

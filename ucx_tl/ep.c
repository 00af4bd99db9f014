/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: UCT's operations in terms of the device contract. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ucx_tl/status.h"
#include "ucx_tl/uct.h"
#include "util/clock.h"
#include "util/log.h"

/*
 * Peers that have finished close one after the other.  Delay the report of an
 * orderly close to UCX for this long, so that the last flush of the slower one
 * does not fail; a send in between reports it at once.
 */
#define LEAVE_MS 250

/* May an operation be tried?  0, or the status to return. */
static inline int may_send(struct weft_uct_ep *ep)
{
	if (__builtin_expect(ep->err, 0)) {
		ep->report_ms = 0;
		return ep->err;
	}
	return weft_uct_must_queue(ep) ? -EAGAIN : 0;
}

static inline enum weft_ucs_status map_send_status(struct weft_uct_ep *ep,
						   int ret)
{
	if (ret >= 0 || ret == -EINPROGRESS) {
		ep->turn = false;
		ep->fenced = false;
	}
	return ret >= 0 ? WEFT_UCS_OK : weft_ucs_status(ret);
}

static enum weft_ucs_status am_short(struct weft_uct_ep *ep, uint8_t id,
				     uint64_t header, const void *payload,
				     unsigned int length)
{
	struct iovec iov[2] = {
		{ &header, sizeof(header) },
		{ (void *)payload, length },
	};
	int ret = may_send(ep);

	if (ret)
		return weft_ucs_status(ret);
	return map_send_status(ep, ep->iface->iface->ops->message(
					   ep->ep, id, iov, length ? 2 : 1));
}

/*
 * @count contiguous blocks of @length: UCP passes 1 and a stride of 0, and
 * UCX's transports support no other stride (uct/base/uct_iov.inl).
 */
static unsigned int to_weft_iov(const struct weft_uct_iov *from, size_t n,
				struct weft_iov *to)
{
	unsigned int used = 0;

	for (size_t i = 0; i < n && used < WEFT_UCT_MAX_IOV; i++)
		if (from[i].length)
			to[used++] = (struct weft_iov){
				from[i].buffer,
				from[i].length * from[i].count,
				from[i].memh,
			};
	return used;
}

/* For messages, which need no registration. */
static unsigned int to_iovec(const struct weft_uct_iov *from, size_t n,
			     struct iovec *to)
{
	struct weft_iov iov[WEFT_UCT_MAX_IOV];
	const unsigned int used = to_weft_iov(from, n, iov);

	for (unsigned int i = 0; i < used; i++)
		to[i] = (struct iovec){ iov[i].addr, iov[i].len };
	return used;
}

static enum weft_ucs_status am_short_iov(struct weft_uct_ep *ep, uint8_t id,
					 const struct weft_uct_iov *from,
					 size_t n)
{
	struct iovec iov[WEFT_UCT_MAX_IOV];
	int ret = may_send(ep);

	if (ret)
		return weft_ucs_status(ret);
	return map_send_status(
		ep, ep->iface->iface->ops->message(ep->ep, id, iov,
						   to_iovec(from, n, iov)));
}

static ssize_t am_bcopy(struct weft_uct_ep *ep, uint8_t id,
			size_t (*pack)(void *dest, void *arg), void *arg,
			unsigned int flags)
{
	ssize_t ret = may_send(ep);

	if (!ret) {
		ret = ep->iface->iface->ops->message_pack(ep->ep, id, pack,
							  arg);
		map_send_status(ep, ret < 0 ? (int)ret : 0);
	}
	return ret < 0 ? weft_ucs_status((int)ret) : ret;
}

/* The device copies what the wire does not take at once. */
static enum weft_ucs_status
am_zcopy(struct weft_uct_ep *ep, uint8_t id, const void *header,
	 unsigned int header_length, const struct weft_uct_iov *from, size_t n,
	 unsigned int flags, struct weft_uct_completion *comp)
{
	struct iovec iov[WEFT_UCT_MAX_IOV + 1] = {
		{ (void *)header, header_length },
	};
	const unsigned int used = header_length != 0;
	int ret = may_send(ep);

	if (ret)
		return weft_ucs_status(ret);
	return map_send_status(
		ep,
		ep->iface->iface->ops->message(
			ep->ep, id, iov, used + to_iovec(from, n, iov + used)));
}

/* Translates what a device call with an op returned; may free the op. */
static enum weft_ucs_status map_start_status(struct weft_uct_ep *ep,
					     struct weft_uct_op *op, int ret)
{
	if (ret != -EINPROGRESS)
		weft_uct_op_put(op);
	return map_send_status(ep, ret);
}

/* May a put or get be tried?  Sets *@op, or returns the status to return. */
static int may_access(struct weft_uct_ep *ep, struct weft_uct_completion *comp,
		      struct weft_uct_op **op)
{
	int ret = may_send(ep);

	if (ret)
		return ret;
	if (ep->fenced && ep->rma_out)
		ep->rma_waits = true;
	if (weft_uct_rma_waits(ep))
		return -EAGAIN;
	*op = weft_uct_op_get(ep->iface, comp);
	return *op ? 0 : -ENOMEM;
}

static enum weft_ucs_status start_access(struct weft_uct_ep *ep, bool get,
					 const struct weft_uct_iov *from,
					 size_t n, uint64_t remote_addr,
					 uintptr_t rkey,
					 struct weft_uct_completion *comp)
{
	const struct weft_dev_ops *ops = ep->iface->iface->ops;
	const void *key = (const void *)rkey;
	struct weft_iov iov[WEFT_UCT_MAX_IOV];
	unsigned int used = to_weft_iov(from, n, iov);
	struct weft_uct_op *op;
	int ret;

	if (!used)
		return WEFT_UCS_OK; /* the key may be UCT_INVALID_RKEY */
	ret = may_access(ep, comp, &op);
	if (ret)
		return weft_ucs_status(ret);
	ret = get ? ops->get(ep->ep, iov, used, remote_addr, key, &op->op)
		  : ops->put(ep->ep, iov, used, remote_addr, key, NULL,
			     &op->op);
	if (ret == -EINPROGRESS) {
		op->rma = ep;
		ep->rma_out++;
	}
	return map_start_status(ep, op, ret);
}

static enum weft_ucs_status put_zcopy(struct weft_uct_ep *ep,
				      const struct weft_uct_iov *from, size_t n,
				      uint64_t remote_addr, uintptr_t rkey,
				      struct weft_uct_completion *comp)
{
	return start_access(ep, false, from, n, remote_addr, rkey, comp);
}

static enum weft_ucs_status get_zcopy(struct weft_uct_ep *ep,
				      const struct weft_uct_iov *from, size_t n,
				      uint64_t remote_addr, uintptr_t rkey,
				      struct weft_uct_completion *comp)
{
	return start_access(ep, true, from, n, remote_addr, rkey, comp);
}

/*
 * Works on a dead endpoint, too: the device returns OK if nothing was lost, so
 * a flush after the peer's orderly close does not fail.
 */
static enum weft_ucs_status ep_flush(struct weft_uct_ep *ep, unsigned int flags,
				     struct weft_uct_completion *comp)
{
	struct weft_uct_op *op = NULL;
	int ret;

	if (flags & WEFT_UCT_FLUSH_CANCEL) {
		if (!ep->err) {
			/* completions in cancel() must see a dead endpoint */
			ep->err = -ECANCELED;
			ep->iface->iface->ops->cancel(ep->ep);
		}
		weft_list_del(&ep->ended);
		return WEFT_UCS_OK;
	}
	if (!ep->err && weft_uct_must_queue(ep))
		return WEFT_UCS_NO_RESOURCE;
	if (comp) {
		op = weft_uct_op_get(ep->iface, comp);
		if (!op)
			return WEFT_UCS_NO_MEMORY;
	}
	ret = ep->iface->iface->ops->flush(ep->ep, op ? &op->op : NULL);
	return op ? map_start_status(ep, op, ret) : map_send_status(ep, ret);
}

/*
 * UCP calls this between the puts of a rendezvous, which have been started, and
 * the message that ends it; there puts of other messages may pass.  It is meant
 * for puts (UCX_FENCE_MODE=ep_based) only if a put is the next operation, or if
 * requests are queued that did not call it.
 */
static enum weft_ucs_status ep_fence(struct weft_uct_ep *ep, unsigned int flags)
{
	if (ep->err)
		return WEFT_UCS_OK;
	if (weft_uct_must_queue(ep)) {
		weft_uct_fence_all(ep);
	} else {
		ep->iface->iface->ops->fence(ep->ep);
		ep->fenced = true;
	}
	return WEFT_UCS_OK;
}

/*
 * The device checks its peers itself and has reported dead ones; a peer without
 * room is busy.
 */
static enum weft_ucs_status ep_check(struct weft_uct_ep *ep, unsigned int flags,
				     struct weft_uct_completion *comp)
{
	return weft_ucs_status(ep->err);
}

/* Log once per process that weft is used. */
static void log_first_use(const struct weft_uct_iface *iface,
			  const struct weft_address *remote)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	char where[WEFT_SOCKADDR_STR];

	if (weft_log_level < WEFT_LOG_INFO || atomic_flag_test_and_set(&told))
		return;
	weft_info("first used: %s over '%s', to %s", iface->tl->name,
		  iface->device,
		  iface->tl->same_host ? "a process of this host"
				       : weft_sockaddr_str(&remote->sa, where,
							   sizeof(where)));
}

static enum weft_ucs_status ep_create(const struct weft_uct_ep_params *params,
				      struct weft_uct_ep **out)
{
	const uint64_t needed =
		WEFT_UCT_EP_HAS_DEV_ADDR | WEFT_UCT_EP_HAS_IFACE_ADDR;
	struct weft_uct_iface *iface = params->iface;
	struct weft_address remote;
	struct weft_uct_ep *ep;
	int err;

	if ((params->field_mask & needed) != needed)
		return WEFT_UCS_UNSUPPORTED; /* connect-to-endpoint */
	weft_uct_log_reach(true);
	err = weft_address_unpack(params->iface_addr, WEFT_IFACE_ADDR_LEN,
				  params->dev_addr, WEFT_DEV_ADDR_MAX, &remote);
	if (err)
		return WEFT_UCS_INVALID_ADDR;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return WEFT_UCS_NO_MEMORY;
	ep->iface = iface;
	memcpy(ep->key, remote.key, sizeof(ep->key));
	weft_list_init(&ep->pending);
	weft_list_init(&ep->waiting);
	weft_list_init(&ep->ended);
	err = iface->iface->ops->ep_create(iface->iface, &remote, ep, &ep->ep);
	if (err) {
		free(ep);
		return weft_ucs_status(err);
	}
	weft_list_add_tail(&iface->eps, &ep->link);
	log_first_use(iface, &remote);
	*out = ep;
	return WEFT_UCS_OK;
}

static void ep_destroy(struct weft_uct_ep *ep)
{
	ep->err = -ECANCELED; /* for operations that complete meanwhile */
	ep->iface->iface->ops->ep_destroy(ep->ep);
	weft_uct_pending_purge(ep, NULL, NULL);
	weft_list_del(&ep->ended);
	weft_list_del(&ep->link);
	free(ep);
}

static void report_error(struct weft_uct_ep *ep)
{
	struct weft_uct_iface *iface = ep->iface;

	weft_list_del(&ep->ended);
	/* UCX cancels and destroys the endpoint, now or later */
	iface->uct->sym.handle_ep_err(iface, ep, weft_ucs_status(ep->err));
}

/*
 * Report an orderly close, too: transports do not know what UCP has in
 * progress with the peer, such as a rendezvous that waits for a reply, and
 * that would hang forever.
 */
void weft_uct_ep_error(void *arg, struct weft_ep *dev_ep, void *user, int err)
{
	struct weft_uct_iface *iface = arg;
	struct weft_uct_ep *ep = user;

	if (ep->err)
		return;
	ep->err = err;
	if (err != -ESHUTDOWN || ep->rma_out ||
	    !weft_list_empty(&ep->pending)) {
		report_error(ep);
		return;
	}
	ep->report_ms = weft_now_ms() + LEAVE_MS;
	weft_list_add_tail(&iface->ended, &ep->ended);
}

static struct weft_uct_ep *first_pending_error(struct weft_uct_iface *iface,
					       uint64_t now)
{
	struct weft_uct_ep *ep, *tmp;

	weft_list_for_each (ep, tmp, &iface->ended, ended)
		if (ep->report_ms <= now)
			return ep;
	return NULL;
}

unsigned int weft_uct_ep_report(struct weft_uct_iface *iface)
{
	const uint64_t now = weft_now_ms();
	struct weft_uct_ep *ep;
	unsigned int told = 0;

	/* UCX may destroy any of them on the way */
	while ((ep = first_pending_error(iface, now))) {
		report_error(ep);
		told++;
	}
	return told;
}

void weft_uct_ep_ops(weft_uct_fn *ops)
{
	ops[WEFT_OP_PUT_ZCOPY] = (weft_uct_fn)put_zcopy;
	ops[WEFT_OP_GET_ZCOPY] = (weft_uct_fn)get_zcopy;
	ops[WEFT_OP_AM_SHORT] = (weft_uct_fn)am_short;
	ops[WEFT_OP_AM_SHORT_IOV] = (weft_uct_fn)am_short_iov;
	ops[WEFT_OP_AM_BCOPY] = (weft_uct_fn)am_bcopy;
	ops[WEFT_OP_AM_ZCOPY] = (weft_uct_fn)am_zcopy;
	ops[WEFT_OP_PENDING_ADD] = (weft_uct_fn)weft_uct_pending_add;
	ops[WEFT_OP_PENDING_PURGE] = (weft_uct_fn)weft_uct_pending_purge;
	ops[WEFT_OP_EP_FLUSH] = (weft_uct_fn)ep_flush;
	ops[WEFT_OP_EP_FENCE] = (weft_uct_fn)ep_fence;
	ops[WEFT_OP_EP_CHECK] = (weft_uct_fn)ep_check;
	ops[WEFT_OP_EP_CREATE] = (weft_uct_fn)ep_create;
	ops[WEFT_OP_EP_DESTROY] = (weft_uct_fn)ep_destroy;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces: one per worker and device, which is a netdev or nvlink. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "host/netif.h"
#include "preload/sleep.h"
#include "settings/settings.h"
#include "ucx_tl/status.h"
#include "ucx_tl/uct.h"
#include "util/log.h"

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	struct weft_uct_iface *iface = arg;
	const struct weft_uct_am_handler *handler;

	if (id >= WEFT_UCT_AM_IDS)
		return; /* the peer is wrong */
	handler = &iface->base.am[id];
	/* without the descriptor flag UCP copies what it keeps */
	handler->cb(handler->arg, data, len, 0);
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	/* puts of weft_uct carry none; ignore a peer's */
}

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list all = { &all, &all };

static inline bool has_guest(const struct weft_uct_iface *iface)
{
	return iface->guest && !iface->guest->active;
}

static unsigned int progress(struct weft_uct_iface *iface)
{
	unsigned int events = iface->iface->ops->progress(iface->iface);

	if (__builtin_expect(has_guest(iface), 0))
		events += progress(iface->guest);
	if (__builtin_expect(!weft_list_empty(&iface->waiting), 0))
		events += weft_uct_pending_run_all(iface);
	if (__builtin_expect(!weft_list_empty(&iface->ended), 0))
		events += weft_uct_ep_report(iface);
	return events;
}

static int add_fd(int epfd, struct weft_uct_iface *iface)
{
	struct epoll_event e = { .events = EPOLLIN };

	return epoll_ctl(epfd, EPOLL_CTL_ADD,
			 iface->iface->ops->event_fd(iface->iface), &e);
}

static enum weft_ucs_status event_fd(struct weft_uct_iface *iface, int *fd)
{
	if (iface->guest && iface->epfd < 0) {
		iface->epfd = epoll_create1(EPOLL_CLOEXEC);
		if (iface->epfd < 0 || add_fd(iface->epfd, iface) ||
		    add_fd(iface->epfd, iface->guest))
			return weft_ucs_status(weft_fail(
				-errno,
				"cannot create an event queue; raise the limit with 'ulimit -n'"));
	}
	*fd = iface->epfd >= 0 ? iface->epfd
			       : iface->iface->ops->event_fd(iface->iface);
	return *fd < 0 ? weft_ucs_status(*fd) : WEFT_UCS_OK;
}

/* May the caller sleep on the event fd?  False: call progress. */
static bool may_sleep(struct weft_uct_iface *iface)
{
	/* ends that are not reported yet are too rare for a timer */
	return weft_list_empty(&iface->ended) &&
	       !weft_uct_pending_runnable(iface) &&
	       (!has_guest(iface) || may_sleep(iface->guest)) &&
	       iface->iface->ops->arm(iface->iface) != -EBUSY;
}

/* Any interface of the worker that has messages may serve one that has none. */
static void find_guest(struct weft_uct_iface *iface)
{
	struct weft_uct_iface *other, *tmp;

	pthread_mutex_lock(&all_lock);
	weft_list_for_each (other, tmp, &all, all) {
		if (other->worker != iface->worker)
			continue;
		if (iface->attr.max_message && !other->attr.max_message)
			iface->guest = other;
		if (!iface->attr.max_message && other->attr.max_message)
			other->guest = iface;
	}
	weft_list_add_tail(&all, &iface->all);
	pthread_mutex_unlock(&all_lock);
}

static void leave_hosts(struct weft_uct_iface *iface)
{
	struct weft_uct_iface *other, *tmp;

	pthread_mutex_lock(&all_lock);
	weft_list_del(&iface->all);
	weft_list_for_each (other, tmp, &all, all)
		if (other->guest == iface)
			other->guest = NULL;
	pthread_mutex_unlock(&all_lock);
	if (iface->epfd >= 0)
		close(iface->epfd);
}

/* UCP ends the process on anything but OK and BUSY. */
static enum weft_ucs_status event_arm(struct weft_uct_iface *iface,
				      unsigned int events)
{
	return may_sleep(iface) ? WEFT_UCS_OK : WEFT_UCS_BUSY;
}

static void progress_enable(struct weft_uct_iface *iface, unsigned int flags)
{
	iface->active = true;
	iface->uct->sym.progress_enable(iface, flags);
}

static void progress_disable(struct weft_uct_iface *iface, unsigned int flags)
{
	iface->active = false;
	iface->uct->sym.progress_disable(iface, flags);
}

static enum weft_ucs_status iface_flush(struct weft_uct_iface *iface,
					unsigned int flags,
					struct weft_uct_completion *comp)
{
	enum weft_ucs_status status = WEFT_UCS_OK;
	struct weft_uct_ep *ep, *tmp;

	if (comp)
		return WEFT_UCS_UNSUPPORTED; /* as in every transport */
	/*
	 * Include UCP's pending requests: it flushes no endpoint afterwards.
	 * Each peer is asked at once: a flush takes a round trip.
	 */
	weft_list_for_each (ep, tmp, &iface->eps, link)
		if (!ep->err &&
		    (!weft_list_empty(&ep->pending) ||
		     iface->iface->ops->flush(ep->ep, NULL) == -EINPROGRESS))
			status = WEFT_UCS_INPROGRESS;
	return status;
}

/* For ucp_worker_fence(): fences all endpoints. */
static enum weft_ucs_status iface_fence(struct weft_uct_iface *iface,
					unsigned int flags)
{
	struct weft_uct_ep *ep, *tmp;

	weft_list_for_each (ep, tmp, &iface->eps, link)
		weft_uct_fence_all(ep);
	return WEFT_UCS_OK;
}

static enum weft_ucs_status iface_query(struct weft_uct_iface *iface,
					struct weft_uct_iface_attr *attr)
{
	const struct weft_iface_attr *dev = &iface->attr;
	size_t message = dev->max_message;
	uint8_t addr[WEFT_DEV_ADDR_MAX];

	iface->uct->sym.base_iface_query(iface, attr);
	attr->flags = WEFT_UCT_IFACE_PENDING | WEFT_UCT_IFACE_PUT_ZCOPY |
		      WEFT_UCT_IFACE_GET_ZCOPY | WEFT_UCT_IFACE_ERR_PEER |
		      WEFT_UCT_IFACE_EP_CHECK | WEFT_UCT_IFACE_EP_KEEPALIVE |
		      WEFT_UCT_IFACE_TO_IFACE | WEFT_UCT_IFACE_CB_SYNC;
	if (iface->uct->abi->minor >= 18 && !iface->tl->same_host)
		attr->flags |= WEFT_UCT_IFACE_INTER_NODE;
	attr->event_flags = WEFT_UCT_EVENT_SEND_COMP | WEFT_UCT_EVENT_RECV |
			    WEFT_UCT_EVENT_FD;
	if (message)
		attr->flags |=
			WEFT_UCT_IFACE_AM_SHORT | WEFT_UCT_IFACE_AM_BCOPY;
	attr->am.max_short = weft_min(message, WEFT_UCT_MAX_SHORT);
	attr->am.max_bcopy = weft_min(message, WEFT_UCT_MAX_BCOPY);
	attr->am.opt_zcopy_align = attr->am.align_mtu = 1;
	/*
	 * Since 1.19 UCP sends an active message by am_short_iov() only if
	 * max_iov is at least 4 (UCP_AM_SEND_SHORT_MIN_IOV; 3 in protocols v2).
	 */
	attr->am.max_iov = weft_min(dev->max_iov, WEFT_UCT_MAX_IOV + 1) - 1;
	if (iface->tl->am_zcopy) {
		attr->flags |= WEFT_UCT_IFACE_AM_ZCOPY;
		/*
		 * UCP accepts headers of active messages up to max_bcopy.  For
		 * zcopy it copies the header into a segment without checking
		 * that it fits (protocols v2, default since 1.16): offer no
		 * more than a segment.
		 */
		attr->am.max_bcopy =
			weft_min(attr->am.max_bcopy, WEFT_UCT_SEG_SIZE);
		attr->am.max_zcopy = message;
		attr->am.max_hdr = WEFT_UCT_MAX_HEADER;
	}
	attr->put.max_zcopy = SIZE_MAX / 2;
	attr->put.opt_zcopy_align = attr->put.align_mtu = 1;
	attr->put.max_iov = weft_min(dev->max_iov, WEFT_UCT_MAX_IOV);
	attr->get = attr->put;
	attr->device_addr_len = weft_address_pack_dev(&dev->addr, addr);
	attr->iface_addr_len = WEFT_IFACE_ADDR_LEN;
	weft_uct_iface_scores(iface, attr);
	if (iface->uct->abi->minor >= 22)
		attr->ctl_device = WEFT_UCS_SYS_DEVICE_UNKNOWN;
	return WEFT_UCS_OK;
}

static enum weft_ucs_status device_address(struct weft_uct_iface *iface,
					   void *buffer)
{
	weft_address_pack_dev(&iface->attr.addr, buffer);
	return WEFT_UCS_OK;
}

static enum weft_ucs_status iface_address(struct weft_uct_iface *iface,
					  void *buffer)
{
	weft_address_pack_iface(&iface->attr.addr, buffer);
	return WEFT_UCS_OK;
}

/*
 * UCP copies between memory types over an endpoint to its own worker, without a
 * key, with any transport that can access the type.  Transports for GPU memory
 * cannot do that: refuse, as cuda_ipc does.
 */
static bool can_reach(struct weft_uct_iface *iface,
		      const struct weft_address *remote, const char **why)
{
	char where[WEFT_SOCKADDR_STR];

	/* UCX's message names no cause, or is not printed */
	if (!weft_address_has_version(remote))
		weft_warn_once(
			"the peer at %s speaks wire versions %u to %u, this weft %u to %u: weft does not reach it; install the same release on both",
			weft_sockaddr_str(&remote->sa, where, sizeof(where)),
			remote->wire_min, remote->wire_max, WEFT_WIRE_MIN,
			WEFT_WIRE_MAX);
	/* UCP's own endpoint for copies between host and GPU */
	if (iface->md->mem_kinds & BIT(WEFT_MEM_CUDA) &&
	    !memcmp(remote->key, iface->attr.addr.key, sizeof(remote->key))) {
		*why = "it is this worker itself";
		return false;
	}
	return iface->iface->ops->reaches(iface->iface, remote, why);
}

static bool report_reachable(bool reached)
{
	weft_uct_log_reach(reached);
	return reached;
}

static int is_reachable(struct weft_uct_iface *iface, const void *dev_addr,
			const void *iface_addr)
{
	struct weft_address remote;
	const char *why;

	return report_reachable(
		!weft_address_unpack(iface_addr, WEFT_IFACE_ADDR_LEN, dev_addr,
				     WEFT_DEV_ADDR_MAX, &remote) &&
		can_reach(iface, &remote, &why));
}

static int is_reachable_v2(struct weft_uct_iface *iface,
			   const struct weft_uct_peer_params *p)
{
	const uint64_t needed =
		WEFT_UCT_PEER_HAS_DEV_ADDR | WEFT_UCT_PEER_HAS_IFACE_ADDR;
	const uint64_t told =
		WEFT_UCT_PEER_HAS_INFO | WEFT_UCT_PEER_HAS_INFO_LEN;
	struct weft_address remote;
	const char *why = "its address is not one of weft's";
	bool ok = false;

	if ((p->field_mask & needed) != needed)
		return 0;
	if (!weft_address_unpack(p->iface_addr, WEFT_IFACE_ADDR_LEN,
				 p->device_addr, WEFT_DEV_ADDR_MAX, &remote)) {
		ok = can_reach(iface, &remote, &why);
		if (ok && (p->field_mask & WEFT_UCT_PEER_HAS_SCOPE) &&
		    p->scope == WEFT_UCT_SCOPE_DEVICE) {
			why = "it is on another host";
			ok = iface->tl->same_host ||
			     remote.ns_id == iface->attr.addr.ns_id;
		}
	}
	if (!ok && (p->field_mask & told) == told && p->info_string)
		snprintf(p->info_string, p->info_string_length, "%s", why);
	return report_reachable(ok);
}

static int ep_is_connected(struct weft_uct_ep *ep,
			   const struct weft_uct_peer_params *p)
{
	struct weft_address remote;
	uint8_t any_dev[WEFT_DEV_ADDR_MAX] = { 0, AF_INET };

	/* the key identifies the peer; the device address may be missing */
	return (p->field_mask & WEFT_UCT_PEER_HAS_IFACE_ADDR) && !ep->err &&
	       !weft_address_unpack(p->iface_addr, WEFT_IFACE_ADDR_LEN, any_dev,
				    sizeof(any_dev), &remote) &&
	       !memcmp(remote.key, ep->key, sizeof(ep->key));
}

/* For uct_iface_attr_v2_t if UCX exports no base function: fill in nothing. */
static enum weft_ucs_status iface_query_v2(void *iface, void *attr)
{
	return WEFT_UCS_OK;
}

static void iface_close(struct weft_uct_iface *iface)
{
	struct weft_uct_symbols *sym = &iface->uct->sym;

	leave_hosts(iface);
	sym->progress_disable(iface, 3); /* both directions */
	weft_uct_idle_iface(-1);
	iface->iface->ops->iface_close(iface->iface);
	if (!iface->loopback)
		atomic_fetch_sub(&iface->md->wide_ifaces, 1);
	sym->class_cleanup(sym->base_iface_class, iface, -1);
	weft_uct_op_free_all(iface);
	free(iface);
}

static void init_iface_ops(weft_uct_fn *ops)
{
	for (size_t i = 0; i < WEFT_OP_COUNT; i++)
		ops[i] = (weft_uct_fn)weft_uct_unsupported;
	weft_uct_ep_ops(ops);
	ops[WEFT_OP_IFACE_FLUSH] = (weft_uct_fn)iface_flush;
	ops[WEFT_OP_IFACE_FENCE] = (weft_uct_fn)iface_fence;
	ops[WEFT_OP_PROGRESS_ENABLE] = (weft_uct_fn)progress_enable;
	ops[WEFT_OP_PROGRESS_DISABLE] = (weft_uct_fn)progress_disable;
	ops[WEFT_OP_PROGRESS] = (weft_uct_fn)progress;
	ops[WEFT_OP_EVENT_FD] = (weft_uct_fn)event_fd;
	ops[WEFT_OP_EVENT_ARM] = (weft_uct_fn)event_arm;
	ops[WEFT_OP_CLOSE] = (weft_uct_fn)iface_close;
	ops[WEFT_OP_QUERY] = (weft_uct_fn)iface_query;
	ops[WEFT_OP_DEVICE_ADDRESS] = (weft_uct_fn)device_address;
	ops[WEFT_OP_ADDRESS] = (weft_uct_fn)iface_address;
	ops[WEFT_OP_IS_REACHABLE] = (weft_uct_fn)is_reachable;
}

void weft_uct_internal_ops(struct weft_uct *uct)
{
	const weft_uct_fn no = (weft_uct_fn)weft_uct_unsupported;
	weft_uct_fn *ops = uct->internal_ops;
	size_t n = 0;

	if (uct->abi->internal != WEFT_INTERNAL_PLAIN)
		ops[n++] = uct->sym.base_query_v2 ? uct->sym.base_query_v2
						  : (weft_uct_fn)iface_query_v2;
	ops[n++] = (weft_uct_fn)weft_uct_estimate_perf;
	ops[n++] = (weft_uct_fn)weft_uct_ok; /* vfs_refresh */
	if (uct->abi->internal == WEFT_INTERNAL_20)
		ops[n++] = no; /* mem_element_pack */
	ops[n++] = no;	       /* ep_query */
	ops[n++] = no;	       /* ep_invalidate */
	ops[n++] = no;	       /* connect_to_ep_v2 */
	ops[n++] = (weft_uct_fn)is_reachable_v2;
	ops[n++] = (weft_uct_fn)ep_is_connected;
	while (n < WEFT_INTERNAL_MAX)
		ops[n++] = no; /* what came at the end, from 1.21 on */
}

/*
 * The alignment applies to buffers that the handler may keep.  It may keep none
 * here, so only check that the request is valid.
 */
static bool alignment_is_sane(const struct weft_uct_iface_params *p)
{
	const bool given = p->field_mask & WEFT_UCT_PARAM_AM_ALIGNMENT;
	const size_t alignment = given ? p->am_alignment : 0;

	if (given && (!alignment || (alignment & (alignment - 1))))
		return false;
	return !(p->field_mask & WEFT_UCT_PARAM_AM_ALIGN_OFFSET) ||
	       p->am_align_offset < alignment;
}

static struct weft_uct_iface *iface_new(struct weft_uct_memory_domain *md,
					void *worker, const char *netdev)
{
	struct weft_uct_iface *iface = calloc(1, sizeof(*iface));

	if (!iface)
		return NULL;
	iface->uct = md->uct;
	iface->md = md;
	iface->tl = md->tl;
	snprintf(iface->device, sizeof(iface->device), "%s", netdev);
	iface->worker = worker;
	iface->epfd = -1;
	weft_list_init(&iface->all);
	weft_list_init(&iface->eps);
	weft_list_init(&iface->waiting);
	weft_list_init(&iface->ended);
	return iface;
}

static enum weft_ucs_status
base_init(struct weft_uct_iface *iface,
	  const struct weft_uct_iface_params *params, const void *config)
{
	struct weft_uct *uct = iface->uct;
	weft_uct_fn ops[WEFT_OP_COUNT];
	enum weft_ucs_status status;
	int count = 1;

	init_iface_ops(ops);
	status = uct->sym.base_iface_init(
		iface, uct->sym.base_iface_class, &count, ops,
		uct->internal_ops, iface->md, iface->worker, params, config,
		params->field_mask & WEFT_UCT_PARAM_STATS_ROOT
			? params->stats_root
			: NULL,
		iface->device);
	if (status)
		weft_error("UCX refused an interface on '%s' (status %d)",
			   iface->device, status);
	return status;
}

static int device_open(struct weft_uct_iface *iface)
{
	const struct weft_iface_cb cb = {
		.arg = iface,
		.on_message = on_message,
		.on_notify = on_notify,
		.on_error = weft_uct_ep_error,
		.on_ready = weft_uct_pending_ready,
	};
	const struct weft_iface_params how = {
		.netdev = iface->device,
		.family = weft_settings()->family,
		.cb = &cb,
	};

	return iface->tl->dev->iface_open(&how, &iface->iface);
}

/* Compares it with the other interfaces of this process. */
static void rank_iface(struct weft_uct_iface *iface)
{
	const struct weft_uct_tl *tl = iface->tl;
	const double better =
		tl->better_bandwidth ? tl->better_bandwidth(iface->device) : 0;
	struct weft_netif netif;

	iface->loopback = !weft_netif_get(iface->device,
					  weft_settings()->family, &netif) &&
			  netif.loopback;
	iface->deprioritized =
		iface->loopback && atomic_load(&iface->md->wide_ifaces);
	if (!iface->loopback)
		atomic_fetch_add(&iface->md->wide_ifaces, 1);
	if (better <= 0)
		return;
	iface->deprioritized = true;
	iface->attr.bandwidth = weft_min(iface->attr.bandwidth, better);
}

enum weft_ucs_status
weft_uct_iface_open(struct weft_uct_memory_domain *md, void *worker,
		    const struct weft_uct_iface_params *params,
		    const void *config, void **out)
{
	const char *netdev = params->mode.device.dev_name;
	struct weft_uct_symbols *sym = &md->uct->sym;
	struct weft_uct_iface *iface;
	enum weft_ucs_status status;
	int err;

	if (!(params->open_mode & WEFT_UCT_OPEN_MODE_DEVICE))
		return WEFT_UCS_UNSUPPORTED;
	if (!alignment_is_sane(params))
		return WEFT_UCS_INVALID_PARAM;
	iface = iface_new(md, worker, netdev);
	if (!iface)
		return WEFT_UCS_NO_MEMORY;
	status = base_init(iface, params, config);
	if (status)
		goto free_iface;
	err = device_open(iface);
	if (err) {
		status = weft_ucs_status(err);
		goto cleanup_base;
	}
	weft_uct_idle_iface(1);
	iface->iface->ops->iface_query(iface->iface, &iface->attr);
	find_guest(iface);
	rank_iface(iface);
	*out = iface;
	return WEFT_UCS_OK;

cleanup_base:
	sym->class_cleanup(sym->base_iface_class, iface, -1);
free_iface:
	free(iface);
	return status;
}

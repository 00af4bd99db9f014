/* SPDX-License-Identifier: BSD-3-Clause */
/* An interface: a port of a verbs device, and a control plane beside it. */
#include "devices/common/forked.h"
#include "devices/ib/ib_conn.h"
#include "devices/ib/ib_device.h"
#include "devices/ib/ib_done.h"
#include "devices/ib/ib_ep.h"
#include "devices/ib/ib_iface.h"
#include "devices/ib/ib_mem.h"
#include "devices/ib/ib_peer.h"
#include "devices/ib/ib_qp.h"
#include "devices/ib/ib_xfer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/util.h"

#define DRAIN_ROUNDS 256 /* gatherings before an orderly end */

/* progress() runs on it every time. */
static unsigned int handle_ctl(struct weft_source *src, uint32_t events)
{
	return 0;
}

static unsigned int handle_channel(struct weft_source *src, uint32_t events)
{
	struct ib_iface *iface =
		container_of(src, struct ib_iface, channel_src);
	struct ibv_cq *cq;
	void *context;

	while (!iface->v->get_cq_event(iface->channel, &cq, &context))
		iface->v->ack_cq_events(cq, 1);
	/* it would poll readable forever */
	if (events & (EPOLLERR | EPOLLHUP))
		weft_events_del(&iface->base.events, iface->channel->fd);
	return 0;
}

static int open_ctl(struct ib_iface *iface, int family)
{
	struct weft_iface_cb cb = ib_ctl_callbacks;
	struct weft_iface_attr attr;
	char netdev[IF_NAMESIZE];
	const struct weft_iface_params params = {
		.netdev = netdev,
		.family = family,
		.cb = &cb,
	};
	int err;

	err = weft_verbs_control_netdev(&iface->port, family, netdev);
	if (err)
		return weft_fail(
			err,
			"'%s' needs a network interface to exchange its queue pairs over; '%s' has no address and WEFT_NET_DEVICES allows no other",
			iface->port.name, iface->port.netdev);
	cb.arg = iface;
	err = weft_tcp_ops.iface_open(&params, &iface->ctl);
	if (err)
		return err;
	weft_base(iface->ctl)->session.aside = true;
	weft_tcp_ops.iface_query(iface->ctl, &attr);
	*iface->base.addr = attr.addr;
	iface->base.addr->fabric = weft_verbs_fabric(&iface->port, iface->gid);
	iface->base.id = weft_key_id(iface->base.addr->key);
	iface->ctl_src.handle = handle_ctl;
	return weft_events_add(&iface->base.events,
			       weft_tcp_ops.event_fd(iface->ctl),
			       &iface->ctl_src, EPOLLIN);
}

static int open_port(struct ib_iface *iface, const char *name, int family)
{
	int err;

	err = weft_verbs_get(name, &iface->port);
	if (err)
		return weft_fail(
			err,
			"verbs device '%s' does not exist, or its port is not active ('weft info' lists them)",
			name);
	err = weft_verbs_gid(&iface->port, family, &iface->gid_index,
			     iface->gid);
	if (err)
		return err;
	err = weft_verbs_pkey(&iface->port, &iface->pkey_index);
	if (err)
		return err;
	iface->traffic_class =
		weft_verbs_traffic_class(&iface->port, iface->gid_index);
	err = ib_device_get(iface->port.dev, &iface->dev);
	if (err)
		return err;
	iface->v = iface->dev->v;
	err = iface->v->query_port(iface->dev->ctx, (uint8_t)iface->port.port,
				   &iface->port_attr);
	if (err)
		return weft_fail(-err, "cannot query port '%s'",
				 iface->port.name);
	iface->max_imm =
		weft_min(IB_MAX_IMM, (size_t)iface->port_attr.max_msg_sz);
	iface->channel = iface->v->create_comp_channel(iface->dev->ctx);
	if (!iface->channel)
		return weft_fail(-errno,
				 "cannot create a completion channel on '%s'",
				 iface->port.name);
	err = fcntl(iface->channel->fd, F_GETFL);
	if (err < 0 || fcntl(iface->channel->fd, F_SETFL, err | O_NONBLOCK))
		return weft_fail(-errno,
				 "cannot use the completion channel of '%s'",
				 iface->port.name);
	iface->channel_src.handle = handle_channel;
	return weft_events_add(&iface->base.events, iface->channel->fd,
			       &iface->channel_src, EPOLLIN);
}

static void ib_iface_free(struct ib_iface *iface)
{
	struct ib_cq *cq, *tmp;
	int err = 0;

	if (iface->ctl)
		weft_tcp_ops.iface_close(iface->ctl);
	if (iface->dev) {
		ib_device_del_alarm(&iface->alarm);
		weft_list_for_each (cq, tmp, &iface->cqs, link)
			ib_cq_destroy(iface, cq);
		if (iface->channel)
			err = iface->v->destroy_comp_channel(iface->channel);
		if (err)
			weft_fail(
				-err,
				"cannot destroy the completion channel of '%s'",
				iface->port.name);
		ib_device_put(iface->dev);
	}
	weft_base_close(&iface->base);
	weft_table_free(&iface->by_id);
	free(iface);
}

/* Queue pairs are exchanged over TCP. */
static int ib_works(const char **why)
{
	return weft_tcp_ops.works(why);
}

static int ib_iface_open(const struct weft_iface_params *params,
			 struct weft_iface **out)
{
	struct ib_iface *iface = calloc(1, sizeof(*iface));
	int err;

	if (!iface)
		return -ENOMEM;
	weft_list_init(&iface->alarm.link);
	weft_list_init(&iface->cqs);
	weft_list_init(&iface->peers);
	weft_list_init(&iface->dead);
	weft_list_init(&iface->received);
	weft_list_init(&iface->finished);
	iface->polls = IB_POLL_EVERY;
	err = weft_base_open(&iface->base, &weft_ib_ops, &ib_ep_ops, params,
			     ib_timer_tick);
	if (!err)
		err = weft_events_need_wake(&iface->base.events);
	if (!err)
		err = open_port(iface, params->netdev, params->family);
	if (!err)
		err = open_ctl(iface, params->family);
	if (err) {
		ib_iface_free(iface);
		return err;
	}
	weft_base_count(&iface->base, iface->port.name);
	iface->alarm.port = iface->port.port;
	iface->alarm.wake_fd = iface->base.events.wake_fd;
	ib_device_add_alarm(iface->dev, &iface->alarm);
	*out = &iface->base.iface;
	return 0;
}

/* Frees ended connections after on_error(). */
static void free_dead(struct ib_iface *iface)
{
	struct ib_conn *conn;

	while (!weft_list_empty(&iface->dead)) {
		conn = weft_list_first(&iface->dead, struct ib_conn, link);
		weft_list_del(&conn->link);
		weft_ep_failed(&conn->base);
		ib_conn_free(conn);
	}
}

/*
 * Posted messages arrive if the peer's adapter is alive, and it learns which of
 * its own were delivered.
 */
static void ib_flush_at_close(struct ib_iface *iface)
{
	const uint64_t end = weft_now_ms() + weft_settings()->peer_timeout_ms;
	struct ib_peer *peer, *tp;
	struct ib_conn *conn, *tc;
	bool waiting;

	do {
		waiting = false;
		weft_tcp_ops.progress(iface->ctl); /* it may be gone */
		ib_done_gather(iface);
		weft_list_for_each (peer, tp, &iface->peers, link)
			weft_list_for_each (conn, tc, &peer->conns, link)
				waiting |= ib_xfer_closes(conn);
		if (waiting)
			poll(NULL, 0, 1);
	} while (waiting && weft_now_ms() < end);
}

static void ib_iface_close(struct weft_iface *base)
{
	struct ib_iface *iface = ib_iface(base);
	struct ib_peer *peer, *tp;
	struct ib_conn *conn, *tc;

	iface->closing = true;
	ib_flush_at_close(iface);
	weft_list_for_each (peer, tp, &iface->peers, link)
		weft_list_for_each (conn, tc, &peer->conns, link)
			ib_conn_fail(conn, -ESHUTDOWN);
	free_dead(iface);
	ib_peers_close(iface);
	ib_iface_free(iface);
}

/*
 * The adapter ends the parent's objects when the last of these descriptors is
 * closed.
 */
static void ib_iface_forget(struct weft_iface *base)
{
	struct ib_iface *iface = ib_iface(base);

	if (iface->channel)
		weft_forked_close(&iface->channel->fd);
	if (iface->dev) {
		weft_forked_close(&iface->dev->stop_fd);
		weft_forked_close(&iface->dev->ctx->async_fd);
		weft_forked_close(&iface->dev->ctx->cmd_fd);
	}
	if (iface->ctl)
		weft_forked_close(&weft_base(iface->ctl)->events.epfd);
	weft_base_forget(&iface->base);
}

static void ib_iface_query(struct weft_iface *base,
			   struct weft_iface_attr *attr)
{
	struct ib_iface *iface = ib_iface(base);

	memset(attr, 0, sizeof(*attr));
	attr->max_message = IB_SLOT - IB_HEAD;
	attr->max_iov = IB_MAX_IOV;
	attr->mem_kinds = BIT(WEFT_MEM_HOST);
	attr->cancel_ends_ep = true;
	attr->bandwidth = iface->port.speed ? iface->port.speed : 1.25e9;
	/* estimates for adapters of the last ten years */
	attr->latency = 1.5e-6;
	attr->overhead = 0.3e-6;
	attr->addr = *iface->base.addr;
}

static bool ib_iface_reaches(struct weft_iface *base,
			     const struct weft_address *remote,
			     const char **why)
{
	struct ib_iface *iface = ib_iface(base);

	return weft_verbs_reachable(iface->base.addr->fabric, remote->fabric,
				    why) &&
	       weft_tcp_ops.reaches(iface->ctl, remote, why);
}

static unsigned int step_conn(struct weft_conn *conn)
{
	if (ib_conn_step(ib_conn(conn)))
		return 1;
	weft_ep_notify(conn);
	return 0;
}

static unsigned int ib_iface_progress(struct weft_iface *base)
{
	struct ib_iface *iface = ib_iface(base);
	unsigned int n = 0, rounds = 0;

	if (++iface->polls >= IB_POLL_EVERY) {
		iface->polls = 0;
		n += weft_events_handle(&iface->base.events);
		ib_timer_alarm(iface);
		n += weft_tcp_ops.progress(iface->ctl);
	}
	iface->budget = WEFT_PROGRESS_MAX;
	n += ib_done_gather(iface);
	/* deliver what arrived before a peer's end */
	if (iface->failing) {
		iface->failing = false;
		while (rounds++ < DRAIN_ROUNDS && ib_done_gather(iface))
			;
	}
	n += ib_done_deliver(iface);
	if (!weft_list_empty(&iface->base.work))
		ib_timer_start(iface);
	n += weft_base_work(&iface->base, step_conn);
	/* that may have finished operations that were never posted */
	if (!weft_list_empty(&iface->finished))
		n += ib_done_deliver(iface);
	if (!weft_list_empty(&iface->dead)) {
		free_dead(iface);
		ib_peers_reap(iface);
	}
	return n;
}

static int iface_arm(struct weft_iface *base)
{
	struct ib_iface *iface = ib_iface(base);
	int err;

	iface->polls = IB_POLL_EVERY; /* the next progress() looks */
	err = weft_events_arm(&iface->base.events);
	if (!err)
		err = weft_tcp_ops.arm(iface->ctl);
	if (!err)
		err = ib_done_arm(iface);
	if (err)
		return err;
	/* UCP may watch edge-triggered: being readable already is no edge */
	return weft_events_pending(&iface->base.events) ? -EBUSY : 0;
}

const struct weft_dev_ops weft_ib_ops = {
	.name = "ib",
	.rkey_len = IB_KEY_LEN,
	.works = ib_works,
	.iface_open = ib_iface_open,
	.iface_close = ib_iface_close,
	.iface_forget = ib_iface_forget,
	.iface_query = ib_iface_query,
	.reaches = ib_iface_reaches,
	.progress = ib_iface_progress,
	.event_fd = weft_base_event_fd,
	.arm = iface_arm,
	.ep_create = weft_ep_create,
	.ep_destroy = weft_ep_destroy,
	.unsent = ib_ep_unsent,
	.ready = weft_ep_ready,
	.message = ib_ep_message,
	.message_pack = ib_ep_message_pack,
	.put = ib_ep_put,
	.get = ib_ep_get,
	.fence = ib_ep_fence,
	.flush = weft_ep_flush,
	.cancel = weft_ep_cancel,
	.mem_register = ib_mem_register,
	.mem_pack = ib_mem_pack,
	.mem_release = ib_mem_release,
};

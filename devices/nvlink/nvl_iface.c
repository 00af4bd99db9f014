/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces: opening, progress, sleeping; registered memory. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/settings.h"
#include "devices/forked.h"
#include "devices/nvlink/nvl_budget.h"
#include "devices/nvlink/nvl_close.h"
#include "devices/engine/copy.h"
#include "devices/nvlink/nvl_dial.h"
#include "devices/nvlink/nvl_direct.h"
#include "devices/nvlink/nvl_ep.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_map.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_rx.h"
#include "devices/nvlink/nvl_sock.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/clock.h"
#include "util/fork.h"
#include "util/log.h"

/* ---- opening ------------------------------------------------------------- */

static void iface_free(struct nvl_iface *iface)
{
	weft_local_close(&iface->local, &iface->base);
	weft_engines_fini(&iface->engines);
	weft_base_close(&iface->base);
	free(iface);
}

static int iface_open(const struct weft_iface_params *params,
		      struct weft_iface **out)
{
	struct nvl_iface *iface = calloc(1, sizeof(*iface));
	int err;

	if (!iface)
		return -ENOMEM;
	weft_local_init(&iface->local);
	weft_list_init(&iface->conns);
	weft_list_init(&iface->dead);
	weft_list_init(&iface->done);
	weft_list_init(&iface->done_gets);
	weft_list_init(&iface->landed);
	weft_list_init(&iface->done_directs);
	/*
	 * The reader of a ring sees nothing of a batch before its end: a
	 * quarter of the ring, so that both sides copy at once (64 MiB: 306
	 * GB/s with half, 334 with a quarter or less; 8 MiB: 212, and 178 with
	 * a sixteenth).
	 */
	weft_engines_init(&iface->engines, &iface->base.events,
			  nvl_tune.ring / 4);
	iface->base.session.ops = &nvl_session_ops;
	iface->base.session.name = "nvlink";
	iface->base.session.where = "this host";
	iface->base.session.kind = NVL_PURPOSE;
	err = weft_base_open(&iface->base, &weft_nvlink_ops, &nvl_ep_ops,
			     params, weft_base_on_timer);
	if (!err)
		err = weft_events_need_wake(&iface->base.events);
	if (!err)
		err = weft_local_open(&iface->local, &iface->base);
	if (err) {
		iface_free(iface);
		return err;
	}
	weft_base_count(&iface->base, params->netdev ? params->netdev : "nvl");
	*out = &iface->base.iface;
	return 0;
}

static void iface_close(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		nvl_conn_say_close(conn);
		nvl_conn_stop_copies(conn);
		nvl_export_leave(conn);
		nvl_conn_break(conn, 0);
		nvl_conn_drop_ops(conn, -ECANCELED);
		nvl_conn_forget(conn);
		nvl_conn_free(conn);
	}
	nvl_conn_reap(iface);
	nvl_tx_deliver(iface);
	nvl_unmap_end(iface); /* while there is every context */
	iface_free(iface);
}

static void iface_forget(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		weft_forked_close(&conn->fd);
		nvl_ring_forget(conn);
	}
	nvl_budget_forget();
	weft_engines_forget(&iface->engines);
	weft_local_forget(&iface->local);
	weft_base_forget(&iface->base);
}

static void iface_query(struct weft_iface *base, struct weft_iface_attr *attr)
{
	*attr = (struct weft_iface_attr){
		.max_message = NVL_MAX_MESSAGE,
		.max_iov = NVL_MAX_IOV,
		.max_put = SIZE_MAX >> 1,
		.mem_kinds = BIT(WEFT_MEM_HOST) | BIT(WEFT_MEM_CUDA),
		.same_host = true,
		.bandwidth = 330e9, /* H200, NVLink 18 links: measured */
		.latency = 1e-6,
		.overhead = 0.3e-6,
		.addr = *weft_base(base)->addr,
	};
}

static bool reaches(struct weft_iface *base, const struct weft_address *remote,
		    const char **why)
{
	struct nvl_iface *iface = nvl_iface(base);

	return weft_local_reaches(&iface->local, &iface->base, remote, why);
}

/* ---- progress ------------------------------------------------------------ */

/* The system calls of a round; conns live until its end. */
static unsigned int poll_sockets(struct nvl_iface *iface)
{
	const uint64_t now = weft_now_ms();
	struct nvl_conn *conn, *tmp;
	unsigned int n;

	iface->polls = 0;
	n = weft_events_handle(&iface->base.events);
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		n += nvl_conn_step(conn);
		if (conn->base.state != WEFT_CONN_OPEN)
			continue;
		nvl_ring_tick(conn, now);
		nvl_import_tick(conn);
		nvl_export_count(conn);
	}
	return n;
}

static bool must_poll(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	if (iface->armed || ++iface->polls >= NVL_POLLS ||
	    weft_session_busy(&iface->base.session))
		return true;
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (conn->base.state == WEFT_CONN_OPEN &&
		    (!weft_list_empty(&conn->frames_out) ||
		     nvl_sock_waiting(conn)))
			return true;
	return false;
}

static void leave_sleep(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	if (!iface->armed)
		return;
	iface->armed = false;
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (conn->tx.head)
			nvl_inbox_sleep(conn, false);
}

static unsigned int notify_eps(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;
	unsigned int n = 0;

	weft_list_for_each (conn, tmp, &iface->conns, link)
		n += weft_ep_notify(&conn->base);
	return n;
}

/* Inboxes: operations first, because messages may wait for them. */
static unsigned int read_inboxes(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;
	unsigned int n = 0;

	iface->messages = iface->notices = WEFT_PROGRESS_MAX;
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->base.state != WEFT_CONN_OPEN)
			continue;
		if (conn->deferred_n)
			nvl_op_retry(conn);
		n += nvl_rx_ops(conn);
	}
	n += nvl_rx_deliver(iface);
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (!iface->messages) {
			/* a connection that got nothing is the first the next
			 * time */
			weft_list_del(&iface->conns);
			weft_list_add_tail(&conn->link, &iface->conns);
			break;
		}
		if (conn->base.state == WEFT_CONN_OPEN)
			n += nvl_msg_progress(conn);
	}
	return n;
}

static unsigned int end_conns(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;
	unsigned int n = 0;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		n += nvl_conn_maybe_end(conn);
		if (conn->base.state == WEFT_CONN_OPEN && conn->hung_up &&
		    !conn->copies && !nvl_inbox_pending(conn) &&
		    weft_list_empty(&iface->landed))
			nvl_conn_on_hangup(conn);
	}
	/* callbacks run here: none of these is held on to */
again:
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->base.state == WEFT_CONN_BROKEN &&
		    nvl_conn_finish_close(conn)) {
			n++;
			goto again;
		}
	}
	nvl_conn_reap(iface);
	weft_session_reap(&iface->base.session);
	return n;
}

static bool is_conn_quiet(struct nvl_conn *conn)
{
	struct nvl_inbox_head *h = conn->rx.head;

	if (conn->base.state != WEFT_CONN_OPEN || !conn->base.ep ||
	    conn->hung_up || conn->base.ready_owed || conn->deferred_n ||
	    (conn->ntransfers && conn->copies < NVL_CONN_CHUNKS) ||
	    !weft_list_empty(&conn->frames_out) ||
	    !weft_list_empty(&conn->fetches) || conn->base.ep->nflushes)
		return false;
	/* one cache line, which only the peer's writes take from us */
	return atomic_load_explicit(&h->op_tail, memory_order_relaxed) ==
		       conn->op_head &&
	       atomic_load_explicit(&h->msg_tail, memory_order_relaxed) ==
		       conn->msg_head &&
	       atomic_load_explicit(&h->frames, memory_order_relaxed) ==
		       conn->frames_read;
}

/*
 * NCCL calls it for each of its requests, some twenty times before one is done:
 * "nothing new" must be cheap.
 */
static bool is_quiet(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	if (iface->armed || iface->polls + 1 >= NVL_POLLS ||
	    weft_session_busy(&iface->base.session) ||
	    !weft_list_empty(&iface->done) ||
	    !weft_list_empty(&iface->done_gets) ||
	    !weft_list_empty(&iface->done_directs) ||
	    !weft_list_empty(&iface->landed) || !weft_list_empty(&iface->dead))
		return false;
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (!is_conn_quiet(conn))
			return false;
	return weft_copy_quiet(&iface->engines);
}

static unsigned int iface_progress(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	struct nvl_conn *conn, *tmp;
	unsigned int n = 0;

	if (is_quiet(iface)) {
		iface->polls++;
		return 0;
	}
	if (must_poll(iface)) {
		leave_sleep(iface);
		n += poll_sockets(iface);
	}
	n += weft_copy_poll(&iface->engines);
	n += read_inboxes(iface);
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (conn->base.state == WEFT_CONN_OPEN) {
			n += nvl_direct_schedule(conn);
			n += conn->ntransfers ? nvl_tx_schedule(conn) : 0;
			n += nvl_export_step(conn);
		}
	n += weft_copy_submit(&iface->engines);
	n += nvl_rx_deliver(iface);
	n += nvl_tx_deliver(iface);
	n += nvl_direct_deliver(iface);
	n += notify_eps(iface);
	n += end_conns(iface);
	return n;
}

/* ---- sleeping ------------------------------------------------------------ */

static bool is_pending(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	if (!weft_list_empty(&iface->done) ||
	    !weft_list_empty(&iface->done_gets) ||
	    !weft_list_empty(&iface->done_directs) ||
	    !weft_list_empty(&iface->landed) ||
	    weft_copy_pending(&iface->engines))
		return true;
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->base.state == WEFT_CONN_BROKEN && !conn->copies)
			return true;
		if (conn->base.state == WEFT_CONN_OPEN &&
		    (nvl_inbox_pending(conn) || nvl_ring_credit_pending(conn) ||
		     nvl_export_is_due(conn)))
			return true;
	}
	return false;
}

/* The session sets the timer for those that are about to meet. */
static void set_timer(struct nvl_iface *iface, bool poll_copies, bool in_flight)
{
	const uint64_t now = weft_now_ms();
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->base.state == WEFT_CONN_BROKEN)
			weft_events_wake_at(&iface->base.events,
					    conn->watchdog_ms);
		else if (!weft_list_empty(&conn->frames_out))
			weft_events_wake_at(&iface->base.events,
					    now + NVL_SEND_AGAIN_MS);
		else if (!weft_list_empty(&conn->fetches))
			weft_events_wake_at(&iface->base.events,
					    now + NVL_EXPORT_MS);
		else
			weft_events_wake_at(&iface->base.events,
					    now + nvl_tune.idle_ms);
	}
	if (poll_copies)
		weft_events_wake_at(&iface->base.events,
				    now + WEFT_COPY_POLL_MS);
	else if (in_flight)
		weft_events_wake_at(&iface->base.events,
				    now + WEFT_COPY_FAILURE_MS);
}

static int arm(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	struct nvl_conn *conn, *tmp;
	bool in_flight, wakes;

	if (is_pending(iface))
		return -EBUSY;
	iface->armed = true;
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (conn->base.state == WEFT_CONN_OPEN)
			nvl_inbox_sleep(conn, true);
	wakes = weft_copy_arm(&iface->engines, &in_flight);
	set_timer(iface, !wakes, in_flight);
	/* a peer that wrote before it could see `sleeping` is seen here */
	if (!weft_events_arm(&iface->base.events) && !is_pending(iface))
		return 0;
	leave_sleep(iface);
	return -EBUSY;
}

/* ---- memory -------------------------------------------------------------- */

static int mem_register(void *addr, size_t len, enum weft_mem_kind kind,
			struct weft_mem **mem)
{
	const struct weft_iov all = { addr, len, NULL };
	struct weft_cuda_ptr where;
	int err = 0;

	if (kind == WEFT_MEM_CUDA)
		err = weft_cuda_init();
	if (!err)
		err = nvl_mem_locate(&all, &where);
	if (err)
		return err;
	if (kind == WEFT_MEM_CUDA) {
		if (where.where != WEFT_CUDA_DEVICE || where.managed)
			return weft_fail(EINVAL, "%p is no GPU memory%s", addr,
					 where.managed ? " (managed memory is "
							 "not supported)"
						       : "");
		/* now, and not when the first ring is waited for */
		nvl_share_allowed(where.ordinal);
	}
	err = weft_region_add(addr, len, kind, mem);
	if (err)
		return err;
	(*mem)->where = where;
	if (kind == WEFT_MEM_CUDA)
		nvl_export_add(*mem);
	return 0;
}

static void mem_pack(struct weft_mem *mem, void *rkey)
{
	unsigned int loc = NVL_LOC_HOST;

	weft_rkey_pack(&mem->rkey, rkey);
	if (mem->kind == WEFT_MEM_CUDA)
		loc = NVL_LOC_GPU(mem->where.ordinal);
	if (loc >= NVL_LOCS)
		loc = NVL_LOC_HOST;
	if (mem->exported)
		loc |= nvl_export_loc(mem->exported);
	((uint8_t *)rkey)[WEFT_RKEY_LEN] = loc;
}

static void mem_release(struct weft_mem *mem)
{
	struct nvl_export *exported = mem->exported;
	bool gpu = mem->kind == WEFT_MEM_CUDA && mem->forks == weft_forks();

	weft_region_remove(mem);
	if (!gpu)
		return;
	nvl_export_del(exported);
	/* what engines already had of it */
	weft_copy_drain_all();
}

const struct weft_dev_ops weft_nvlink_ops = {
	.name = "nvlink",
	.rkey_len = WEFT_RKEY_LEN + 1,
	.works = weft_local_works,
	.iface_open = iface_open,
	.iface_close = iface_close,
	.iface_forget = iface_forget,
	.iface_query = iface_query,
	.reaches = reaches,
	.progress = iface_progress,
	.event_fd = weft_base_event_fd,
	.arm = arm,
	.ep_create = weft_ep_create,
	.ep_destroy = weft_ep_destroy,
	.ep_query = nvl_ep_query,
	.ready = weft_ep_ready,
	.message = nvl_ep_message,
	.message_pack = nvl_ep_message_pack,
	.put = nvl_ep_put,
	.get = nvl_ep_get,
	.fence = nvl_ep_fence,
	.flush = weft_ep_flush,
	.cancel = weft_ep_cancel,
	.mem_register = mem_register,
	.mem_pack = mem_pack,
	.mem_release = mem_release,
};

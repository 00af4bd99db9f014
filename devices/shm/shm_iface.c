/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces: opening, progress, sleeping; registered memory. */
#include <errno.h>
#include <stdlib.h>

#include "devices/common/forked.h"
#include "devices/shm/shm_break.h"
#include "devices/shm/shm_conn.h"
#include "devices/shm/shm_ep.h"
#include "devices/shm/shm_ring.h"
#include "devices/shm/shm_rx.h"
#include "devices/shm/shm_tx.h"
#include "devices/shm/shm_window.h"
#include "util/clock.h"
#include "util/fork.h"
#include "util/log.h"

/* Pause before the socket of a sleeping peer is tried again. */
#define SEND_AGAIN_MS 2

/* ---- opening ------------------------------------------------------------- */

static void iface_free(struct shm_iface *iface)
{
	weft_engines_fini(&iface->engines);
	weft_local_close(&iface->local, &iface->base);
	weft_base_close(&iface->base);
	free(iface);
}

static unsigned int on_timer(struct weft_events *ev, uint64_t now,
			     uint64_t stood)
{
	struct shm_iface *iface =
		container_of(ev, struct shm_iface, base.events);
	struct shm_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		shm_ring_tick(conn, now);
		shm_window_tick(conn, now);
	}
	return weft_base_on_timer(ev, now, stood);
}

static int iface_open(const struct weft_iface_params *params,
		      struct weft_iface **out)
{
	struct shm_iface *iface = calloc(1, sizeof(*iface));
	int err;

	if (!iface)
		return -ENOMEM;
	/* the reader sees nothing of a batch before its end */
	weft_engines_init(&iface->engines, &iface->base.events, SHM_WINDOW / 4);
	weft_local_init(&iface->local);
	weft_list_init(&iface->conns);
	weft_list_init(&iface->dead);
	iface->base.session.ops = &shm_session_ops;
	iface->base.session.name = "shm";
	iface->base.session.where = "this host";
	iface->base.session.kind = SHM_PURPOSE;
	err = weft_base_open(&iface->base, &weft_shm_ops, &shm_ep_ops, params,
			     on_timer);
	if (!err)
		err = weft_local_open(&iface->local, &iface->base);
	if (err) {
		iface_free(iface);
		return err;
	}
	weft_base_count(&iface->base, params->netdev ? params->netdev : "shm");
	*out = &iface->base.iface;
	return 0;
}

static void reap(struct shm_iface *iface)
{
	struct shm_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->dead, link)
		shm_conn_free(conn);
}

static void iface_close(struct weft_iface *base)
{
	struct shm_iface *iface = shm_iface(base);
	struct shm_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		shm_conn_say_close(conn);
		shm_window_stop(conn);
		shm_conn_break(conn, 0);
		conn->watchdog_ms = 0;
		shm_conn_end(conn);
	}
	reap(iface);
	iface_free(iface);
}

static void iface_forget(struct weft_iface *base)
{
	struct shm_iface *iface = shm_iface(base);
	struct shm_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		weft_forked_close(&conn->fd);
		weft_forked_close(&conn->offer_fd);
	}
	weft_engines_forget(&iface->engines);
	weft_local_forget(&iface->local);
	weft_base_forget(&iface->base);
}

static void iface_query(struct weft_iface *base, struct weft_iface_attr *attr)
{
	*attr = (struct weft_iface_attr){
		.max_message = SHM_MAX_MESSAGE,
		.max_iov = SHM_MAX_IOV,
		.mem_kinds = BIT(WEFT_MEM_HOST) | BIT(WEFT_MEM_CUDA),
		.bandwidth = 10e9,
		.latency = 0.3e-6,
		.overhead = 0.1e-6,
		.addr = *weft_base(base)->addr,
	};
}

static bool reaches(struct weft_iface *base, const struct weft_address *remote,
		    const char **why)
{
	struct shm_iface *iface = shm_iface(base);

	return weft_local_reaches(&iface->local, &iface->base, remote, why);
}

/* ---- progress ------------------------------------------------------------ */

static void leave_sleep(struct shm_iface *iface)
{
	struct shm_conn *conn, *tmp;

	if (!iface->armed)
		return;
	iface->armed = false;
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (shm_conn_is_open(conn))
			shm_ring_sleep(conn, false, false);
}

static bool is_due(const struct shm_iface *iface)
{
	return iface->armed || weft_session_busy(&iface->base.session);
}

/* System calls, not made in each round. */
static unsigned int poll_sockets(struct shm_iface *iface)
{
	const bool due = is_due(iface);
	uint64_t now;

	if (!due && iface->polls < SHM_POLLS)
		return 0;
	iface->polls = 0;
	now = weft_now_ns();
	if (!due && now - iface->polled_ns < SHM_POLL_NS)
		return 0;
	iface->polled_ns = now;
	leave_sleep(iface);
	return weft_events_handle(&iface->base.events);
}

/* Is it BROKEN, or may it end on its own? */
static bool may_end(const struct shm_conn *conn)
{
	return conn->base.state == WEFT_CONN_BROKEN ||
	       (shm_conn_is_open(conn) && (!conn->base.ep || conn->hung_up));
}

/* Callbacks run here: no connection but the one that ends is held on to. */
static unsigned int end_conns(struct shm_iface *iface)
{
	struct shm_conn *conn, *tmp;
	unsigned int n = 0;

again:
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (may_end(conn) && shm_conn_end(conn)) {
			n++;
			goto again;
		}
	}
	reap(iface);
	weft_session_reap(&iface->base.session);
	return n;
}

/* Does it need room in its ring to go on? */
static bool wants_room(const struct shm_conn *conn)
{
	return conn->base.ready_owed || shm_tx_waits(conn) ||
	       shm_conn_owes_bye(conn);
}

/* Is it to be woken when the peer has read? */
static bool wants_reader(const struct shm_conn *conn)
{
	return shm_conn_is_open(conn) && (wants_room(conn) || conn->asked);
}

/* Has the peer read something for which a flush may wait? */
static bool has_answer(const struct shm_conn *conn)
{
	return conn->asked && shm_ring_read(conn) != conn->asked_read;
}

/* The caller may poll a flush: report an event. */
static unsigned int take_answer(struct shm_conn *conn)
{
	if (!has_answer(conn))
		return 0;
	shm_ring_note_read(conn);
	return 1;
}

static bool is_still(const struct shm_conn *conn)
{
	const struct weft_base_ep *ep = conn->base.ep;

	return shm_conn_is_open(conn) && !may_end(conn) && !ep->nflushes &&
	       !wants_room(conn) && !conn->asked && conn->offer_fd < 0 &&
	       !conn->copies && !shm_rx_awaits_engines(conn) &&
	       conn->tx.in != SHM_IN_LONG;
}

static unsigned int progress_conn(struct shm_conn *conn)
{
	unsigned int n = 0;

	if (shm_conn_is_open(conn) && conn->iface->messages &&
	    conn->iface->notices)
		n = shm_rx_run(conn);
	if (conn->still)
		return n;
	if (shm_conn_is_open(conn))
		shm_ring_watch(conn, wants_room(conn));
	if (conn->offer_fd >= 0)
		n += shm_window_send(conn);
	n += shm_tx_run(conn);
	n += take_answer(conn);
	n += weft_ep_notify(&conn->base);
	conn->still = is_still(conn);
	return n;
}

/* Of a connection that is still only a record is work. */
static bool needs_progress(const struct shm_conn *conn)
{
	return !conn->still || shm_ring_has_next(conn);
}

/* Inlined, its registers would be saved in each call of iface_progress(). */
static __attribute__((noinline)) unsigned int work(struct shm_iface *iface)
{
	struct shm_conn *conn, *tmp;
	unsigned int n = poll_sockets(iface);
	const bool gpus = !weft_list_empty(&iface->engines.list);
	bool ends = n;

	if (gpus)
		n += weft_copy_poll(&iface->engines);
	iface->messages = iface->notices = WEFT_PROGRESS_MAX;
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (!needs_progress(conn))
			continue;
		n += progress_conn(conn);
		ends |= may_end(conn);
	}
	if (!iface->messages || !iface->notices) {
		/* start with another one next time */
		conn = weft_list_first(&iface->conns, struct shm_conn, link);
		weft_list_del(&conn->link);
		weft_list_add_tail(&iface->conns, &conn->link);
	}
	/* not @gpus: the first one may have come meanwhile */
	if (!weft_list_empty(&iface->engines.list))
		n += weft_copy_submit(&iface->engines);
	if (ends)
		n += end_conns(iface);
	iface->idle = !n;
	return n;
}

/*
 * Most calls find nothing: they look at each ring, and no more.  A reader that
 * has waited gets the first message before anything looks for a second: the
 * word that tells is in a cache line that the writer still has.
 */
static unsigned int iface_progress(struct weft_iface *base)
{
	struct shm_iface *iface = shm_iface(base);
	struct shm_conn *conn, *tmp;

	if (++iface->polls >= SHM_POLLS || is_due(iface) ||
	    !weft_list_empty(&iface->engines.list))
		return work(iface);
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (!needs_progress(conn))
			continue;
		if (!iface->idle || !conn->still || !shm_rx_take(conn))
			return work(iface);
		iface->idle = false;
		return 1;
	}
	iface->idle = true;
	return 0;
}

/* ---- sleeping ------------------------------------------------------------ */

static bool is_pending(struct shm_iface *iface)
{
	struct shm_conn *conn, *tmp;

	if (weft_copy_pending(&iface->engines))
		return true;
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->base.state == WEFT_CONN_BROKEN && !conn->copies)
			return true;
		if (!shm_conn_is_open(conn))
			continue;
		if ((conn->hung_up && !conn->copies) || shm_rx_can_run(conn) ||
		    shm_tx_can_run(conn) ||
		    (shm_conn_owes_bye(conn) && shm_ring_has_room(conn, 0)) ||
		    (conn->base.ready_owed && shm_ep_is_ready(&conn->base)) ||
		    has_answer(conn))
			return true;
	}
	return false;
}

/*
 * When a writer that sleeps until its peer has read looks by itself.  Only a
 * read during arm() may have missed it.  If none was seen since the one before,
 * the peer most likely stands, and later is soon enough.
 */
static uint64_t look_again_ms(struct shm_conn *conn)
{
	const uint64_t read = shm_ring_read(conn);
	const bool stands = read == conn->armed_read;

	conn->armed_read = read;
	return weft_now_ms() + (stands ? WEFT_TICK_MS : SHM_AGAIN_MS);
}

/* Is there something that writes to no descriptor? */
static void set_timers(struct shm_iface *iface)
{
	struct weft_events *ev = &iface->base.events;
	struct shm_conn *conn, *tmp;
	bool in_flight;

	if (!weft_copy_arm(&iface->engines, &in_flight))
		weft_events_wake_at(ev, weft_now_ms() + WEFT_COPY_POLL_MS);
	else if (in_flight)
		weft_events_wake_at(ev, weft_now_ms() + WEFT_COPY_FAILURE_MS);
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->base.state == WEFT_CONN_BROKEN)
			weft_events_wake_at(ev, conn->watchdog_ms);
		if (conn->offer_fd >= 0)
			weft_events_wake_at(ev, weft_now_ms() + SEND_AGAIN_MS);
		if (wants_reader(conn))
			weft_events_wake_at(ev, look_again_ms(conn));
	}
}

static int arm(struct weft_iface *base)
{
	struct shm_iface *iface = shm_iface(base);
	struct shm_conn *conn, *tmp;

	if (is_pending(iface))
		return -EBUSY;
	set_timers(iface);
	if (weft_events_arm(&iface->base.events))
		return -EBUSY;
	iface->armed = true;
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (shm_conn_is_open(conn))
			shm_ring_sleep(conn, true, wants_reader(conn));
	/* a peer that wrote before it could see that we sleep is seen here */
	if (!is_pending(iface))
		return 0;
	leave_sleep(iface);
	return -EBUSY;
}

/* ---- memory -------------------------------------------------------------- */

static int mem_register(void *addr, size_t len, enum weft_mem_kind kind,
			struct weft_mem **mem)
{
	return kind == WEFT_MEM_CUDA ? weft_engine_register(addr, len, mem)
				     : weft_region_add(addr, len, kind, mem);
}

static void mem_pack(struct weft_mem *mem, void *rkey)
{
	weft_rkey_pack(&mem->rkey, rkey);
	((uint8_t *)rkey)[WEFT_RKEY_LEN] =
		mem->kind == WEFT_MEM_CUDA ? SHM_MEM_GPU : SHM_MEM_HOST;
}

static void mem_release(struct weft_mem *mem)
{
	const bool gpu =
		mem->kind == WEFT_MEM_CUDA && mem->forks == weft_forks();

	weft_region_remove(mem);
	/* wait for the engines that access it */
	if (gpu)
		weft_copy_drain_all();
}

const struct weft_dev_ops weft_shm_ops = {
	.name = "shm",
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
	.unsent = shm_ep_unsent,
	.ready = weft_ep_ready,
	.message = shm_ep_message,
	.message_pack = shm_ep_message_pack,
	.put = shm_ep_put,
	.get = shm_ep_get,
	.fence = shm_ep_fence,
	.flush = weft_ep_flush,
	.cancel = weft_ep_cancel,
	.mem_register = mem_register,
	.mem_pack = mem_pack,
	.mem_release = mem_release,
};

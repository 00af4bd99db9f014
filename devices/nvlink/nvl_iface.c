/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces: opening, progress, sleeping; registered memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/common/forked.h"
#include "devices/nvlink/nvl_conn.h"
#include "devices/nvlink/nvl_ep.h"
#include "devices/nvlink/nvl_export.h"
#include "devices/nvlink/nvl_import.h"
#include "devices/nvlink/nvl_life.h"
#include "devices/nvlink/nvl_op.h"
#include "devices/nvlink/nvl_sock.h"
#include "devices/nvlink/nvl_unmap.h"
#include "host/gpu.h"
#include "util/clock.h"
#include "util/fork.h"
#include "util/log.h"

/* Bytes in a batch, which the last copy may exceed. */
#define BATCH_BYTES (8u << 20)

/* ---- opening ------------------------------------------------------------- */

static void nvl_iface_free(struct nvl_iface *iface)
{
	nvl_unmap_end();
	weft_engines_fini(&iface->engines);
	weft_local_close(&iface->local, &iface->base);
	weft_base_close(&iface->base);
	nvl_lives_end();
	free(iface);
}

static int nvl_iface_open(const struct weft_iface_params *params,
			  struct weft_iface **out)
{
	struct nvl_iface *iface = calloc(1, sizeof(*iface));
	int err;

	if (!iface)
		return -ENOMEM;
	err = nvl_lives_begin();
	if (err) {
		free(iface);
		return err;
	}
	nvl_unmap_begin();
	weft_local_init(&iface->local);
	weft_list_init(&iface->conns);
	weft_list_init(&iface->dead);
	weft_list_init(&iface->done);
	weft_engines_init(&iface->engines, &iface->base.events, BATCH_BYTES);
	iface->base.session.ops = &nvl_session_ops;
	iface->base.session.name = "nvlink";
	iface->base.session.where = "this host";
	iface->base.session.kind = NVL_PURPOSE;
	err = weft_base_open(&iface->base, &weft_nvlink_ops, &nvl_ep_ops,
			     params, weft_base_on_timer);
	if (!err)
		err = weft_engines_share(&iface->engines);
	if (err > 0)
		err = 0;
	if (!err)
		err = weft_local_open(&iface->local, &iface->base);
	if (err) {
		nvl_iface_free(iface);
		return err;
	}
	/* besides what devices/local has put there: see nvl_reaches() */
	iface->base.addr->sa.in.sin_addr.s_addr = weft_gpu_nodes_id();
	weft_base_count(&iface->base, params->netdev ? params->netdev : "nvl");
	*out = &iface->base.iface;
	return 0;
}

static void nvl_iface_close(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link)
		nvl_conn_close(conn);
	nvl_conn_reap(iface);
	nvl_op_deliver(iface);
	nvl_iface_free(iface);
}

static void nvl_iface_forget(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link)
		weft_forked_close(&conn->fd);
	nvl_import_forget();
	nvl_unmap_forget();
	nvl_export_forget();
	weft_engines_forget(&iface->engines);
	weft_local_forget(&iface->local);
	weft_base_forget(&iface->base);
}

static void nvl_iface_query(struct weft_iface *base,
			    struct weft_iface_attr *attr)
{
	*attr = (struct weft_iface_attr){
		.max_iov = NVL_MAX_IOV,
		.mem_kinds = BIT(WEFT_MEM_CUDA),
		.bandwidth = 390e9, /* H100, NVLink 18 links: measured */
		.latency = 1e-6,
		.overhead = 0.3e-6,
		.addr = *weft_base(base)->addr,
	};
}

/*
 * The driver maps memory of a GPU whose device node a process can open.  If
 * both sides have the same ones, each can map all memory of the other: that is
 * certain before there is any, and the same on both sides.
 */
static bool nvl_reaches(struct weft_iface *base,
			const struct weft_address *remote, const char **why)
{
	struct nvl_iface *iface = nvl_iface(base);

	if (!weft_local_reaches(&iface->local, &iface->base, remote, why))
		return false;
	if (remote->sa.in.sin_addr.s_addr ==
	    iface->base.addr->sa.in.sin_addr.s_addr)
		return true;
	if (why)
		*why = "it has other GPUs' device nodes than this process: give each container all of them and choose by CUDA_VISIBLE_DEVICES";
	return false;
}

/* ---- progress ------------------------------------------------------------ */

/* System calls, not made in each round. */
static unsigned int nvl_poll_sockets(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;
	unsigned int n;

	iface->polls = 0;
	iface->armed = false;
	n = weft_events_handle(&iface->base.events);
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (!nvl_conn_is_open(conn))
			continue;
		nvl_import_tick(conn);
		if (nvl_sock_flush(conn))
			nvl_conn_break(conn, -ECONNRESET);
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
		if (conn->npending || !weft_list_empty(&conn->frames_out))
			return true;
	return false;
}

static unsigned int serve_fetches(struct nvl_conn *conn)
{
	int n = nvl_export_step(conn);

	if (n >= 0)
		return n;
	nvl_conn_break(conn, n);
	return 1;
}

static unsigned int look_at_conns(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;
	unsigned int n = 0;

	/* callbacks run here: none of these is held on to */
again:
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (nvl_conn_is_open(conn))
			n += serve_fetches(conn);
		n += weft_ep_notify(&conn->base);
		if (nvl_conn_end(conn)) {
			n++;
			goto again;
		}
	}
	nvl_conn_reap(iface);
	weft_session_reap(&iface->base.session);
	return n;
}

static unsigned int nvl_iface_progress(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	unsigned int n = 0;

	if (must_poll(iface))
		n += nvl_poll_sockets(iface);
	n += weft_copy_poll(&iface->engines);
	n += weft_copy_submit(&iface->engines);
	n += nvl_op_deliver(iface);
	n += look_at_conns(iface);
	return n;
}

/* ---- sleeping ------------------------------------------------------------ */

static bool nvl_is_pending(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	if (!weft_list_empty(&iface->done) ||
	    weft_copy_pending(&iface->engines))
		return true;
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->base.state == WEFT_CONN_BROKEN && !conn->copies)
			return true;
		if (nvl_conn_is_open(conn) &&
		    (nvl_export_is_due(conn) || nvl_conn_owes_bye(conn) ||
		     (conn->hung_up && !conn->copies)))
			return true;
	}
	return false;
}

/* The session sets the timer for those that are about to meet. */
static void nvl_set_timer(struct nvl_iface *iface, bool poll_copies,
			  bool in_flight)
{
	const uint64_t now = weft_now_ms();
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->base.state == WEFT_CONN_BROKEN)
			weft_events_wake_at(&iface->base.events,
					    conn->watchdog_ms);
		else if (!weft_list_empty(&conn->frames_out) ||
			 !weft_list_empty(&conn->fetches))
			weft_events_wake_at(&iface->base.events,
					    now + NVL_SEND_AGAIN_MS);
	}
	if (poll_copies)
		weft_events_wake_at(&iface->base.events,
				    now + WEFT_COPY_POLL_MS);
	else if (in_flight)
		weft_events_wake_at(&iface->base.events,
				    now + WEFT_COPY_FAILURE_MS);
}

static int nvl_arm(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	bool in_flight, wakes;

	if (nvl_is_pending(iface))
		return -EBUSY;
	iface->armed = true;
	wakes = weft_copy_arm(&iface->engines, &in_flight);
	nvl_set_timer(iface, !wakes, in_flight);
	if (!weft_events_arm(&iface->base.events) && !nvl_is_pending(iface))
		return 0;
	iface->armed = false;
	return -EBUSY;
}

/* ---- memory -------------------------------------------------------------- */

static int nvl_mem_register(void *addr, size_t len, enum weft_mem_kind kind,
			    struct weft_mem **mem)
{
	int err = kind == WEFT_MEM_CUDA ? weft_engine_register(addr, len, mem)
					: -EOPNOTSUPP;

	if (!err)
		nvl_export_add(*mem);
	return err;
}

static void nvl_mem_pack(struct weft_mem *mem, void *rkey)
{
	struct nvl_key key;

	nvl_export_pack(mem, &key);
	memcpy(rkey, &key, sizeof(key));
}

static void nvl_mem_release(struct weft_mem *mem)
{
	struct nvl_export *exported = mem->exported;
	const bool ours = mem->forks == weft_forks();

	weft_region_remove(mem);
	if (ours)
		nvl_export_del(exported);
}

const struct weft_dev_ops weft_nvlink_ops = {
	.name = "nvlink",
	.rkey_len = sizeof(struct nvl_key),
	.works = weft_local_works,
	.iface_open = nvl_iface_open,
	.iface_close = nvl_iface_close,
	.iface_forget = nvl_iface_forget,
	.iface_query = nvl_iface_query,
	.reaches = nvl_reaches,
	.progress = nvl_iface_progress,
	.event_fd = weft_base_event_fd,
	.arm = nvl_arm,
	.ep_create = weft_ep_create,
	.ep_destroy = weft_ep_destroy,
	.unsent = nvl_ep_unsent,
	.ready = weft_ep_ready,
	.message = nvl_ep_message,
	.message_pack = nvl_ep_message_pack,
	.put = nvl_ep_put,
	.get = nvl_ep_get,
	.fence = nvl_ep_fence,
	.flush = weft_ep_flush,
	.cancel = weft_ep_cancel,
	.mem_register = nvl_mem_register,
	.mem_pack = nvl_mem_pack,
	.mem_reaches = nvl_import_reaches,
	.mem_release = nvl_mem_release,
};

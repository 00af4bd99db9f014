/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces: opening, progress, sleeping; registered memory. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "bootstrap/settings.h"
#include "devices/nvlink/nvl_addr.h"
#include "devices/nvlink/nvl_close.h"
#include "devices/nvlink/nvl_copy.h"
#include "devices/nvlink/nvl_dial.h"
#include "devices/nvlink/nvl_ep.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_map.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/nvlink/nvl_rx.h"
#include "devices/nvlink/nvl_sock.h"
#include "devices/nvlink/nvl_tx.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"

#define MAX_STRANGERS 128 /* each costs a struct nvl_conn */

/* ---- opening ------------------------------------------------------------- */

static int watch_fd(struct nvl_iface *iface, int fd, uint64_t what)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = what };

	return epoll_ctl(iface->epfd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static int open_fds(struct nvl_iface *iface)
{
	iface->epfd = epoll_create1(EPOLL_CLOEXEC);
	iface->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	iface->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (iface->epfd < 0 || iface->wake_fd < 0 || iface->timer_fd < 0 ||
	    watch_fd(iface, iface->wake_fd, NVL_EV_WAKE) ||
	    watch_fd(iface, iface->timer_fd, NVL_EV_TIMER))
		return weft_fail(errno, "cannot make an interface's "
					"descriptors");
	return 0;
}

/* Both ways in; one is enough. */
static int open_sockets(struct nvl_iface *iface)
{
	iface->listen_fd = nvl_addr_listen(iface->my_id);
	iface->run = nvl_run_open();
	if (iface->run) {
		iface->listen_path_fd =
			nvl_run_listen(iface->run, iface->my_id);
		if (iface->listen_path_fd < 0) {
			nvl_run_close(iface->run);
			iface->run = NULL;
		}
	}
	if (iface->listen_fd < 0 && iface->listen_path_fd < 0)
		return weft_fail(ENODEV,
				 "neither an abstract Unix socket nor "
				 "one in a shared folder (WEFT_RUN_DIR) can be "
				 "made: peers of this host use TCP");
	return nvl_conn_listen(iface);
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void iface_free(struct nvl_iface *iface)
{
	if (iface->run) {
		nvl_run_unlisten(iface->run, iface->my_id);
		nvl_run_close(iface->run);
	}
	close_fd(iface->listen_fd);
	close_fd(iface->listen_path_fd);
	close_fd(iface->timer_fd);
	close_fd(iface->wake_fd);
	close_fd(iface->epfd);
	weft_stats_close(iface->stats);
	weft_ep_sns_free(&iface->sns);
	weft_secret_free(iface->addr, sizeof(*iface->addr));
	free(iface);
}

static int iface_open(const struct weft_iface_params *params,
		      struct weft_iface **out)
{
	struct nvl_iface *iface = calloc(1, sizeof(*iface));
	int err;

	if (!iface)
		return -ENOMEM;
	iface->base.ops = &weft_nvlink_ops;
	iface->base.cb = *params->cb;
	iface->for_kernels = params->flags & WEFT_IFACE_KERNELS_WAIT;
	iface->epfd = iface->wake_fd = iface->timer_fd = -1;
	iface->listen_fd = iface->listen_path_fd = -1;
	iface->due_ms = UINT64_MAX;
	weft_list_init(&iface->conns);
	weft_list_init(&iface->dead);
	weft_list_init(&iface->eps);
	weft_list_init(&iface->gpus);
	weft_ep_sns_init(&iface->sns);
	weft_list_init(&iface->done);
	weft_list_init(&iface->done_gets);
	weft_list_init(&iface->landed);
	weft_strangers_init(&iface->strangers, MAX_STRANGERS);
	iface->addr = weft_secret_alloc(sizeof(*iface->addr));
	err = iface->addr ? weft_random(iface->addr->key, WEFT_KEY_LEN)
			  : -ENOMEM;
	if (!err) {
		iface->my_id = weft_key_id(iface->addr->key);
		err = open_fds(iface);
	}
	if (!err)
		err = open_sockets(iface);
	if (!err && iface->for_kernels)
		err = nvl_unmap_begin(iface);
	if (err) {
		iface_free(iface);
		return err;
	}
	nvl_addr_make(iface);
	iface->stats = weft_stats_open("nvlink",
				       params->netdev ? params->netdev : "nvl");
	weft_stats_own_id(iface->stats, iface->my_id);
	*out = &iface->base;
	return 0;
}

static void iface_close(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	struct nvl_conn *conn, *tmp;
	struct nvl_gpu *gpu, *next;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		nvl_conn_say_close(conn);
		nvl_conn_stop_copies(conn);
		nvl_conn_break(conn, 0);
		nvl_conn_drop_ops(conn, NULL, -ECANCELED);
		nvl_conn_forget(conn);
		nvl_conn_free(conn);
	}
	nvl_conn_reap(iface);
	nvl_tx_deliver(iface);
	nvl_unmap_end(iface); /* while there is every context */
	weft_list_for_each (gpu, next, &iface->gpus, link)
		nvl_gpu_free(gpu);
	iface_free(iface);
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
		.addr = *nvl_iface(base)->addr,
	};
}

static bool reaches(struct weft_iface *base, const struct weft_address *remote,
		    const char **why)
{
	struct nvl_iface *iface = nvl_iface(base);

	if (!nvl_addr_reaches(iface, remote, why))
		return false;
	if (nvl_conn_may_dial(iface, remote))
		return true;
	if (why)
		*why = "it may not be dialled (SELinux, AppArmor or another "
		       "user's socket)";
	return false;
}

/* ---- progress ------------------------------------------------------------ */

static void drain_fd(int fd)
{
	uint64_t n;

	if (read(fd, &n, sizeof(n)) < 0)
		return;
}

static unsigned int step_conn(struct nvl_conn *conn)
{
	unsigned int n = nvl_conn_step(conn);

	if (conn->state == NVL_CONN_OPEN)
		n += nvl_ring_read_frames(conn);
	return n;
}

static unsigned int handle_event(struct nvl_iface *iface, uint64_t what)
{
	switch (what) {
	case NVL_EV_LISTEN:
		nvl_conn_accept(iface, iface->listen_fd);
		return 1;
	case NVL_EV_LISTEN_PATH:
		nvl_conn_accept(iface, iface->listen_path_fd);
		return 1;
	case NVL_EV_WAKE:
		drain_fd(iface->wake_fd);
		return 0;
	case NVL_EV_TIMER:
		drain_fd(iface->timer_fd);
		return 0;
	}
	return step_conn((struct nvl_conn *)(uintptr_t)what);
}

/* The system calls of a round; conns live until its end. */
static unsigned int poll_sockets(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;
	struct epoll_event ev[32];
	uint64_t now = weft_now_ms();
	unsigned int events = 0;
	int i, n;

	iface->polls = 0;
	if (now > iface->due_ms)
		weft_list_for_each (conn, tmp, &iface->conns, link)
			nvl_conn_extend(conn, now, now - iface->due_ms);
	iface->due_ms = now + NVL_STANDSTILL_MS;
	nvl_conn_resume_accept(iface, now);
	n = epoll_wait(iface->epfd, ev, ARRAY_SIZE(ev), 0);
	for (i = 0; i < n; i++)
		events += handle_event(iface, ev[i].data.u64);
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		events += step_conn(conn);
		events += nvl_conn_tick(conn, now);
		if (conn->state == NVL_CONN_OPEN)
			nvl_ring_tick(conn, now);
	}
	return events;
}

static bool must_poll(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	if (iface->armed || ++iface->polls >= NVL_POLLS)
		return true;
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->state == NVL_CONN_BROKEN)
			continue;
		if (conn->state != NVL_CONN_OPEN ||
		    !weft_list_empty(&conn->frames_out) ||
		    nvl_sock_waiting(conn))
			return true;
	}
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

static unsigned int report_ready(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;
	struct nvl_ep *ep;
	unsigned int n = 0;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		ep = conn->ep;
		if (!ep)
			continue;
		n += nvl_ep_check_flush(ep);
		if (conn->ep != ep || !conn->was_full ||
		    conn->state != NVL_CONN_OPEN || !nvl_conn_ready(conn))
			continue;
		conn->was_full = false;
		n++;
		iface->base.cb.on_ready(iface->base.cb.arg, &ep->base,
					ep->base.user);
	}
	return n;
}

/* Inboxes: operations first, because messages may wait for them. */
static unsigned int read_inboxes(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;
	unsigned int n = 0;

	iface->messages = iface->notices = WEFT_PROGRESS_MAX;
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->state != NVL_CONN_OPEN)
			continue;
		if (conn->later_n)
			nvl_op_retry(conn);
		n += nvl_rx_ops(conn);
	}
	n += nvl_rx_deliver(iface);
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (!iface->messages) {
			/* whoever got nothing is the first the next time */
			weft_list_del(&iface->conns);
			weft_list_add_tail(&conn->link, &iface->conns);
			break;
		}
		if (conn->state == NVL_CONN_OPEN)
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
		if (conn->state == NVL_CONN_OPEN && conn->hung_up &&
		    !conn->copies && !nvl_inbox_pending(conn) &&
		    weft_list_empty(&iface->landed))
			nvl_conn_on_hangup(conn);
	}
	/* callbacks run here: none of these is held on to */
again:
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->state == NVL_CONN_BROKEN &&
		    nvl_conn_finish_close(conn)) {
			n++;
			goto again;
		}
	}
	nvl_conn_reap(iface);
	return n;
}

static bool is_conn_quiet(struct nvl_conn *conn)
{
	struct nvl_inbox_head *h = conn->rx.head;

	if (conn->state != NVL_CONN_OPEN || !conn->ep || conn->hung_up ||
	    conn->was_full || conn->later_n ||
	    (conn->njobs && conn->copies < NVL_CONN_CHUNKS) ||
	    !weft_list_empty(&conn->frames_out) || conn->ep->flushes.n)
		return false;
	/* one cache line, which only the peer's writes take from us */
	return atomic_load_explicit(&h->op_tail, memory_order_relaxed) ==
		       conn->op_head &&
	       atomic_load_explicit(&h->msg_tail, memory_order_relaxed) ==
		       conn->msg_head &&
	       atomic_load_explicit(&h->frames, memory_order_relaxed) ==
		       conn->frames_seen;
}

/*
 * NCCL asks for each of its requests, some twenty times before one is done: the
 * answer "nothing new" has to be cheap.
 */
static bool is_quiet(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	if (iface->armed || iface->polls + 1 >= NVL_POLLS ||
	    !weft_list_empty(&iface->done) ||
	    !weft_list_empty(&iface->done_gets) ||
	    !weft_list_empty(&iface->landed) || !weft_list_empty(&iface->dead))
		return false;
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (!is_conn_quiet(conn))
			return false;
	return nvl_copy_quiet(iface);
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
	n += nvl_copy_poll(iface);
	n += read_inboxes(iface);
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (conn->state == NVL_CONN_OPEN && conn->njobs)
			n += nvl_tx_schedule(conn);
	n += nvl_copy_submit(iface);
	n += nvl_rx_deliver(iface);
	n += nvl_tx_deliver(iface);
	n += report_ready(iface);
	n += end_conns(iface);
	return n;
}

/* ---- sleeping ------------------------------------------------------------ */

static int event_fd(struct weft_iface *base)
{
	return nvl_iface(base)->epfd;
}

static bool is_pending(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	if (!weft_list_empty(&iface->done) ||
	    !weft_list_empty(&iface->done_gets) ||
	    !weft_list_empty(&iface->landed) || nvl_copy_pending(iface))
		return true;
	weft_list_for_each (conn, tmp, &iface->conns, link) {
		if (conn->state == NVL_CONN_BROKEN && !conn->copies)
			return true;
		if (conn->state == NVL_CONN_OPEN &&
		    (nvl_inbox_pending(conn) || nvl_ring_credit_pending(conn)))
			return true;
	}
	return false;
}

static uint64_t find_deadline(const struct nvl_conn *conn, uint64_t now)
{
	switch (conn->state) {
	case NVL_CONN_OPEN:
		if (!weft_list_empty(&conn->frames_out))
			return now + NVL_SEND_AGAIN_MS;
		return now + nvl_tune.idle_ms;
	case NVL_CONN_DIALING:
	case NVL_CONN_WAITING:
	case NVL_CONN_GREETING:
		if (conn->retry_ms)
			return conn->retry_ms;
		return conn->hello->state == WEFT_HELLO_SENDING
			       ? now + NVL_SEND_AGAIN_MS
			       : conn->deadline_ms;
	default:
		return conn->deadline_ms;
	}
}

static void set_timer(struct nvl_iface *iface, bool poll_copies, bool flying)
{
	uint64_t now = weft_now_ms(), at = UINT64_MAX, t;
	struct itimerspec its = { 0 };
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link) {
		t = find_deadline(conn, now);
		at = weft_min(at, t);
	}
	if (iface->accept_ms)
		at = weft_min(at, iface->accept_ms);
	if (poll_copies)
		at = weft_min(at, now + NVL_POLL_MS);
	else if (flying)
		at = weft_min(at, now + NVL_FAILURE_MS);
	iface->due_ms = UINT64_MAX;
	if (at != UINT64_MAX) {
		t = at > now ? at - now : 1;
		its.it_value.tv_sec = t / 1000;
		its.it_value.tv_nsec = t % 1000 * 1000000;
		iface->due_ms = now + t + NVL_STANDSTILL_MS;
	}
	timerfd_settime(iface->timer_fd, 0, &its, NULL);
}

static int arm(struct weft_iface *base)
{
	struct nvl_iface *iface = nvl_iface(base);
	struct nvl_conn *conn, *tmp;
	bool flying, belled;

	if (is_pending(iface))
		return -EBUSY;
	iface->armed = true;
	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (conn->state == NVL_CONN_OPEN)
			nvl_inbox_sleep(conn, true);
	belled = nvl_copy_arm(iface, &flying);
	/* whoever wrote before it could see that we sleep is seen here */
	if (is_pending(iface)) {
		leave_sleep(iface);
		return -EBUSY;
	}
	set_timer(iface, !belled, flying);
	return 0;
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
	if (!err)
		(*mem)->where = where;
	return err;
}

static void mem_pack(struct weft_mem *mem, void *rkey)
{
	unsigned int loc = NVL_LOC_HOST;

	weft_rkey_pack(&mem->rkey, rkey);
	if (mem->kind == WEFT_MEM_CUDA)
		loc = NVL_LOC_GPU(mem->where.ordinal);
	((uint8_t *)rkey)[WEFT_RKEY_LEN] = loc < NVL_LOCS ? loc : NVL_LOC_HOST;
}

static void mem_release(struct weft_mem *mem)
{
	bool gpu = mem->kind == WEFT_MEM_CUDA;

	weft_region_remove(mem);
	/* what engines already had of it */
	if (gpu)
		nvl_copy_drain_all();
}

const struct weft_dev_ops weft_nvlink_ops = {
	.name = "nvlink",
	.rkey_len = WEFT_RKEY_LEN + 1,
	.iface_open = iface_open,
	.iface_close = iface_close,
	.iface_query = iface_query,
	.reaches = reaches,
	.progress = iface_progress,
	.event_fd = event_fd,
	.arm = arm,
	.ep_create = nvl_ep_create,
	.ep_destroy = nvl_ep_destroy,
	.ep_query = nvl_ep_query,
	.prepare = nvl_ep_prepare,
	.ready = nvl_ep_ready,
	.message = nvl_ep_message,
	.message_pack = nvl_ep_message_pack,
	.put = nvl_ep_put,
	.get = nvl_ep_get,
	.fence = nvl_ep_fence,
	.flush = nvl_ep_flush,
	.cancel = nvl_ep_cancel,
	.mem_register = mem_register,
	.mem_pack = mem_pack,
	.mem_release = mem_release,
};

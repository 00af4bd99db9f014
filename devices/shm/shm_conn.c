/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a connection: a Unix socket to the peer; once
 * devices/common/session has proven both sides, the exchange of rings over it;
 * the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "devices/local/frame.h"
#include "devices/shm/shm_break.h"
#include "devices/shm/shm_conn.h"
#include "devices/shm/shm_ring.h"
#include "devices/shm/shm_rx.h"
#include "devices/shm/shm_tx.h"
#include "devices/shm/shm_window.h"
#include "util/clock.h"
#include "util/log.h"

#define FRAMES_AT_ONCE 16u

/* ---- joining ------------------------------------------------------------- */

static int open_socket(struct weft_conn *base, bool *connecting)
{
	const struct shm_iface *iface = shm_conn(base)->iface;

	*connecting = false;
	return weft_local_dial(&iface->local, &iface->base, base->remote);
}

/* Takes @fd. */
static int handle_frame(struct shm_conn *conn, const struct shm_frame *f,
			ssize_t len, int fd, unsigned int nfds)
{
	const bool joining = conn->base.state == WEFT_CONN_JOINING;
	int err;

	if (len == sizeof(*f) && f->magic == SHM_FRAME_MAGIC && !joining &&
	    f->type == SHM_FRAME_WAKE && !nfds)
		return 0;
	if (len == sizeof(*f) && f->magic == SHM_FRAME_MAGIC && !joining &&
	    f->type == SHM_FRAME_WINDOW && nfds == 1)
		return shm_window_take(conn, f->size, fd);
	if (len != sizeof(*f) || f->magic != SHM_FRAME_MAGIC || !joining ||
	    f->type != SHM_FRAME_RING || f->size != SHM_SIZE || nfds != 1) {
		if (fd >= 0)
			close(fd);
		return weft_fail(
			-EPROTO,
			"a peer on this host sent an unknown frame (%zd bytes, %u descriptors)",
			len, nfds);
	}
	err = shm_ring_map(&conn->tx, fd);
	if (!err)
		weft_conn_set_state(&conn->base, WEFT_CONN_OPEN);
	return err;
}

static void hang_up(struct shm_conn *conn)
{
	/* what is in the ring is delivered before the end */
	conn->hung_up = true;
	shm_conn_attend(conn);
	conn->rx_end = shm_ring_sum(conn->rx.head) + SHM_SIZE;
	weft_events_del(&conn->iface->base.events, conn->fd);
	if (!shm_conn_is_open(conn))
		shm_conn_break(conn, -ECONNRESET);
}

static unsigned int handle_socket(struct weft_source *src, uint32_t events)
{
	struct shm_conn *conn = container_of(src, struct shm_conn, src);
	unsigned int nfds, n = 0;
	struct shm_frame f;
	ssize_t len;
	int fd, err;

	while (n < FRAMES_AT_ONCE && conn->base.state < WEFT_CONN_BROKEN &&
	       !conn->hung_up) {
		len = weft_frame_recv(conn->fd, &f, sizeof(f), &fd, &nfds);
		if (len == -EAGAIN)
			break;
		n++;
		if (!len || len == -ECONNRESET) {
			hang_up(conn);
			break;
		}
		err = len < 0 ? (int)len
			      : handle_frame(conn, &f, len, fd, nfds);
		if (err)
			shm_conn_break(conn, err);
	}
	return n;
}

/* Both sides are proven: descriptors may leave. */
static void join_socket(struct weft_handshake *hs, int fd)
{
	const struct shm_frame f = { SHM_FRAME_MAGIC, SHM_FRAME_RING,
				     SHM_SIZE };
	struct shm_conn *conn = shm_conn(hs->conn);
	struct weft_base *base = &conn->iface->base;
	int err, ring = -1;

	conn->fd = fd;
	conn->src.handle = handle_socket;
	conn->stats =
		weft_stats_peer(base->stats, conn->base.peer_id, "this host");
	err = weft_events_add(&base->events, fd, &conn->src,
			      EPOLLIN | EPOLLRDHUP);
	if (err)
		weft_fail(err, "cannot watch a socket");
	if (!err)
		err = shm_ring_make(&conn->rx, &ring);
	/* the first bytes after the hello: there is room for them */
	if (!err)
		err = weft_frame_send(fd, &f, sizeof(f), ring);
	if (ring >= 0)
		close(ring);
	if (err)
		shm_conn_break(conn, err);
}

static struct weft_conn *new_conn(struct weft_session *s,
				  const struct weft_address *remote,
				  uint64_t peer_id, uint32_t number,
				  const char *where)
{
	struct shm_iface *iface =
		container_of(s, struct shm_iface, base.session);
	struct shm_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	if (weft_conn_init(&conn->base, s, remote, peer_id, number)) {
		free(conn);
		return NULL;
	}
	conn->iface = iface;
	conn->fd = conn->offer_fd = -1;
	conn->armed_read = UINT64_MAX;
	weft_list_init(&conn->queue);
	weft_list_init(&conn->placing);
	weft_list_init(&conn->asking);
	weft_list_init(&conn->filling);
	weft_list_init(&conn->held);
	weft_list_add_tail(&iface->conns, &conn->link);
	return &conn->base;
}

static void lose_dial(struct weft_conn *base, uint32_t kind, int err,
		      const char *where)
{
	shm_conn_break(shm_conn(base), err);
}

const struct weft_session_ops shm_session_ops = {
	.open_socket = open_socket,
	.new_conn = new_conn,
	.joined = join_socket,
	.lost = lose_dial,
};

/* ---- ending -------------------------------------------------------------- */

static bool is_idle(const struct shm_conn *conn)
{
	return !conn->nops && !conn->nreplies && !conn->nacks;
}

bool shm_conn_owes_bye(const struct shm_conn *conn)
{
	const struct weft_conn *base = &conn->base;

	return !base->ep && !base->bye_sent &&
	       (base->had_ep || base->bye_received) && is_idle(conn);
}

/* Our endpoint is gone; the connection ends when the peer's is, too. */
static void maybe_end(struct shm_conn *conn)
{
	struct weft_conn *base = &conn->base;

	if (shm_conn_owes_bye(conn) && shm_ring_has_room(conn, 0)) {
		shm_ring_begin(conn, 0);
		shm_ring_end(conn, (struct shm_record){ .kind = SHM_BYE });
		shm_ring_wake(conn);
		base->bye_sent = true;
	}
	if (base->bye_received && base->bye_sent)
		shm_conn_break(conn, 0);
}

/* Was something accepted that the peer does not have? */
static bool has_lost(const struct shm_conn *conn)
{
	return conn->nops || shm_ring_read(conn) < conn->sent;
}

/*
 * The socket has ended: the peer has ended, too, once everything is delivered.
 */
static void maybe_hang_up(struct shm_conn *conn)
{
	/* and placed, as far as it has arrived */
	if (!conn->hung_up || conn->copies || shm_rx_can_run(conn))
		return;
	if (atomic_load(&conn->rx.shared->failed))
		shm_conn_told(conn);
	else if (!conn->base.ep)
		shm_conn_break(conn, 0);
	else if (atomic_load(&conn->rx.shared->closed) && !has_lost(conn))
		shm_conn_break(conn, -ESHUTDOWN);
	else
		shm_conn_break(conn, -ECONNRESET);
}

bool shm_conn_end(struct shm_conn *conn)
{
	int err;

	if (shm_conn_is_open(conn))
		maybe_end(conn);
	if (shm_conn_is_open(conn))
		maybe_hang_up(conn);
	if (conn->base.state != WEFT_CONN_BROKEN)
		return false;
	if (conn->copies)
		shm_window_cancel(conn);
	if (conn->copies && weft_now_ms() < conn->watchdog_ms)
		return false;
	weft_conn_set_state(&conn->base, WEFT_CONN_CLOSED);
	weft_list_del(&conn->link);
	weft_list_add_tail(&conn->iface->dead, &conn->link);
	err = conn->base.err ? conn->base.err : -ECONNRESET;
	weft_ep_fail(&conn->base, err);
	shm_tx_give_up(conn, err);
	weft_ep_failed(&conn->base);
	return true;
}

void shm_conn_say_close(struct shm_conn *conn)
{
	if (shm_conn_is_open(conn))
		atomic_store(&conn->tx.shared->closed, 1);
}

void shm_conn_free(struct shm_conn *conn)
{
	struct shm_held *held, *tmp;

	weft_list_del(&conn->link);
	weft_events_close_fd(&conn->iface->base.events, conn->fd);
	weft_conn_fini(&conn->base);
	weft_list_for_each (held, tmp, &conn->held, link)
		free(held);
	if (conn->copies)
		return; /* an engine did not end its copies: leak the memory */
	shm_window_close(conn);
	shm_ring_drop_counts(conn);
	shm_ring_close(&conn->rx);
	shm_ring_close(&conn->tx);
	weft_stats_peer_ended(conn->iface->base.stats, conn->stats);
	free(conn);
}

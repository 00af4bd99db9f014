/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a connection: a Unix socket to the peer; once
 * devices/common/session has proven both sides, the exchange of tables and
 * marks; the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/common/memfd.h"
#include "devices/nvlink/nvl_conn.h"
#include "devices/nvlink/nvl_export.h"
#include "devices/nvlink/nvl_import.h"
#include "devices/nvlink/nvl_life.h"
#include "devices/nvlink/nvl_op.h"
#include "devices/nvlink/nvl_sock.h"
#include "util/clock.h"
#include "util/log.h"

#define FRAMES_AT_ONCE 16u

void nvl_conn_break(struct nvl_conn *conn, int err)
{
	if (conn->base.state >= WEFT_CONN_BROKEN)
		return;
	weft_conn_drop_handshakes(&conn->base);
	weft_conn_set_state(&conn->base, WEFT_CONN_BROKEN);
	conn->base.err = err;
	conn->watchdog_ms = weft_now_ms() + WEFT_COPY_WATCHDOG_MS;
}

void nvl_conn_send(struct nvl_conn *conn, struct nvl_frame *f)
{
	int err = nvl_sock_send(conn, f, -1);

	if (err)
		nvl_conn_break(conn, err);
}

static void nvl_send_empty(struct nvl_conn *conn, enum nvl_frame_type type)
{
	struct nvl_frame f = { .type = type };

	nvl_conn_send(conn, &f);
}

void nvl_conn_fail(struct nvl_conn *conn, const char *what)
{
	if (!nvl_conn_is_open(conn))
		return;
	weft_error(
		"cannot %s (peer %016llx): its key was revoked or does not cover it, the memory cannot be accessed, or the GPU has failed; the connection is closed",
		what, (unsigned long long)conn->base.peer_id);
	conn->failed = true;
	nvl_send_empty(conn, NVL_FRAME_FAILED);
	nvl_conn_break(conn, -EIO);
}

static int end_failed(struct nvl_conn *conn)
{
	weft_error(
		"peer %016llx cannot access memory that a put or get names; the connection is closed",
		(unsigned long long)conn->base.peer_id);
	conn->failed = true;
	return -EIO;
}

/* ---- joining ------------------------------------------------------------- */

static int nvl_open_socket(struct weft_conn *base, bool *connecting)
{
	const struct nvl_iface *iface = nvl_conn(base)->iface;

	*connecting = false;
	return weft_local_dial(&iface->local, &iface->base, base->remote);
}

static int map_table(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	void *p;
	int err = weft_memfd_map(fd, sizeof(*conn->table), PROT_READ, &p);

	if (err)
		return err;
	conn->table = p;
	conn->access = f->life;
	return 0;
}

/*
 * Once the peer has sent READY it sees this side's marks: before that there may
 * be no copies to or from its memory.
 */
static int handle_joining(struct nvl_conn *conn, const struct nvl_frame *f,
			  int fd)
{
	int err;

	if (f->type == NVL_FRAME_TABLE && !conn->table)
		return map_table(conn, f, fd);
	if (f->type == NVL_FRAME_MARKS && conn->table && !conn->marks) {
		err = nvl_export_marks(conn, fd);
		if (!err)
			nvl_send_empty(conn, NVL_FRAME_READY);
		return err;
	}
	/* its other threads wake whose marks it has, maybe before it says so */
	if (f->type == NVL_FRAME_WAKE && conn->marks)
		return 0;
	if (f->type != NVL_FRAME_READY || !conn->marks)
		return -EPROTO;
	weft_conn_set_state(&conn->base, WEFT_CONN_OPEN);
	return 0;
}

static int handle_open(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	switch (f->type) {
	case NVL_FRAME_WAKE:
		return 0;
	case NVL_FRAME_BYE:
		conn->base.bye_received = true;
		return 0;
	case NVL_FRAME_CLOSE:
		conn->close_received = true;
		return 0;
	case NVL_FRAME_FAILED:
		return end_failed(conn);
	case NVL_FRAME_FETCH:
		return nvl_export_fetch(conn, f);
	case NVL_FRAME_PART:
	case NVL_FRAME_NONE:
		return nvl_import_frame(conn, f, fd);
	default:
		return -EPROTO;
	}
}

static void nvl_hang_up(struct nvl_conn *conn)
{
	conn->hung_up = true;
	weft_events_del(&conn->iface->base.events, conn->fd);
	if (!nvl_conn_is_open(conn))
		nvl_conn_break(conn, -ECONNRESET);
}

/* 0: there was none. */
static unsigned int nvl_handle_frame(struct nvl_conn *conn)
{
	struct nvl_frame f;
	int fd = -1;
	int err = nvl_sock_recv(conn, &f, &fd);

	if (!err)
		return 0;
	if (err == -ECONNRESET) {
		nvl_hang_up(conn);
		return 1;
	}
	if (err > 0)
		err = nvl_conn_is_open(conn) ? handle_open(conn, &f, fd)
					     : handle_joining(conn, &f, fd);
	if (fd >= 0)
		close(fd);
	if (err == -EPROTO)
		weft_error(
			"a peer on this host sent an unexpected frame (type %u)",
			f.type);
	if (err)
		nvl_conn_break(conn, err);
	return 1;
}

static unsigned int nvl_handle_socket(struct weft_source *src, uint32_t events)
{
	struct nvl_conn *conn = container_of(src, struct nvl_conn, src);
	unsigned int n = 0;

	while (n < FRAMES_AT_ONCE && conn->base.state < WEFT_CONN_BROKEN &&
	       !conn->hung_up && nvl_handle_frame(conn))
		n++;
	return n;
}

/* Both sides are proven: descriptors may leave. */
static int send_views(struct nvl_conn *conn)
{
	struct nvl_frame f = { .type = NVL_FRAME_TABLE };
	int marks = weft_engines_share(&conn->iface->engines);
	int err = marks < 0 ? marks : nvl_export_join(conn);

	if (err)
		return err;
	f.life = conn->life;
	err = nvl_sock_send(conn, &f, nvl_lives_fd());
	if (err)
		return err;
	f = (struct nvl_frame){ .type = NVL_FRAME_MARKS };
	return nvl_sock_send(conn, &f, marks);
}

static void nvl_join_socket(struct weft_handshake *hs, int fd)
{
	struct nvl_conn *conn = nvl_conn(hs->conn);
	struct weft_base *base = &conn->iface->base;
	int err;

	conn->fd = fd;
	conn->src.handle = nvl_handle_socket;
	conn->stats =
		weft_stats_peer(base->stats, conn->base.peer_id, "this host");
	err = weft_events_add(&base->events, fd, &conn->src,
			      EPOLLIN | EPOLLRDHUP);
	if (err)
		weft_fail(err, "cannot watch a socket");
	else
		err = send_views(conn);
	if (err)
		nvl_conn_break(conn, err);
}

static struct weft_conn *nvl_new_conn(struct weft_session *s,
				      const struct weft_address *remote,
				      uint64_t peer_id, uint32_t number,
				      const char *where)
{
	struct nvl_iface *iface =
		container_of(s, struct nvl_iface, base.session);
	struct nvl_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	if (weft_conn_init(&conn->base, s, remote, peer_id, number)) {
		free(conn);
		return NULL;
	}
	conn->iface = iface;
	conn->fd = -1;
	weft_list_init(&conn->frames_out);
	weft_list_init(&conn->imports);
	weft_list_init(&conn->ops);
	weft_list_init(&conn->importer);
	weft_list_init(&conn->fetches);
	weft_list_add_tail(&iface->conns, &conn->link);
	return &conn->base;
}

static void nvl_lose_dial(struct weft_conn *base, uint32_t kind, int err,
			  const char *where)
{
	nvl_conn_break(nvl_conn(base), err);
}

const struct weft_session_ops nvl_session_ops = {
	.open_socket = nvl_open_socket,
	.new_conn = nvl_new_conn,
	.joined = nvl_join_socket,
	.lost = nvl_lose_dial,
};

/* ---- ending -------------------------------------------------------------- */

bool nvl_conn_owes_bye(const struct nvl_conn *conn)
{
	const struct weft_conn *base = &conn->base;

	return !base->ep && !base->bye_sent && !conn->nops &&
	       (base->had_ep || base->bye_received);
}

/* Our endpoint is gone; the connection ends when the peer's is, too. */
static void nvl_maybe_end(struct nvl_conn *conn)
{
	struct weft_conn *base = &conn->base;

	if (nvl_conn_owes_bye(conn)) {
		nvl_send_empty(conn, NVL_FRAME_BYE);
		base->bye_sent = true;
	}
	if (base->bye_received && base->bye_sent)
		nvl_conn_break(conn, 0);
}

/* The socket has ended: so has the peer. */
static void nvl_maybe_hang_up(struct nvl_conn *conn)
{
	if (!conn->hung_up || conn->copies)
		return;
	if (!conn->base.ep)
		nvl_conn_break(conn, 0);
	else
		nvl_conn_break(conn, conn->close_received && !conn->nops
					     ? -ESHUTDOWN
					     : -ECONNRESET);
}

/* Copies of both sides; the driver ends those of a process that is gone. */
static bool has_stopped(struct nvl_conn *conn, uint64_t now)
{
	const uint64_t gone =
		conn->watchdog_ms - WEFT_COPY_WATCHDOG_MS + NVL_GONE_MS;

	if (conn->copies && now < conn->watchdog_ms)
		return false;
	return nvl_export_revoke(conn) || now >= conn->watchdog_ms ||
	       (conn->hung_up && now >= gone);
}

bool nvl_conn_end(struct nvl_conn *conn)
{
	int err;

	if (nvl_conn_is_open(conn))
		nvl_maybe_end(conn);
	if (nvl_conn_is_open(conn))
		nvl_maybe_hang_up(conn);
	if (conn->base.state != WEFT_CONN_BROKEN)
		return false;
	nvl_op_cancel(conn);
	if (!has_stopped(conn, weft_now_ms()))
		return false;
	weft_conn_set_state(&conn->base, WEFT_CONN_CLOSED);
	weft_list_del(&conn->link);
	weft_list_add_tail(&conn->iface->dead, &conn->link);
	err = conn->base.err ? conn->base.err : -ECONNRESET;
	weft_ep_fail(&conn->base, err);
	nvl_op_drop(conn, err);
	weft_ep_failed(&conn->base);
	return true;
}

static void free_conn(struct nvl_conn *conn)
{
	weft_list_del(&conn->link);
	nvl_export_close(conn);
	weft_events_close_fd(&conn->iface->base.events, conn->fd);
	nvl_sock_drop(conn);
	weft_conn_fini(&conn->base);
	if (conn->copies)
		return; /* an engine did not end its copies: leak the memory */
	nvl_import_close(conn);
	if (conn->table)
		munmap((void *)(uintptr_t)conn->table, sizeof(*conn->table));
	weft_stats_peer_ended(conn->iface->base.stats, conn->stats);
	free(conn);
}

void nvl_conn_close(struct nvl_conn *conn)
{
	if (nvl_conn_is_open(conn))
		nvl_send_empty(conn, NVL_FRAME_CLOSE);
	nvl_op_stop(conn);
	nvl_export_leave(conn);
	nvl_conn_break(conn, 0);
	nvl_op_drop(conn, -ECANCELED);
	free_conn(conn);
}

void nvl_conn_reap(struct nvl_iface *iface)
{
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->dead, link)
		free_conn(conn);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting: a Unix socket to the peer, the hello on it, and which of two
 * simultaneous dials is kept.  An endpoint's n-th connection to a peer is
 * known by (key id, n); of two dials for the same one, that of the side with
 * the lower key id is kept.  Nothing is sent before that is settled, so nothing
 * can be reordered by it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/settings.h"
#include "devices/nvlink/nvl_addr.h"
#include "devices/nvlink/nvl_dial.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_sock.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"

#define ACCEPT_BATCH 64

static void watch_socket(struct nvl_conn *conn)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP,
				  .data.u64 = (uintptr_t)conn };

	if (epoll_ctl(conn->iface->epfd, EPOLL_CTL_ADD, conn->fd, &ev))
		nvl_conn_break(conn, weft_fail(errno, "cannot watch a socket"));
}

/* ---- dialing ------------------------------------------------------------- */

static void close_socket(struct nvl_conn *conn)
{
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
}

static void dial_later(struct nvl_conn *conn)
{
	close_socket(conn);
	conn->retry_ms = weft_now_ms() + NVL_REDIAL_MS;
}

static bool is_forbidden(int err)
{
	if (err != -EACCES && err != -EPERM)
		return false;
	weft_warn_once(
		"a peer on this host may not be dialled (%s): SELinux or "
		"AppArmor keeps the two containers apart (give both the "
		"same label or profile), or its socket belongs to "
		"another user; NVLink is not used between them",
		strerror(-err));
	return true;
}

/*
 * Security modules know more than addresses.  Asked once of each peer, which
 * sees somebody hang up before the hello.
 */
bool nvl_conn_may_dial(struct nvl_iface *iface,
		       const struct weft_address *remote)
{
	const uint64_t id = weft_key_id(remote->key);
	struct weft_ep_sn *known = weft_ep_sn_get(&iface->sns, id);
	int fd, err;

	if (!known || known->asked || id == iface->my_id)
		return !known || !known->refused;
	fd = nvl_run_socket();
	if (fd < 0)
		return true;
	err = nvl_addr_connect(iface, fd, remote);
	close(fd);
	known->refused = is_forbidden(err);
	/* with a full backlog the security modules were not asked */
	known->asked = err != -EAGAIN;
	return !known->refused;
}

void nvl_conn_dial(struct nvl_conn *conn)
{
	struct nvl_purpose purpose = { .magic = NVL_PURPOSE_MAGIC,
				       .sn = conn->sn };
	int err;

	if (conn->state == NVL_CONN_WAITING)
		nvl_conn_set_state(conn, NVL_CONN_DIALING);
	conn->dialer = true;
	conn->retry_ms = 0;
	close_socket(conn);
	conn->fd = nvl_run_socket();
	if (conn->fd < 0) {
		nvl_conn_break(conn, conn->fd);
		return;
	}
	err = nvl_addr_connect(conn->iface, conn->fd, conn->remote);
	if (err == -EAGAIN) { /* the peer's backlog is full */
		dial_later(conn);
		return;
	}
	if (err) {
		if (!is_forbidden(err))
			weft_info("a peer on this host does not answer: %s",
				  strerror(-err));
		nvl_conn_break(conn, err == -ENOENT ? -ECONNREFUSED : err);
		return;
	}
	weft_hello_dial(conn->hello, conn->remote->key, conn->iface->addr->key,
			(uint8_t *)&purpose);
	watch_socket(conn);
}

/* ---- accepting ----------------------------------------------------------- */

static int watch_listener(struct nvl_iface *iface, int op, int fd,
			  uint64_t what)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = what };

	if (fd < 0 || !epoll_ctl(iface->epfd, op, fd, &ev) || errno == EEXIST)
		return 0;
	return -errno;
}

int nvl_conn_listen(struct nvl_iface *iface)
{
	int err = watch_listener(iface, EPOLL_CTL_ADD, iface->listen_fd,
				 NVL_EV_LISTEN);

	if (!err)
		err = watch_listener(iface, EPOLL_CTL_ADD,
				     iface->listen_path_fd, NVL_EV_LISTEN_PATH);
	return err;
}

/* Who waits to be accepted would wake a sleeper again and again. */
static void pause_accept(struct nvl_iface *iface)
{
	watch_listener(iface, EPOLL_CTL_DEL, iface->listen_fd, 0);
	watch_listener(iface, EPOLL_CTL_DEL, iface->listen_path_fd, 0);
	iface->accept_ms = weft_now_ms() + NVL_ACCEPT_PAUSE_MS;
}

void nvl_conn_resume_accept(struct nvl_iface *iface, uint64_t now)
{
	if (!iface->accept_ms || now < iface->accept_ms)
		return;
	iface->accept_ms = 0;
	if (nvl_conn_listen(iface))
		pause_accept(iface);
}

static void handle_accept_error(struct nvl_iface *iface, int err)
{
	switch (err) {
	case EMFILE:
		weft_warn_once("cannot accept a peer on this host: %s; raise "
			       "the limit with 'ulimit -n'",
			       strerror(err));
		break;
	case ENFILE:
		weft_warn_once("cannot accept a peer on this host: %s; raise "
			       "the limit with 'sysctl fs.file-max'",
			       strerror(err));
		break;
	case ENOBUFS:
	case ENOMEM:
		weft_warn_once("cannot accept a peer on this host: %s; trying "
			       "again",
			       strerror(err));
		break;
	default: /* it is of one peer, or there is none */
		return;
	}
	pause_accept(iface);
}

static void read_stranger(struct weft_stranger *st)
{
	nvl_conn_step(container_of(st, struct nvl_conn, stranger));
}

static void end_stranger(struct weft_stranger *st)
{
	nvl_conn_break(container_of(st, struct nvl_conn, stranger),
		       -ECONNABORTED);
}

void nvl_conn_accept(struct nvl_iface *iface, int listen_fd)
{
	struct nvl_conn *conn;
	unsigned int i;
	int fd;

	for (i = 0; i < ACCEPT_BATCH; i++) {
		if (!weft_strangers_make_room(&iface->strangers, listen_fd,
					      read_stranger, end_stranger)) {
			pause_accept(iface);
			return;
		}
		fd = accept4(listen_fd, NULL, NULL,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			handle_accept_error(iface, errno);
			return;
		}
		conn = nvl_conn_new(iface, NULL, 0, 0);
		if (!conn) {
			close(fd);
			handle_accept_error(iface, ENOMEM);
			return;
		}
		conn->fd = fd;
		conn->deadline_ms = weft_stranger_add(&iface->strangers,
						      &conn->stranger, fd);
		weft_hello_listen(conn->hello, iface->addr->key);
		watch_socket(conn);
	}
}

struct nvl_conn *nvl_conn_find(struct nvl_iface *iface, uint64_t peer_id,
			       uint32_t sn, const uint8_t *key)
{
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &iface->conns, link)
		if (!conn->dialer && !conn->ep && conn->peer_id == peer_id &&
		    conn->sn == sn && !conn->bye_seen &&
		    (conn->state == NVL_CONN_JOINING ||
		     conn->state == NVL_CONN_OPEN) &&
		    weft_hello_owns(conn->hello, key))
			return conn;
	return NULL;
}

/* Our own dial for the same endpoints, not yet settled. */
static struct nvl_conn *find_simultaneous(struct nvl_conn *conn)
{
	struct nvl_conn *c, *tmp;

	if (conn->peer_id == conn->iface->my_id)
		return NULL; /* to itself: two ends, no rivals */
	weft_list_for_each (c, tmp, &conn->iface->conns, link)
		if (c != conn && c->dialer && c->peer_id == conn->peer_id &&
		    c->sn == conn->sn &&
		    (c->state == NVL_CONN_DIALING ||
		     c->state == NVL_CONN_WAITING))
			return c;
	return NULL;
}

static void decide_verdict(struct nvl_conn *conn)
{
	struct nvl_iface *iface = conn->iface;
	enum weft_hello_verdict v = WEFT_HELLO_ACCEPTED;
	struct nvl_purpose purpose;
	struct nvl_conn *rival;

	memcpy(&purpose, conn->hello->purpose, sizeof(purpose));
	conn->peer_id = conn->hello->peer_id;
	conn->sn = purpose.sn;
	if (purpose.magic != NVL_PURPOSE_MAGIC) {
		nvl_conn_break(conn, -EPROTO);
		return;
	}
	rival = find_simultaneous(conn);
	if (rival && rival->state == NVL_CONN_DIALING &&
	    iface->my_id < conn->peer_id)
		v = WEFT_HELLO_YIELD;
	if (!rival &&
	    !weft_peer_has_room(iface->nconns - iface->strangers.n, "nvlink"))
		v = WEFT_HELLO_BUSY;
	weft_hello_verdict(conn->hello, v);
}

/* The peer's dial has won: what waited for ours goes over to it. */
static void adopt_endpoint(struct nvl_conn *conn)
{
	struct nvl_conn *rival = find_simultaneous(conn);

	if (!rival || !weft_hello_owns(conn->hello, rival->remote->key))
		return;
	conn->ep = rival->ep;
	conn->had_ep = conn->ep;
	rival->ep = NULL;
	if (conn->ep)
		conn->ep->conn = conn;
	conn->was_full = rival->was_full;
	nvl_conn_break(rival, -ECANCELED);
}

/* ---- joining ------------------------------------------------------------- */

/* Both sides are proven: descriptors may leave. */
static void send_inbox(struct nvl_conn *conn)
{
	struct nvl_frame f = { .type = NVL_FRAME_INBOX,
			       .size = NVL_INBOX_SIZE };
	int fd = -1, err;

	conn->stats =
		weft_stats_peer(conn->iface->stats, conn->peer_id, "this host");
	err = nvl_inbox_make(&conn->rx, &fd);
	if (!err)
		err = nvl_sock_send(conn, &f, fd);
	if (fd >= 0)
		close(fd);
	if (err)
		nvl_conn_break(conn, err);
}

static int map_peer_inbox(struct nvl_conn *conn, const struct nvl_frame *f,
			  int fd)
{
	if (f->type != NVL_FRAME_INBOX || f->size != NVL_INBOX_SIZE)
		return -EPROTO;
	return nvl_inbox_map(&conn->tx, fd);
}

static unsigned int receive_inbox(struct nvl_conn *conn)
{
	struct nvl_frame f;
	int fd, err;

	err = nvl_sock_recv(conn, &f, &fd);
	if (!err)
		return 0;
	if (err > 0)
		err = map_peer_inbox(conn, &f, fd);
	if (fd >= 0)
		close(fd);
	if (err) {
		nvl_conn_break(conn, err);
		return 1;
	}
	nvl_conn_set_state(conn, NVL_CONN_OPEN);
	if (conn->ep)
		conn->was_full = true; /* on_ready() tells that it is open */
	return 1;
}

/* ---- the hello ----------------------------------------------------------- */

static void finish_hello(struct nvl_conn *conn)
{
	switch (conn->hello->verdict) {
	case WEFT_HELLO_ACCEPTED:
		nvl_conn_set_state(conn, NVL_CONN_JOINING);
		if (!conn->dialer)
			adopt_endpoint(conn);
		send_inbox(conn);
		break;
	case WEFT_HELLO_YIELD:
		if (conn->dialer) {
			close_socket(conn);
			nvl_conn_set_state(conn, NVL_CONN_WAITING);
			conn->retry_ms = weft_now_ms() + NVL_YIELD_MS;
		} else {
			nvl_conn_break(conn, -ECANCELED);
		}
		break;
	default:
		if (conn->dialer)
			weft_info("a peer on this host has no room for another "
				  "connection");
		nvl_conn_break(conn, -ECONNREFUSED);
	}
}

static void fail_hello(struct nvl_conn *conn)
{
	int err = conn->hello->err;

	if (conn->dialer)
		weft_error("a peer on this host does not prove itself: %s",
			   err == -EACCES	     ? "wrong key or job secret"
			   : err == -EPROTONOSUPPORT ? "no common version"
						     : strerror(-err));
	nvl_conn_break(conn, err);
}

/*
 * 1: moved; 0: must wait; the end of a dial is tried again until its deadline
 */
static int move_hello(struct nvl_conn *conn)
{
	struct weft_hello *h = conn->hello;
	ssize_t n;
	bool reading;

	if (h->state == WEFT_HELLO_SENDING)
		n = send(conn->fd, h->out + h->out_done,
			 h->out_len - h->out_done, MSG_NOSIGNAL);
	else
		n = recv(conn->fd, h->in + h->have, h->want - h->have, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		if (conn->dialer)
			dial_later(conn);
		else
			nvl_conn_break(conn, -ECONNRESET);
		return 0;
	}
	reading = h->state == WEFT_HELLO_READING;
	weft_hello_moved(h, n);
	if (reading && !conn->dialer && h->state != WEFT_HELLO_READING)
		conn->deadline_ms = weft_stranger_spoke(&conn->iface->strangers,
							&conn->stranger);
	return 1;
}

static unsigned int progress_hello(struct nvl_conn *conn)
{
	unsigned int n = 0;

	while (conn->fd >= 0 && (conn->state == NVL_CONN_DIALING ||
				 conn->state == NVL_CONN_GREETING)) {
		switch (conn->hello->state) {
		case WEFT_HELLO_SENDING:
		case WEFT_HELLO_READING:
			if (!move_hello(conn))
				return n;
			break;
		case WEFT_HELLO_DECIDE:
			decide_verdict(conn);
			break;
		case WEFT_HELLO_DONE:
			finish_hello(conn);
			break;
		case WEFT_HELLO_FAILED:
			fail_hello(conn);
			break;
		}
		n++;
	}
	return n;
}

unsigned int nvl_conn_step(struct nvl_conn *conn)
{
	unsigned int n = 0;

	if (conn->state == NVL_CONN_DIALING || conn->state == NVL_CONN_GREETING)
		n += progress_hello(conn);
	if (conn->state == NVL_CONN_JOINING)
		n += receive_inbox(conn);
	return n;
}

/* A program that stood still has kept its peers waiting, not they it. */
void nvl_conn_extend(struct nvl_conn *conn, uint64_t now, uint64_t stood)
{
	if (conn->state < NVL_CONN_OPEN)
		conn->deadline_ms =
			weft_min(conn->deadline_ms + stood,
				 now + weft_settings()->connect_timeout_ms);
}

unsigned int nvl_conn_tick(struct nvl_conn *conn, uint64_t now)
{
	switch (conn->state) {
	case NVL_CONN_DIALING:
	case NVL_CONN_WAITING:
	case NVL_CONN_GREETING:
	case NVL_CONN_JOINING:
		if (now >= conn->deadline_ms) {
			if (conn->ep)
				weft_error("a peer on this host did not answer "
					   "within WEFT_CONNECT_TIMEOUT");
			nvl_conn_break(conn, -ETIMEDOUT);
			return 1;
		}
		if (conn->retry_ms && now >= conn->retry_ms) {
			nvl_conn_dial(conn);
			return 1;
		}
		return 0;
	default:
		return 0;
	}
}

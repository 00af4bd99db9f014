/* SPDX-License-Identifier: BSD-3-Clause */
/* An interface: it listens, and owns all connections of its netdev. */
#include "devices/tcp/tcp.h"
#include "devices/common/forked.h"
#include "devices/tcp/bulk/tcp_engine.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/bulk/tcp_pool.h"
#include "devices/tcp/tcp_dial.h"
#include "devices/tcp/tcp_ep.h"
#include "devices/tcp/tcp_fail.h"
#include "devices/tcp/tcp_get.h"
#include "devices/tcp/tcp_progress.h"
#include "devices/tcp/tcp_put.h"
#include "devices/tcp/tcp_timer.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/host.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/util.h"

#define BACKLOG 4096

/*
 * -errno, not logged.  @range: sockets in TIME_WAIT do not block the port
 * (SO_REUSEADDR).  Linux still refuses a second listener, but perhaps only in
 * listen().
 */
static int listen_at(struct tcp_iface *iface, const union weft_sockaddr *sa,
		     bool range)
{
	int fd, err, one = 1;

	fd = socket(sa->sa.sa_family,
		    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (range)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, &sa->sa, weft_sockaddr_len(sa)) || listen(fd, BACKLOG)) {
		err = -errno;
		close(fd);
		return err;
	}
	iface->listen_fd = fd;
	return 0;
}

static int listen_in_range(struct tcp_iface *iface, union weft_sockaddr *sa)
{
	struct weft_port_range r = weft_settings()->ports;
	unsigned int n = r.last - r.first + 1u, i, start = 0;
	struct weft_setting_info range;
	char where[WEFT_SOCKADDR_STR];
	uint16_t port;
	int err = 0;

	if (r.first) /* processes of one host do not all try the first */
		(void)weft_random(&start, sizeof(start));
	for (i = 0; i < n; i++) {
		port = htons(r.first + (start + i) % n);
		if (sa->sa.sa_family == AF_INET6)
			sa->in6.sin6_port = port;
		else
			sa->in.sin_port = port;
		err = listen_at(iface, sa, r.first);
		if (err != -EADDRINUSE)
			break;
	}
	if (!err)
		return 0;
	if (err == -EADDRINUSE && r.first) {
		weft_settings_named("WEFT_PORT_RANGE", &range);
		return weft_fail(
			-EADDRINUSE,
			"all ports of %s '%u-%u' are taken on '%s'; widen the range",
			weft_setting_variable(&range), r.first, r.last,
			iface->netif.name);
	}
	return weft_fail(err, "cannot listen on '%s' (%s)%s", iface->netif.name,
			 weft_sockaddr_str(sa, where, sizeof(where)),
			 err == -EMFILE ? "; raise the limit with 'ulimit -n'"
					: "");
}

static int listen_on(struct tcp_iface *iface)
{
	union weft_sockaddr sa = iface->netif.addr;
	socklen_t len = sizeof(sa);
	int err;

	err = listen_in_range(iface, &sa);
	if (err)
		return err;
	if (getsockname(iface->listen_fd, &sa.sa, &len))
		return weft_fail(-errno, "cannot listen on '%s'",
				 iface->netif.name);
	iface->base.addr->sa = sa;
	return weft_session_listen(&iface->base.session, iface->listen_fd);
}

/*
 * UCP packs its header of 8 to 40 bytes and the data behind it into txbuf, and
 * copies out of the others, by memcpy(), which is slow to some addresses
 * (weft_copy()).  Most memory of programs begins 0 to 64 bytes into a page, so
 * all three begin in the middle of one.
 */
#define AMID (WEFT_COPY_PAGE / 2)

static uint8_t *alloc_amid_page(size_t size)
{
	void *mem;

	if (posix_memalign(&mem, WEFT_COPY_PAGE, AMID + size))
		return NULL;
	return (uint8_t *)mem + AMID;
}

static void free_amid_page(uint8_t *p)
{
	if (p)
		free(p - AMID);
}

static void free_iface(struct tcp_iface *iface)
{
	weft_base_close(&iface->base);
	if (iface->listen_fd >= 0)
		close(iface->listen_fd);
	weft_table_free(&iface->by_token);
	pthread_mutex_destroy(&iface->found.lock);
	free_amid_page(iface->rxbuf);
	free_amid_page(iface->rxnext);
	free_amid_page(iface->txbuf);
	tcp_puts_spare_free(iface);
	free(iface);
}

/* open_iface() logs limits that were reached and how to raise them. */
static int try_socket(int family)
{
	const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE ? 0 : -errno;
	close(fd);
	return 0;
}

static int tcp_works(const char **why)
{
	const int err = try_socket(AF_INET);

	*why = "no TCP socket can be made";
	return err && try_socket(AF_INET6) ? err : 0;
}

static int open_iface(const struct weft_iface_params *params,
		      struct weft_iface **out)
{
	const char *netdev = params->netdev;
	const uint8_t *secret;
	struct tcp_iface *iface;
	size_t secret_len;
	int err;

	err = weft_settings_secret(&secret, &secret_len);
	if (err)
		return err;
	iface = calloc(1, sizeof(*iface));
	if (!iface)
		return -ENOMEM;
	iface->listen_fd = -1;
	iface->base.session.ops = &tcp_session_ops;
	iface->base.session.name = iface->netif.name;
	iface->base.session.kind = TCP_PURPOSE_MESSAGES;
	iface->handle_conn = tcp_conn_handle;
	weft_list_init(&iface->conns);
	weft_list_init(&iface->dead);
	weft_list_init(&iface->deferred);
	weft_list_init(&iface->gathering);
	weft_list_init(&iface->rx_pending);
	weft_list_init(&iface->leaving);
	weft_list_init(&iface->spare_puts);
	tcp_events_init(iface);

	err = weft_base_open(&iface->base, &weft_tcp_ops, &tcp_ep_ops, params,
			     tcp_iface_on_timer);
	if (err)
		goto free_all;
	err = weft_netif_get(netdev, params->family, &iface->netif);
	if (err) {
		weft_log_fail(
			WEFT_LOG_ERROR, __FILE__, __LINE__, err,
			"network interface '%s' is gone, down, or without an address",
			netdev);
		goto free_all;
	}
	err = -ENOMEM;
	iface->rxbuf = alloc_amid_page(TCP_RX_BUF);
	iface->rxnext = alloc_amid_page(TCP_RX_BUF);
	iface->txbuf = alloc_amid_page(TCP_MAX_MESSAGE);
	if (!iface->rxbuf || !iface->rxnext || !iface->txbuf)
		goto free_all;
	weft_base_count(&iface->base, netdev);
	iface->base.addr->ns_id = weft_netns_id();
	err = listen_on(iface);
	if (err)
		goto free_all;
	*out = &iface->base.iface;
	return 0;

free_all:
	free_iface(iface);
	return err;
}

static void send_close(struct tcp_conn *conn)
{
	uint8_t taken[TCP_CLOSE_LEN];

	weft_put_le64(taken, conn->taken);
	tcp_conn_send_control(conn, TCP_FRAME_CLOSE, taken, sizeof(taken));
	tcp_conn_flush(conn);
	shutdown(conn->fd, SHUT_WR);
}

/*
 * Does the local kernel still hold messages?  Then closing with unread bytes of
 * the peer would reset the connection and discard them.
 */
static bool has_unsent_data(struct tcp_conn *conn)
{
	unsigned int rounds = 64;
	int unacked = 0;
	ssize_t n;

	do
		n = recv(conn->fd, conn->iface->rxbuf, TCP_RX_BUF,
			 MSG_DONTWAIT);
	while (n > 0 && rounds--);
	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		return false; /* the peer has ended, too */
	/* CLOSE and FIN may get lost: they carry no data of the program */
	return !ioctl(conn->fd, SIOCOUTQ, &unacked) &&
	       unacked > TCP_FRAME_LEN + TCP_CLOSE_LEN + 1;
}

/* A peer whose kernel answers accepts them, even if it is too busy to read. */
static void tcp_flush_at_close(struct tcp_iface *iface)
{
	const uint64_t end = weft_now_ms() + TCP_LINGER_MS;
	struct tcp_conn *c, *tc;
	bool waiting;

	do {
		waiting = tcp_leaving_busy(iface);
		weft_list_for_each (c, tc, &iface->conns, link)
			waiting |= c->base.state == WEFT_CONN_OPEN &&
				   has_unsent_data(c);
		if (waiting)
			poll(NULL, 0, 1); /* a signal ends it early */
	} while (waiting && weft_now_ms() < end);
}

static void tcp_close_iface(struct weft_iface *base)
{
	struct tcp_iface *iface = tcp_iface(base);
	struct tcp_conn *c, *tc;

	iface->closing = true;
	weft_list_for_each (c, tc, &iface->conns, link)
		if (c->base.state == WEFT_CONN_OPEN && !c->base.err)
			send_close(c);
		else if (c->failed)
			tcp_conn_close(c, c->base.err);
	tcp_flush_at_close(iface);
	tcp_leaving_close(iface);
	weft_list_for_each (c, tc, &iface->conns, link)
		tcp_conn_close(c, -ESHUTDOWN);
	tcp_engines_close(iface);
	tcp_iface_deliver(iface, true);
	tcp_conns_reap(iface);
	free_iface(iface);
}

static void forget_iface(struct weft_iface *base)
{
	struct tcp_iface *iface = tcp_iface(base);
	struct tcp_stream *s, *ts;
	struct tcp_conn *c, *tc;
	unsigned int i;

	weft_list_for_each (c, tc, &iface->conns, link) {
		weft_forked_close(&c->fd);
		if (c->bulk)
			weft_list_for_each (s, ts, &c->bulk->streams, link)
				weft_forked_close(&s->fd);
	}
	for (i = 0; i < iface->nengines; i++) {
		weft_forked_close(&iface->engines[i].epfd);
		weft_forked_close(&iface->engines[i].wake_fd);
	}
	tcp_leaving_forget(iface);
	weft_forked_close(&iface->listen_fd);
	weft_base_forget(&iface->base);
}

static void tcp_query_iface(struct weft_iface *base,
			    struct weft_iface_attr *attr)
{
	struct tcp_iface *iface = tcp_iface(base);

	memset(attr, 0, sizeof(*attr));
	attr->max_message = TCP_MAX_MESSAGE;
	attr->max_iov = TCP_MAX_IOV;
	attr->mem_kinds = BIT(WEFT_MEM_HOST);
	attr->bandwidth = iface->netif.speed ? iface->netif.speed : 1.25e9;
	/* estimates for a 10 GbE-class network and for loopback */
	attr->latency = iface->netif.loopback ? 5e-6 : 15e-6;
	attr->overhead = 2e-6;
	attr->addr = *iface->base.addr;
}

static bool tcp_iface_reaches(struct weft_iface *base,
			      const struct weft_address *remote,
			      const char **why)
{
	struct tcp_iface *iface = tcp_iface(base);
	const char *reason = NULL;
	char where[WEFT_SOCKADDR_STR];
	bool yes;

	yes = weft_netif_reaches(&iface->netif, remote, &reason);
	if (!yes)
		weft_debug("'%s' does not reach %s: %s", iface->netif.name,
			   weft_sockaddr_str(&remote->sa, where, sizeof(where)),
			   reason);
	if (!yes && why)
		*why = reason;
	return yes;
}

static int register_mem(void *addr, size_t len, enum weft_mem_kind kind,
			struct weft_mem **mem)
{
	if (kind != WEFT_MEM_HOST)
		return -EOPNOTSUPP;
	return weft_region_add(addr, len, kind, mem);
}

static void pack_mem(struct weft_mem *mem, void *rkey)
{
	weft_rkey_pack(&mem->rkey, rkey);
}

const struct weft_dev_ops weft_tcp_ops = {
	.name = "tcp",
	.rkey_len = WEFT_RKEY_LEN,
	.works = tcp_works,
	.iface_open = open_iface,
	.iface_close = tcp_close_iface,
	.iface_forget = forget_iface,
	.iface_query = tcp_query_iface,
	.reaches = tcp_iface_reaches,
	.progress = tcp_iface_progress,
	.event_fd = weft_base_event_fd,
	.arm = tcp_iface_arm,
	.ep_create = weft_ep_create,
	.ep_destroy = weft_ep_destroy,
	.unsent = tcp_ep_unsent,
	.ready = weft_ep_ready,
	.message = tcp_ep_message,
	.message_pack = tcp_ep_message_pack,
	.put = tcp_put_start,
	.get = tcp_get_start,
	.fence = tcp_ep_fence,
	.flush = weft_ep_flush,
	.cancel = weft_ep_cancel,
	.mem_register = register_mem,
	.mem_pack = pack_mem,
	.mem_release = weft_region_remove,
};

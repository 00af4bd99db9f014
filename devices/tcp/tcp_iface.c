/* SPDX-License-Identifier: BSD-3-Clause */
/* An interface: it listens, owns all connections of its netdev, moves them. */
#include "devices/tcp/tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "bootstrap/host.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"

#define BACKLOG		4096
#define MAX_STRANGERS	4096	/* at once; more wait in the backlog */
#define EVENTS		32
#define POLL_EVERY	16	/* progress calls between looks at epoll */
#define HOT_IDLE	4096	/* fruitless polls before a stream is not hot */

static int add(struct tcp_iface *iface, int fd, struct tcp_source *src,
	       enum tcp_source_kind kind)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = src };

	src->kind = kind;
	return epoll_ctl(iface->epfd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/*
 * -errno, of which nothing has been said.  @range: what was accepted on the port
 * before does not block it while that is in TIME_WAIT.  Linux gives a port to no
 * second listener for that, but may tell it by listen() alone.
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

	if (r.first)	/* processes of one host do not all try the first */
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
		return weft_fail(EADDRINUSE, "all ports of %s '%u-%u' are taken on '%s'; widen the range",
				 weft_setting_variable(&range), r.first, r.last,
				 iface->netif.name);
	}
	return weft_fail(-err, "cannot listen on '%s' (%s)%s",
			 iface->netif.name,
			 weft_sockaddr_str(sa, where, sizeof(where)),
			 err == -EMFILE ?
			 "; raise the limit with 'ulimit -n'" : "");
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
		return weft_fail(errno, "cannot listen on '%s'",
				 iface->netif.name);
	iface->addr->sa = sa;
	return add(iface, iface->listen_fd, &iface->listen_src,
		   TCP_SOURCE_LISTEN);
}

static void iface_free(struct tcp_iface *iface)
{
	int *fds[] = { &iface->listen_fd, &iface->wake_fd, &iface->timer_fd,
		       &iface->epfd, &iface->pipe[0], &iface->pipe[1] };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fds); i++)
		if (*fds[i] >= 0)
			close(*fds[i]);
	weft_stats_close(iface->stats);
	weft_ep_sns_free(&iface->sns);
	weft_table_free(&iface->by_id);
	weft_table_free(&iface->by_token);
	pthread_mutex_destroy(&iface->cq.lock);
	weft_secret_free(iface->addr, sizeof(*iface->addr));
	free(iface->rxbuf);
	free(iface->txbuf);
	free(iface);
}

int tcp_iface_open(const char *netdev, int family,
		   const struct weft_iface_cb *cb, struct weft_iface **out)
{
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
	iface->listen_fd = iface->wake_fd = iface->timer_fd = -1;
	iface->epfd = iface->pipe[0] = iface->pipe[1] = -1;
	weft_list_init(&iface->conns);
	weft_list_init(&iface->dead);
	weft_list_init(&iface->greets);
	weft_list_init(&iface->dead_greets);
	weft_list_init(&iface->held);
	weft_ep_sns_init(&iface->sns);
	weft_strangers_init(&iface->strangers, MAX_STRANGERS);
	weft_list_init(&iface->more);
	tcp_cq_init(iface);

	err = weft_netif_get(netdev, family, &iface->netif);
	if (err) {
		weft_log_fail(WEFT_LOG_ERROR, __FILE__, __LINE__, err,
			      "network interface '%s' is gone, down, or without an address",
			      netdev);
		goto free_iface;
	}
	err = -ENOMEM;
	iface->rxbuf = malloc(TCP_RX_BUF);
	iface->txbuf = malloc(TCP_MAX_MESSAGE);
	iface->stats = weft_stats_open("tcp", netdev);
	iface->addr = weft_secret_alloc(sizeof(*iface->addr));
	if (!iface->rxbuf || !iface->txbuf || !iface->stats || !iface->addr)
		goto free_iface;
	err = weft_random(iface->addr->key, WEFT_KEY_LEN);
	if (err)
		goto free_iface;
	iface->addr->wire_min = WEFT_WIRE_MIN;
	iface->addr->wire_max = WEFT_WIRE_MAX;
	iface->addr->ns_id = weft_netns_id();
	iface->my_id = weft_key_id(iface->addr->key);
	weft_stats_own_id(iface->stats, iface->my_id);
	iface->epfd = epoll_create1(EPOLL_CLOEXEC);
	iface->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	iface->timer_fd = timerfd_create(CLOCK_MONOTONIC,
					 TFD_CLOEXEC | TFD_NONBLOCK);
	if (iface->epfd < 0 || iface->wake_fd < 0 || iface->timer_fd < 0) {
		err = weft_fail(errno, "cannot make an event queue; raise the limit with 'ulimit -n'");
		goto free_iface;
	}
	err = add(iface, iface->wake_fd, &iface->wake_src, TCP_SOURCE_WAKE);
	if (!err)
		err = add(iface, iface->timer_fd, &iface->timer_src,
			  TCP_SOURCE_TIMER);
	if (!err)
		err = listen_on(iface);
	if (err)
		goto free_iface;
	iface->base.ops = &weft_tcp_ops;
	iface->base.cb = *cb;
	iface->polls = POLL_EVERY;
	*out = &iface->base;
	return 0;

free_iface:
	iface_free(iface);
	return err;
}

static void say_goodbye(struct tcp_conn *conn)
{
	tcp_send_control(conn, TCP_FRAME_CLOSE, NULL, 0);
	tcp_conn_flush_out(conn);
	shutdown(conn->fd, SHUT_WR);
}

/*
 * Is something that a flush called sent still with our kernel?  Then a byte of
 * the peer's that nobody reads here would make it reset the connection and throw
 * that away.
 */
static bool last_words_wait(struct tcp_conn *conn)
{
	unsigned int rounds = 64;
	int unacked = 0;
	ssize_t n;

	do
		n = recv(conn->fd, conn->iface->rxbuf, TCP_RX_BUF,
			 MSG_DONTWAIT);
	while (n > 0 && rounds--);
	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		return false;		/* it is gone, too */
	/* CLOSE and the end itself may get lost: those are no data */
	return !ioctl(conn->fd, SIOCOUTQ, &unacked) &&
	       unacked > TCP_FRAME_LEN + 1;
}

/* A peer whose kernel answers takes them, even if it is too busy to read. */
static void linger(struct tcp_iface *iface)
{
	const uint64_t end = weft_now_ms() + TCP_LINGER_MS;
	struct tcp_conn *c, *tc;
	bool waiting;

	do {
		waiting = false;
		weft_list_for_each(c, tc, &iface->conns, link)
			waiting |= c->state == TCP_CONN_OPEN &&
				   last_words_wait(c);
	} while (waiting && weft_now_ms() < end && !poll(NULL, 0, 1));
}

void tcp_iface_close(struct weft_iface *base)
{
	struct tcp_iface *iface = tcp_iface(base);
	struct tcp_conn *c, *tc;

	iface->closing = true;
	weft_list_for_each(c, tc, &iface->conns, link)
		if (c->state == TCP_CONN_OPEN && !c->broken)
			say_goodbye(c);
	linger(iface);
	weft_list_for_each(c, tc, &iface->conns, link)
		tcp_conn_close(c, -ESHUTDOWN);
	while (!weft_list_empty(&iface->greets))
		tcp_greet_free(weft_list_first(&iface->greets,
					       struct tcp_greet, link));
	tcp_greet_reap(iface);
	tcp_engines_close(iface);
	tcp_cq_deliver(iface, true);
	tcp_conn_reap(iface);
	iface_free(iface);
}

void tcp_iface_query(struct weft_iface *base, struct weft_iface_attr *attr)
{
	struct tcp_iface *iface = tcp_iface(base);

	memset(attr, 0, sizeof(*attr));
	attr->max_message = TCP_MAX_MESSAGE;
	attr->max_iov = TCP_MAX_IOV;
	attr->max_put = SIZE_MAX / 2;
	attr->mem_kinds = BIT(WEFT_MEM_HOST);
	attr->bandwidth = iface->netif.speed ? iface->netif.speed : 1.25e9;
	/* estimates for a 10 GbE-class network and for loopback */
	attr->latency = iface->netif.loopback ? 5e-6 : 15e-6;
	attr->overhead = 2e-6;
	attr->addr = *iface->addr;
}

bool tcp_iface_reaches(struct weft_iface *base,
		       const struct weft_address *remote, const char **why)
{
	struct tcp_iface *iface = tcp_iface(base);
	const char *reason = NULL;
	char where[WEFT_SOCKADDR_STR];
	bool yes;

	yes = weft_netif_reaches(&iface->netif, remote, &reason);
	if (!yes)
		weft_debug("'%s' does not reach %s: %s", iface->netif.name,
			   weft_sockaddr_str(&remote->sa, where,
					     sizeof(where)), reason);
	if (!yes && why)
		*why = reason;
	return yes;
}

void tcp_iface_pause_accept(struct tcp_iface *iface)
{
	iface->accept_paused = true;
	epoll_ctl(iface->epfd, EPOLL_CTL_DEL, iface->listen_fd, NULL);
	tcp_watch_start(iface);
}

void tcp_iface_resume_accept(struct tcp_iface *iface)
{
	if (!iface->accept_paused)
		return;
	iface->accept_paused = false;
	add(iface, iface->listen_fd, &iface->listen_src, TCP_SOURCE_LISTEN);
}

static unsigned int conn_event(struct tcp_conn *conn, uint32_t events)
{
	unsigned int n = 1;

	if (conn->state != TCP_CONN_OPEN)
		return 0;
	if (events & EPOLLOUT)
		tcp_conn_flush_out(conn);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		tcp_conn_heat(conn);
		if (weft_list_empty(&conn->more_link))
			n += tcp_conn_rx(conn);
	}
	return n;
}

static unsigned int poll_events(struct tcp_iface *iface)
{
	struct epoll_event ev[EVENTS];
	struct tcp_source *src;
	unsigned int count = 0;
	uint64_t drop;
	int i, n;

	n = epoll_wait(iface->epfd, ev, EVENTS, 0);
	for (i = 0; i < n; i++) {
		src = ev[i].data.ptr;
		switch (src->kind) {
		case TCP_SOURCE_LISTEN:
			tcp_greet_accept(iface);
			count++;
			break;
		case TCP_SOURCE_CONN:
			count += conn_event(container_of(src, struct tcp_conn,
							 src), ev[i].events);
			break;
		case TCP_SOURCE_GREET:
			count += tcp_greet_io(container_of(src,
							   struct tcp_greet,
							   src));
			break;
		case TCP_SOURCE_WAKE:
			while (read(iface->wake_fd, &drop, sizeof(drop)) < 0 &&
			       errno == EINTR)
				;
			break;
		case TCP_SOURCE_TIMER:
			count += tcp_watch_tick(iface);
			break;
		case TCP_SOURCE_ENGINE:
			break;		/* run below */
		}
	}
	return count;
}

/*
 * A write that fails says less than what the peer wrote before it went: data,
 * and whether it went in order.
 */
static void read_last_words(struct tcp_conn *conn)
{
	const int err = conn->broken;
	unsigned int rounds = 64;

	if (conn->state != TCP_CONN_OPEN ||
	    (err != -EPIPE && err != -ECONNRESET && err != -ETIMEDOUT))
		return;
	conn->broken = 0;
	while (rounds-- && tcp_conn_rx(conn) && conn->state == TCP_CONN_OPEN &&
	       !conn->broken)
		;
	if (!conn->broken && !conn->ended)
		conn->broken = err;
}

static void close_broken(struct tcp_iface *iface)
{
	struct tcp_conn *c, *tc;
	bool later = false;

again:
	iface->failing = later;
	weft_list_for_each(c, tc, &iface->conns, link) {
		if (!c->broken || (later && !iface->budget))
			continue;
		read_last_words(c);
		if (c->broken && !weft_list_empty(&c->more_link)) {
			later = true;	/* it has more than may be told now */
			iface->failing = true;
			continue;
		}
		/* the callbacks may end other connections: start over */
		if (c->broken)
			tcp_conn_close(c, c->broken);
		goto again;
	}
}

/* A turn for each that had more than its share, as far as it goes. */
static unsigned int serve_more(struct tcp_iface *iface)
{
	struct tcp_conn *c, *last;
	unsigned int n = 0;

	if (weft_list_empty(&iface->more))
		return 0;
	last = container_of(iface->more.prev, struct tcp_conn, more_link);
	do {
		c = weft_list_first(&iface->more, struct tcp_conn, more_link);
		weft_list_del(&c->more_link);
		n += tcp_conn_rx(c);
	} while (c != last && iface->budget && !weft_list_empty(&iface->more));
	return n;
}

unsigned int tcp_iface_progress(struct weft_iface *base)
{
	struct tcp_iface *iface = tcp_iface(base);
	struct tcp_conn *conn;
	unsigned int n, i, got;

	iface->budget = WEFT_PROGRESS_MAX;
	n = serve_more(iface);
	for (i = 0; i < TCP_HOT && iface->budget; i++) {
		conn = iface->hot[i];
		if (!conn || !weft_list_empty(&conn->more_link))
			continue;
		got = tcp_conn_rx(conn);
		n += got;
		if (got)
			conn->idle_polls = 0;
		else if (++conn->idle_polls > HOT_IDLE)
			iface->hot[i] = NULL;
	}
	if (++iface->polls >= POLL_EVERY || !iface->hot[0]) {
		iface->polls = 0;
		n += poll_events(iface);
	}
	for (i = 0; i < iface->nengines; i++)
		if (iface->engines[i].nstreams &&
		    !iface->engines[i].has_thread)
			n += tcp_engine_run(&iface->engines[i]);
	n += tcp_cq_deliver(iface, false);
	if (iface->failing) {
		close_broken(iface);
		n++;
	}
	tcp_conn_reap(iface);
	tcp_greet_reap(iface);
	return n;
}

int tcp_iface_event_fd(struct weft_iface *base)
{
	return tcp_iface(base)->epfd;
}

int tcp_iface_arm(struct weft_iface *base)
{
	struct tcp_iface *iface = tcp_iface(base);
	struct epoll_event ev;
	unsigned int i;
	bool more;

	iface->polls = POLL_EVERY;	/* the next progress() looks at epoll */
	if (iface->failing || !weft_list_empty(&iface->more))
		return -EBUSY;
	atomic_store(&iface->cq.armed, true);
	if (atomic_load(&iface->cq.any))
		goto busy;
	for (i = 0; i < iface->nengines; i++) {
		struct tcp_engine *eng = &iface->engines[i];

		if (eng->has_thread)
			continue;
		pthread_mutex_lock(&eng->lock);
		more = !weft_list_empty(&eng->ready) ||
		       atomic_load(&eng->kicked);
		pthread_mutex_unlock(&eng->lock);
		if (more)
			goto busy;
	}
	/* UCP may watch edge-triggered: what is readable now is not an edge */
	if (epoll_wait(iface->epfd, &ev, 1, 0) <= 0)
		return 0;
busy:
	atomic_store(&iface->cq.armed, false);
	return -EBUSY;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting to a listener's handle, over the best path that both sides have.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host/host.h"
#include "nccl_net/common/channels.h"
#include "nccl_net/net/comm.h"
#include "nccl_net/net/connect.h"
#include "nccl_net/net/context.h"
#include "nccl_net/net/devlist.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "nccl_net/net/progress.h"
#include "nccl_net/net/wire.h"
#include "settings/settings.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

/* When a path has not answered for so long, the next is tried, too. */
#define NEXT_PATH_MS 250

int weft_net_random_token(uint64_t *token)
{
	int ret;

	do
		ret = weft_random(token, sizeof(*token));
	while (!ret && !*token);
	return ret;
}

/*
 * An adapter reports a peer that does not answer: TCP is used if it fails, not
 * if the rank is slow.
 */
static uint64_t attempt_timeout(const struct weft_net_port *port)
{
	return port->wire == WEFT_WIRE_TCP
		       ? NEXT_PATH_MS
		       : weft_settings()->connect_timeout_ms / 3;
}

/* The first over TCP; h->n where there is none. */
static unsigned int first_tcp_path(const struct weft_handle *h)
{
	unsigned int i = 0;

	while (i < h->n && h->wire[i] != WEFT_WIRE_TCP)
		i++;
	return i;
}

static void warn_fallback(const struct weft_net_port *port,
			  const struct weft_address *addr, const char *why)
{
	char where[WEFT_SOCKADDR_STR];

	weft_warn_once(
		"'%s' does not lead to the rank at %s (%s): NCCL's traffic to it goes over TCP",
		port->netdev,
		weft_sockaddr_str(&addr->sa, where, sizeof(where)), why);
}

static void add_attempt(struct weft_net_dial *dial, struct weft_net_port *port,
			const struct weft_address *addr)
{
	const char *why;

	if (dial->n == WEFT_NET_ATTEMPTS || weft_net_is_unreachable(port, addr))
		return;
	if (port->ops->reaches(port->iface, addr, &why)) {
		dial->attempt[dial->n].port = port;
		dial->attempt[dial->n++].addr = *addr;
	} else if (port->wire != WEFT_WIRE_TCP) {
		warn_fallback(port, addr, why);
	}
}

/*
 * Adds attempts over this path from each port that may use it; of adapters only
 * @dev.
 */
static void add_path_attempts(struct weft_net *net, int dev,
			      const struct weft_handle *h, unsigned int i,
			      struct weft_net_dial *dial)
{
	struct weft_net_port *port, *tmp;

	if (h->wire[i] == WEFT_WIRE_IB) {
		/* an unused adapter stays closed */
		port = weft_net_hca_port(net, dev);
		if (port)
			add_attempt(dial, port, &h->path[i]);
		return;
	}
	weft_list_for_each (port, tmp, &net->ports, link)
		if (port->wire == h->wire[i])
			add_attempt(dial, port, &h->path[i]);
}

static void add_attempts(struct weft_net *net, int dev,
			 const struct weft_handle *h,
			 struct weft_net_dial *dial)
{
	unsigned int wire, i;

	for (wire = 0; wire <= WEFT_WIRE_TCP; wire++)
		for (i = 0; i < h->n; i++)
			if (h->wire[i] == wire)
				add_path_attempts(net, dev, h, i, dial);
}

/*
 * Spreads connections between hosts over interfaces of equal speed; within a
 * host all interfaces share its memory.
 */
static void choose_interface(const struct weft_handle *h,
			     struct weft_net_dial *dial)
{
	const unsigned int tcp = first_tcp_path(h);
	struct weft_net_attempt best;
	unsigned int i, first = 0;

	while (first < dial->n &&
	       dial->attempt[first].port->wire != WEFT_WIRE_TCP)
		first++;
	if (tcp == h->n || h->path[tcp].ns_id == weft_netns_id() ||
	    dial->n <= first + 1)
		return;
	best = dial->attempt[first];
	i = first + (dial->comm->id & 0xffff) % (dial->n - first);
	if (dial->attempt[i].port->speed != best.port->speed)
		return;
	dial->attempt[first] = dial->attempt[i];
	dial->attempt[i] = best;
}

static void free_dial(struct weft_net_comm *comm)
{
	struct weft_net_dial *dial = comm->dial;
	unsigned int i;

	if (!dial)
		return;
	for (i = 0; i < dial->n; i++)
		if (dial->attempt[i].peer)
			weft_net_peer_put(dial->attempt[i].peer);
	weft_list_del(&dial->link);
	free(dial);
	comm->dial = NULL;
}

/* NCCL gets no connection: the listener must not wait for it. */
static void withdraw_dial(struct weft_net_comm *comm)
{
	struct weft_msg_accept m = { .token = comm->token };
	struct weft_net_dial *dial = comm->dial;
	uint8_t buf[WEFT_MSG_ACCEPT_LEN];
	unsigned int i;

	if (!dial || dial->refused)
		return;
	for (i = 0; i < dial->n; i++) {
		if (dial->attempt[i].state != ATTEMPT_ASKED ||
		    !dial->attempt[i].peer)
			continue;
		m.path = i;
		weft_msg_accept_pack(&m, buf);
		/* if it cannot be sent, the endpoint's end shows it */
		weft_net_peer_send(dial->attempt[i].peer, WEFT_MSG_WITHDRAW,
				   buf, sizeof(buf));
	}
}

/* Ends a comm that NCCL never got. */
static void drop_comm(struct weft_net_comm *comm)
{
	withdraw_dial(comm);
	free_dial(comm);
	weft_net_comm_free(comm);
}

static int new_dial(struct weft_net *net, int dev, const struct weft_handle *h,
		    struct weft_net_comm **out)
{
	struct weft_net_comm *comm;
	struct weft_net_dial *dial;
	int ret;

	dial = calloc(1, sizeof(*dial));
	if (!dial)
		return weft_fail(-ENOMEM, "cannot connect");
	ret = weft_net_comm_new(net, true, &comm);
	if (ret < 0) {
		free(dial);
		return ret;
	}
	dial->comm = comm;
	comm->dial = dial;
	weft_list_add_tail(&net->dialing, &dial->link);
	add_attempts(net, dev, h, dial);
	choose_interface(h, dial);
	dial->listener = h->token;
	dial->deadline = weft_now_ms() + weft_settings()->connect_timeout_ms;
	ret = weft_net_random_token(&comm->token);
	if (!ret)
		ret = weft_net_random_token(&dial->stage);
	if (ret < 0) {
		drop_comm(comm);
		return ret;
	}
	*out = comm;
	return 0;
}

/*
 * An aborted NCCL stops asking for a connection that it never got, so it closes
 * nothing, and up to 2.27 the context is used for the next communicator. Others
 * ask until the deadline, when they get an answer.
 */
void weft_net_dials_drop_expired(struct weft_net *net)
{
	const uint64_t now = weft_now_ms();
	struct weft_net_dial *dial, *tmp;

	weft_list_for_each (dial, tmp, &net->dialing, link)
		if (now > dial->deadline + weft_settings()->connect_timeout_ms)
			drop_comm(dial->comm);
}

void weft_net_dials_drop_all(struct weft_net *net)
{
	struct weft_net_dial *dial, *tmp;

	weft_list_for_each (dial, tmp, &net->dialing, link)
		drop_comm(dial->comm);
}

/*
 * The adapter did not reach that rank, so TCP is used.  Without this mark each
 * connection to it would wait as long again.
 */
static void try_tcp(struct weft_net_attempt *attempt, const char *why)
{
	weft_net_mark_unreachable(attempt->port, &attempt->addr);
	warn_fallback(attempt->port, &attempt->addr, why);
}

static void fail_attempt(struct weft_net_attempt *attempt, int err)
{
	/* if it has worked, the rank has ended */
	if (attempt->port->wire != WEFT_WIRE_TCP && err != -ECANCELED &&
	    !(attempt->peer && !weft_list_empty(&attempt->peer->comms)))
		try_tcp(attempt, strerror(-err));
	attempt->state = ATTEMPT_FAILED;
	attempt->err = err;
	if (attempt->peer)
		weft_net_peer_put(attempt->peer);
	attempt->peer = NULL;
}

void weft_net_dials_fail_peer(struct weft_net *net, struct weft_net_peer *peer,
			      int err)
{
	struct weft_net_dial *dial, *tmp;
	unsigned int i;

	weft_list_for_each (dial, tmp, &net->dialing, link)
		for (i = 0; i < dial->n; i++)
			if (dial->attempt[i].peer == peer)
				fail_attempt(&dial->attempt[i], err);
}

static void advance_attempt(struct weft_net_dial *dial, unsigned int path)
{
	struct weft_net_attempt *attempt = &dial->attempt[path];
	struct weft_msg_connect m = {
		.listener = dial->listener,
		.token = dial->comm->token,
		.id = dial->comm->id,
		.path = path,
		.from = attempt->port->attr.addr,
	};
	uint8_t buf[WEFT_MSG_CONNECT_MAX];
	int ret;

	if (attempt->state == ATTEMPT_WAITING) {
		ret = weft_net_peer_get(attempt->port, &attempt->addr,
					&attempt->peer);
		if (ret < 0) {
			fail_attempt(attempt, ret);
			return;
		}
		attempt->state = ATTEMPT_STARTED;
	}
	if (attempt->state != ATTEMPT_STARTED)
		return;
	ret = weft_net_peer_send(attempt->peer, WEFT_MSG_CONNECT, buf,
				 weft_msg_connect_pack(&m, buf));
	if (!ret)
		attempt->state = ATTEMPT_ASKED;
	else if (ret != -EAGAIN)
		fail_attempt(attempt, ret);
}

static int log_failed_dial(struct weft_net_dial *dial, int err)
{
	char text[1024] = "", addr[WEFT_SOCKADDR_STR];
	struct weft_net_attempt *attempt;
	size_t at = 0;
	unsigned int i;

	for (i = 0; i < dial->n && at < sizeof(text); i++) {
		attempt = &dial->attempt[i];
		at += snprintf(text + at, sizeof(text) - at, "%s%s to %s: %s",
			       i ? "; " : "", attempt->port->netdev,
			       weft_sockaddr_str(&attempt->addr.sa, addr,
						 sizeof(addr)),
			       attempt->state == ATTEMPT_FAILED
				       ? strerror(-attempt->err)
			       : attempt->state == ATTEMPT_WAITING
				       ? "not tried"
				       : "no answer");
	}
	return weft_fail(
		err,
		"cannot connect to a rank (%s); is the way open, and has every rank the same WEFT_SECRET_FILE?",
		text);
}

/* 0: go on; else the error that ends it. */
static int advance_dial(struct weft_net_dial *dial)
{
	const uint64_t now = weft_now_ms();
	unsigned int i, open = 0, waiting = dial->n;
	int err = -EHOSTUNREACH;

	if (dial->refused)
		return weft_fail(
			-ECONNREFUSED,
			"the rank that requested this connection no longer listens for it");
	for (i = 0; i < dial->n; i++) {
		if (dial->attempt[i].state == ATTEMPT_STARTED)
			advance_attempt(dial, i);
		switch (dial->attempt[i].state) {
		case ATTEMPT_WAITING:
			waiting = weft_min(waiting, i);
			break;
		case ATTEMPT_FAILED:
			err = dial->attempt[i].err;
			break;
		default:
			open++;
		}
	}
	if (waiting < dial->n && (!open || now >= dial->next)) {
		advance_attempt(dial, waiting);
		dial->next = now + attempt_timeout(dial->attempt[waiting].port);
		return 0;
	}
	if (!open)
		return log_failed_dial(dial, err);
	if (now >= dial->deadline)
		return log_failed_dial(dial, -ETIMEDOUT);
	return 0;
}

static int log_no_path(const struct weft_handle *h)
{
	const unsigned int tcp = first_tcp_path(h) % h->n;
	char addr[WEFT_SOCKADDR_STR];

	if (!weft_address_has_version(&h->path[0]))
		return weft_fail(
			-EPROTONOSUPPORT,
			"the other rank's weft speaks wire versions %u to %u, this one %u to %u; install the same weft on all hosts",
			h->path[0].wire_min, h->path[0].wire_max, WEFT_WIRE_MIN,
			WEFT_WIRE_MAX);
	return weft_fail(
		-EHOSTUNREACH,
		"none of this host's interfaces leads to %s (%u ways tried); name the right ones on both sides, as in NCCL_SOCKET_IFNAME=eth0",
		weft_sockaddr_str(&h->path[tcp].sa, addr, sizeof(addr)), h->n);
}

static int read_handle(const void *buf, struct weft_handle *h)
{
	int ret = weft_handle_unpack(buf, h);

	switch (ret) {
	case -EPROTO:
		return weft_fail(
			-EPROTO,
			"the handle is not weft's: the other rank uses another network; set NCCL_NET_PLUGIN=weft and NCCL_NET=weft on every rank");
	case -EPROTONOSUPPORT:
		return weft_fail(
			-EPROTO,
			"the handle has version %u, this weft knows %u; install the same weft on all hosts",
			((const uint8_t *)buf)[4], WEFT_HANDLE_VERSION);
	case -EINVAL:
		return weft_fail(-EPROTO,
				 "the handle of the other rank is damaged");
	}
	return ret;
}

static const char *settings_advice(const struct weft_handle *h,
				   unsigned int channels, unsigned int buffer)
{
	/* weft sets it if the tuner can lower it (channels.h) */
	if (h->buffer == buffer && !h->channels != !channels)
		return "one rank's NCCL asks weft's tuner and the other's does not: use the same NCCL on every rank (before 2.21 it asks none), the same NCCL_TUNER_PLUGIN and channel settings, or set NCCL_MIN_NCHANNELS for all";
	return "set both the same on every rank";
}

/* Different values would hang NCCL, or let it write beyond its buffers. */
static int check_settings(const struct weft_handle *h)
{
	const unsigned int channels = weft_nccl_channels_set();
	const unsigned int buffer = weft_nccl_buffer_set();

	if (h->channels == channels && h->buffer == buffer)
		return 0;
	return weft_fail(
		-EINVAL,
		"NCCL_MIN_NCHANNELS here %u, there %u (0: not set); NCCL_BUFFSIZE here %u MiB, there %u MiB; %s",
		channels, h->channels, buffer, h->buffer,
		settings_advice(h, channels, buffer));
}

static struct weft_net_dial *find_dial(struct weft_net *net, uint64_t stage)
{
	struct weft_net_dial *dial, *tmp;

	weft_list_for_each (dial, tmp, &net->dialing, link)
		if (stage && dial->stage == stage)
			return dial;
	return NULL;
}

static int start_connect(struct weft_net *net, int dev, void *handle,
			 struct weft_net_comm **comm)
{
	struct weft_handle h;
	int ret;

	ret = read_handle(handle, &h);
	if (!ret)
		ret = check_settings(&h);
	if (ret < 0)
		return ret;
	ret = new_dial(net, dev, &h, comm);
	if (ret < 0)
		return ret;
	if (!(*comm)->dial->n) {
		drop_comm(*comm);
		return log_no_path(&h);
	}
	weft_put_le64((uint8_t *)handle + WEFT_HANDLE_STAGE,
		      (*comm)->dial->stage);
	return 0;
}

int weft_net_connect(struct weft_net *net, int dev, void *handle,
		     struct weft_net_comm **out)
{
	struct weft_net_dial *dial;
	struct weft_net_comm *comm;
	int ret;

	*out = NULL;
	ret = weft_net_check_device(dev);
	if (ret < 0)
		return ret;
	ret = weft_net_lock(net);
	if (ret < 0)
		return ret;
	weft_net_dials_drop_expired(net);
	dial = find_dial(net,
			 weft_get_le64((uint8_t *)handle + WEFT_HANDLE_STAGE));
	if (dial) {
		comm = dial->comm;
	} else {
		ret = start_connect(net, dev, handle, &comm);
		if (ret < 0)
			goto unlock;
	}
	if (!comm->answered) {
		weft_net_progress(net);
		ret = comm->answered ? 0 : advance_dial(comm->dial);
	}
	/* if it was lost meanwhile, its first request fails */
	if (ret < 0 || comm->answered)
		weft_put_le64((uint8_t *)handle + WEFT_HANDLE_STAGE, 0);
	if (ret < 0) {
		drop_comm(comm);
	} else if (comm->answered) {
		free_dial(comm);
		*out = comm;
	}
unlock:
	weft_net_unlock(net);
	return ret;
}

void weft_net_on_accept(struct weft_net *net, const void *buf, size_t len,
			bool refused)
{
	struct weft_net_comm *comm;
	struct weft_net_peer *peer;
	struct weft_msg_accept m;
	unsigned int path;
	uint32_t most;

	if (weft_msg_accept_unpack(buf, len, &m) < 0) {
		weft_warn("a damaged answer to a connection was ignored");
		return;
	}
	comm = weft_net_comm_find(net, m.to);
	if (!comm || !comm->sender || comm->token != m.token ||
	    comm->answered || !comm->dial || m.path >= comm->dial->n)
		return;
	peer = comm->dial->attempt[m.path].peer;
	if (!peer)
		return;
	if (refused) {
		comm->dial->refused = true;
		return;
	}
	most = peer->port->attr.max_message - WEFT_MSG_SEQ_LEN;
	for (path = 0; path < m.path; path++)
		if (comm->dial->attempt[path].port->wire != WEFT_WIRE_TCP &&
		    comm->dial->attempt[path].state != ATTEMPT_FAILED)
			try_tcp(&comm->dial->attempt[path], "no answer");
	comm->answered = true;
	comm->remote_id = m.id;
	comm->eager = weft_min(m.eager, weft_min(most, WEFT_NET_EAGER));
	peer->refs++;
	weft_net_comm_attach(comm, peer);
}

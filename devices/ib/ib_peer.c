/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane: an endpoint of the tcp device to each peer, which has
 * proven both keys, carries halves of connections, and fails when the peer's
 * process or kernel is gone.
 *
 * Messages of the tcp device do not name their endpoint, and any process that
 * knows our key may send some.  So each peer gets a nonce over the endpoint to
 * it, and only messages with that nonce are believed.
 */
#include "devices/ib/ib_conn.h"
#include "devices/ib/ib_done.h"
#include "devices/ib/ib_peer.h"

#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/log.h"

#define HELLO_MAX (1 + WEFT_IFACE_ADDR_LEN + WEFT_DEV_ADDR_MAX + 16)

static int ctl_send(struct ib_peer *peer, enum ib_ctl kind, const void *p,
		    size_t len)
{
	struct iovec iov = { (void *)p, len };

	if (peer->dead)
		return -ECONNRESET;
	return weft_tcp_ops.message(peer->ctl, (uint8_t)kind, &iov, 1);
}

static bool send_hello(struct ib_peer *peer)
{
	uint8_t buf[HELLO_MAX], *p = buf;
	size_t dev;

	weft_address_pack_iface(peer->iface->base.addr, p + 1);
	p += 1 + WEFT_IFACE_ADDR_LEN;
	dev = weft_address_pack_dev(peer->iface->base.addr, p);
	buf[0] = (uint8_t)dev;
	p += dev;
	weft_put_le64(p, peer->my_nonce);
	weft_put_le64(p + 8, peer->peer_nonce);
	p += 16;
	if (ctl_send(peer, IB_CTL_HELLO, buf, (size_t)(p - buf)))
		return false;
	peer->owes_hello = false;
	peer->hello_sent = peer->peer_nonce != 0;
	return true;
}

static void pack_head(const struct ib_peer *peer, uint32_t number, uint8_t *p)
{
	weft_put_le64(p, peer->iface->base.id);
	weft_put_le64(p + 8, peer->peer_nonce);
	weft_put_le32(p + 16, number);
}

static bool send_info(struct ib_conn *conn)
{
	uint8_t buf[IB_CTL_HEAD + IB_INFO_LEN];
	struct ib_conn_info info;

	pack_head(conn->peer, conn->base.number, buf);
	ib_conn_fill_info(conn, &info);
	ib_info_pack(&info, buf + IB_CTL_HEAD);
	if (ctl_send(conn->peer, IB_CTL_INFO, buf, sizeof(buf)))
		return false;
	conn->info_due = false;
	return true;
}

bool ib_peer_send_bye(struct ib_peer *peer, uint32_t number)
{
	uint8_t buf[IB_CTL_HEAD];

	if (!peer->verified)
		return false;
	pack_head(peer, number, buf);
	return !ctl_send(peer, IB_CTL_BYE, buf, sizeof(buf));
}

void ib_peer_send_gone(struct ib_peer *peer, uint32_t number, int err,
		       enum ibv_wc_status status)
{
	uint8_t buf[IB_CTL_HEAD + IB_GONE_LEN];

	if (!peer->verified)
		return;
	pack_head(peer, number, buf);
	weft_put_le32(buf + IB_CTL_HEAD, (uint32_t)-err);
	weft_put_le32(buf + IB_CTL_HEAD + 4, status);
	ctl_send(peer, IB_CTL_GONE, buf, sizeof(buf));
}

void ib_peer_send(struct ib_peer *peer)
{
	struct ib_conn *conn, *tmp;

	if (peer->dead || (peer->owes_hello && !send_hello(peer)) ||
	    !peer->verified)
		return;
	weft_list_for_each (conn, tmp, &peer->conns, link) {
		if (conn->info_due && conn->qp && !send_info(conn))
			return;
		if (!conn->base.ep && !conn->base.bye_sent && conn->base.had_ep)
			weft_conn_attend(&conn->base);
	}
}

/* ---- peers --------------------------------------------------------------- */

static struct ib_peer *find_peer(struct ib_iface *iface, uint64_t id)
{
	struct ib_peer *peer, *tmp;

	weft_list_for_each (peer, tmp, &iface->peers, link)
		if (peer->id == id && !peer->dead)
			return peer;
	return NULL;
}

struct ib_peer *ib_peer_get(struct ib_iface *iface,
			    const struct weft_address *addr)
{
	const uint64_t id = weft_key_id(addr->key);
	struct ib_peer *peer = find_peer(iface, id);
	int err;

	if (peer) {
		errno = EACCES;
		return memcmp(peer->addr.key, addr->key, WEFT_KEY_LEN) ? NULL
								       : peer;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer) {
		errno = ENOMEM;
		return NULL;
	}
	peer->iface = iface;
	peer->addr = *addr;
	peer->id = id;
	peer->owes_hello = true;
	weft_list_init(&peer->conns);
	do {
		err = weft_random(&peer->my_nonce, sizeof(peer->my_nonce));
	} while (!err && !peer->my_nonce);
	if (!err)
		err = weft_tcp_ops.ep_create(iface->ctl, addr, peer,
					     &peer->ctl);
	if (err) {
		free(peer);
		errno = -err;
		return NULL;
	}
	weft_list_add_tail(&iface->peers, &peer->link);
	ib_peer_send(peer);
	return peer;
}

struct ib_conn *ib_peer_conn(struct ib_peer *peer, uint32_t number)
{
	struct ib_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &peer->conns, link)
		if (conn->base.number == number)
			return conn;
	return NULL;
}

static void peer_free(struct ib_peer *peer)
{
	if (!peer->dead)
		weft_tcp_ops.ep_destroy(peer->ctl);
	weft_list_del(&peer->link);
	weft_wipe(peer, sizeof(*peer));
	free(peer);
}

void ib_peers_reap(struct ib_iface *iface)
{
	struct ib_peer *peer, *tmp;

	weft_list_for_each (peer, tmp, &iface->peers, link)
		if (peer->dead && weft_list_empty(&peer->conns))
			peer_free(peer);
}

void ib_peers_close(struct ib_iface *iface)
{
	struct ib_peer *peer, *tmp;

	weft_list_for_each (peer, tmp, &iface->peers, link)
		peer_free(peer);
}

/* ---- what arrives -------------------------------------------------------- */

static void on_hello(struct ib_iface *iface, const uint8_t *p, size_t len)
{
	struct weft_address addr;
	struct ib_peer *peer;
	uint64_t nonce, echo;
	size_t dev;

	if (len < 1 + WEFT_IFACE_ADDR_LEN + 16)
		return;
	dev = p[0];
	if (len != 1 + WEFT_IFACE_ADDR_LEN + dev + 16 ||
	    weft_address_unpack(p + 1, WEFT_IFACE_ADDR_LEN,
				p + 1 + WEFT_IFACE_ADDR_LEN, dev, &addr))
		return;
	nonce = weft_get_le64(p + len - 16);
	echo = weft_get_le64(p + len - 8);
	peer = ib_peer_get(iface, &addr);
	if (!peer || peer->verified || !nonce)
		return;
	if (nonce != peer->peer_nonce)
		peer->hello_sent = false;
	peer->peer_nonce = nonce;
	peer->verified = echo == peer->my_nonce;
	peer->owes_hello |= !peer->hello_sent;
	ib_peer_send(peer);
}

static void on_info(struct ib_peer *peer, uint32_t number, const uint8_t *p,
		    size_t len)
{
	struct ib_conn *conn = ib_peer_conn(peer, number);
	struct ib_conn_info info;

	if (len != IB_INFO_LEN)
		return;
	ib_info_unpack(p, &info);
	if (!conn)
		conn = ib_conn_new(peer, number);
	if (conn)
		ib_conn_info(conn, &info);
	else
		ib_peer_send_gone(peer, number, -ENOTCONN, IBV_WC_SUCCESS);
}

/*
 * A request that the peer's adapter refused fails here as well, with the same
 * reason; the adapter's answer may come after the peer's message, and Soft-RoCE
 * sometimes loses it.
 */
static void await_refusal(struct ib_conn *conn)
{
	const uint64_t end = weft_now_ms() + IB_REFUSAL_MS;

	do {
		ib_done_gather(conn->iface);
	} while (!conn->base.err && ib_done_pending(conn) &&
		 weft_now_ms() < end);
}

/* The other side failed first and sends the cause. */
static void on_gone(struct ib_conn *conn, const uint8_t *p, size_t len)
{
	uint32_t status = len == IB_GONE_LEN ? weft_get_le32(p + 4) : 0;

	if (status == IBV_WC_WR_FLUSH_ERR)
		await_refusal(conn);
	if (conn->base.err)
		return;
	ib_conn_break(conn, -ECONNRESET);
	if (!conn->base.ep || len != IB_GONE_LEN)
		return; /* no endpoint here is affected */
	weft_warn("'%s' lost its peer %016llx: the peer said '%s'",
		  conn->iface->port.name, (unsigned long long)conn->peer->id,
		  status ? weft_wc_name((enum ibv_wc_status)status)
			 : strerror((int)weft_get_le32(p)));
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	struct ib_iface *iface = arg;
	const uint8_t *p = data;
	struct ib_peer *peer;
	struct ib_conn *conn;
	uint32_t number;

	if (iface->closing)
		return;
	if (id == IB_CTL_HELLO) {
		on_hello(iface, p, len);
		return;
	}
	if (len < IB_CTL_HEAD)
		return;
	peer = find_peer(iface, weft_get_le64(p));
	number = weft_get_le32(p + 16);
	if (!peer || weft_get_le64(p + 8) != peer->my_nonce)
		return;
	if (id == IB_CTL_INFO) {
		on_info(peer, number, p + IB_CTL_HEAD, len - IB_CTL_HEAD);
		return;
	}
	conn = ib_peer_conn(peer, number);
	if (!conn)
		return;
	if (id == IB_CTL_BYE) {
		conn->base.bye_received = true;
		weft_conn_attend(&conn->base);
	} else if (id == IB_CTL_GONE) {
		on_gone(conn, p + IB_CTL_HEAD, len - IB_CTL_HEAD);
	}
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	struct ib_peer *peer = user;
	struct ib_conn *conn, *tmp;
	bool live = false;

	peer->dead = true;
	weft_list_for_each (conn, tmp, &peer->conns, link) {
		/* a peer that has sent BYE may leave */
		live |= conn->base.ep && !conn->base.bye_received &&
			!conn->base.err;
		ib_conn_break(conn, err);
	}
	/* a peer that never connected is not lost: tcp has logged why */
	if (live && peer->verified && err != -ESHUTDOWN)
		weft_warn(
			"'%s' lost its peer %016llx: its TCP connection ended (%s)",
			peer->iface->port.name, (unsigned long long)peer->id,
			strerror(-err));
	weft_tcp_ops.ep_destroy(ep);
	/* others are freed with their last connection */
	if (weft_list_empty(&peer->conns))
		peer_free(peer);
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	ib_peer_send(user);
}

const struct weft_iface_cb ib_ctl_callbacks = {
	.on_message = on_message,
	.on_notify = on_notify,
	.on_error = on_error,
	.on_ready = on_ready,
};

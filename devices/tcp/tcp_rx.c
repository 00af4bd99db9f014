/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives frames on the message stream.  All connections of an iface read into
 * one shared buffer.  If a frame is incomplete, its connection borrows that
 * buffer until it is whole, and the others read into a second one; if that is
 * lent, too, the beginning of the frame is copied.  Bounds are checked before
 * anything is used.
 */
#include "devices/tcp/tcp_rx.h"
#include "devices/tcp/bulk/tcp_bulk.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/tcp_conn.h"
#include "devices/tcp/tcp_dial.h"
#include "devices/tcp/tcp_fail.h"
#include "devices/tcp/tcp_get.h"
#include "devices/tcp/tcp_place.h"
#include "devices/tcp/tcp_put.h"
#include "devices/tcp/tcp_stall.h"
#include "devices/tcp/tcp_tx.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "util/bytes.h"
#include "util/log.h"
#include "util/util.h"

/*
 * A message that arrives before its puts is deferred, and with it all messages
 * behind it.  Other frames are handled, since they may end the wait, so the
 * stream is always read.  The peer bounds what is deferred (TCP_MAX_UNPLACED).
 */
struct deferred_message {
	struct weft_list link;
	uint64_t fence;
	uint32_t len;
	uint8_t id;
	uint8_t data[];
};

/* May this stream and this progress() take another frame or message? */
static bool may_deliver(const struct tcp_conn *conn)
{
	return conn->iface->budget > conn->iface->floor &&
	       !tcp_events_full(conn);
}

static void spend(struct tcp_iface *iface, unsigned int cost)
{
	iface->budget -= weft_min(iface->budget, cost);
}

static void tcp_deliver_message(struct tcp_conn *conn, uint8_t id,
				uint64_t fence, void *data, size_t len)
{
	struct weft_iface_cb *cb = &conn->iface->base.iface.cb;

	if (conn->iface->closing || fence > conn->cut)
		return;
	spend(conn->iface, TCP_CALLBACK);
	weft_count(conn->stats, rx_messages, 1);
	weft_count(conn->stats, rx_message_bytes, len);
	cb->on_message(cb->arg, id, data, len);
}

static bool are_puts_placed(const struct tcp_conn *conn, uint64_t fence)
{
	return !fence ||
	       (conn->bulk && fence <= atomic_load(&conn->bulk->placed));
}

static unsigned int deliver_deferred(struct tcp_conn *conn)
{
	struct deferred_message *m;
	unsigned int n = 0;

	while (!weft_list_empty(&conn->deferred_messages)) {
		m = weft_list_first(&conn->deferred_messages,
				    struct deferred_message, link);
		if (!are_puts_placed(conn, m->fence) || !may_deliver(conn))
			return n;
		weft_list_del(&m->link);
		conn->deferred_bytes -= sizeof(*m) + m->len;
		spend(conn->iface, 1);
		tcp_events_notify(conn);
		tcp_deliver_message(conn, m->id, m->fence, m->data, m->len);
		free(m);
		n++;
	}
	atomic_store(&conn->deferred, false);
	return n;
}

static int take_message(struct tcp_conn *conn, uint8_t id, uint64_t fence,
			void *data, size_t len)
{
	struct deferred_message *m;

	if (id >= WEFT_MSG_IDS)
		return -EPROTO;
	/* before the callback, which may reply or end the process */
	conn->taken++;
	if (weft_list_empty(&conn->deferred_messages) &&
	    are_puts_placed(conn, fence)) {
		if (fence)
			tcp_events_notify(conn);
		tcp_deliver_message(conn, id, fence, data, len);
		return 0;
	}
	if (conn->deferred_bytes > 2 * TCP_MAX_UNPLACED)
		return -EPROTO;
	m = malloc(sizeof(*m) + len);
	if (!m)
		return -ENOMEM;
	m->id = id;
	m->fence = fence;
	m->len = len;
	weft_copy(m->data, data, len);
	weft_list_add_tail(&conn->deferred_messages, &m->link);
	conn->deferred_bytes += sizeof(*m) + len;
	/* the engine reads `deferred` after it has placed: check again */
	atomic_store(&conn->deferred, true);
	deliver_deferred(conn);
	return 0;
}

bool tcp_conn_has_pending(const struct tcp_conn *conn)
{
	return !weft_list_empty(&conn->rx_pending_link) ||
	       (!weft_list_empty(&conn->deferred_messages) &&
		are_puts_placed(conn,
				weft_list_first(&conn->deferred_messages,
						struct deferred_message, link)
					->fence));
}

static void free_rx(struct tcp_conn *conn)
{
	if (conn->rx_lent)
		conn->iface->rxnext = conn->rx;
	else
		free(conn->rx);
	conn->rx = NULL;
	conn->rx_lent = false;
	conn->rx_off = conn->rx_len = conn->rx_cap = 0;
}

void tcp_conn_drop_received(struct tcp_conn *conn)
{
	struct deferred_message *m, *tm;

	weft_list_for_each (m, tm, &conn->deferred_messages, link) {
		weft_list_del(&m->link);
		free(m);
	}
	free_rx(conn);
}

static int take_acks(struct tcp_conn *conn, const uint8_t *p, size_t len)
{
	int err = len && len % TCP_ACK_LEN == 0 ? 0 : -EPROTO;

	for (; len && !err; p += TCP_ACK_LEN, len -= TCP_ACK_LEN)
		err = tcp_bulk_acked(conn, weft_get_le64(p),
				     (int32_t)weft_get_le32(p + 8), false);
	return err;
}

static int take_failure(struct tcp_conn *conn, const uint8_t *p)
{
	const uint64_t id = weft_get_le64(p);
	const int status = (int32_t)weft_get_le32(p + 12);

	if (status >= 0)
		return -EPROTO;
	if (weft_get_le32(p + 8) & TCP_FAIL_GET)
		tcp_get_failed(conn, id, status);
	else
		tcp_put_failed(conn, id, status);
	tcp_conn_failed(conn);
	return 0;
}

/* The peer has taken @n messages. */
static int take_count(struct tcp_conn *conn, uint64_t n)
{
	if (n < conn->acked || n > conn->sent)
		return -EPROTO;
	if (n != conn->acked && conn->base.ep && conn->base.ep->nflushes)
		weft_conn_attend(&conn->base);
	conn->acked = n;
	return 0;
}

/* A head has the last 16 bits of the count: larger steps are underestimated. */
static int take_head(struct tcp_conn *conn, const uint8_t *head)
{
	const uint16_t more = weft_get_le16(head + 2) - (uint16_t)conn->acked;

	return more ? take_count(conn, conn->acked + more) : 0;
}

/* Answer at once: the next callback may end the process. */
static int answer_ask(struct tcp_conn *conn)
{
	uint8_t body[8];

	weft_put_le64(body, conn->taken);
	tcp_conn_send_control(conn, TCP_FRAME_TAKEN, body, sizeof(body));
	tcp_conn_write_gathered(conn);
	return 0;
}

static int ask_answered(struct tcp_conn *conn, uint64_t taken)
{
	if (!conn->asks)
		return -EPROTO;
	conn->asks--;
	weft_conn_attend(&conn->base);
	return take_count(conn, taken);
}

static int dispatch_frame(struct tcp_conn *conn, uint8_t *f, size_t len)
{
	uint8_t *p = f + TCP_FRAME_LEN;
	int ret;
	static const size_t fixed[TCP_FRAME_TYPES] = {
		[TCP_FRAME_PUT_ABORT] = 8,
		[TCP_FRAME_FAIL] = TCP_FAIL_LEN,
		[TCP_FRAME_WELCOME] = 8,
		[TCP_FRAME_STREAMS] = 4,
		[TCP_FRAME_DROP] = 4,
		[TCP_FRAME_TAKEN] = 8,
		[TCP_FRAME_CLOSE] = TCP_CLOSE_LEN,
	};

	if (f[0] < TCP_FRAME_TYPES && fixed[f[0]] && fixed[f[0]] != len)
		return -EPROTO;
	ret = take_head(conn, f);
	if (ret)
		return ret;
	switch (f[0]) {
	case TCP_FRAME_MESSAGE:
		return take_message(conn, f[1], weft_get_le64(f + 8), p, len);
	case TCP_FRAME_PUT:
		return tcp_place_frame(conn, p, len);
	case TCP_FRAME_PUT_ACK:
		return take_acks(conn, p, len);
	case TCP_FRAME_PUT_ABORT:
		return tcp_place_abort(conn, p);
	case TCP_FRAME_GET:
		return tcp_get_asked(conn, p, len);
	case TCP_FRAME_GET_DATA:
		return tcp_get_answered(conn, p, len);
	case TCP_FRAME_FAIL:
		return take_failure(conn, p);
	case TCP_FRAME_WELCOME:
		conn->token = weft_get_le64(p);
		tcp_streams_open(conn);
		return 0;
	case TCP_FRAME_STREAMS:
		return tcp_streams_asked(conn, weft_get_le32(p));
	case TCP_FRAME_BYE:
		conn->base.bye_received = true;
		return 0;
	case TCP_FRAME_CLOSE:
		conn->close_received = true;
		return take_count(conn, weft_get_le64(p));
	case TCP_FRAME_ASK:
		return answer_ask(conn);
	case TCP_FRAME_TAKEN:
		return ask_answered(conn, weft_get_le64(p));
	case TCP_FRAME_DROP:
		return tcp_stall_drop(conn, p);
	case TCP_FRAME_DROPPED:
		return tcp_stall_dropped(conn, p, len);
	default:
		return -EPROTO;
	}
}

static bool whole_frame(const uint8_t *p, size_t n)
{
	return n >= TCP_FRAME_LEN && n - TCP_FRAME_LEN >= weft_get_le32(p + 4);
}

/* Does the rx buffer, if any, begin with a whole frame? */
static bool holds_frame(const struct tcp_conn *conn)
{
	return conn->rx_len &&
	       whole_frame(conn->rx + conn->rx_off, conn->rx_len);
}

/* Delivers whole frames of @p within the budget; bytes used, or -errno. */
static ssize_t deliver_frames(struct tcp_conn *conn, uint8_t *p, size_t n,
			      unsigned int *frames)
{
	size_t used = 0, len;
	int ret;

	while (n - used >= TCP_FRAME_LEN &&
	       conn->base.state == WEFT_CONN_OPEN && !conn->base.err &&
	       may_deliver(conn)) {
		len = weft_get_le32(p + used + 4);
		if (len > TCP_MAX_FRAME)
			return -EPROTO;
		if (n - used < TCP_FRAME_LEN + len)
			break;
		spend(conn->iface, 1);
		ret = dispatch_frame(conn, p + used, len);
		if (ret)
			return ret;
		++*frames;
		used += TCP_FRAME_LEN + len;
	}
	return used;
}

/* Room for the frame that begins at rx_off, whose head may be incomplete. */
static int tcp_make_room(struct tcp_conn *conn)
{
	size_t need = TCP_FRAME_LEN;
	uint8_t *p = conn->rx + conn->rx_off;

	if (holds_frame(conn))
		return 0;
	if (conn->rx_len >= TCP_FRAME_LEN)
		need += weft_get_le32(p + 4);
	if (need > TCP_FRAME_LEN + TCP_MAX_FRAME)
		return -EPROTO;
	if (conn->rx_off + need <= conn->rx_cap)
		return 0;
	memmove(conn->rx, p, conn->rx_len);
	conn->rx_off = 0;
	if (need <= conn->rx_cap)
		return 0;
	p = realloc(conn->rx, need);
	if (!p)
		return -ENOMEM;
	conn->rx = p;
	conn->rx_cap = need;
	return 0;
}

/* Saves [p, p+n), which is in iface->rxbuf. */
static int save_rx(struct tcp_conn *conn, const uint8_t *p, size_t n)
{
	struct tcp_iface *iface = conn->iface;
	size_t cap = weft_max(n, TCP_FRAME_LEN);

	if (iface->rxnext) {
		conn->rx = iface->rxbuf;
		conn->rx_lent = true;
		conn->rx_off = p - iface->rxbuf;
		conn->rx_cap = TCP_RX_BUF;
		iface->rxbuf = iface->rxnext;
		iface->rxnext = NULL;
	} else {
		conn->rx = malloc(cap);
		if (!conn->rx)
			return -ENOMEM;
		weft_copy(conn->rx, p, n);
		conn->rx_off = 0;
		conn->rx_cap = cap;
	}
	conn->rx_len = n;
	return tcp_make_room(conn);
}

static int deliver_saved(struct tcp_conn *conn, unsigned int *frames)
{
	ssize_t used = deliver_frames(conn, conn->rx + conn->rx_off,
				      conn->rx_len, frames);

	if (used < 0)
		return used;
	conn->rx_off += used;
	conn->rx_len -= used;
	if (!conn->rx_len) {
		free_rx(conn);
		return 0;
	}
	return tcp_make_room(conn);
}

/* Updates iface->deferred. */
static void update_deferred(struct tcp_conn *conn)
{
	bool on = atomic_load(&conn->deferred);

	if (on == weft_list_empty(&conn->deferred_link)) {
		if (on)
			weft_list_add_tail(&conn->iface->deferred,
					   &conn->deferred_link);
		else
			weft_list_del(&conn->deferred_link);
	}
}

/* 1: there may be more; 0: the socket is drained; -errno */
static int receive_once(struct tcp_conn *conn, unsigned int *frames)
{
	struct tcp_iface *iface = conn->iface;
	uint8_t *buf = iface->rxbuf;
	size_t room = conn->rx_limited ? TCP_RX_PART : TCP_RX_BUF;
	ssize_t n, used;
	int err;

	if (holds_frame(conn)) {
		err = deliver_saved(conn, frames);
		if (err)
			return err;
		return conn->close_received ? -ESHUTDOWN : 1;
	}
	if (conn->rx_len) {
		buf = conn->rx + conn->rx_off + conn->rx_len;
		room = conn->rx_cap - conn->rx_off - conn->rx_len;
	}
	do
		n = recv(conn->fd, buf, room, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	if (!n)
		return -ECONNRESET;
	weft_count(conn->stats, wire_rx_bytes, n);
	if (conn->rx_len) {
		conn->rx_len += n;
		err = deliver_saved(conn, frames);
	} else {
		used = deliver_frames(conn, buf, n, frames);
		if (used < 0)
			return used;
		err = used < n ? save_rx(conn, buf + used, n - used) : 0;
		conn->rx_limited = holds_frame(conn);
	}
	if (err)
		return err;
	if (conn->close_received) /* nothing follows, except perhaps a reset */
		return -ESHUTDOWN;
	/* a short read drained the socket */
	return (size_t)n == room || holds_frame(conn);
}

unsigned int tcp_conn_receive(struct tcp_conn *conn)
{
	struct tcp_iface *iface = conn->iface;
	unsigned int frames = 0, rounds = 8;
	int ret = 1;

	if (conn->in_rx || conn->base.state != WEFT_CONN_OPEN || conn->base.err)
		return 0;
	conn->in_rx = true;
	iface->floor = iface->budget - weft_min(iface->budget, TCP_SHARE);
	if (atomic_load(&conn->deferred)) {
		frames += deliver_deferred(conn);
		tcp_conn_write_gathered(conn);
	}
	while (ret > 0 && rounds-- && conn->base.state == WEFT_CONN_OPEN &&
	       !conn->base.err && !conn->rx_ended && may_deliver(conn)) {
		ret = receive_once(conn, &frames);
		if (ret < 0) /* the peer no longer reads answers */
			break;
		tcp_get_answer(conn);
		tcp_conn_write_gathered(conn);
	}
	conn->in_rx = false;
	if (conn->base.state != WEFT_CONN_OPEN)
		return frames + 1;
	update_deferred(conn);
	weft_list_del(&conn->rx_pending_link);
	/* after those that have not had their turn */
	if (!conn->failed &&
	    (conn->rx_ended ? tcp_conn_has_pending(conn) : ret > 0))
		weft_list_add_tail(&iface->rx_pending, &conn->rx_pending_link);
	tcp_conn_maybe_end(conn);
	if (ret == -ESHUTDOWN || conn->rx_ended) {
		tcp_conn_end(conn);
		return frames + (ret < 0);
	}
	if (ret < 0) {
		if (ret == -EPROTO)
			weft_error(
				"peer %016llx sent a frame that breaks the protocol; the connection is closed",
				(unsigned long long)conn->base.peer_id);
		tcp_conn_break(conn, ret);
		return frames + 1;
	}
	return frames;
}

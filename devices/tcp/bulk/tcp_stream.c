/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One bulk socket: chunks one way, acknowledgements the other.  Runs under its
 * engine's lock, in whatever thread moves the engine.
 */
#include "devices/tcp/bulk/tcp_stream.h"
#include "devices/tcp/bulk/tcp_engine.h"
#include "devices/tcp/bulk/tcp_event.h"
#include "devices/tcp/bulk/tcp_land.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "util/bytes.h"
#include "util/clock.h"

/* Gives the engine's other streams a turn; a read costs as much as some KiB. */
#define RX_BUDGET (2u << 20)
#define RX_READ	  (4u << 10)

static uint8_t drain[64 << 10]; /* for bytes to discard */

/* -ECANCELED: the source of a peer's get was revoked meanwhile. */
static ssize_t send_piece(struct tcp_stream *s)
{
	struct iovec iov[TCP_MAX_IOV + 1];
	struct msghdr msg = { .msg_iov = iov };
	struct tcp_put *put = s->out_chunk->put;
	size_t off = s->out_chunk->off + s->out_chunk->len - s->out_left;
	unsigned int n = 0;
	ssize_t sent;

	if (s->head_done < s->head_len) {
		iov[0].iov_base = s->head + s->head_done;
		iov[0].iov_len = s->head_len - s->head_done;
		n = 1;
	}
	if (put->source_checked &&
	    !weft_region_get(&put->source_key,
			     (uintptr_t)put->iov[0].iov_base + off,
			     s->out_left))
		return -ECANCELED;
	msg.msg_iovlen = n + tcp_iov_slice(put->iov, put->iovcnt, off,
					   s->out_left, iov + n);
	sent = sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0)
		sent = -errno;
	if (put->source_checked)
		weft_region_put(&put->source_key);
	return sent;
}

/* The next chunk, behind the one that it has @sent; 1: there is one. */
static int next_chunk(struct tcp_stream *s, const struct tcp_chunk *sent)
{
	int err;

	s->out_chunk = tcp_bulk_next_chunk(s, sent, s->head, &err);
	if (!s->out_chunk)
		return err;
	s->head_len = TCP_CHUNK_LEN;
	s->head_done = 0;
	s->out_left = s->out_chunk->len;
	s->used_ms = weft_now_ms();
	return 1;
}

/*
 * Sends one chunk at most, so that other streams get their share; 1: there are
 * more.
 */
static int stream_out(struct tcp_stream *s)
{
	size_t head;
	ssize_t n;
	int ret;

	if (!s->out_chunk) {
		ret = next_chunk(s, NULL);
		if (ret <= 0)
			return ret;
	}
	while (s->head_done < s->head_len || s->out_left) {
		n = send_piece(s);
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN) {
			atomic_store(&s->writable, false);
			return 0;
		}
		if (n < 0) /* -EFAULT: the source is unmapped */
			return n == -EFAULT ? -ECANCELED : n;
		weft_count(s->conn->stats, wire_tx_bytes, n);
		head = weft_min(n, s->head_len - s->head_done);
		s->head_done += head;
		s->out_left -= n - head;
	}
	return next_chunk(s, s->out_chunk);
}

/* Acknowledgements come back on a stream that sends. */
static int read_acks(struct tcp_stream *s)
{
	unsigned int off;
	ssize_t n;
	int err;

	for (;;) {
		n = recv(s->fd, s->rx_head + s->rx_have,
			 TCP_CHUNK_LEN - s->rx_have, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			s->readable = false;
			return 0;
		}
		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		weft_count(s->conn->stats, wire_rx_bytes, n);
		s->rx_have += n;
		for (off = 0; s->rx_have - off >= TCP_ACK_LEN;
		     off += TCP_ACK_LEN) {
			err = tcp_bulk_acked(
				s->conn, weft_get_le64(s->rx_head + off),
				(int32_t)weft_get_le32(s->rx_head + off + 8),
				false);
			if (err)
				return err;
		}
		memmove(s->rx_head, s->rx_head + off, s->rx_have - off);
		s->rx_have -= off;
	}
}

static int send_acks(struct tcp_stream *s)
{
	ssize_t n;

	while (s->ack_len) {
		n = send(s->fd, s->ack_buf, s->ack_len,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			atomic_store(&s->writable, false);
			return 0;
		}
		if (n < 0)
			return -errno;
		weft_count(s->conn->stats, wire_tx_bytes, n);
		s->ack_len -= n;
		memmove(s->ack_buf, s->ack_buf + n, s->ack_len);
	}
	return 0;
}

static int queue_ack(struct tcp_stream *s, uint64_t seq, int status)
{
	uint8_t *p;

	/* more than the window, over all streams */
	if (s->ack_len >= TCP_WINDOW * TCP_ACK_LEN)
		return -EPROTO;
	if (s->ack_len + TCP_ACK_LEN > s->ack_cap) {
		p = realloc(s->ack_buf, s->ack_cap + 16 * TCP_ACK_LEN);
		if (!p)
			return -ENOMEM;
		s->ack_buf = p;
		s->ack_cap += 16 * TCP_ACK_LEN;
	}
	p = s->ack_buf + s->ack_len;
	weft_put_le64(p, seq);
	weft_put_le32(p + 8, (uint32_t)status);
	weft_put_le32(p + 12, 0);
	s->ack_len += TCP_ACK_LEN;
	return send_acks(s);
}

static int chunk_begins(struct tcp_stream *s)
{
	int land;

	tcp_chunk_decode(s->rx_head, &s->chunk);
	land = tcp_land_begin(s->conn, &s->chunk);
	if (land < 0)
		return land;
	s->rx_busy = true;
	s->rx_have = 0;
	s->rx_status = 0;
	s->rx_drain = !land;
	s->rx_addr = s->chunk.addr + s->chunk.offset;
	s->rx_left = s->chunk.len;
	s->used_ms = weft_now_ms();
	return 0;
}

/*
 * The caller acknowledges its gets itself if it moves the streams: by the frame
 * that asks for the next one, if that comes first.
 */
static int chunk_ends(struct tcp_stream *s)
{
	const bool by_caller =
		s->chunk.flags & TCP_CHUNK_GET && !s->engine->has_thread;
	int placed, result;

	s->rx_busy = false;
	if (s->rx_status)
		weft_count(s->conn->stats, key_errors, 1);
	s->taken++;
	placed = tcp_land_end(s->conn, &s->chunk, s->rx_status,
			      by_caller ? 0 : s->id, &result);
	if (placed <= 0 || by_caller)
		return weft_min(placed, 0);
	return queue_ack(s, s->chunk.seq, result);
}

/*
 * Reads directly into the target, and the next chunk's header in the same call.
 * The key is checked before each call, so revoking it stops a chunk half way;
 * and for the whole put, so that a put beyond it is refused from the start.
 * -EACCES: the put cannot be placed.
 */
static ssize_t read_piece(struct tcp_stream *s)
{
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	ssize_t n;

	iov[1].iov_base = s->rx_head;
	iov[1].iov_len = TCP_CHUNK_LEN;
	if (!s->rx_busy) {
		iov[1].iov_base = s->rx_head + s->rx_have;
		iov[1].iov_len = TCP_CHUNK_LEN - s->rx_have;
		msg.msg_iov = &iov[1];
		msg.msg_iovlen = 1;
		n = recvmsg(s->fd, &msg, MSG_DONTWAIT);
		return n < 0 ? -errno : n;
	}
	if (!s->rx_drain) {
		n = -EFAULT;
		if (weft_region_get(&s->chunk.rkey, s->chunk.addr,
				    s->chunk.total)) {
			iov[0].iov_base = (void *)(uintptr_t)s->rx_addr;
			iov[0].iov_len = s->rx_left;
			n = recvmsg(s->fd, &msg, MSG_DONTWAIT);
			n = n < 0 ? -errno : n;
			weft_region_put(&s->chunk.rkey);
		}
		if (n != -EFAULT)
			return n;
		s->rx_status = -EACCES;
		/* data for a cancelled get are no failure */
		if (!(s->chunk.flags & TCP_CHUNK_GET))
			return s->rx_status;
		s->rx_drain = true;
	}
	iov[0].iov_base = drain;
	iov[0].iov_len = weft_min(s->rx_left, sizeof(drain));
	if (s->rx_left > sizeof(drain))
		msg.msg_iovlen = 1;
	n = recvmsg(s->fd, &msg, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

static int stream_in(struct tcp_stream *s, bool *again)
{
	size_t budget = RX_BUDGET, part;
	ssize_t n;
	int err;

	while (s->readable) {
		if (tcp_events_full(s->conn)) /* tcp_engines_resume() */
			return 0;
		if (!budget) {
			*again = true;
			return 0;
		}
		n = read_piece(s);
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN) {
			s->readable = false;
			return 0;
		}
		if (n <= 0)
			return n ? n : -ECONNRESET;
		weft_count(s->conn->stats, wire_rx_bytes, n);
		budget -= weft_min(budget, weft_max(n, RX_READ));
		part = weft_min(n, s->rx_busy ? s->rx_left : 0);
		s->rx_addr += part;
		s->rx_left -= part;
		s->rx_have += n - part;
		if (s->rx_busy && !s->rx_left) {
			err = chunk_ends(s);
			if (err)
				return err;
		}
		while (!s->rx_busy && s->rx_have == TCP_CHUNK_LEN) {
			err = chunk_begins(s);
			if (!err && !s->rx_left)
				err = chunk_ends(s);
			if (err)
				return err;
		}
	}
	return 0;
}

int tcp_stream_io(struct tcp_stream *s, bool *again)
{
	int ret;

	if (!s->out) {
		ret = atomic_load(&s->writable) ? send_acks(s) : 0;
		return ret ? ret : stream_in(s, again);
	}
	if (s->readable) {
		ret = read_acks(s);
		if (ret)
			return ret;
	}
	if (atomic_load(&s->writable)) {
		ret = stream_out(s);
		if (ret < 0)
			return ret;
		if (ret)
			*again = true;
	}
	return 0;
}

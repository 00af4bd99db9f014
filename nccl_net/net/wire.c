/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>
#include "nccl_net/net/wire.h"
#include "util/bytes.h"
#include "util/util.h"

/* Interface part and device part; @room is what is left of the buffer. */
static size_t pack_path(const struct weft_address *a, uint8_t *buf, size_t room)
{
	uint8_t dev[WEFT_DEV_ADDR_MAX];
	size_t n = weft_address_pack_dev(a, dev);

	if (WEFT_IFACE_ADDR_LEN + n > room)
		return 0;
	weft_address_pack_iface(a, buf);
	memcpy(buf + WEFT_IFACE_ADDR_LEN, dev, n);
	return WEFT_IFACE_ADDR_LEN + n;
}

/* The length that was read, or -EINVAL. */
static ssize_t unpack_path(const uint8_t *buf, size_t len,
			   struct weft_address *a)
{
	uint8_t dev[WEFT_DEV_ADDR_MAX];

	if (len < WEFT_IFACE_ADDR_LEN ||
	    weft_address_unpack(buf, WEFT_IFACE_ADDR_LEN,
				buf + WEFT_IFACE_ADDR_LEN,
				len - WEFT_IFACE_ADDR_LEN, a) < 0)
		return -EINVAL;
	return WEFT_IFACE_ADDR_LEN + (ssize_t)weft_address_pack_dev(a, dev);
}

unsigned int weft_handle_pack(const struct weft_handle *h, void *buf)
{
	uint8_t *p = buf;
	size_t at = WEFT_HANDLE_PATHS, n;
	unsigned int i, paths = 0, wires = 0;

	memset(p, 0, WEFT_NET_HANDLE);
	for (i = 0; i < h->n; i++) {
		n = pack_path(&h->path[i], p + at, WEFT_NET_HANDLE - at);
		if (!n)
			continue; /* a shorter one may still fit */
		at += n;
		wires |= h->wire[i] << 2 * paths++;
	}
	weft_put_le32(p, WEFT_HANDLE_MAGIC);
	p[4] = WEFT_HANDLE_VERSION;
	p[5] = paths | wires << 2;
	p[6] = h->channels;
	p[7] = h->buffer;
	weft_put_le64(p + 8, h->token);
	weft_put_le64(p + WEFT_HANDLE_STAGE, h->stage);
	return paths;
}

int weft_handle_unpack(const void *buf, struct weft_handle *h)
{
	struct weft_handle out = { 0 };
	const uint8_t *p = buf;
	size_t at = WEFT_HANDLE_PATHS;
	unsigned int paths;
	ssize_t n;

	if (weft_get_le32(p) != WEFT_HANDLE_MAGIC)
		return -EPROTO;
	if (p[4] != WEFT_HANDLE_VERSION)
		return -EPROTONOSUPPORT;
	paths = p[5] & 3;
	if (!paths || p[5] >> 2 * (paths + 1))
		return -EINVAL;
	out.channels = p[6];
	out.buffer = p[7];
	out.token = weft_get_le64(p + 8);
	out.stage = weft_get_le64(p + WEFT_HANDLE_STAGE);
	for (out.n = 0; out.n < paths; out.n++) {
		out.wire[out.n] = p[5] >> 2 * (out.n + 1) & 3;
		if (out.wire[out.n] > WEFT_WIRE_TCP)
			return -EINVAL;
		n = unpack_path(p + at, WEFT_NET_HANDLE - at, &out.path[out.n]);
		if (n < 0)
			return -EINVAL;
		at += n;
	}
	*h = out;
	return 0;
}

size_t weft_msg_connect_pack(const struct weft_msg_connect *m, void *buf)
{
	uint8_t *p = buf;

	weft_put_le64(p, m->listener);
	weft_put_le64(p + 8, m->token);
	weft_put_le32(p + 16, m->id);
	weft_put_le32(p + 20, m->path);
	return 24 + pack_path(&m->from, p + 24, WEFT_MSG_CONNECT_MAX - 24);
}

int weft_msg_connect_unpack(const void *buf, size_t len,
			    struct weft_msg_connect *m)
{
	struct weft_msg_connect out;
	const uint8_t *p = buf;
	uint32_t path;

	if (len < 24 || len > WEFT_MSG_CONNECT_MAX)
		return -EINVAL;
	out.listener = weft_get_le64(p);
	out.token = weft_get_le64(p + 8);
	out.id = weft_get_le32(p + 16);
	path = weft_get_le32(p + 20);
	if (path > UINT8_MAX)
		return -EINVAL;
	out.path = path;
	if (unpack_path(p + 24, len - 24, &out.from) != (ssize_t)len - 24)
		return -EINVAL;
	*m = out;
	return 0;
}

void weft_msg_accept_pack(const struct weft_msg_accept *m, void *buf)
{
	uint8_t *p = buf;

	weft_put_le64(p, m->token);
	weft_put_le32(p + 8, m->to);
	weft_put_le32(p + 12, m->id);
	weft_put_le32(p + 16, m->eager);
	weft_put_le32(p + 20, m->path);
}

int weft_msg_accept_unpack(const void *buf, size_t len,
			   struct weft_msg_accept *m)
{
	const uint8_t *p = buf;
	uint32_t path;

	if (len != WEFT_MSG_ACCEPT_LEN)
		return -EINVAL;
	path = weft_get_le32(p + 20);
	if (path > UINT8_MAX)
		return -EINVAL;
	m->token = weft_get_le64(p);
	m->to = weft_get_le32(p + 8);
	m->id = weft_get_le32(p + 12);
	m->eager = weft_get_le32(p + 16);
	m->path = path;
	return 0;
}

size_t weft_msg_post_pack(const struct weft_msg_post *m, void *buf)
{
	uint8_t *p = buf;

	weft_put_le32(p, m->to);
	weft_put_le32(p + 4, m->seq);
	weft_put_le64(p + 8, m->addr);
	weft_put_le64(p + 16, m->size);
	p[24] = m->rkey_len;
	memcpy(p + 25, m->rkey, m->rkey_len);
	return WEFT_MSG_POST_LEN(m->rkey_len);
}

ssize_t weft_msg_post_unpack(const void *buf, size_t len,
			     struct weft_msg_post *m)
{
	const uint8_t *p = buf;

	if (len < WEFT_MSG_POST_LEN(0) || len < WEFT_MSG_POST_LEN(p[24]))
		return -EINVAL;
	m->to = weft_get_le32(p);
	m->seq = weft_get_le32(p + 4);
	m->addr = weft_get_le64(p + 8);
	m->size = weft_get_le64(p + 16);
	m->rkey_len = p[24];
	m->rkey = p + 25;
	return WEFT_MSG_POST_LEN(m->rkey_len);
}

void weft_msg_seq_pack(const struct weft_msg_seq *m, void *buf)
{
	weft_put_le32(buf, m->to);
	weft_put_le32((uint8_t *)buf + 4, m->seq);
}

int weft_msg_seq_unpack(const void *buf, size_t len, struct weft_msg_seq *m)
{
	if (len < WEFT_MSG_SEQ_LEN)
		return -EINVAL;
	m->to = weft_get_le32(buf);
	m->seq = weft_get_le32((const uint8_t *)buf + 4);
	return 0;
}

void weft_msg_too_large_pack(const struct weft_msg_too_large *m, void *buf)
{
	uint8_t *p = buf;

	weft_put_le32(p, m->to);
	weft_put_le32(p + 4, m->seq);
	weft_put_le64(p + 8, m->sent);
	weft_put_le64(p + 16, m->posted);
}

int weft_msg_too_large_unpack(const void *buf, size_t len,
			      struct weft_msg_too_large *m)
{
	const uint8_t *p = buf;

	if (len != WEFT_MSG_TOO_LARGE_LEN)
		return -EINVAL;
	m->to = weft_get_le32(p);
	m->seq = weft_get_le32(p + 4);
	m->sent = weft_get_le64(p + 8);
	m->posted = weft_get_le64(p + 16);
	return 0;
}

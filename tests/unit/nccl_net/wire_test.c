/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <string.h>
#include "nccl_net/net/wire.h"

static struct weft_address address(int family, uint8_t salt)
{
	struct weft_address a = { .wire_min = WEFT_WIRE_MIN,
				  .wire_max = WEFT_WIRE_MAX,
				  .ns_id = 7 };

	memset(a.key, salt, sizeof(a.key));
	if (family == AF_INET) {
		a.sa.in.sin_family = AF_INET;
		a.sa.in.sin_port = htons(1000 + salt);
		a.sa.in.sin_addr.s_addr = htonl(0x0a000000u + salt);
	} else {
		a.sa.in6.sin6_family = AF_INET6;
		a.sa.in6.sin6_port = htons(1000 + salt);
		a.sa.in6.sin6_addr.s6_addr[0] = 0xfd;
		a.sa.in6.sin6_addr.s6_addr[15] = salt;
	}
	return a;
}

static void same(const struct weft_address *a, const struct weft_address *b)
{
	cr_expect(eq(int, memcmp(a->key, b->key, sizeof(a->key)), 0));
	cr_expect(eq(int, a->sa.sa.sa_family, b->sa.sa.sa_family));
	cr_expect(
		eq(int, memcmp(&a->sa, &b->sa, weft_sockaddr_len(&a->sa)), 0));
	cr_expect(eq(u64, a->ns_id, b->ns_id));
}

Test(wire, handle_round_trips)
{
	struct weft_handle h = { .token = 42, .n = 3 }, back;
	uint8_t buf[WEFT_NET_HANDLE];
	unsigned int i;

	for (i = 0; i < 3; i++)
		h.path[i] = address(AF_INET, i + 1);
	cr_expect(eq(uint, weft_handle_pack(&h, buf), 3));
	cr_assert(eq(int, weft_handle_unpack(buf, &back), 0));
	cr_expect(eq(u64, back.token, 42));
	cr_expect(eq(u64, back.stage, 0));
	cr_assert(eq(uint, back.n, 3));
	for (i = 0; i < 3; i++)
		same(&h.path[i], &back.path[i]);
}

Test(wire, ways_that_do_not_fit_are_left_out)
{
	struct weft_handle h = {
		.token = 42, .n = 3,
		.wire = { WEFT_WIRE_IB, WEFT_WIRE_TCP, WEFT_WIRE_IB },
	}, back;
	uint8_t buf[WEFT_NET_HANDLE];

	h.path[0] = address(AF_INET, 1);
	h.channels = 16;
	h.buffer = 8;
	h.path[1] = address(AF_INET6, 2);
	h.path[2] = address(AF_INET6, 3);
	cr_expect(eq(uint, weft_handle_pack(&h, buf), 2));
	cr_assert(eq(int, weft_handle_unpack(buf, &back), 0));
	cr_assert(eq(uint, back.n, 2));
	same(&h.path[1], &back.path[1]);
	cr_expect(eq(uint, back.wire[0], WEFT_WIRE_IB));
	cr_expect(eq(uint, back.wire[1], WEFT_WIRE_TCP));
	cr_expect(eq(uint, back.channels, 16));
	cr_expect(eq(uint, back.buffer, 8));
	/* what does not fit takes its mark along */
	h.path[0] = address(AF_INET6, 1);
	h.path[2] = address(AF_INET, 3);
	h.wire[0] = WEFT_WIRE_TCP;
	h.wire[1] = WEFT_WIRE_IB;
	h.wire[2] = WEFT_WIRE_TCP;
	h.path[1] = address(AF_INET6, 2);
	h.path[0].sa.sa.sa_family = AF_INET6;
	cr_expect(eq(uint, weft_handle_pack(&h, buf), 2));
	cr_assert(eq(int, weft_handle_unpack(buf, &back), 0));
	cr_expect(eq(uint, back.wire[0], WEFT_WIRE_TCP));
	cr_expect(eq(uint, back.wire[1], WEFT_WIRE_IB));
	/* and what comes behind it keeps its own */
	h.path[1] = address(AF_INET, 2);
	h.path[2] = address(AF_INET6, 3);
	h.wire[0] = WEFT_WIRE_IB;
	h.wire[1] = WEFT_WIRE_TCP;
	cr_expect(eq(uint, weft_handle_pack(&h, buf), 2));
	cr_assert(eq(int, weft_handle_unpack(buf, &back), 0));
	cr_expect(eq(uint, back.wire[0], WEFT_WIRE_IB));
	cr_expect(eq(uint, back.wire[1], WEFT_WIRE_TCP));
}

Test(wire, damaged_handles_are_refused)
{
	struct weft_handle h = { .token = 42, .n = 1 }, back = { .token = 9 };
	uint8_t good[WEFT_NET_HANDLE], buf[WEFT_NET_HANDLE];

	h.path[0] = address(AF_INET, 1);
	weft_handle_pack(&h, good);
	memcpy(buf, good, sizeof(buf));
	buf[0] ^= 1;
	cr_expect(eq(int, weft_handle_unpack(buf, &back), -EPROTO));
	memcpy(buf, good, sizeof(buf));
	buf[4]++;
	cr_expect(eq(int, weft_handle_unpack(buf, &back), -EPROTONOSUPPORT));
	memcpy(buf, good, sizeof(buf));
	buf[5] = 0;
	cr_expect(eq(int, weft_handle_unpack(buf, &back), -EINVAL));
	buf[5] = 2;
	cr_expect(eq(int, weft_handle_unpack(buf, &back), -EINVAL));
	buf[5] = 255;
	cr_expect(eq(int, weft_handle_unpack(buf, &back), -EINVAL));
	buf[5] = 1 | 1 << 4; /* the second of one way has a wire */
	cr_expect(eq(int, weft_handle_unpack(buf, &back), -EINVAL));
	buf[5] = 1 | (WEFT_WIRE_TCP + 1) << 2; /* there is no such wire */
	cr_expect(eq(int, weft_handle_unpack(buf, &back), -EINVAL));
	cr_expect(eq(u64, back.token, 9), "the output changed");
}

Test(wire, connect_message_round_trips)
{
	struct weft_msg_connect m = {
		.listener = 1, .token = 2, .id = 3, .path = 4,
		.from = address(AF_INET6, 5),
	}, back;
	uint8_t buf[WEFT_MSG_CONNECT_MAX];
	size_t len = weft_msg_connect_pack(&m, buf), i;

	cr_assert(eq(int, weft_msg_connect_unpack(buf, len, &back), 0));
	cr_expect(eq(u64, back.listener, 1));
	cr_expect(eq(u64, back.token, 2));
	cr_expect(eq(uint, back.id, 3));
	cr_expect(eq(uint, back.path, 4));
	same(&m.from, &back.from);
	for (i = 0; i < len; i++)
		cr_expect(eq(int, weft_msg_connect_unpack(buf, i, &back),
			     -EINVAL),
			  "cut at %zu", i);
}

Test(wire, other_messages_round_trip)
{
	struct weft_msg_accept a = { 1, 2, 3, 4, 5 }, a2;
	struct weft_msg_post p = { 1, 2, 3, 4, 5, "a key" }, p2;
	struct weft_msg_seq s = { 1, 2 }, s2;
	struct weft_msg_too_large t = { 1, 2, 3, 4 }, t2;
	enum { POST_LEN = WEFT_MSG_POST_LEN(5) };
	uint8_t buf[64];
	size_t i;

	weft_msg_accept_pack(&a, buf);
	cr_assert(eq(int, weft_msg_accept_unpack(buf, WEFT_MSG_ACCEPT_LEN, &a2),
		     0));
	cr_expect(a2.token == 1 && a2.to == 2 && a2.id == 3 && a2.eager == 4);
	cr_expect(eq(uint, a2.path, 5));
	cr_expect(lt(int,
		     weft_msg_accept_unpack(buf, WEFT_MSG_ACCEPT_LEN - 1, &a2),
		     0));
	cr_assert(eq(sz, weft_msg_post_pack(&p, buf), POST_LEN));
	cr_assert(eq(long, weft_msg_post_unpack(buf, sizeof(buf), &p2),
		     POST_LEN));
	cr_expect(p2.to == 1 && p2.seq == 2 && p2.addr == 3 && p2.size == 4);
	cr_expect(p2.rkey_len == 5 && !memcmp(p2.rkey, "a key", 5));
	for (i = 0; i < POST_LEN; i++)
		cr_expect(lt(long, weft_msg_post_unpack(buf, i, &p2), 0));
	weft_msg_seq_pack(&s, buf);
	cr_assert(eq(int, weft_msg_seq_unpack(buf, WEFT_MSG_SEQ_LEN, &s2), 0));
	cr_expect(s2.to == 1 && s2.seq == 2);
	cr_expect(lt(int, weft_msg_seq_unpack(buf, 7, &s2), 0));
	weft_msg_too_large_pack(&t, buf);
	cr_assert(eq(int, weft_msg_too_large_unpack(buf, 24, &t2), 0));
	cr_expect(t2.to == 1 && t2.seq == 2 && t2.sent == 3 && t2.posted == 4);
}

Test(wire, a_tag_fits_an_immediate_where_the_slot_is_small)
{
	uint64_t tag = weft_tag_pack(0xdead0eef, 0x12345678);
	struct weft_tag t = weft_tag_unpack(tag);

	cr_expect(le(u64, tag, UINT32_MAX));
	cr_expect(t.slot == 0xeef && t.generation == 0xead && t.seq == 0x78);
	tag = weft_tag_pack(0xdeadbeef, 0xffffffff);
	t = weft_tag_unpack(tag);
	cr_expect(gt(u64, tag, UINT32_MAX));
	cr_expect(t.slot == 0xbeef && t.generation == 0xead && t.seq == 0xff);
}

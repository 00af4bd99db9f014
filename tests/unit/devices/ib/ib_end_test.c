/* SPDX-License-Identifier: BSD-3-Clause */
/* The InfiniBand device: sleeping, closing, unproven peers, settings. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "devices/ib/ib.h"
#include "tests/unit/devices/ib/ib_pair.h"
#include "util/drivers/verbs.h"

/* ---- sleeping, closing, unknown peers ---------------------------------------
 */

/* A completion before the request for events makes none: arm() has to poll. */
Test(ib_end, arm_is_busy_if_a_completion_was_not_polled, .init = begin,
     .fini = end, .timeout = 120)
{
	uint64_t limit = now_ms() + WAIT_MS;

	pair_up();
	while (ib->progress(b.iface))
		;
	cr_assert(zero(int, send_number(&a, 0)));
	/* the adapter has acknowledged it: it is there */
	while (ib_conn(weft_ep_conn(a.ep))->user_used && now_ms() < limit)
		ib->progress(a.iface);
	cr_expect(eq(int, ib->arm(b.iface), -EBUSY));
	cr_expect(zero(uint, b.messages));
	cr_expect(until(b.messages == 1));
	pair_down();
}

static void *mend_later(void *arg)
{
	struct timespec late = { 0, 100000000 };

	nanosleep(&late, NULL);
	fake_verbs_cut(false);
	return NULL;
}

/* Messages accepted before the interface closes still arrive. */
Test(ib_end, messages_sent_before_close_arrive, .init = begin, .fini = end,
     .timeout = 120)
{
	pthread_t mender;
	uint32_t n;

	setenv("WEFT_PEER_TIMEOUT", "60s", 1);
	weft_settings_reset();
	pair_up();
	/* none of them has left when it closes */
	fake_verbs_cut(true);
	pthread_create(&mender, NULL, mend_later, NULL);
	for (n = 0; !send_number(&b, n); n++)
		;
	cr_assert(gt(uint, n, 1));
	side_close(&b);
	pthread_join(mender, NULL);
	cr_expect(until(a.errors));
	cr_expect(eq(int, a.error, -ESHUTDOWN));
	cr_expect(eq(uint, a.messages, n));
	cr_expect(yes(!disorder));
	pair_down();
}

/* To a peer that is gone no credits are returned. */
Test(ib_end, close_does_not_wait_for_a_closed_peer, .init = begin, .fini = end,
     .timeout = 120)
{
	setenv("WEFT_PEER_TIMEOUT", "300s", 1);
	weft_settings_reset();
	pair_up();
	cr_assert(zero(int, send_number(&a, 0)));
	cr_expect(until(b.messages == 1));
	cr_expect(until(!ib_conn(weft_ep_conn(a.ep))->user_used));
	cr_expect(eq(uint, ib_conn(weft_ep_conn(b.ep))->to_return, 1));
	/* what it sends now is never acknowledged */
	fake_verbs_cut(true);
	pair_down();
	fake_verbs_cut(false);
}

/*
 * The peer closes in order while a local put is in flight: that is a loss,
 * and no flush says that all was well.
 */
Test(ib_end, pending_put_fails_if_the_peer_closes, .init = begin, .fini = end,
     .timeout = 120)
{
	struct wait_op put = WAIT_OP;
	struct wait_op flush = WAIT_OP;
	struct weft_iov iov = { src, LEN, NULL };
	struct weft_mem *mem;
	uint8_t key[WEFT_RKEY_MAX];

	setenv("WEFT_PEER_TIMEOUT", "60s", 1);
	weft_settings_reset();
	pair_up();
	cr_assert(zero(int, ib->mem_register(dst, LEN, WEFT_MEM_HOST, &mem)));
	cr_assert(zero(int, put_all(mem))); /* the key is known */
	ib->mem_pack(mem, &key);
	fake_verbs_cut(true);
	cr_assert(
		eq(int,
		   ib->put(a.ep, &iov, 1, (uintptr_t)dst, &key, NULL, &put.op),
		   -EINPROGRESS));
	cr_assert(eq(int, ib->flush(a.ep, &flush.op), -EINPROGRESS));
	side_close(&b);
	cr_expect(until(a.errors));
	cr_expect(yes(put.done && flush.done));
	cr_expect(lt(int, put.status, 0));
	cr_expect(eq(int, flush.status, -ECONNRESET));
	cr_expect(eq(int, a.error, -ECONNRESET));
	cr_expect(eq(int, ib->flush(a.ep, NULL), -ECONNRESET));
	fake_verbs_cut(false);
	ib->mem_release(mem);
	pair_down();
}

static void rogue_turn(struct side *rogue, unsigned int times)
{
	while (times--) {
		side_progress(rogue);
		progress_all();
	}
}

/* With the kernel's last event or without: it is reported once. */
static void take_out(bool event)
{
	unsigned int asked;

	pair_up();
	if (event) {
		fake_verbs_event(0, IBV_EVENT_DEVICE_FATAL);
		cr_expect(until(a.errors));
	}
	fake_verbs_unplug(0);
	cr_expect(until(a.errors), "%s", logged);
	cr_expect(eq(int, a.error, -EIO));
	/* neither the event thread nor progress keeps polling */
	cr_expect(until(!ib->arm(a.iface)));
	asked = fake_verbs_asked(0);
	usleep(100000);
	cr_expect(le(uint, fake_verbs_asked(0) - asked, 2));
	cr_expect(eq(uint, log_lines("reports a fatal error"), 1), "%s",
		  logged);
	pair_down();
}

Test(ib_end, unplugged_device_fails_endpoints_once, .init = begin, .fini = end,
     .timeout = 120)
{
	take_out(false);
}

Test(ib_end, unplugged_device_with_event_fails_endpoints_once, .init = begin,
     .fini = end, .timeout = 120)
{
	take_out(true);
}

/* A process that knows an address may send to it, but not as another peer. */
Test(ib_end, control_messages_for_another_key_are_ignored, .init = begin,
     .fini = end, .timeout = 120)
{
	static struct side rogue;
	struct iovec iov;
	uint8_t msg[200];
	unsigned int id, len, i;

	pair_up();
	cr_assert(zero(int, side_init(&rogue, &weft_tcp_ops, "lo", AF_INET)));
	cr_assert(zero(int, side_dial(&rogue, &a)));
	for (i = 0; i < 100000 && !weft_tcp_ops.ready(rogue.ep); i++)
		rogue_turn(&rogue, 1);
	for (id = 0; id < WEFT_MSG_IDS; id++)
		for (len = 0; len < sizeof(msg); len++) {
			memset(msg, (int)len, sizeof(msg));
			/*
			 * for the peer's first endpoint, with a nonce made up
			 */
			weft_put_le64(msg, weft_key_id(b.attr.addr.key));
			weft_put_le64(msg + 8, id % 2 ? 0 : 0x1234);
			weft_put_le32(msg + 16, 0);
			iov.iov_base = msg;
			iov.iov_len = len;
			while (weft_tcp_ops.message(rogue.ep, (uint8_t)id, &iov,
						    1) == -EAGAIN)
				rogue_turn(&rogue, 1);
		}
	rogue_turn(&rogue, 1000);
	cr_assert(zero(int, send_number(&a, 0)));
	cr_assert(zero(int, send_number(&b, 0)));
	cr_expect(until(a.messages == 1 && b.messages == 1));
	cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
	side_close(&rogue);
	pair_down();
}

/* ---- settings and order of calls ---------------------------------------- */

Test(ib_end, missing_device_or_port_is_enodev, .init = begin, .fini = end)
{
	cr_expect(eq(int, open_side(&a, "fake7:1"), -ENODEV));
	cr_expect(eq(int, open_side(&a, "fake0:2"), -ENODEV));
	cr_expect(yes(strstr(logged, "'fake0:2' does not exist")), "%s",
		  logged);
	setenv("WEFT_NET_DEVICES", "none0", 1);
	weft_settings_reset();
	cr_expect(eq(int, open_side(&a, "fake0:1"), -ENODEV));
	cr_expect(yes(strstr(logged, "WEFT_NET_DEVICES")), "%s", logged);
	nothing_lives("nothing");
}

Test(ib_end, registration_before_the_first_device_works, .init = begin,
     .fini = end, .timeout = 120)
{
	struct weft_mem *mem;

	cr_assert(zero(int, ib->mem_register(dst, LEN, WEFT_MEM_HOST, &mem)));
	pair_up();
	cr_expect(zero(int, put_all(mem)));
	cr_expect(zero(int, memcmp(src, dst, LEN)));
	side_close(&a);
	side_close(&b);
	/* the registration keeps its device, and goes on with it */
	pair_up();
	memset(src, 9, LEN);
	cr_expect(zero(int, put_all(mem)));
	cr_expect(zero(int, memcmp(src, dst, LEN)));
	ib->mem_release(mem);
	pair_down();
}

/*
 * If the owner cannot register with an adapter, the key does not cover it until
 * it can.
 */
Test(ib_end, failed_late_registration_refuses_the_put, .init = begin,
     .fini = end, .timeout = 120)
{
	struct weft_mem *mem;

	cr_assert(zero(int, ib->mem_register(dst, LEN, WEFT_MEM_HOST, &mem)));
	/* the first of those that are open */
	cr_assert(zero(int, open_side(&b, "fake1:1")));
	cr_assert(zero(int, open_side(&a, "fake0:1")));
	dial_both();
	cr_assert(until(ib->ready(a.ep) && ib->ready(b.ep)));
	fake_verbs_fail_call("reg_mr");
	cr_expect(eq(int, put_all(mem), -EACCES));
	cr_expect(eq(str, (char *)fake_verbs_failed(), "reg_mr"));
	cr_expect(yes(strstr(logged,
			     "with 'fake1'; raise the limit with 'ulimit -l'")),
		  "%s", logged);
	cr_expect(yes(strstr(logged, "'fake0:1': a key from peer ")), "%s",
		  logged);
	cr_expect(zero(uint, dst[0]));
	/* which ends both endpoints */
	cr_expect(until(a.errors && b.errors), "%s", logged);
	ib->mem_release(mem);
	pair_down();
}

/* Memory registered by the caller is not registered again per transfer. */
Test(ib_end, registered_memory_is_not_registered_again, .init = begin,
     .fini = end, .timeout = 120)
{
	struct weft_mem *from, *to;
	struct weft_iov iov = { src, LEN, NULL };
	struct wait_op w;
	uint8_t key[WEFT_RKEY_MAX];

	pair_up();
	cr_assert(zero(int, ib->mem_register(src, LEN, WEFT_MEM_HOST, &from)));
	cr_assert(zero(int, ib->mem_register(dst, LEN, WEFT_MEM_HOST, &to)));
	ib->mem_pack(to, key);
	fake_verbs_fail_call("reg_mr");
	iov.mem = from;
	w = (struct wait_op)WAIT_OP;
	cr_assert(eq(int,
		     ib->put(a.ep, &iov, 1, (uintptr_t)dst, key, NULL, &w.op),
		     -EINPROGRESS));
	cr_expect(until(w.done));
	cr_expect(zero(int, w.status));
	cr_expect(zero(int, memcmp(src, dst, LEN)));
	cr_expect(yes(!fake_verbs_failed()));
	/* and what is not, is */
	iov.mem = NULL;
	w = (struct wait_op)WAIT_OP;
	cr_assert(eq(int, ib->get(a.ep, &iov, 1, (uintptr_t)dst, key, &w.op),
		     -EINPROGRESS));
	cr_expect(until(w.done));
	cr_expect(lt(int, w.status, 0));
	cr_expect(eq(str, (char *)fake_verbs_failed(), "reg_mr"));
	cr_expect(until(a.errors && b.errors), "%s", logged);
	ib->mem_release(from);
	ib->mem_release(to);
	pair_down();
}

#define MAPPED	 "0000:0000:0000:0000:0000:ffff:7f00:000"
#define GLOBAL	 "2001:0db8:0000:0000:0000:0000:0000:000"
#define USUAL	 "fe80:0000:0000:0000:0002:c903:0000:000"
#define SUBNET1	 "fe80:0000:0000:0001:0002:c903:0000:000"
#define SUBNET3E "fe80:0000:0000:003e:0002:c903:0000:000" /* 61 further */

/* Settings of the path reach modify_qp(). */
Test(ib_end, path_settings_reach_the_adapter, .init = begin, .fini = end,
     .timeout = 120)
{
	struct fake_verbs_path path;

	fake_verbs_add_gid(0, 2, "0000:0000:0000:0000:0000:ffff:7f00:0001");
	fake_verbs_add_gid(1, 2, "0000:0000:0000:0000:0000:ffff:7f00:0002");
	setenv("NCCL_IB_GID_INDEX", "2", 1);
	setenv("NCCL_IB_PKEY", "3", 1);
	setenv("NCCL_IB_TIMEOUT", "18", 1);
	setenv("NCCL_IB_TC", "106", 1);
	setenv("NCCL_IB_RETRY_CNT", "3", 1);
	setenv("UCX_IB_SL", "4", 1);
	weft_settings_reset();
	pair_up();
	cr_expect(zero(int, send_number(&a, 0)));
	cr_expect(until(b.messages == 1));
	fake_verbs_path(&path);
	cr_expect(eq(uint, path.timeout, 18));
	cr_expect(eq(uint, path.retries, 3));
	cr_expect(eq(uint, path.service_level, 4));
	cr_expect(eq(uint, path.traffic_class, 106));
	cr_expect(eq(uint, path.mtu, IBV_MTU_1024));
	cr_expect(eq(uint, path.gid_index, 2));
	cr_expect(eq(uint, path.pkey_index, 3));
	/* no atomics, no memory windows */
	cr_expect(eq(uint, path.access,
		     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			     IBV_ACCESS_REMOTE_READ));
	pair_down();
}

/* UCX's settings that need a lookup: a key, a time, the port's kind. */
Test(ib_end, pkey_timeout_and_traffic_class_are_looked_up, .init = begin,
     .fini = end, .timeout = 120)
{
	struct fake_verbs_path path;

	fake_verbs_gid(0, false, USUAL "1");
	fake_verbs_gid(1, false, USUAL "2");
	fake_verbs_pkey(0, 5, 0x8abc);
	fake_verbs_pkey(1, 5, 0x8abc);
	setenv("UCX_IB_PKEY", "0xabc", 1);
	setenv("UCX_RC_TIMEOUT", "500ms", 1);
	weft_settings_reset();
	pair_up();
	fake_verbs_path(&path);
	cr_expect(eq(uint, path.pkey_index, 5));
	cr_expect(eq(uint, path.timeout, 17));
	cr_expect(zero(uint, path.traffic_class));
	pair_down();
	setenv("UCX_IB_PKEY", "0xabd", 1);
	weft_settings_reset();
	cr_expect(eq(int, open_side(&a, "fake0:1"), -ENODEV));
	cr_expect(yes(strstr(logged, "'fake0:1' is in no partition 0xabd")),
		  "%s", logged);
	/* RoCE v2, under UCX */
	unsetenv("UCX_IB_PKEY");
	weft_settings_reset();
	fake_verbs_gid(0, true, MAPPED "1");
	fake_verbs_gid(1, true, MAPPED "2");
	pair_up();
	fake_verbs_path(&path);
	cr_expect(eq(uint, path.traffic_class, 106));
	pair_down();
}

/* Some InfiniBand ports, mostly virtual ones, need a global route header. */
Test(ib_end, global_route_header_is_used_if_a_port_wants_it, .init = begin,
     .fini = end, .timeout = 120)
{
	struct fake_verbs_path path;

	fake_verbs_gid(0, false, USUAL "1");
	fake_verbs_gid(1, false, USUAL "2");
	pair_up();
	fake_verbs_path(&path);
	cr_expect(zero(uint, path.hop_limit), "an unrequested header");
	pair_down();
	fake_verbs_grh(0);
	fake_verbs_grh(1);
	pair_up();
	fake_verbs_path(&path);
	cr_expect(gt(uint, path.hop_limit, 0));
	cr_assert(zero(int, send_number(&a, 0)));
	cr_expect(until(b.messages == 1));
	pair_down();
}

static void send_bytes(size_t len)
{
	static char body[200];
	struct iovec iov = { body, len };
	const unsigned int before = b.messages;

	cr_assert(zero(int, ib->message(a.ep, 1, &iov, 1)));
	cr_expect(until(b.messages > before));
}

/* Small messages are inline in the request, which saves the adapter a read. */
Test(ib_end, messages_of_56_bytes_are_inline, .init = begin, .fini = end,
     .timeout = 120)
{
	unsigned int before;

	pair_up();
	before = fake_verbs_inlines();
	send_bytes(56); /* and a head of 8: what a queue pair is asked for */
	cr_expect(eq(uint, fake_verbs_inlines(), before + 1));
	send_bytes(57);
	cr_expect(eq(uint, fake_verbs_inlines(), before + 1));
	pair_down();
}

/* An adapter without room for inline data. */
Test(ib_end, adapter_without_inline_data_works, .init = begin, .fini = end,
     .timeout = 120)
{
	cr_assert(zero(int, open_side(&a, "fake0:1")));
	cr_assert(zero(int, open_side(&b, "fake1:1")));
	fake_verbs_fail_call("create_qp");
	dial_both();
	cr_assert(until(ib->ready(a.ep) && ib->ready(b.ep)));
	send_bytes(4);
	cr_expect(zero(uint, fake_verbs_inlines()));
	pair_down();
}

/* ---- ports that cannot meet --------------------------------------------- */

static const struct {
	bool roce[2];
	const char *gid[2];
	const char *told; /* why not, from the address alone; NULL: not */
	bool meet;
} meetings[] = {
	{ { true, true }, { GLOBAL "1", GLOBAL "2" }, NULL, true },
	{ { false, false }, { USUAL "1", USUAL "2" }, NULL, true },
	{ { true, true }, { MAPPED "1", GLOBAL "2" }, "family", false },
	{ { false, true }, { USUAL "1", MAPPED "2" }, "RoCE", false },
	{ { false, false }, { USUAL "1", SUBNET1 "2" }, "subnet", false },
	/* the address has a digest alone, but halves have it all */
	{ { false, false }, { SUBNET1 "1", SUBNET3E "2" }, NULL, false },
};

static void meet(size_t i)
{
	struct fake_verbs_path path;
	const char *why = "";
	bool reaches;

	logged[0] = '\0';
	fake_verbs_gid(0, meetings[i].roce[0], meetings[i].gid[0]);
	fake_verbs_gid(1, meetings[i].roce[1], meetings[i].gid[1]);
	cr_assert(zero(int, open_side(&a, "fake0:1")));
	cr_assert(zero(int, open_side(&b, "fake1:1")));
	reaches = ib->reaches(a.iface, &b.attr.addr, &why);
	cr_expect(eq(int, reaches, !meetings[i].told), "%zu: %s", i, why);
	if (meetings[i].told)
		cr_expect(yes(strstr(why, meetings[i].told)), "%s", why);
	/* as after a sockaddr connect, which does not call reaches() */
	dial_both();
	cr_expect(until((ib->ready(a.ep) && ib->ready(b.ep)) ||
			(a.errors && b.errors)));
	fake_verbs_path(&path);
	if (meetings[i].meet) {
		cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
		cr_assert(zero(int, send_number(&a, 0)));
		cr_expect(until(b.messages == 1));
	} else {
		cr_expect(yes(a.error == -EHOSTUNREACH ||
			      b.error == -EHOSTUNREACH),
			  "%zu", i);
		cr_expect(yes(strstr(logged, "cannot reach peer")), "%s",
			  logged);
		/* no queue pair was connected for it */
		cr_expect(zero(uint, path.mtu));
	}
	pair_down();
}

Test(ib_end, unreachable_ports_are_refused, .timeout = 120)
{
	size_t i;

	for (i = 0; i < sizeof(meetings) / sizeof(*meetings); i++) {
		begin();
		meet(i);
		end();
	}
}

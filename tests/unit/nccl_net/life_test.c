/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections, their ends, and what a peer may say meanwhile. */
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include "nccl_net/net/accept.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "tests/lib/fds.h"
#include "tests/unit/nccl_net/pair.h"
#include "util/clock.h"

static uint64_t fake_ns = 1000000000;

TestSuite(life, .timeout = 20);

Test(life, dead_peer_fails_pending_requests, .init = connected)
{
	struct weft_net_request *r, *r2, *s;
	size_t got;

	fake.hold_puts = true;
	r = recv_now(dst, BIG);
	r2 = recv_now(dst, BIG);
	s = send_now(src, BIG);
	fake_break_all(-ECONNRESET);
	cr_expect(eq(int, finish(r, &got), -ECONNRESET));
	cr_expect(eq(int, finish(r2, &got), -ECONNRESET));
	cr_expect(eq(int, finish(s, &got), -ECONNRESET));
	cr_expect(eq(int, weft_net_send(tx, src, 1, NULL, &s), -ECONNRESET));
	cr_expect(eq(int, weft_net_recv(rx, dst, 1, rmr, &s), -ECONNRESET));
	cr_expect(eq(uint, errors, 2), "each side says it once");
	part();
	weft_net_close_listener(listener);
	cr_expect(eq(uint, fake.eps, 0));
	cr_expect(eq(uint, fake.ifaces, 0));
}

Test(life, orderly_close_logs_nothing, .init = connected)
{
	size_t got;
	struct weft_net_request *s;

	transfer(100000, BIG - 8);
	weft_net_deregister(rmr);
	weft_net_close_comm(rx);
	weft_net_close_listener(listener);
	weft_net_progress(a);
	cr_expect(eq(int, weft_net_send(tx, src, 1, NULL, &s), -ECONNRESET));
	weft_net_close_comm(tx);
	cr_expect(eq(uint, errors, 0), "%s", last_error);
	cr_expect(eq(uint, fake.eps, 0));
	cr_expect(eq(uint, fake.ifaces, 0));
	cr_expect(eq(uint, fake.mems, 0));
	(void)got;
}

Test(life, data_sent_before_close_arrives, .init = connected)
{
	struct weft_net_request *r;
	size_t got;

	finish(send_now(src, 50), &got);
	finish(send_now(src + 50, 50), &got);
	weft_net_close_comm(tx);
	weft_net_progress(b);
	r = recv_now(dst, 50);
	cr_expect(eq(int, finish(r, &got), 0));
	r = recv_now(dst + 50, 50);
	cr_expect(eq(int, finish(r, &got), 0));
	cr_expect(memcmp(dst, src, 100) == 0);
	cr_expect(eq(int, weft_net_recv(rx, dst, 50, rmr, &r), -ECONNRESET));
}

Test(life, posted_receive_fails_if_its_sender_closes, .init = connected)
{
	struct weft_net_request *r = recv_now(dst, 100);
	size_t got;

	weft_net_close_comm(tx);
	cr_expect(eq(int, finish(r, &got), -ECONNRESET));
}

Test(life, close_revokes_posted_receives, .init = connected)
{
	struct weft_net_request *r, *s;
	size_t got;

	fake.hold_puts = true;
	r = recv_now(dst, BIG);
	s = send_now(src, BIG);
	weft_net_close_comm(rx);
	fake.hold_puts = false;
	memset(dst, 0x5a, BIG);
	cr_expect(eq(int, finish(s, &got), -ECONNRESET));
	cr_expect(eq(int, dst[0], 0x5a));
	cr_expect(eq(uint, fake.mems, 0));
	weft_net_deregister(rmr);
	(void)r;
}

/* As NCCL's abort does it: the memory is freed before the comm is closed. */
Test(life, no_put_lands_in_deregistered_memory, .init = connected)
{
	struct weft_net_request *r = recv_now(dst, 100);
	size_t got;

	weft_net_deregister(rmr);
	memset(dst, 0x5a, 100);
	send_now(src, 100);
	cr_expect(eq(int, finish(r, &got), -ECANCELED));
	cr_expect(eq(int, dst[0], 0x5a));
	cr_expect(eq(int, dst[99], 0x5a));
}

/* Nor is it copied to a GPU, which would follow what tells of a put. */
Test(life, notification_after_deregistration_cancels_the_receive,
     .init = connected)
{
	struct weft_net_request *r = recv_now(dst, BIG);
	size_t got;

	weft_net_deregister(rmr);
	fake_inject_notify(weft_tag_pack(rx->id, r->seq), BIG);
	cr_expect(eq(int, finish(r, &got), -ECANCELED));
}

/* The clock runs as the loop does, so that the bound is met at once. */
static uint64_t running_clock(void)
{
	return fake_ns += 1000000;
}

Test(life, close_with_pending_sends_is_bounded, .init = connected)
{
	struct weft_net_comm *tx2, *rx2;
	struct weft_net_listener *first = listener;
	struct weft_net_request *s, *s2 = NULL;

	join(a, b, &tx2, &rx2);
	fake.hold_puts = true;
	recv_now(dst, BIG);
	s = send_now(src, BIG);
	weft_clock_set(running_clock);
	weft_net_close_comm(tx);
	weft_clock_set(NULL);
	cr_expect(strstr(last_error, "closing a connection with 1 sends") !=
			  NULL,
		  "%s", last_error);
	cr_expect(eq(int, weft_net_send(tx2, src, 1, NULL, &s2), -ECANCELED));
	weft_net_close_listener(first);
	(void)s;
}

Test(life, flusher_progresses_when_nccl_stops_calling, .init = connected)
{
	unsigned int before;

	transfer(100, 100);
	before = fake.progressed;
	usleep(20000);
	cr_expect(eq(uint, fake.progressed, before), "without need");
	fake.unsent = true;
	transfer(100, 100);
	before = fake.progressed;
	/* Bounded by the suite's time limit. */
	while (fake.progressed < before + 3)
		sched_yield();
	fake.unsent = false;
	part();
	weft_net_close_listener(listener);
	weft_net_close(a);
	weft_net_close(b);
	cr_expect(eq(uint, fake.ifaces, 0));
}

/* What NCCL would call in a child that ends, on what the parent still uses. */
static int use_inherited(struct weft_net_request *req)
{
	char handle[WEFT_NET_HANDLE];
	struct weft_net_listener *l;
	struct weft_net_request *r;
	struct weft_net_mr *mr;
	bool done;
	size_t got;

	if (weft_net_test(req, &done, &got) != -ECANCELED ||
	    weft_net_send(tx, src, 1, NULL, &r) != -ECANCELED ||
	    weft_net_recv(rx, dst, 1, rmr, &r) != -ECANCELED ||
	    weft_net_register(rx, dst, BIG, 1, &mr) != -ECANCELED ||
	    weft_net_listen(b, 0, handle, &l) != -ECANCELED)
		return 1;
	part();
	weft_net_close_listener(listener);
	weft_net_close(a);
	weft_net_close(b);
	return fake.ifaces && fake.eps && fake.mems ? 0 : 2;
}

/* The flusher has no thread in it, and may have had the lock. */
Test(life, forked_child_leaves_contexts_alone, .init = connected)
{
	struct weft_net_request *r;
	int i, status;
	size_t got;
	pid_t pid;

	fake.unsent = true;
	transfer(100, 100);
	for (i = 0; i < 20; i++) {
		r = recv_now(dst, 100);
		pid = fork();
		if (!pid)
			_exit(use_inherited(r));
		cr_assert(eq(int, waitpid(pid, &status, 0), pid));
		cr_assert(zero(int, status), "round %d", i);
		finish(send_now(src, 100), &got);
		cr_expect(zero(int, finish(r, &got)));
		cr_expect(zero(int, memcmp(src, dst, 100)));
	}
	fake.unsent = false;
	transfer(100, 100);
	part();
	weft_net_close_listener(listener);
	cr_expect(zero(uint, fake.ifaces));
}

static unsigned int threads(void)
{
	return (unsigned int)count_entries("/proc/self/task");
}

/* One that was joined is listed for a moment longer. */
static bool threads_become(unsigned int n)
{
	unsigned int i;

	for (i = 0; i < 2000 && threads() != n; i++)
		usleep(1000);
	return threads() == n;
}

/* NCCL up to 2.27 never says that it is done with the context. */
Test(life, the_flusher_ends_with_the_last_user_and_starts_again, .init = init)
{
	const unsigned int before = threads();
	int round;

	for (round = 0; round < 3; round++) {
		join(a, b, &tx, &rx);
		cr_assert(eq(int, weft_net_register(rx, dst, BIG, 1, &rmr), 0));
		fake.unsent = true;
		transfer(100, 100);
		cr_expect(gt(uint, threads(), before), "no flusher");
		fake.unsent = false;
		part();
		/* b's listener is a user, too */
		cr_expect(threads_become(before + 1),
			  "round %d: %u threads "
			  "instead of %u",
			  round, threads(), before + 1);
		weft_net_close_listener(listener);
		cr_expect(threads_become(before), "round %d: %u threads", round,
			  threads());
	}
	cr_expect(eq(uint, fake.ifaces, 0));
}

struct churn {
	pthread_t thread;
	struct weft_net *net;
	int failed;
};

static void *come_and_go(void *arg)
{
	struct churn *c = arg;
	char handle[WEFT_NET_HANDLE];
	struct weft_net_listener *l;
	struct weft_net_port *port;
	struct weft_net_peer *peer;
	int i;

	for (i = 0; i < 300 && !c->failed; i++) {
		c->failed = weft_net_listen(c->net, 0, handle, &l);
		if (c->failed)
			break;
		pthread_mutex_lock(&c->net->lock);
		port = weft_list_first(&c->net->ports, struct weft_net_port,
				       link);
		c->failed = weft_net_peer_get(port, &port->attr.addr, &peer);
		if (!c->failed) {
			weft_net_flusher_start(peer);
			weft_net_peer_put(peer);
		}
		pthread_mutex_unlock(&c->net->lock);
		if (i % 3 == 0)
			sched_yield();
		weft_net_close_listener(l);
	}
	return NULL;
}

/*
 * Two of NCCL's threads, one for each communicator: the last goes, one comes.
 */
Test(life, threads_may_open_and_close_comms_concurrently, .init = init)
{
	const unsigned int before = threads();
	struct churn c[4];
	int i;

	fake.unsent = true;
	for (i = 0; i < 4; i++) {
		c[i] = (struct churn){ .net = a };
		cr_assert(eq(
			int,
			pthread_create(&c[i].thread, NULL, come_and_go, &c[i]),
			0));
	}
	for (i = 0; i < 4; i++) {
		pthread_join(c[i].thread, NULL);
		cr_expect(eq(int, c[i].failed, 0));
	}
	cr_expect(threads_become(before), "%u threads instead of %u", threads(),
		  before);
	cr_expect(eq(uint, fake.ifaces, 0));
	weft_net_close(a);
}

Test(life, malformed_messages_are_ignored, .init = connected)
{
	uint8_t junk[64];
	struct weft_msg_post post = {
		.to = tx->id,
		.seq = 5000,
		.size = 1,
		.rkey_len = 8,
		.rkey = junk,
	};
	struct weft_msg_seq seq = { .to = rx->id, .seq = 77777 };
	uint8_t buf[WEFT_MSG_POST_LEN(9)];
	unsigned int id, len;

	memset(junk, 0xee, sizeof(junk));
	for (id = 0; id < WEFT_MSG_IDS; id++)
		for (len = 0; len <= sizeof(junk); len++)
			fake_inject(id, junk, len);
	weft_msg_post_pack(&post, buf);
	fake_inject(WEFT_MSG_POST, buf, WEFT_MSG_POST_LEN(8));
	/* of another device's keys */
	post.rkey_len = 9;
	post.seq = 0;
	weft_msg_post_pack(&post, buf);
	fake_inject(WEFT_MSG_POST, buf, WEFT_MSG_POST_LEN(9));
	cr_expect(not(tx->post[0].valid));
	weft_msg_seq_pack(&seq, buf);
	fake_inject(WEFT_MSG_NEED, buf, WEFT_MSG_SEQ_LEN);
	fake_inject(WEFT_MSG_EAGER, buf, 20);
	fake_inject_notify(weft_tag_pack(rx->id, 3), 1);
	fake_inject_notify(weft_tag_pack(rx->id + (1 << 16), 0), 1);
	fake_inject_notify(weft_tag_pack(tx->id, 0), 1);
	fake_inject_notify(~0ull, ~0ull);
	weft_net_progress(a);
	weft_net_progress(b);
	transfer(100, 200);
	transfer(100000, BIG - 8);
}

Test(life, closed_context_fails_its_comms_and_stays_callable, .init = connected)
{
	struct weft_net_request *r = recv_now(dst, BIG),
				*s = send_now(src, BIG);
	size_t got;

	weft_net_close(a);
	weft_net_close(b);
	cr_expect(eq(uint, fake.ifaces, 0));
	cr_expect(eq(uint, fake.eps, 0));
	cr_expect(lt(int, weft_net_send(tx, src, 1, NULL, &s), 0));
	cr_expect(lt(int, weft_net_recv(rx, dst, 1, rmr, &r), 0));
	weft_net_close_comm(tx);
	weft_net_close_comm(rx);
	weft_net_close_listener(listener);
	(void)got;
}

Test(life, one_device_is_listed_with_its_properties, .init = init)
{
	struct weft_net_props p;

	cr_expect(eq(int, weft_net_devices(), 1));
	cr_assert(eq(int, weft_net_properties(0, &p), 0));
	cr_expect(eq(str, p.name, "weft"));
	cr_expect(p.pci_path == NULL);
	cr_expect(eq(int, p.ptr_support, 1));
	cr_expect(gt(int, p.speed, 0));
	cr_expect(eq(int, p.max_recvs, 1));
	cr_expect(eq(int, p.reg_is_global, 1),
		  "all of a context's comms share");
	cr_expect(eq(int, weft_net_properties(1, &p), -EINVAL));
}

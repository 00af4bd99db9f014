/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network loses every packet for a while.  Less than WEFT_PEER_TIMEOUT
 * harms nothing, whatever was under way, and whenever it begins.
 */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEN	   ((size_t)4 << 20)
#define TIMEOUT_MS 10000u
#define FDS	   200
#define IDLE_MS	   1900u /* the connection's last packet is as old */

/* A network of this process alone, whose loopback can be cut. */
static void own_network(const char *timeout)
{
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	char map[32];
	int fd;

	if (strcmp(row->name, "tcp"))
		skip_test("other devices do not use the network, or tcp's");
	snprintf(map, sizeof(map), "0 %u 1", getuid());
	if (unshare(CLONE_NEWNET)) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
			skip_test("may not make a network namespace");
		fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
		if (write(fd, map, strlen(map)) < 0)
			skip_test("may not be root there");
		close(fd);
	}
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (ioctl(fd, SIOCSIFFLAGS, &up))
		skip_test("cannot bring up a loopback: %s", strerror(errno));
	close(fd);
	if (system("tc qdisc add dev lo root blackhole 2>/dev/null && tc qdisc del dev lo root"))
		skip_test("no tc, or no qdisc that loses all");
	setenv("WEFT_PEER_TIMEOUT", timeout, 1);
}

static void cut(void)
{
	check(!system("tc qdisc add dev lo root blackhole"), "no outage");
}

static void mend(void)
{
	check(!system("tc qdisc del dev lo root"), "no end of the outage");
}

struct block {
	struct target t;
	uint8_t *src;
	struct wait_op w;
};

static void block_put(struct side *a, struct block *k, unsigned int seed)
{

	target_open(&k->t, LEN);
	k->src = malloc(LEN);
	pattern_fill(k->src, LEN, seed);
	put_start(a, &k->w, k->src, LEN, (uintptr_t)k->t.buf, &k->t.key);
}

static void block_end(struct side *a, struct side *b, struct block *k,
		      unsigned int seed)
{
	wait_status(a, b, k->w, 0);
	pattern_check("block", k->t.buf, LEN, seed);
	target_check_guards(&k->t);
	target_close(&k->t);
	free(k->src);
}

static void exchange(struct side *a, struct side *b, unsigned int seed)
{
	struct block k;

	block_put(a, &k, seed);
	block_end(a, b, &k, seed);
	send_pattern(a, b, a->ep, 1, 100, seed);
	send_pattern(b, a, b->ep, 1, 100, seed + 1);
}

static void check_alive(const struct side *a, const struct side *b)
{
	check_int(a->errors, 0);
	check_int(b->errors, 0);
}

/*
 * @percent of WEFT_PEER_TIMEOUT.  Idle, or with a block and messages that are
 * sent as it has just begun.
 */
static void outage(unsigned int percent, bool traffic)
{
	const unsigned int ms = TIMEOUT_MS * percent / 100;
	struct side a, b;
	struct block k;
	uint64_t begin;

	sides_open(&a, &b);
	exchange(&a, &b, 1);
	exchange(&b, &a, 3);
	run_for(&a, &b, IDLE_MS);
	begin = now_ms();
	cut();
	if (traffic) {
		block_put(&a, &k, 5);
		send_pattern(&a, NULL, a.ep, 1, 100, 6);
		send_pattern(&b, NULL, b.ep, 1, 100, 7);
	}
	run_for(&a, &b, ms);
	mend();
	if (now_ms() - begin > TIMEOUT_MS)
		skip_test("this machine is too busy for a short outage");
	if (traffic)
		block_end(&a, &b, &k, 5);
	/* what counted then would end it now */
	run_for(&a, &b, TIMEOUT_MS / 2);
	check_alive(&a, &b);
	exchange(&a, &b, 8);
	wait_for(&a, &b, a.messages >= 3 && b.messages >= 3);
	check_alive(&a, &b);
	sides_close(&a, &b);
}

static void idle(void)
{
	own_network("10s");
	outage(50, false);
	outage(90, false);
}

static void under_traffic(void)
{
	own_network("10s");
	outage(50, true);
	outage(90, true);
}

/* The kernel's word on what is unanswered, of which qemu has four bytes. */
static void need_tcp_info(void)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct tcp_info info;
	socklen_t len = sizeof(info);

	check(fd >= 0, "socket");
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
	    len < sizeof(info))
		skip_test("there is no TCP_INFO here");
	close(fd);
}

/* Longer than twice WEFT_PEER_TIMEOUT: an error. */
static void told(bool traffic)
{
	struct side a, b;
	struct block k;

	need_tcp_info();
	sides_open(&a, &b);
	exchange(&a, &b, 1);
	cut();
	if (traffic)
		block_put(&a, &k, 5);
	wait_for(&a, &b, a.errors && b.errors);
	mend();
	check(a.error == -ETIMEDOUT || a.error == -ECONNRESET ||
		      a.error == -EHOSTUNREACH,
	      "the error is %d", a.error);
	if (traffic) {
		check(k.w.done && k.w.status, "the put did not fail");
		target_close(&k.t);
		free(k.src);
	}
	side_close(&a);
	side_close(&b);
}

static void long_idle(void)
{
	own_network("2s");
	told(false);
}

static void long_traffic(void)
{
	own_network("2s");
	told(true);
}

/* Without a route the hello is not even sent. */
static void hello(void)
{
	struct side a, b;

	own_network("2s");
	need_tcp_info();
	side_open(&a);
	side_open(&b);
	a.ep = side_connect(&a, &b, NULL);
	if (system("ip rule del pref 0 2>/dev/null"))
		skip_test("cannot take the routes away");
	wait_for(&a, &b, a.errors);
	side_close(&a);
	side_close(&b);
}

/* The kernel soon gives up those TCP sockets that @kept has not. */
static unsigned int doom(const bool kept[FDS])
{
	const unsigned int ms = 300;
	unsigned int n = 0, fd;

	for (fd = 3; fd < FDS; fd++)
		n += !kept[fd] && !setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
					      &ms, sizeof(ms));
	return n;
}

static void bulk_dies(bool traffic)
{
	struct side a, b;
	struct block k;
	bool kept[FDS];
	unsigned int fd;

	own_network("60s");
	sides_open(&a, &b);
	for (fd = 0; fd < FDS; fd++)
		kept[fd] = fcntl((int)fd, F_GETFD) >= 0;
	exchange(&a, &b, 1);
	check(doom(kept) >= 2, "no bulk sockets");
	cut();
	if (traffic)
		block_put(&a, &k, 5);
	run_for(&a, &b, 12000);
	mend();
	if (traffic)
		block_end(&a, &b, &k, 5);
	check_alive(&a, &b);
	exchange(&a, &b, 8);
	exchange(&b, &a, 9);
	check_alive(&a, &b);
	sides_close(&a, &b);
}

static void idle_bulk_dies(void)
{
	bulk_dies(false);
}

static void busy_bulk_dies(void)
{
	bulk_dies(true);
}

/* The peer has had all. One that waits does so for TCP_LINGER_MS, a second. */
static void closing(void)
{
	uint64_t took = UINT64_MAX, begin;
	unsigned int tries = 5;
	struct side a, b;

	own_network("10s");
	while (tries-- && took >= 1000) {
		sides_open(&a, &b);
		exchange(&a, &b, 1);
		a.ops->ep_destroy(a.ep);
		a.ep = NULL;
		run_for(&a, &b, 300);
		cut();
		begin = now_ms();
		side_close(&a);
		took = now_ms() - begin;
		mend();
		side_close(&b);
	}
	check(took < 1000, "waited for an answer to nothing, %llu ms",
	      (unsigned long long)took);
}

const struct conformance_test outage_tests[] = {
	{ "an idle pair outlives an outage", idle, true },
	{ "traffic outlives an outage", under_traffic, true },
	{ "an idle pair learns of a long outage", long_idle, true },
	{ "traffic fails in a long outage", long_traffic, true },
	{ "a hello that cannot be sent fails", hello, true },
	{ "an idle bulk socket that dies is replaced", idle_bulk_dies, true },
	{ "a busy bulk socket that dies is replaced", busy_bulk_dies, true },
	{ "an interface that has nothing to lose is closed amid an outage",
	  closing, true },
	{ NULL, NULL },
};

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP device's bulk sockets: where they cannot be opened, puts and gets use
 * the message stream, whichever side dials and however the dial fails.
 */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "devices/tcp/bulk/tcp_bulk.h"
#include "util/clock.h"

#define LEN 300000u

/* socket() of this program: so many more are given, those are noted here. */
static atomic_int sockets_left = -1; /* -1: any number */
static atomic_uint refused;
static int made[8];
static atomic_uint nmade;
static struct tcp_bulk *watched;
static unsigned int dialing; /* the most at a time */

int socket(int domain, int type, int protocol)
{
	int left = atomic_load(&sockets_left), fd;

	if (watched)
		dialing = weft_max(dialing, watched->out_dialing);
	if (!left) {
		atomic_fetch_add(&refused, 1);
		errno = EMFILE;
		return -1;
	}
	fd = syscall(SYS_socket, domain, type, protocol);
	if (left > 0)
		atomic_store(&sockets_left, left - 1);
	if (fd >= 0)
		made[atomic_fetch_add(&nmade, 1) % 8] = fd;
	return fd;
}

#define NO_SOCKET "cannot open a socket"
#define NO_STREAM "bulk goes over its message stream"

/* A clock that the tests push on. */
static _Atomic uint64_t skew_ns;

static uint64_t skewed(void)
{
	return now_ms() * 1000000 + atomic_load(&skew_ns);
}

/* @dialer dials whatever the pair needs. */
static void meet(struct side *dialer, struct side *other)
{
	if (!row->sockets)
		skip_test("has no bulk sockets");
	log_keep();
	weft_clock_set(skewed);
	side_open(dialer);
	side_open(other);
	dialer->ep = side_connect(dialer, other, NULL);
	wait_for(dialer, other, dialer->ops->ready(dialer->ep));
	/* WELCOME is there, too */
	send_pattern(dialer, other, dialer->ep, 1, 8, 0);
	wait_for(dialer, other, other->first);
	check_message(other, 1, 8, 0);
	other->ep = side_connect(other, dialer, NULL);
	atomic_store(&nmade, 0);
}

static void part(struct side *a, struct side *b)
{
	atomic_store(&sockets_left, -1);
	sides_close(a, b);
}

static unsigned int streams(struct side *s)
{
	struct weft_conn *conn = weft_ep_conn(s->ep);
	const struct tcp_bulk *bulk = conn ? tcp_conn(conn)->bulk : NULL;

	return bulk ? bulk->out_streams : 0;
}

/* The side that dials is out of descriptors. */
static void none(void)
{
	struct side a, b;
	unsigned int i;

	meet(&a, &b);
	atomic_store(&sockets_left, 0);
	for (i = 0; i < 3; i++) {
		put_checked(&b, &a, LEN, i);
		put_checked(&a, &b, LEN, i + 10);
	}
	/* two were asked for, one was tried; no more once that was known */
	check_int(atomic_load(&refused), 3);
	check_int(streams(&a) + streams(&b), 0);
	check_int(log_lines(NO_SOCKET), 1);
	/* told once for each direction, when the peer turns out to live on */
	check_int(log_lines(NO_STREAM), 0);
	atomic_store(&skew_ns, 1500000000);
	wait_for(&a, &b, log_lines(NO_STREAM) == 2);
	run_for(&a, &b, 300);
	check_int(log_lines(NO_STREAM), 2);
	part(&a, &b);
}

/* Gets are answered over the message stream as well, several at a time. */
static void none_for_gets(void)
{
	enum { N = 4 };
	struct side a, b, *from;
	struct target t;
	struct wait_op w[N];
	uint8_t *dst = malloc(N * LEN);
	unsigned int round, i;

	meet(&a, &b);
	target_open(&t, N * LEN);
	atomic_store(&sockets_left, 0);
	for (round = 0; round < 4; round++) {
		from = round % 2 ? &a : &b;
		pattern_fill(t.buf, N * LEN, round);
		memset(dst, POISON, N * LEN);
		for (i = 0; i < N; i++) {
			wait_for(&a, &b, from->ops->ready(from->ep));
			get_start(from, &w[i], dst + i * LEN, LEN,
				  (uintptr_t)t.buf + i * LEN, &t.key);
		}
		for (i = 0; i < N; i++) {
			wait_status(&a, &b, w[i], 0);
		}
		pattern_check("get", dst, N * LEN, round);
		/* and the side that answered still sends */
		send_pattern(&a, &b, a.ep, 2, 100, round);
		send_pattern(&b, &a, b.ep, 2, 100, round);
		wait_for(&a, &b, a.first && b.first);
		check_message(&a, 2, 100, round);
		check_message(&b, 2, 100, round);
	}
	check_int(streams(&a) + streams(&b), 0);
	check(atomic_load(&refused) > 0, "no bulk socket was tried");
	target_close(&t);
	free(dst);
	part(&a, &b);
}

static void no_more_sockets(bool connected)
{
	atomic_store(&sockets_left, connected ? 0 : -1);
}

static const struct conformance_test *find_test(const char *part)
{
	const struct conformance_test *t;

	for (t = put_tests; t->name; t++)
		if (strstr(t->name, part))
			return t;
	for (t = fail_tests; t->name; t++)
		if (strstr(t->name, part))
			return t;
	check(false, "there is no test '%s'", part);
	return NULL;
}

/* What is asked of puts and gets, over the message stream alone. */
static void without_streams(const char *const *parts)
{
	const struct conformance_test *t;

	sides_connect_hook = no_more_sockets;
	for (; *parts; parts++) {
		t = find_test(*parts);
		atomic_store(&sockets_left, -1);
		atomic_store(&refused, 0);
		t->run();
		check(atomic_load(&refused) > 0, "'%s' tried no bulk socket",
		      t->name);
	}
	atomic_store(&sockets_left, -1);
	sides_connect_hook = NULL;
}

static void none_for_all(void)
{
	static const char *const parts[] = {
		"puts of every size", "gets of every size",
		"gathered",	      "notifications",
		"bad keys",	      "cannot take",
		"put whose source",   "get whose source",
		"cannot land",	      NULL
	};

	if (strcmp(row->name, "tcp"))
		skip_test("has no bulk sockets, or has had none over IPv4");
	log_keep();
	without_streams(parts);
}

/* Here frames are behind their puts by themselves; the count must be right. */
static void none_for_order(void)
{
	enum { N = 20 };
	struct side a, b;
	struct target t;
	struct wait_op w[N];
	uint8_t *src = malloc(N * LEN);
	size_t len;
	unsigned int i;

	meet(&a, &b);
	target_open(&t, N * LEN);
	pattern_fill(src, N * LEN, 5);
	atomic_store(&sockets_left, 0);
	for (i = 0; i < N; i++) {
		len = i % 3 ? LEN : 1000;
		wait_for(&a, &b, a.ops->ready(a.ep));
		put_start(&a, &w[i], src + i * LEN, len,
			  (uintptr_t)t.buf + i * LEN, &t.key);
		a.ops->fence(a.ep);
		send_pattern(&a, &b, a.ep, 1, 100, i);
		wait_for(&a, &b, b.first);
		check_message(&b, 1, 100, i);
		check(!memcmp(t.buf + i * LEN, src + i * LEN, len),
		      "message %u came before its put", i);
	}
	wait_for(&a, &b, !a.ops->flush(a.ep, NULL));
	for (i = 0; i < N; i++)
		check(w[i].done == 1 && !w[i].status, "put %u", i);
	target_close(&t);
	free(src);
	part(&a, &b);
}

/* The same where the system call that places bytes is filtered out. */
static void none_and_filtered(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0,
			 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };
	static const char *const parts[] = { "puts of every size", "bad keys",
					     "cannot take", "get whose source",
					     NULL };

	if (strcmp(row->name, "tcp"))
		skip_test("has no bulk sockets, or has had none over IPv4");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		skip_test("no system call can be filtered here");
	check(process_vm_writev(getpid(), NULL, 0, NULL, 0, 0) < 0 &&
		      errno == EPERM,
	      "it is not filtered out");
	log_keep();
	without_streams(parts);
}

/* A put of many chunks whose last byte alone is out of bounds lands nowhere. */
static void beyond(void)
{
	struct side a, b;
	struct target t;
	uint8_t *src = malloc(LEN);

	setenv("WEFT_TCP_CHUNK", "64k", 1);
	meet(&a, &b);
	pattern_fill(src, LEN, 1);
	target_open(&t, LEN - 1);
	put_checked(&a, &b, LEN, 2);
	check_int(streams(&a) > 0, 1);
	check_int(put_wait(&a, &b, src, LEN, (uintptr_t)t.buf, &t.key, NULL),
		  -EACCES);
	target_check_poison(&t, 0, t.len);
	sides_fail(&a, &b);
	target_check_guards(&t);
	target_close(&t);
	free(src);
	part(&a, &b);
}

/* Both dials of a side begin well and end together. */
static void none_later(void)
{
	struct side a, b, *from;
	struct target t;
	struct wait_op w;
	uint8_t src[LEN];
	unsigned int i;

	meet(&a, &b);
	for (i = 0; i < 2; i++) {
		from = i ? &a : &b;
		pattern_fill(src, LEN, i);
		target_open(&t, LEN);
		put_start(from, &w, src, LEN, (uintptr_t)t.buf, &t.key);
		wait_for(&a, &b, atomic_load(&nmade) == 2 * (i + 1));
		check_int(w.done, 0);
		shutdown(made[2 * i], SHUT_RDWR);
		shutdown(made[2 * i + 1], SHUT_RDWR);
		wait_status(&a, &b, w, 0);
		pattern_check("put", t.buf, LEN, i);
		target_close(&t);
		put_checked(from, from == &a ? &b : &a, LEN, i + 20);
		check_int(streams(from), 0);
	}
	check_int(atomic_load(&nmade), 4);
	part(&a, &b);
}

/* One of two can be opened; it ends; the next put finds another. */
static void one_of_two(void)
{
	struct side a, b, *from, *to;
	unsigned int i;

	meet(&a, &b);
	for (i = 0; i < 2; i++) {
		from = i ? &a : &b;
		to = i ? &b : &a;
		atomic_store(&sockets_left, 1);
		put_checked(from, to, LEN, i);
		wait_for(&a, &b, atomic_load(&refused) == i + 1);
		wait_for(&a, &b, streams(from) == 1);
		put_checked(from, to, LEN, i + 10);
		shutdown(made[2 * i], SHUT_RDWR);
		wait_for(&a, &b, !streams(from));
		atomic_store(&sockets_left, -1);
		put_checked(from, to, LEN, i + 20);
		wait_for(&a, &b, streams(from) == 1);
		check_int(atomic_load(&nmade), 2 * (i + 1));
	}
	part(&a, &b);
}

/* Also those of a connection that had come to rest, timer and all. */
static void idle(void)
{
	struct side a, b, *from;
	unsigned int i, ms;

	meet(&a, &b);
	for (i = 0; i < 2; i++) {
		from = i ? &a : &b;
		run_for(&a, &b, 50);
		for (ms = 0; ms < 2000; ms += 100) {
			atomic_fetch_add(&skew_ns, 100000000);
			run_for(&a, &b, 2);
		}
		put_checked(from, from == &a ? &b : &a, LEN, i);
		wait_for(&a, &b, streams(from));
		for (ms = 0; ms < 30000 && streams(from); ms += 100) {
			atomic_fetch_add(&skew_ns, 100000000);
			run_for(&a, &b, 2);
		}
		check_int(streams(from), 0);
		check(ms > 4000, "closed after %u ms", ms);
	}
	part(&a, &b);
}

/* Stalls, and with it all that waits for an idle stream. */
static uint64_t frozen(void)
{
	static uint64_t begin;

	if (!begin)
		begin = now_ms() * 1000000;
	return begin + atomic_load(&skew_ns);
}

enum { STREAMS = 2 }; /* that a first put dials */

static void need_streams(struct side *a, struct side *b, unsigned int seed)
{
	put_checked(a, b, LEN, seed);
	put_checked(b, a, LEN, seed + 1);
	wait_for(a, b, streams(a) == STREAMS && streams(b) == STREAMS);
}

/* Transfers wait while a side handles a dial. */
static void one_at_a_time(void)
{
	enum { MOST = 8 };
	struct side s[2];
	unsigned int seed = 2;

	meet(&s[0], &s[1]);
	need_streams(&s[0], &s[1], 0);
	for (int i = 0; i < 2; i++) { /* one dials, one asks for it */
		watched = tcp_conn(weft_ep_conn(s[i].ep))->bulk;
		watched->out_limit = MOST;
		for (dialing = 0; streams(&s[i]) < MOST; seed++)
			put_checked(&s[i], &s[!i], LEN, seed);
		check(dialing == 1 || row->slow, "%u at a time", dialing);
		watched = NULL;
	}
	part(&s[0], &s[1]);
}

/* UCP keeps those that a program has closed, and makes others. */
static void kept_endpoints(void)
{
	enum { N = 20, BUSY = 5 };
	struct weft_ep *eps[2][N];
	struct side a, b;
	unsigned int i, before;

	meet(&a, &b);
	weft_clock_set(frozen);
	before = count_descriptors();
	for (i = 0; i < N; i++) {
		if (i) {
			a.ep = side_connect(&a, &b, NULL);
			b.ep = side_connect(&b, &a, NULL);
			wait_for(&a, &b,
				 a.ops->ready(a.ep) && b.ops->ready(b.ep));
		}
		eps[0][i] = a.ep;
		eps[1][i] = b.ep;
		need_streams(&a, &b, i);
		atomic_fetch_add(&skew_ns, 50000000);
	}
	/* both ends of all sockets are here */
	wait_for(&a, &b,
		 count_descriptors() <=
			 before + 2 * (N - 1 + BUSY * 2 * STREAMS));
	for (i = 0; i < N; i++) {
		a.ep = eps[0][i];
		b.ep = eps[1][i];
		put_checked(&a, &b, LEN, i);
		put_checked(&b, &a, LEN, i);
		if (i == N - 1)
			break;
		a.ops->ep_destroy(a.ep);
		b.ops->ep_destroy(b.ep);
	}
	part(&a, &b);
}

/* Those to a peer that may still use its own endpoint, too. */
static void left_endpoint(void)
{
	struct side a, b;
	unsigned int before, with;

	meet(&a, &b);
	weft_clock_set(frozen);
	before = count_descriptors();
	need_streams(&a, &b, 1);
	with = count_descriptors();
	a.ops->ep_destroy(a.ep);
	a.ep = NULL;
	wait_for(&a, &b, count_descriptors() <= with - 2 * STREAMS);
	put_checked(&b, &a, LEN, 3);
	b.ops->ep_destroy(b.ep);
	b.ep = NULL;
	/* with the message stream */
	wait_for(&a, &b, count_descriptors() == before - 2);
	part(&a, &b);
}

/* What measuring asks for and does not get leaves the streams that are. */
static void no_more(void)
{
	enum { BIG = 64 << 20 };
	struct side a, b;
	struct target t;
	uint8_t *src = calloc(1, BIG);
	unsigned int i, n;

	for (n = 1; n < 3; n++) {
		meet(&a, &b);
		target_open(&t, BIG);
		atomic_store(&refused, 0);
		atomic_store(&sockets_left, n);
		for (i = 0; i < 9; i++) {
			src[BIG - 1] = i;
			check_int(put_wait(&a, &b, src, BIG, (uintptr_t)t.buf,
					   &t.key, NULL),
				  0);
			check_int(t.buf[BIG - 1], i);
		}
		wait_for(&a, &b, atomic_load(&refused) > 0);
		check_int(streams(&a), n);
		target_close(&t);
		part(&a, &b);
	}
	free(src);
}

/* More than half of the descriptors are in use: one stream each way is left. */
static void one_each_way(void)
{
	struct rlimit lim = { 200, 200 };
	struct side a, b;
	unsigned int i;

	setenv("WEFT_TCP_STREAMS", "8", 1);
	meet(&a, &b);
	check(!setrlimit(RLIMIT_NOFILE, &lim), "no limit");
	while (dup(0) < 100)
		;
	for (i = 0; i < 3; i++) {
		put_checked(&a, &b, LEN, i);
		put_checked(&b, &a, LEN, i + 10);
		check_int(streams(&a), 1);
		check_int(streams(&b), 1);
	}
	check_int(atomic_load(&nmade), 2); /* no other was dialled */
	check_int(log_lines(""), 0);
	part(&a, &b);
}

/* No socket for the message stream: the call fails, and says why. */
static void no_message_stream(void)
{
	struct side a, b;

	meet(&a, &b);
	atomic_store(&sockets_left, 0);
	a.ops->ep_destroy(a.ep);
	check_int(a.ops->ep_create(a.iface, &b.attr.addr, &a, &a.ep), -EMFILE);
	a.ep = NULL;
	run_for(&a, &b, 300);
	check_int(a.errors, 0);
	check_int(log_lines(NO_SOCKET), 1);
	part(&a, &b);
}

const struct conformance_test stream_tests[] = {
	{ "puts go over the message stream without bulk sockets", none },
	{ "gets go over the message stream without bulk sockets",
	  none_for_gets },
	{ "the put and get tests pass without bulk sockets", none_for_all },
	{ "the put and get tests pass under a system call filter",
	  none_and_filtered },
	{ "messages follow their puts without bulk sockets", none_for_order },
	{ "a put beyond its key writes no chunk", beyond },
	{ "puts end over the message stream if every dial fails", none_later },
	{ "one of two bulk sockets carries all", one_of_two },
	{ "a refused further stream leaves the others", no_more },
	{ "half of the descriptors leave a bulk socket each way",
	  one_each_way },
	{ "idle bulk sockets are closed", idle },
	{ "bulk sockets open one by one amid traffic", one_at_a_time },
	{ "endpoints that are kept leave their bulk sockets to others",
	  kept_endpoints },
	{ "an endpoint that is destroyed leaves its bulk sockets at once",
	  left_endpoint },
	{ "an endpoint without a socket fails at once", no_message_stream },
	{ NULL, NULL },
};

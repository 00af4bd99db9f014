/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting: one connection per pair, whichever side dials; unproven peers. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fds.h"
#include "util/clock.h"

#define IDLE_MOST (32L << 10) /* bytes that an idle end may cost */

/* Bytes of this process that are in memory (proc_pid_statm(5)). */
static long resident(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long pages = 0;

	check(f && fscanf(f, "%*d %ld", &pages) == 1, "no statm");
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

/* Sanitizers keep more than they are asked for; other devices have buffers. */
static void check_idle_memory(long before, unsigned int ends)
{
	const long each = (resident() - before) / (long)ends;

	if (!row->sockets || row->slow)
		return;
	check(each <= IDLE_MOST, "an idle end of a connection costs %ld bytes",
	      each);
}

/* A thousand endpoints from both sides at once become a thousand pairs. */
static void simultaneous(void)
{
	static struct weft_ep *ea[1000], *eb[1000];
	/* for a message a GPU's memory is mapped */
	const unsigned int N = rounds(row->blocks ? 100 : 1000);
	struct rlimit lim = { 8192, 8192 };
	struct side a, b;
	unsigned int i, before, kept;
	long memory;

	setrlimit(RLIMIT_NOFILE, &lim);
	side_open(&a);
	side_open(&b);
	before = count_descriptors();
	memory = resident();
	for (i = 0; i < N; i++) {
		ea[i] = side_connect(&a, &b, NULL);
		eb[i] = side_connect(&b, &a, NULL);
	}
	for (i = 0; i < N; i++)
		wait_for(&a, &b, a.ops->ready(ea[i]) && b.ops->ready(eb[i]));
	for (i = 0; i < N; i++) {
		send_pattern(&a, &b, ea[i], 1, 10, i);
		send_pattern(&b, &a, eb[i], 1, 10, i);
	}
	wait_for(&a, &b, a.messages == N && b.messages == N);
	run_for(&a, &b, 50);
	/* a socket and nothing else; both ends are in this process */
	wait_for(&a, &b,
		 count_descriptors() - before == (row->in_process   ? 0
						  : row->one_socket ? 2
								    : 2 * N));
	check_idle_memory(memory, 2 * N);
	for (i = 0; i < N; i++) {
		a.ops->ep_destroy(ea[i]);
		b.ops->ep_destroy(eb[i]);
	}
	kept = row->one_socket ? 2 : 0;
	wait_for(&a, &b, count_descriptors() == before + kept);
	sides_close(&a, &b);
}

/* The peer answers later, over the connection that is already there. */
static void later(void)
{
	struct side a, b;
	unsigned int before, i;

	side_open(&a);
	side_open(&b);
	a.ep = side_connect(&a, &b, NULL);
	wait_for(&a, &b, a.ops->ready(a.ep));
	for (i = 0; i < 50; i++)
		send_pattern(&a, &b, a.ep, 1, 100, i);
	wait_for(&a, &b, b.messages == 50);
	before = count_descriptors();
	b.ep = side_connect(&b, &a, NULL);
	check(b.ops->ready(b.ep), "not ready at once");
	send_pattern(&b, &a, b.ep, 2, 100, 3);
	send_pattern(&a, &b, a.ep, 1, 100, 50);
	wait_for(&a, &b, a.first && b.messages == 51);
	check_message(&a, 2, 100, 3);
	for (i = 0; i < 51; i++)
		check_message(&b, 1, 100, i);
	/* what was mapped for a message is unmapped later */
	wait_for(&a, &b, count_descriptors() <= before);
	sides_close(&a, &b);
}

/* The accepting side stays passive, and sees nothing when the other ends. */
static void passive_end(void)
{
	struct side a, b;
	unsigned int before;

	side_open(&b);
	before = count_descriptors();
	side_open(&a);
	a.ep = side_connect(&a, &b, NULL);
	wait_for(&a, &b, a.ops->ready(a.ep));
	send_pattern(&a, &b, a.ep, 1, 100, 3);
	wait_for(&a, &b, b.first);
	side_close(&a);
	wait_for(&b, NULL, count_descriptors() == before);
	check_int(b.errors, 0);
	check_message(&b, 1, 100, 3);
	side_close(&b);
}

static uint64_t ahead_ms;

static uint64_t clock_ahead(void)
{
	return (now_ms() + ahead_ms) * 1000000;
}

/* A minute between two calls of progress(): no peer has let us wait. */
static void after_a_stall(void)
{
	struct side a, b;

	weft_clock_set(clock_ahead);
	side_open(&a);
	side_open(&b);
	a.ep = side_connect(&a, &b, NULL);
	b.ep = side_connect(&b, &a, NULL);
	ahead_ms = 60000;
	usleep(600000); /* for the devices' timers */
	wait_for(&a, &b,
		 (a.ops->ready(a.ep) && b.ops->ready(b.ep)) || a.errors ||
			 b.errors);
	check_int(a.errors + b.errors, 0);
	sides_close(&a, &b);
}

/*
 * One side gives its endpoint up at any moment of meeting; the other gets
 * there, whether it dials as well or later.
 */
static void given_up(void)
{
	unsigned int seed = 7, sockets, before, i, j;
	struct side a, b, *quits, *stays;
	struct weft_ep *ep;
	bool both, late;

	side_open(&a);
	side_open(&b);
	sockets = count_descriptors();
	for (i = 0; i < rounds(200); i++) {
		/* either of the two has the smaller key */
		quits = i % 2 ? &a : &b;
		stays = i % 2 ? &b : &a;
		both = i / 2 % 2;
		late = i / 4 % 2;
		if (both && late)
			stays->ep = side_connect(stays, quits, NULL);
		ep = side_connect(quits, stays, NULL);
		if (both && !late)
			stays->ep = side_connect(stays, quits, NULL);
		for (j = rand_r(&seed) % 30; j; j--)
			side_progress(rand_r(&seed) % 2 ? quits : stays);
		quits->ops->ep_destroy(ep);
		for (j = rand_r(&seed) % 12; !both && j; j--)
			side_progress(rand_r(&seed) % 2 ? quits : stays);
		if (!both)
			stays->ep = side_connect(stays, quits, NULL);
		before = stays->errors;
		wait_for(&a, &b,
			 stays->ops->ready(stays->ep) ||
				 stays->errors != before);
		check(stays->errors == before, "round %u: error %d", i,
		      stays->error);
		send_pattern(stays, quits, stays->ep, 3, 100, i);
		wait_for(&a, &b, quits->first || stays->errors != before);
		check(stays->errors == before, "round %u: error %d", i,
		      stays->error);
		check_message(quits, 3, 100, i);
		stays->ops->ep_destroy(stays->ep);
		stays->ep = NULL;
		for (j = 0; j < 20; j++)
			both_progress(&a, &b);
	}
	/* and nothing stays behind, but what a pair has in any case */
	if (!row->one_socket)
		wait_for(&a, &b, count_descriptors() == sockets);
	sides_close(&a, &b);
}

/*
 * B makes no progress for several times WEFT_CONNECT_TIMEOUT after it gave its
 * address away: it is busy, whichever of the two has the smaller key.
 */
static void busy(bool dials)
{
	struct side a[3], b[3];
	uint64_t begin;
	unsigned int i;

	if (row->in_process)
		skip_test("there is no listener");
	setenv("WEFT_CONNECT_TIMEOUT", "1s", 1);
	log_keep();
	for (i = 0; i < ARRAY_SIZE(a); i++) {
		side_open(&a[i]);
		side_open(&b[i]);
		a[i].ep = side_connect(&a[i], &b[i], NULL);
		if (dials)
			b[i].ep = side_connect(&b[i], &a[i], NULL);
	}
	for (begin = now_ms(); now_ms() - begin < 4000; usleep(1000))
		for (i = 0; i < ARRAY_SIZE(a); i++)
			side_progress(&a[i]);
	for (i = 0; i < ARRAY_SIZE(a); i++) {
		check_int(a[i].errors, 0);
		if (!dials)
			b[i].ep = side_connect(&b[i], &a[i], NULL);
		send_pattern(&a[i], &b[i], a[i].ep, 1, 100, 3);
		send_pattern(&b[i], &a[i], b[i].ep, 2, 100, 4);
		wait_for(&a[i], &b[i],
			 (a[i].first && b[i].first) || a[i].errors ||
				 b[i].errors);
		check_int(a[i].errors + b[i].errors, 0);
		check_message(&b[i], 1, 100, 3);
		check_message(&a[i], 2, 100, 4);
	}
	check_int(log_lines("WEFT_CONNECT_TIMEOUT"), 0);
	for (i = 0; i < ARRAY_SIZE(a); i++)
		sides_close(&a[i], &b[i]);
}

static void busy_listener(void)
{
	busy(false);
}

static void busy_dialler(void)
{
	busy(true);
}

/* Without a descriptor there is no dial: the call alone reports it. */
static void no_descriptor(void)
{
	struct side a, b;

	if (row->in_process)
		skip_test("needs no socket");
	side_open(&a);
	side_open(&b);
	allow_fds(false);
	check_int(a.ops->ep_create(a.iface, &b.attr.addr, NULL, &a.ep),
		  -EMFILE);
	a.ep = NULL;
	run_for(&a, &b, 300);
	check_int(a.errors, 0);
	allow_fds(true);
	a.ep = side_connect(&a, &b, NULL);
	send_pattern(&a, &b, a.ep, 1, 100, 3);
	wait_for(&a, &b, b.first);
	check_message(&b, 1, 100, 3);
	sides_close(&a, &b);
}

/* One that waited for room is destroyed: no on_ready() is owed any more. */
static void room_for_destroyed(void)
{
	struct side a, b;
	struct iovec iov;
	unsigned int i;

	sides_open(&a, &b);
	iov = (struct iovec){ calloc(1, 8192), fit(&b, 8192) };
	for (i = 0; i < 100000 && a.ops->ready(a.ep); i++)
		a.ops->message(a.ep, 1, &iov, 1);
	check(i < 100000, "there is always room");
	a.ops->ep_destroy(a.ep);
	a.ep = NULL;
	run_for(&b, &a, 200);
	for (i = 0; i < 1000 && a.ops->arm(a.iface); i++)
		side_progress(&a);
	check(i < 1000, "it can never sleep again");
	free(iov.iov_base);
	sides_close(&a, &b);
}

/* A child that holds the sockets after they are closed here, until killed. */
static pid_t fork_holder(void)
{
	pid_t pid = fork();

	check(pid >= 0, "no child");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	return pid;
}

static void forked(void)
{
	struct side a, b;
	pid_t pid;

	sides_open(&a, &b);
	pid = fork_holder();
	a.ops->ep_destroy(a.ep);
	a.ep = NULL;
	b.ops->ep_destroy(b.ep);
	b.ep = NULL;
	run_for(&a, &b, 100);
	side_close(&b);
	run_for(&a, NULL, 300);
	check_int(a.errors + b.errors, 0);
	side_close(&a);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void forked_then_closed(void)
{
	struct side a, b;
	pid_t pid;

	sides_open(&a, &b);
	pid = fork_holder();
	side_close(&b);
	wait_for(&a, NULL, a.errors);
	check_int(a.error, -ESHUTDOWN);
	side_close(&a);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* In a process of its own: settings are read once. */
static void resting(unsigned int sec)
{
	unsigned int fd, idle, intvl, cnt, seen = 0;
	struct sockaddr_storage sa;
	socklen_t len;
	struct side a, b;
	char text[16];

	snprintf(text, sizeof(text), "%us", sec);
	setenv("WEFT_PEER_TIMEOUT", text, 1);
	sides_open(&a, &b);
	for (fd = 3; fd < 200; fd++) {
		len = sizeof(sa);
		if (getpeername(fd, (struct sockaddr *)&sa, &len) ||
		    sa.ss_family != row->family)
			continue;
		len = sizeof(idle);
		check(!getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &idle, &len) &&
			      idle,
		      "keepalive is off");
		check(!getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &len) &&
			      !getsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL,
					  &intvl, &len) &&
			      !getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &cnt,
					  &len),
		      "keepalive is not set: %s", strerror(errno));
		/* the last probe comes after an outage of less */
		check((cnt - 1) * intvl >= sec,
		      "an outage of %u * %u of %u s kills", cnt - 1, intvl,
		      sec);
		check(idle + cnt * intvl <= (sec > 2 ? 2 * sec : 4),
		      "dead after %u + %u * %u s, not %u", idle, cnt, intvl,
		      sec);
		check(cnt >= 3, "%u lost packets kill", cnt);
		seen++;
	}
	check_int(seen, 2);
	sides_close(&a, &b);
}

/*
 * An idle connection dies of WEFT_PEER_TIMEOUT without an answer, not less.
 */
static void idles(void)
{
	static const unsigned int secs[] = { 1, 4, 5, 8, 60, 600, 3600 };
	unsigned int i;
	int status;
	pid_t pid;

	if (!row->sockets)
		skip_test("watches its connections otherwise");
	for (i = 0; i < sizeof(secs) / sizeof(*secs); i++) {
		pid = fork();
		if (!pid) {
			resting(secs[i]);
			exit(0);
		}
		check(waitpid(pid, &status, 0) == pid, "no child");
		check(!status, "WEFT_PEER_TIMEOUT=%us", secs[i]);
	}
}

/* Another process listens at the address. */
static void wrong_key(void)
{
	struct weft_address other;
	struct side a, b;

	log_keep();
	side_open(&a);
	side_open(&b);
	other = b.attr.addr;
	other.key[5] ^= 0x10;
	check_int(a.ops->ep_create(a.iface, &other, NULL, &a.ep), 0);
	wait_for(&a, &b, a.errors);
	check_int(b.messages, 0);
	/* the last if sockets are named by key: there is no listener */
	check(a.error == -EACCES || a.error == -ECONNRESET ||
		      a.error == -ECONNREFUSED,
	      "the error is %d", a.error);
	check_int(b.errors, 0);
	if (a.error == -EACCES) { /* the one that looked says so, once */
		check_int(log_lines("does not know the key in its own address"),
			  1);
		check_int(log_lines(""), 1);
	}
	side_close(&a);
	side_close(&b);
}

/* Nothing listens there any more. */
static void no_listener(void)
{
	struct weft_address gone;
	struct side a, b;

	side_open(&a);
	side_open(&b);
	gone = b.attr.addr;
	side_close(&b);
	check_int(a.ops->ep_create(a.iface, &gone, NULL, &a.ep), 0);
	wait_for(&a, NULL, a.errors);
	check(a.error < 0, "the error is %d", a.error);
	check_int(a.errors, 1);
	side_close(&a);
}

/* A newer release that shares no version with us is out of reach. */
static void other_version(void)
{
	struct weft_address newer;
	const char *why = NULL;
	struct side a, b;

	side_open(&a);
	side_open(&b);
	newer = b.attr.addr;
	newer.wire_min = newer.wire_max = WEFT_WIRE_MAX + 1;
	check(!a.ops->reaches(a.iface, &newer, &why),
	      "a peer of another version is reached");
	check(why == weft_other_wire, "why is '%s'", why);
	why = NULL;
	newer = b.attr.addr;
	newer.ns_id = ~newer.ns_id;
	check(!a.ops->reaches(a.iface, &newer, &why),
	      "another namespace is reached");
	check(why && why != weft_other_wire, "why is '%s'", why);
	side_close(&a);
	side_close(&b);
}

const struct conformance_test meet_tests[] = {
	{ "1000 simultaneous connects from both sides", simultaneous },
	{ "a peer replies over the existing connection", later },
	{ "a passive side sees nothing when the other ends", passive_end },
	{ "destroying an endpoint while connecting spares the other side",
	  given_up },
	{ "a peer that is busy for longer than WEFT_CONNECT_TIMEOUT is met",
	  busy_listener, true },
	{ "a peer that is busy after its own dial is met", busy_dialler, true },
	{ "a dial without a descriptor fails in ep_create()", no_descriptor },
	{ "a child may hold the sockets of closed connections", forked },
	{ "a peer's end is seen even if a child of it holds its sockets",
	  forked_then_closed },
	{ "a destroyed endpoint that waited for room lets its caller sleep",
	  room_for_destroyed },
	{ "a stalled process fails no connection being set up", after_a_stall },
	{ "an idle connection outlives less than WEFT_PEER_TIMEOUT", idles },
	{ "a wrong key is refused", wrong_key },
	{ "an address without a listener is an error", no_listener },
	{ "other versions and namespaces are out of reach", other_version },
	{ NULL, NULL },
};

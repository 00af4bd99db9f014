/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that connects and proves nothing harms no peer. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Garbage, scans and silence on the port cost a real peer nothing. */
static void unproven(void)
{
	enum { N = 60 };
	struct side a, b;
	uint8_t junk[200];
	int fd[N];
	unsigned int i, before;

	if (!row->sockets)
		skip_test("no port to knock at");
	side_open(&a);
	side_open(&b);
	before = count_descriptors();
	for (i = 0; i < N; i++) {
		fd[i] = raw_connect(&b);
		pattern_fill(junk, sizeof(junk), i);
		if (i % 3 == 0)
			check(write(fd[i], junk, sizeof(junk)) > 0, "write");
		else if (i % 3 == 1)
			check(!close(fd[i]), "close");
	}
	a.ep = side_connect(&a, &b, NULL);
	b.ep = side_connect(&b, &a, NULL);
	wait_for(&a, &b, a.ops->ready(a.ep) && b.ops->ready(b.ep));
	send_pattern(&a, &b, a.ep, 1, fit(&a, 50000), 3);
	wait_for(&a, &b, b.first);
	check_message(&b, 1, fit(&a, 50000), 3);
	/* the garbage is gone; the silent ones wait for their deadline */
	wait_for(&a, &b, count_descriptors() <= before + 2 + N / 3 * 2 + N / 3);
	check_int(b.messages, 1);
	for (i = 0; i < N; i++)
		if (i % 3 != 1)
			close(fd[i]);
	wait_for(&a, &b, count_descriptors() == before + 2);
	sides_close(&a, &b);
}

/* @n that connect and say nothing, until end_crowd(). */
static pid_t begin_crowd(const struct side *s, unsigned int n, int *leave)
{
	int there[2], end[2];
	char c;
	pid_t pid;

	check(!pipe(there) && !pipe(end), "no pipe");
	pid = fork();
	if (!pid) {
		close(end[1]);
		while (n--)
			raw_connect(s);
		check(write(there[1], "", 1) == 1, "pipe");
		_exit(read(end[0], &c, 1));
	}
	close(end[0]);
	close(there[1]);
	check(read(there[0], &c, 1) == 1, "pipe");
	close(there[0]);
	*leave = end[1];
	return pid;
}

static void end_crowd(pid_t pid, int leave)
{
	close(leave);
	check(waitpid(pid, NULL, 0) == pid, "no child");
}

/* Silent ones in numbers leave most descriptors to the program, and sleep. */
static void crowd(void)
{
	enum { CROWD = 120, FDS = 256, MOST = FDS / 4 };
	struct rlimit lim = { FDS, FDS };
	struct side a, b;
	unsigned int i, before, slept = 0;
	int leave;
	pid_t pid;

	if (!row->sockets)
		skip_test("no port to knock at");
	check(!setrlimit(RLIMIT_NOFILE, &lim), "no limit");
	side_open(&b);
	before = count_descriptors();
	pid = begin_crowd(&b, CROWD, &leave);
	wait_for(&b, NULL, count_descriptors() == before + MOST);
	for (i = 0; i < 30; i++) {
		side_progress(&b);
		check_int(count_descriptors(), before + MOST);
		if (!b.ops->arm(b.iface) && !side_is_woken(&b, 10))
			slept++;
	}
	/* the timer of deadlines rings now and then, and has another look */
	check(slept > 15, "slept in %u of 30 rounds", slept);
	end_crowd(pid, leave);
	side_open(&a);
	a.ep = side_connect(&a, &b, NULL);
	wait_for(&a, &b, a.ops->ready(a.ep));
	wait_for(&a, &b, count_descriptors() == before + 3);
	sides_close(&a, &b);
}

/*
 * Neither those that have all places nor those that wait for one keep us out.
 */
static void past_the_crowd(void)
{
	enum { CROWD = 200, FDS = 256 };
	struct rlimit lim = { FDS, FDS };
	struct side a, b;
	int leave;
	pid_t pid;

	if (!row->sockets)
		skip_test("no port to knock at");
	setenv("WEFT_CONNECT_TIMEOUT", "3600s", 1);
	check(!setrlimit(RLIMIT_NOFILE, &lim), "no limit");
	side_open(&b);
	pid = begin_crowd(&b, CROWD, &leave);
	side_open(&a);
	a.ep = side_connect(&a, &b, NULL);
	wait_for(&a, &b, a.ops->ready(a.ep));
	send_pattern(&a, &b, a.ep, 1, 100, 3);
	wait_for(&a, &b, b.first);
	check_message(&b, 1, 100, 3);
	end_crowd(pid, leave);
	sides_close(&a, &b);
}

/* One that says @word alone goes at its deadline, and a scan is no news. */
static void says_alone(const char *word, const char *timeout)
{
	struct side b;
	unsigned int before;
	int fd;

	if (!row->sockets)
		skip_test("no port to knock at");
	setenv("WEFT_CONNECT_TIMEOUT", timeout, 1);
	log_keep();
	side_open(&b);
	before = count_descriptors();
	fd = raw_connect(&b);
	check(write(fd, word, strlen(word)) == (ssize_t)strlen(word), "write");
	wait_for(&b, NULL, count_descriptors() == before + 2);
	wait_for(&b, NULL, count_descriptors() == before + 1);
	check_int(log_lines(""), 0);
	close(fd);
	side_close(&b);
}

/* A silent connection has a shorter deadline than a peer. */
static void not_a_word(void)
{
	says_alone("", "3600s");
}

/* A listener whose places are taken hangs up; it is dialled again. */
static void hung_up_on(void)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	struct weft_address where;
	struct side a, b;
	unsigned int times;
	int listener, fd;

	if (!row->sockets)
		skip_test("no port to knock at");
	side_open(&a);
	side_open(&b);
	where = b.attr.addr;
	/* a listener before it accepts and closes */
	listener = socket(row->family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	memcpy(&sa, &where.sa, sizeof(where.sa));
	if (row->family == AF_INET6)
		((struct sockaddr_in6 *)&sa)->sin6_port = 0;
	else
		((struct sockaddr_in *)&sa)->sin_port = 0;
	check(!bind(listener, (struct sockaddr *)&sa,
		    weft_sockaddr_len(&where.sa)) &&
		      !listen(listener, 8) &&
		      !getsockname(listener, (struct sockaddr *)&sa, &len),
	      "no listener");
	memcpy(&where.sa, &sa, sizeof(where.sa));
	check_int(a.ops->ep_create(a.iface, &where, NULL, &a.ep), 0);
	for (times = 0; times < 2; times++) {
		do {
			both_progress(&a, NULL);
			fd = accept(listener, NULL, NULL);
		} while (fd < 0 && !a.errors);
		check(fd >= 0, "given up after %u", times);
		close(fd);
	}
	/* not forever */
	while (!a.errors) {
		both_progress(&a, NULL);
		fd = accept(listener, NULL, NULL);
		if (fd >= 0) {
			check(++times < 20, "dialled on and on");
			close(fd);
		}
	}
	check_int(a.error, -ECONNRESET);
	close(listener);
	side_close(&a);
	side_close(&b);
}

static void half_open(void)
{
	says_alone("w", "1s");
}

const struct conformance_test unproven_tests[] = {
	{ "garbage, scans and silent connections harm no peer", unproven },
	{ "silent connections leave most descriptors free", crowd },
	{ "a peer connects past many silent connections", past_the_crowd },
	{ "a silent connection is closed after seconds", not_a_word, true },
	{ "a listener that hangs up is dialled again", hung_up_on },
	{ "a half-open connection is closed at its deadline", half_open, true },
	{ NULL, NULL },
};

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forked children: whatever one does with what it inherited, its parent and the
 * parent's peers notice nothing; and it does not keep them apart either.
 */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN (3u << 20)

static struct target here, there; /* of sides a and b */

static pid_t fork_child(void)
{
	pid_t pid = fork();

	check(pid >= 0, "no child");
	if (!pid)
		check(!prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
	return pid;
}

/* Messages both ways, a put and a get, by value. */
static void talk(struct side *a, struct side *b, unsigned int seed)
{
	uint8_t *src = malloc(LEN);

	send_pattern(a, b, a->ep, 1, 3000, seed);
	send_pattern(b, a, b->ep, 2, 3000, seed + 1);
	wait_for(a, b, a->first && b->first);
	check_message(b, 1, 3000, seed);
	check_message(a, 2, 3000, seed + 1);
	pattern_fill(src, LEN, seed + 2);
	check_int(
		put_wait(a, b, src, LEN, (uintptr_t)there.buf, there.key, NULL),
		0);
	pattern_check("put", there.buf, LEN, seed + 2);
	check_int(get_wait(b, a, src, LEN, (uintptr_t)here.buf, here.key), 0);
	pattern_check("get", src, LEN, 7);
	free(src);
	check_int(a->errors + b->errors, 0);
}

/* An epoll set is its children's as well. */
static void sleep_and_wake(struct side *s, struct side *other)
{
	wait_for(s, other, !s->ops->arm(s->iface));
	send_pattern(other, NULL, other->ep, 3, 100, 5);
	wait_for(NULL, other, side_is_woken(s, 0));
	wait_for(s, other, s->first);
	check_message(s, 3, 100, 5);
}

static void check_all(struct side *a, struct side *b)
{
	struct side c;

	talk(a, b, 100);
	sleep_and_wake(a, b);
	sleep_and_wake(b, a);
	/* they still listen */
	side_open(&c);
	c.ep = side_connect(&c, a, NULL);
	send_pattern(&c, a, c.ep, 4, 200, 9);
	wait_for(&c, a, a->first);
	check_message(a, 4, 200, 9);
	c.ops->ep_destroy(c.ep);
	c.ep = NULL;
	side_close(&c);
}

/* A child does @what, amid traffic or while there is none. */
static void run_child(void (*what)(struct side *a, struct side *b),
		      bool traffic)
{
	struct side a, b;
	unsigned int seed = 0;
	int status;
	pid_t pid;

	sides_open(&a, &b);
	target_open(&here, LEN);
	target_open(&there, LEN);
	pattern_fill(here.buf, LEN, 7);
	talk(&a, &b, 0);
	pid = fork_child();
	if (!pid) {
		what(&a, &b);
		exit(0);
	}
	while (!waitpid(pid, &status, traffic ? WNOHANG : 0))
		talk(&a, &b, ++seed);
	check(!status, "the child ended with %x", status);
	check_all(&a, &b);
	target_close(&here);
	target_close(&there);
	sides_close(&a, &b);
}

static void with_child(void (*what)(struct side *a, struct side *b))
{
	if (row->in_process)
		skip_test("it has nothing that a child would share");
	run_child(what, false);
	run_child(what, true);
}

static void do_nothing(struct side *a, struct side *b)
{
}

static void leave_at_once(struct side *a, struct side *b)
{
	_exit(0);
}

/* As the destructors of a program would; @b stands for another process. */
static void close_a(struct side *a, struct side *b)
{
	row->ops->mem_release(here.mem);
	a->ops = a->iface->ops;
	side_progress(a);
	check_int(a->ops->flush(a->ep, NULL), 0);
	side_close(a);
}

static void close_b(struct side *a, struct side *b)
{
	close_a(b, a);
}

static void try_all(struct side *a, struct side *b)
{
	const struct weft_dev_ops *ops = a->iface->ops;
	struct weft_iov iov = { &iov, sizeof(iov), NULL };
	struct wait_op w;
	struct weft_ep *ep;

	log_keep();
	wait_op_init(&w);
	check_int(ops->ready(a->ep), true);
	check_int(ops->message(a->ep, 1, NULL, 0), -ECONNRESET);
	check_int(ops->put(a->ep, &iov, 1, (uintptr_t)there.buf, there.key,
			   NULL, &w.op),
		  -ECONNRESET);
	check_int(ops->get(a->ep, &iov, 1, (uintptr_t)there.buf, there.key,
			   &w.op),
		  -ECONNRESET);
	check_int(ops->reaches(a->iface, &b->attr.addr, NULL), 0);
	check_int(ops->ep_create(a->iface, &b->attr.addr, NULL, &ep),
		  -ECONNRESET);
	check_int(ops->arm(a->iface), 0);
	ops->cancel(a->ep);
	check_int(w.done, 0);
	check_int(log_lines("was forked off"), 1);
	check_int(log_lines(""), 1);
}

static void exits(void)
{
	with_child(do_nothing);
}

static void exits_at_once(void)
{
	with_child(leave_at_once);
}

static void closes(void)
{
	with_child(close_a);
	with_child(close_b);
}

static void tries(void)
{
	with_child(try_all);
}

/* Nor a socket that waits until a peer has read why its connection failed. */
static void keeps_nothing(void)
{
	const unsigned int before = count_descriptors();
	struct side a, b;
	uint8_t *src = malloc(LEN);
	struct wait_op w;
	int status;
	pid_t pid;

	if (row->in_process || row->own_keys)
		skip_test(
			"no memory that cannot be written ends its connections");
	log_keep();
	sides_open(&a, &b);
	target_open(&here, LEN);
	target_open(&there, LEN);
	pattern_fill(here.buf, LEN, 7);
	pattern_fill(src, LEN, 8);
	talk(&a, &b, 0);
	check_int(mprotect(there.map, there.map_len, PROT_NONE), 0);
	put_start(&a, &w, src, LEN, (uintptr_t)there.buf, there.key);
	wait_for(&a, &b, b.errors);
	pid = fork_child();
	if (!pid) {
		check_int(count_descriptors(), before);
		_exit(0);
	}
	check(waitpid(pid, &status, 0) == pid && !status, "child: %x", status);
	sides_fail(&a, &b);
	check_int(w.status, -EACCES);
	check_int(mprotect(there.map, there.map_len, PROT_READ | PROT_WRITE),
		  0);
	target_close(&here);
	target_close(&there);
	sides_close(&a, &b);
	free(src);
}

/* One that has interfaces of its own is a process like any other. */
static void opens(void)
{
	struct side a, c;
	int status;
	pid_t pid;

	if (row->in_process)
		skip_test("its peers are in this process");
	if (row->blocks)
		skip_test("the device has no messages");
#ifdef __SANITIZE_THREAD__
	skip_test("TSan has no threads in a child of one that has");
#elif defined(__SANITIZE_ADDRESS__)
	if (row->own_keys) /* they begin, with a lock of the allocator's */
		skip_test("ASan has no memory in a child of one with threads");
#endif
	side_open(&a);
	pid = fork_child();
	if (!pid) {
		side_open(&c);
		c.ep = side_connect(&c, &a, NULL);
		send_pattern(&c, NULL, c.ep, 6, 500, 3);
		wait_for(&c, NULL, !c.ops->flush(c.ep, NULL));
		side_close(&c);
		a.ops = a.iface->ops;
		side_close(&a);
		exit(0);
	}
	wait_for(&a, NULL, a.first);
	check_message(&a, 6, 500, 3);
	while (!waitpid(pid, &status, WNOHANG))
		side_progress(&a);
	check(!status, "the child ended with %x", status);
	side_close(&a);
}

/* A process with an interface, and a child that lives until @hold ends. */
static void be_peer(int out, int hold, bool leaves)
{
	struct side b;
	char c;

	side_open(&b);
	check(write(out, &b.attr.addr, sizeof(b.attr.addr)) ==
		      sizeof(b.attr.addr),
	      "pipe");
	wait_for(&b, NULL, b.messages);
	if (!fork())
		_exit(read(hold, &c, 1));
	check(write(out, "", 1) == 1, "pipe");
	if (leaves)
		_exit(0);
	for (;;)
		side_progress(&b);
}

/* daemon() ends a process like this, too. */
static void parent_ends(bool leaves)
{
	int in[2], hold[2];
	struct side a, b;
	pid_t pid;
	char c;

	if (row->in_process)
		skip_test("its peers are in this process");
	check(!pipe(in) && !pipe(hold), "no pipe");
	pid = fork_child();
	if (!pid) {
		close(hold[1]);
		be_peer(in[1], hold[0], leaves);
	}
	log_keep(); /* an adapter's peer is lost */
	side_open(&a);
	check(read(in[0], &b.attr.addr, sizeof(b.attr.addr)) ==
		      sizeof(b.attr.addr),
	      "pipe");
	a.ep = side_connect(&a, &b, NULL);
	send_pattern(&a, NULL, a.ep, 1, 100, 1);
	while (fcntl(in[0], F_SETFL, O_NONBLOCK) || read(in[0], &c, 1) != 1)
		side_progress(&a);
	if (!leaves) {
		check_int(a.errors, 0);
		kill(pid, SIGKILL);
	}
	wait_for(&a, NULL, a.errors);
	check(a.error == -ECONNRESET || a.error == -EPIPE, "the error is %d",
	      a.error);
	waitpid(pid, NULL, 0);
	close(hold[1]);
	side_close(&a);
}

static void parent_is_killed(void)
{
	parent_ends(false);
}

static void parent_leaves(void)
{
	parent_ends(true);
}

static unsigned int list_inheritable(void)
{
	unsigned int n = 0;
	int fd, flags;

	for (fd = 0; fd < 1024; fd++) {
		flags = fcntl(fd, F_GETFD);
		n += flags >= 0 && !(flags & FD_CLOEXEC);
	}
	return n;
}

static void execs(void)
{
	unsigned int before = list_inheritable();
	struct side a, b;

	sides_open(&a, &b);
	target_open(&here, LEN);
	target_open(&there, LEN);
	pattern_fill(here.buf, LEN, 7);
	talk(&a, &b, 0);
	check_int(list_inheritable(), before);
	target_close(&here);
	target_close(&there);
	sides_close(&a, &b);
}

const struct conformance_test fork_tests[] = {
	{ "a forked child that exits harms no connection", exits },
	{ "a forked child that leaves by _exit() harms no connection",
	  exits_at_once },
	{ "a forked child that closes all it inherited harms no connection",
	  closes },
	{ "a forked child that uses what it inherited gets an error", tries },
	{ "a forked child keeps no descriptor", keeps_nothing },
	{ "a forked child may have interfaces of its own", opens },
	{ "a process that is killed is missed though a child of it lives",
	  parent_is_killed },
	{ "a process that leaves is missed though a child of it lives",
	  parent_leaves },
	{ "a program that is executed inherits nothing", execs },
	{ NULL, NULL },
};

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process that ends without a word, as soon as it has been promised
 * something: by SIGKILL, by exit() or by _exit(), in the callback that says so.
 * What was promised holds, and what was not is missing from the end, not in
 * between.
 */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define N	600
#define FEW	8 /* for which there is room */
#define LEN	100
#define BIG	(1u << 20)
#define LOST	3   /* the exit status of one whose promise was none */
#define HOLD_MS 200 /* for which its output stays unread */

enum end { BY_SIGKILL, BY_EXIT, BY_EXIT_AT_ONCE, ENDS };

static void __attribute__((noreturn)) end_by(enum end how)
{
	if (how == BY_SIGKILL)
		raise(SIGKILL);
	if (how == BY_EXIT)
		exit(0);
	_exit(0);
}

/* What two processes tell each other of a side and its memory. */
struct terms {
	struct weft_address addr;
	uint8_t key[WEFT_RKEY_MAX];
	uint64_t at;
};

/* A process with a side, seen from the other one. */
struct other {
	pid_t pid; /* 0: we are the one that ends */
	int in, out;
	struct side s;	 /* ours */
	struct target t; /* of BIG bytes; ours */
	struct terms terms;
};

static void say(struct other *o)
{
	check(write(o->out, "", 1) == 1, "pipe");
}

static void hear(struct other *o)
{
	char c;

	check(read(o->in, &c, 1) == 1, "pipe");
}

static bool is_said(const struct other *o)
{
	struct pollfd fd = { .fd = o->in, .events = POLLIN };

	return poll(&fd, 1, 0) == 1;
}

static void meet(struct other *o)
{
	struct terms mine;

	side_open(&o->s);
	target_open(&o->t, BIG);
	memset(&mine, 0, sizeof(mine));
	mine.addr = o->s.attr.addr;
	memcpy(mine.key, o->t.key, sizeof(mine.key));
	mine.at = (uintptr_t)o->t.buf;
	check(write(o->out, &mine, sizeof(mine)) == sizeof(mine) &&
		      read(o->in, &o->terms, sizeof(o->terms)) ==
			      sizeof(o->terms),
	      "pipe");
	check_int(o->s.ops->ep_create(o->s.iface, &o->terms.addr, &o->s,
				      &o->s.ep),
		  0);
	/* a message each way, so that both know that they have met */
	send_pattern(&o->s, NULL, o->s.ep, 2, 8, 1);
	wait_for(&o->s, NULL, o->s.first);
	check_message(&o->s, 2, 8, 1);
	wait_for(&o->s, NULL, !o->s.ops->flush(o->s.ep, NULL));
	/* neither ends before: the other's flush may wait for our answer */
	say(o);
	wait_for(&o->s, NULL, is_said(o));
	hear(o);
}

/*
 * Forks one that ends, @one_ends: before we do.  Both have met when this
 * returns, in each.
 */
static void begin(struct other *o, bool one_ends)
{
	int up[2], down[2];

	if (row->in_process)
		skip_test("its peers are in this process");
	log_keep();
	memset(o, 0, sizeof(*o));
	check(!pipe(up) && !pipe(down), "no pipe");
	o->pid = fork();
	check(o->pid >= 0, "no child");
	if (!o->pid && one_ends)
		check(!prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
	o->in = o->pid ? up[0] : down[0];
	o->out = o->pid ? down[1] : up[1];
	close(o->pid ? up[1] : down[1]);
	close(o->pid ? down[0] : up[0]);
	meet(o);
}

/* It has ended, as @how says. */
static void check_end(struct other *o, enum end how)
{
	int status;

	check(waitpid(o->pid, &status, 0) == o->pid, "no child");
	if (how == BY_SIGKILL)
		check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "it ended with %#x", status);
	else
		check(WIFEXITED(status) && !WEXITSTATUS(status),
		      "it ended with %#x", status);
}

static void close_other(struct other *o)
{
	close(o->in);
	close(o->out);
	target_close(&o->t);
	side_close(&o->s);
}

static void listen_and_talk(struct other *o, bool talk)
{
	if (talk)
		o->s.ops->message(o->s.ep, 2, NULL, 0);
	side_progress(&o->s);
}

/*
 * Reads nothing for a while, or until the other process is gone, then all;
 * @talk: what it is sent meanwhile is unread when it ends.
 */
static void listen_to_end(struct other *o, bool talk)
{
	struct pollfd gone = { .fd = o->in, .events = POLLIN };

	poll(&gone, 1, HOLD_MS);
	check(step_until(listen_and_talk(o, talk), o->s.errors),
	      "no end within %d s", WAIT_MS / 1000);
}

static unsigned int check_messages(struct other *o)
{
	unsigned int n = 0;

	while (o->s.first)
		check_message(&o->s, 1, LEN, n++);
	return n;
}

static void speak(struct other *o, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		send_pattern(&o->s, NULL, o->s.ep, 1, LEN, i);
}

static enum end ends_by;

static void end_here(struct wait_op *w)
{
	if (w->status)
		_exit(LOST);
	end_by(ends_by);
}

static void __attribute__((noreturn))
wait_to_end(struct other *o, struct wait_op *w)
{
	wait_for(&o->s, NULL, w->done);
	_exit(LOST);
}

static void say_flush_end(struct other *o, bool poll_it)
{
	struct wait_op w;
	int ret;

	hear(o);
	speak(o, N);
	wait_op_init(&w);
	w.hook = end_here;
	ret = o->s.ops->flush(o->s.ep, poll_it ? NULL : &w.op);
	if (ret == -EINPROGRESS && !poll_it)
		wait_to_end(o, &w);
	wait_for(&o->s, NULL, !o->s.ops->flush(o->s.ep, NULL));
	end_by(ends_by);
}

static void flushed(void)
{
	struct other o;
	unsigned int round;

	for (round = 0; round < 2 * ENDS; round++) {
		ends_by = round / 2;
		begin(&o, true);
		if (!o.pid)
			say_flush_end(&o, round % 2);
		/* it does not read this one, unless it must */
		send_pattern(&o.s, NULL, o.s.ep, 2, 8, 0);
		wait_for(&o.s, NULL, o.s.ops->ready(o.s.ep));
		say(&o);
		listen_to_end(&o, round % 2);
		check_int(check_messages(&o), N);
		check_end(&o, ends_by);
		close_other(&o);
	}
}

/* Both at once: what one answers the other is under way before it ends. */
static void __attribute__((noreturn)) flush_in_step(struct other *o)
{
	struct wait_op w;

	speak(o, FEW);
	wait_op_init(&w);
	w.hook = end_here;
	if (!o->s.ops->flush(o->s.ep, &w.op))
		end_by(ends_by);
	say(o);
	hear(o);
	wait_to_end(o, &w);
}

static void flushed_by_both(void)
{
	struct other o;
	unsigned int round, ended;
	int status;

	if (!row->sockets)
		skip_test("what it answers may end with it");
	/* the second one's parent is the first, which ends */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		skip_test("a grandchild cannot be waited for here, as in qemu");
	for (round = 0; round < rounds(24); round++) {
		ends_by = round % 2 ? BY_EXIT : BY_EXIT_AT_ONCE;
		if (!fork()) {
			begin(&o, false);
			flush_in_step(&o);
		}
		for (ended = 0; wait(&status) > 0; ended++)
			check(WIFEXITED(status) && !WEXITSTATUS(status),
			      "one of the two ended with %#x", status);
		check_int(ended, 2);
	}
}

static void not_flushed(void)
{
	struct other o;
	unsigned int n, how;

	for (how = 0; how < ENDS; how++) {
		begin(&o, true);
		if (!o.pid) {
			hear(&o);
			speak(&o, N);
			if (how == BY_EXIT) {
				o.s.ops->ep_destroy(o.s.ep);
				o.s.ep = NULL;
			}
			end_by(how);
		}
		say(&o);
		listen_to_end(&o, false);
		n = check_messages(&o);
		/* what lies in the memory of the one that reads is there */
		check(n == N || (n < N && (row->sockets || row->one_socket)),
		      "%u messages", n);
		check_end(&o, how);
		close_other(&o);
	}
}

static void closed(void)
{
	struct other o;
	unsigned int how;

	for (how = 0; how < ENDS; how++) {
		begin(&o, true);
		if (!o.pid) {
			hear(&o);
			speak(&o, N);
			wait_for(&o.s, NULL, !o.s.ops->flush(o.s.ep, NULL));
			side_close(&o.s);
			end_by(how);
		}
		say(&o);
		listen_to_end(&o, false);
		check_int(check_messages(&o), N);
		check_int(o.s.error, -ESHUTDOWN);
		check_end(&o, how);
		close_other(&o);
	}
}

static void put_completed(void)
{
	static const size_t sizes[] = { LEN, BIG };
	static const struct weft_notify notify = { 7 };
	struct weft_iov iov = { malloc(BIG), 0, NULL };
	struct other o;
	struct wait_op w;
	unsigned int round;

	for (round = 0; round < 4 * ENDS; round++) {
		ends_by = round / 4;
		iov.len = sizes[round / 2 % 2];
		pattern_fill(iov.addr, iov.len, round);
		begin(&o, true);
		if (!o.pid) {
			wait_op_init(&w);
			w.hook = end_here;
			check_int(o.s.ops->put(o.s.ep, &iov, 1, o.terms.at,
					       &o.terms.key,
					       round % 2 ? &notify : NULL,
					       &w.op),
				  -EINPROGRESS);
			wait_to_end(&o, &w);
		}
		listen_to_end(&o, false);
		pattern_check("put", o.t.buf, iov.len, round);
		check_int(o.s.notifies, round % 2);
		check_end(&o, ends_by);
		close_other(&o);
	}
	free(iov.addr);
}

static void get_completed(void)
{
	static const size_t sizes[] = { LEN, BIG };
	uint8_t *to = malloc(BIG);
	struct other o;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		begin(&o, true);
		if (!o.pid) {
			pattern_fill(o.t.buf, BIG, i);
			say(&o);
			for (;;)
				side_progress(&o.s);
		}
		hear(&o);
		check_int(get_wait(&o.s, NULL, to, sizes[i], o.terms.at,
				   &o.terms.key),
			  0);
		kill(o.pid, SIGKILL);
		listen_to_end(&o, false);
		pattern_check("get", to, sizes[i], i);
		check_end(&o, BY_SIGKILL);
		close_other(&o);
	}
	free(to);
}

const struct conformance_test exit_tests[] = {
	{ "what was flushed arrives, however the process ends then", flushed },
	{ "two that flush and end at once both have been flushed",
	  flushed_by_both },
	{ "of what was not flushed a part arrives, in order", not_flushed },
	{ "what was sent before an interface was closed arrives", closed },
	{ "a put that has completed is placed, however the process ends then",
	  put_completed },
	{ "a get that has completed is here, however its owner ends then",
	  get_completed },
	{ NULL, NULL },
};

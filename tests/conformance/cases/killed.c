/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that are killed, and one that only looks so. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIG (64u << 20)

/* A child that goes on until it is killed, by this test's end at the latest. */
static pid_t fork_victim(void)
{
	pid_t pid = fork();

	check(pid >= 0, "no child");
	if (!pid)
		check(!prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
	return pid;
}

/* What two processes tell each other of a side and its memory. */
struct terms {
	struct weft_address addr;
	uint8_t key[WEFT_RKEY_MAX];
	uint64_t at;
};

/* Opens @s and @t, exchanges terms with the peer, and connects to it. */
static struct terms meet(int to, int from, struct side *s, struct target *t,
			 size_t len)
{
	struct terms mine = { 0 }, theirs;

	side_open(s);
	target_open(t, len);
	mine.addr = s->attr.addr;
	memcpy(mine.key, t->key, sizeof(mine.key));
	mine.at = (uintptr_t)t->buf;
	check(write(to, &mine, sizeof(mine)) == sizeof(mine) &&
		      read(from, &theirs, sizeof(theirs)) == sizeof(theirs),
	      "pipe");
	check_int(s->ops->ep_create(s->iface, &theirs.addr, s, &s->ep), 0);
	wait_for(s, NULL, s->ops->ready(s->ep));
	return theirs;
}

/* The peer was killed: told so, and nothing lands any more. */
static void check_killed(struct side *a, struct target *t)
{
	wait_for(a, NULL, a->errors);
	check(a->error == -ECONNRESET || a->error == -EPIPE, "the error is %d",
	      a->error);
	check(a->error_user == a, "on_error() got another user pointer");
	target_poison(t);
	target_watch_quiet(a, NULL, t);
	check_int(a->errors, 1);
	check(a->ops->message(a->ep, 1, NULL, 0) == a->error,
	      "a dead endpoint took a message");
}

/*
 * A peer is killed in mid-transfer.  The child puts into our memory and reads
 * from it; all ends are reported, and nothing lands afterwards.
 */
static void killed(void)
{
	struct side a;
	struct target t;
	struct wait_op w;
	struct terms to;
	int up[2], down[2];
	uint8_t *src = malloc(BIG);
	pid_t pid;

	if (row->in_process)
		skip_test("its peers are in this process");
	check(!pipe(up) && !pipe(down), "no pipe");
	pid = fork_victim();
	if (!pid) {
		struct side b;

		to = meet(up[1], down[0], &b, &t, BIG);
		for (;;) {
			wait_for(&b, NULL, b.ops->ready(b.ep));
			put_start(&b, &w, src, BIG, to.at, &to.key);
			wait_for(&b, NULL, w.done);
		}
	}
	log_keep();
	to = meet(down[1], up[0], &a, &t, BIG);
	memset(src, 1, BIG);
	put_start(&a, &w, src, BIG, to.at, &to.key);
	wait_for(&a, NULL, peek(t.buf) != POISON);
	kill(pid, SIGKILL);
	check_killed(&a, &t);
	check_int(w.done, 1);
	/* an adapter's peer was lost for one cause */
	check_int(log_lines(""), !strcmp(row->name, "ib"));
	check_int(log_lines("lost its peer"), !strcmp(row->name, "ib"));
	waitpid(pid, NULL, 0);
	target_close(&t);
	free(src);
	side_close(&a);
}

/*
 * A peer is killed between a put's chunks and the message behind its fence: the
 * message is here, some of the chunks are, and it is never delivered.
 */
static void killed_before_message(void)
{
	struct side a;
	struct target t;
	struct wait_op w;
	struct terms to;
	int up[2], down[2];
	uint8_t *src = malloc(BIG);
	struct iovec small = { src, 100 };
	pid_t pid;
	char c;

	if (!row->sockets)
		skip_test("its puts cannot be held up");
	check(!pipe(up) && !pipe(down), "no pipe");
	pid = fork_victim();
	if (!pid) {
		struct side b;

		memset(src, 1, BIG);
		to = meet(up[1], down[0], &b, &t, 1);
		put_start(&b, &w, src, BIG, to.at, &to.key);
		b.ops->fence(b.ep);
		wait_for(&b, NULL, b.ops->ready(b.ep));
		check_int(b.ops->message(b.ep, 1, &small, 1), 0);
		check(write(up[1], "", 1) == 1, "pipe");
		for (;;)
			side_progress(&b);
	}
	atomic_store(&bulk_reads, 4);
	meet(down[1], up[0], &a, &t, BIG);
	wait_for(&a, NULL, !atomic_load(&bulk_reads));
	check(read(up[0], &c, 1) == 1, "pipe");
	run_for(&a, NULL, 20);
	check_int(a.messages, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	atomic_store(&bulk_reads, -1);
	check_killed(&a, &t);
	check_int(a.messages, 0);
	target_close(&t);
	free(src);
	side_close(&a);
}

/* A stalled peer is not dead. */
static void busy_is_not_dead(void)
{
	struct side a, b;
	struct target t;
	struct wait_op w;
	uint8_t *src;
	struct iovec small;

	setenv("WEFT_PEER_TIMEOUT", "1s", 1);
	sides_open(&a, &b);
	src = malloc(BIG);
	pattern_fill(src, BIG, 2);
	target_open(&t, BIG);
	put_start(&a, &w, src, BIG, (uintptr_t)t.buf, &t.key);
	small = (struct iovec){ src, fit(&a, 100000) };
	while (a.ops->ready(a.ep))
		check_int(a.ops->message(a.ep, 1, &small, 1), 0);
	/* its windows are full for four times the timeout */
	run_for(&a, NULL, 4000);
	check_int(a.errors, 0);
	wait_status(&a, &b, w, 0);
	pattern_check("put to a busy peer", t.buf, BIG, 2);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

const struct conformance_test killed_tests[] = {
	{ "a peer killed in mid-transfer is an error", killed },
	{ "no message is delivered whose puts were cut off by a kill",
	  killed_before_message },
	{ "a peer that makes no progress is not dead", busy_is_not_dead, true },
	{ NULL, NULL },
};

/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping on the event fd: no wakeup is lost, whatever comes. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

/* As UCX does it: progress until idle, arm, sleep; not once all is there. */
static void sleep_for_work(struct side *s, int epfd, bool (*enough)(void *),
			   void *arg)
{
	struct pollfd pfd = { s->ops->event_fd(s->iface), POLLIN, 0 };
	struct epoll_event ev;
	int n;

	while (s->ops->progress(s->iface))
		;
	if (enough(arg))
		return;
	n = s->ops->arm(s->iface);
	if (n == -EBUSY)
		return;
	check_int(n, 0);
	if (epfd >= 0)
		n = epoll_wait(epfd, &ev, 1, WAIT_MS);
	else
		n = poll(&pfd, 1, WAIT_MS);
	check(n == 1, "asleep although something is there");
}

struct sleeper {
	struct side *s;
	bool edge;
	unsigned int messages;
	uint64_t notifies;
};

static bool slept_enough(void *arg)
{
	struct sleeper *sl = arg;

	return sl->s->messages >= sl->messages &&
	       sl->s->notifies >= sl->notifies;
}

static bool op_is_done(void *arg)
{
	struct wait_op *w = arg;

	return w->done;
}

static void *sleep_thread(void *arg)
{
	struct sleeper *sl = arg;
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int epfd = -1;

	if (sl->edge) {
		epfd = epoll_create1(0);
		epoll_ctl(epfd, EPOLL_CTL_ADD,
			  sl->s->ops->event_fd(sl->s->iface), &ev);
	}
	while (!slept_enough(sl))
		sleep_for_work(sl->s, epfd, slept_enough, sl);
	if (epfd >= 0)
		close(epfd);
	return NULL;
}

static void pause_some(unsigned int i)
{
	volatile unsigned int n = (i * 2654435761u >> 20) & 4095;

	while (n--)
		;
}

/* Messages one at a time, at every moment of the sleeper's round. */
static void races(bool edge)
{
	const unsigned int N = rounds(20000);
	struct side a, b;
	struct sleeper sl = { &b, edge, N, 0 };
	struct iovec iov = { &a, 8 };
	pthread_t th;
	unsigned int i;

	sides_open(&a, &b);
	pthread_create(&th, NULL, sleep_thread, &sl);
	for (i = 0; i < N; i++) {
		pause_some(i);
		while (a.ops->message(a.ep, 1, &iov, 1, NULL) == -EAGAIN)
			side_progress(&a);
		/* wait for it now and then, so that the sleeper really sleeps */
		if (i % 4 == 0) {
			uint64_t end = now_ms() + WAIT_MS;

			while (__atomic_load_n(&b.messages, __ATOMIC_RELAXED) <=
			       i)
				check(now_ms() < end && !a.errors,
				      "message %u is lost", i);
		}
	}
	pthread_join(th, NULL);
	sides_close(&a, &b);
}

static void level(void)
{
	races(false);
}

static void edge(void)
{
	races(true);
}

/* Puts wake the target of a notification, and their source. */
static void bulk(void)
{
	enum { LEN = 3000000 };
	const unsigned int N = rounds(200);
	struct side a, b;
	struct sleeper sl = { &b, false, 0, N };
	struct weft_notify n = { 1 };
	struct wait_op w;
	struct target t;
	uint8_t *src = malloc(LEN);
	struct iovec iov = { src, LEN };
	pthread_t th;
	unsigned int i;

	sides_open(&a, &b);
	target_open(&t, LEN);
	pattern_fill(src, LEN, 6);
	pthread_create(&th, NULL, sleep_thread, &sl);
	for (i = 0; i < N; i++) {
		wait_op_init(&w);
		iov.iov_len = i % 3 ? LEN : 20000;
		check_int(a.ops->put(a.ep, &iov, 1, (uintptr_t)t.buf, &t.key,
				     &n, &w.op), -EINPROGRESS);
		while (!w.done)
			sleep_for_work(&a, -1, op_is_done, &w);
		check_int(w.status, 0);
	}
	pthread_join(th, NULL);
	pattern_check("put to a sleeper", t.buf, LEN, 6);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

/* An idle interface sleeps: arm() must not say busy for ever. */
static void idle(void)
{
	struct side a, b;
	struct pollfd pfd;
	unsigned int i, slept = 0;
	struct target t;

	sides_open(&a, &b);
	target_open(&t, 1000000);
	check_int(put_wait(&a, &b, t.map, 1000000, (uintptr_t)t.buf, &t.key,
			   NULL), 0);
	run_for(&a, &b, 20);
	pfd.fd = a.ops->event_fd(a.iface);
	pfd.events = POLLIN;
	for (i = 0; i < 50; i++) {
		side_progress(&a);
		if (!a.ops->arm(a.iface) && !poll(&pfd, 1, 10))
			slept++;
	}
	/* the timer of deadlines may ring now and then */
	check(slept > 25, "slept in %u of 50 rounds", slept);
	target_close(&t);
	sides_close(&a, &b);
}

const struct conformance_test wait_tests[] = {
	{ "no wakeup is lost (level)", level },
	{ "no wakeup is lost (edge)", edge },
	{ "bulk wakes sleepers on both sides", bulk },
	{ "an idle interface can sleep", idle },
	{ NULL, NULL },
};

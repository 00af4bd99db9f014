/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping on the event fd: no wakeup is lost, whatever comes. */
#include "devices/common/events.h"
#include "tests/conformance/pair.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "host/host.h"

/* As UCX does it: progress until idle, arm, sleep; not once all is there. */
static void sleep_for_work(struct side *s, int epfd, bool (*enough)(void *),
			   void *arg)
{
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
	check(epfd >= 0 ? epoll_wait(epfd, &ev, 1, WAIT_MS) == 1
			: side_is_woken(s, WAIT_MS),
	      "asleep although something is there");
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
		while (a.ops->message(a.ep, 1, &iov, 1) == -EAGAIN)
			side_progress(&a);
		/*
		 * wait for it now and then, so that the sleeper really sleeps
		 */
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

static bool is_flushed(void *arg)
{
	struct side *s = arg;

	return !s->ops->flush(s->ep, NULL);
}

/* Both sleep, at every moment of the other's round. */
static void flushes(void)
{
	const unsigned int N = rounds(2000);
	struct side a, b;
	struct sleeper sl = { &b, false, N + 1, 0 };
	struct iovec iov = { &a, 8 };
	struct wait_op w;
	pthread_t th;
	unsigned int i;

	sides_open(&a, &b);
	pthread_create(&th, NULL, sleep_thread, &sl);
	for (i = 0; i < N; i++) {
		pause_some(i);
		check_int(a.ops->message(a.ep, 1, &iov, 1), 0);
		wait_op_init(&w);
		if (i % 2)
			w.done = a.ops->flush(a.ep, &w.op) != -EINPROGRESS;
		else
			w.done = is_flushed(&a);
		while (!w.done) {
			sleep_for_work(&a, -1, i % 2 ? op_is_done : is_flushed,
				       i % 2 ? (void *)&w : &a);
			w.done |= !(i % 2) && is_flushed(&a);
		}
		check_int(w.status, 0);
	}
	/* the last one, until which the other side answers */
	check_int(a.ops->message(a.ep, 1, &iov, 1), 0);
	pthread_join(th, NULL);
	check_int(b.messages, N + 1);
	sides_close(&a, &b);
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
	struct weft_iov iov = { src, LEN, NULL };
	pthread_t th;
	unsigned int i;

	sides_open(&a, &b);
	target_open(&t, LEN);
	pattern_fill(src, LEN, 6);
	pthread_create(&th, NULL, sleep_thread, &sl);
	for (i = 0; i < N; i++) {
		wait_op_init(&w);
		iov.len = i % 3 ? LEN : 20000;
		check_int(a.ops->put(a.ep, &iov, 1, (uintptr_t)t.buf, &t.key,
				     &n, &w.op),
			  -EINPROGRESS);
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

/* An idle interface sleeps: arm() must not say busy forever. */
static void idle(void)
{
	struct side a, b;
	unsigned int i, slept = 0;
	struct target t;

	sides_open(&a, &b);
	target_open(&t, 1000000);
	check_int(put_wait(&a, &b, t.map, 1000000, (uintptr_t)t.buf, &t.key,
			   NULL),
		  0);
	run_for(&a, &b, 20);
	for (i = 0; i < 50; i++) {
		side_progress(&a);
		if (!a.ops->arm(a.iface) && !side_is_woken(&a, 10))
			slept++;
	}
	/* the timer of deadlines may ring now and then */
	check(slept > 25, "slept in %u of 50 rounds", slept);
	target_close(&t);
	sides_close(&a, &b);
}

/* Progress only where arm() or the event demands it. */
static void doze(struct side *s)
{
	if (s->ops->arm(s->iface) || side_is_woken(s, 1))
		side_progress(s);
}

/* Endpoints that go between two calls of arm(): both learn of it. */
static void parting(void)
{
	const bool closes = !row->in_process && !row->one_socket;
	const uint64_t end = now_ms() + WAIT_MS;
	unsigned int open;
	struct side a, b;

	sides_open(&a, &b);
	/* the timer of the meeting has rung for the last time */
	run_for(&a, &b, 2 * WEFT_TICK_MS);
	open = count_descriptors();
	a.ops->ep_destroy(a.ep);
	b.ops->ep_destroy(b.ep);
	a.ep = b.ep = NULL;
	while (count_descriptors() != open - (closes ? 2 : 0)) {
		check(now_ms() < end, "both sleep, and neither has hung up");
		doze(&a);
		doze(&b);
	}
	sides_close(&a, &b);
}

/* As UCP 1.23 treats an interface of whose endpoints it uses none: armed. */
static void sleep_on(struct side *s)
{
	while (s->ops->arm(s->iface))
		side_progress(s);
}

static void wake_if_told(struct side *s)
{
	if (!side_is_woken(s, 0))
		return;
	side_progress(s);
	sleep_on(s);
}

static void met_asleep(void)
{
	const uint64_t end = now_ms() + WAIT_MS;
	enum { LEN = 300000 };
	uint8_t *src = malloc(LEN);
	struct wait_op w = WAIT_OP;
	struct side a, b;
	struct target t;

	if (!row->blocks)
		skip_test("UCP calls what has messages");
	side_open(&a);
	side_open(&b);
	sleep_on(&a);
	sleep_on(&b);
	a.ep = side_connect(&a, &b, NULL);
	b.ep = side_connect(&b, &a, NULL);
	while (!a.ops->ready(a.ep) || !b.ops->ready(b.ep)) {
		check(now_ms() < end, "both sleep, and do not meet");
		wake_if_told(&a);
		wake_if_told(&b);
	}
	target_open(&t, LEN);
	pattern_fill(src, LEN, 9);
	put_start(&a, &w, src, LEN, (uintptr_t)t.buf, t.key);
	while (!w.done) {
		check(now_ms() < end, "its target sleeps");
		side_progress(&a);
		wake_if_told(&b);
	}
	check_int(w.status, 0);
	pattern_check("put", t.buf, LEN, 9);
	target_close(&t);
	free(src);
	sides_close(&a, &b);
}

/* So many messages as fit are on their way, unseen by the receiver. */
static unsigned int fill(struct side *s, struct weft_ep *ep, uint8_t id,
			 unsigned int n)
{
	struct iovec iov = { s, 8 };
	unsigned int i;

	for (i = 0; i < n && s->ops->ready(ep); i++)
		check_int(s->ops->message(ep, id, &iov, 1), 0);
	return i;
}

#define ENDS 20 /* endpoints: a connection of an adapter takes few messages */

static void ends_open(struct side *a, struct side *b, struct weft_ep *ep[ENDS])
{
	unsigned int i;

	sides_open(a, b);
	for (i = 0; i < ENDS; i++)
		ep[i] = side_connect(a, b, NULL);
	for (i = 0; i < ENDS; i++)
		wait_for(a, b, a->ops->ready(ep[i]));
	run_for(a, b, 20);
}

static void ends_close(struct side *a, struct side *b, struct weft_ep *ep[ENDS])
{
	unsigned int i;

	for (i = 0; i < ENDS; i++) {
		wait_for(a, b, !a->ops->flush(ep[i], NULL));
		a->ops->ep_destroy(ep[i]);
	}
	sides_close(a, b);
}

/*
 * One progress() hands over a bounded number; the rest is not forgotten by a
 * sleeper, and does not wait for more to come.
 */
static void bounded(void)
{
	struct side a, b;
	struct weft_ep *ep[ENDS];
	unsigned int sent = 0, before, calls = 0, most = 0, i;

	ends_open(&a, &b, ep);
	for (i = 0; i < ENDS; i++)
		sent += fill(&a, ep[i], 1, 250);
	check(sent > 2 * WEFT_PROGRESS_MAX, "only %u messages are taken", sent);
	run_for(&a, NULL, 20);
	while (b.messages < sent) {
		before = b.messages;
		side_progress(&b);
		before = b.messages - before;
		if (before > most)
			most = before;
		/* a ring or an adapter brings the others when there is room */
		if (!before || ++calls % 8 == 0)
			side_progress(&a);
		if (b.messages < sent && !b.ops->arm(b.iface))
			check(side_is_woken(&b, WAIT_MS),
			      "asleep with %u of %u messages", b.messages,
			      sent);
	}
	check_int(b.messages, sent);
	check(most <= WEFT_PROGRESS_MAX, "one progress() handed over %u", most);
	check(most > WEFT_PROGRESS_MAX / 4, "and never more than %u", most);
	ends_close(&a, &b, ep);
}

/* The same for notifications of puts. */
static void bounded_notices(void)
{
	enum { N = 20 };
	struct weft_notify notify = { 1 };
	static struct wait_op w[ENDS * N];
	struct weft_ep *ep[ENDS];
	struct side a, b;
	struct target t;
	struct weft_iov iov = { &t, 1, NULL };
	unsigned int i, k, n = 0, before, most = 0;

	if (!strcmp(row->name, "ib"))
		skip_test("its notifications come as its messages do");
	ends_open(&a, &b, ep);
	target_open(&t, 1);
	for (i = 0; i < ENDS; i++)
		for (k = 0; k < N && a.ops->ready(ep[i]); k++, n++) {
			wait_op_init(&w[n]);
			check_int(a.ops->put(ep[i], &iov, 1, (uintptr_t)t.buf,
					     &t.key, &notify, &w[n].op),
				  -EINPROGRESS);
		}
	check(n > 2 * WEFT_PROGRESS_MAX, "only %u puts are taken", n);
	run_for(&a, NULL, 20);
	while (b.notifies < n) {
		before = b.notifies;
		side_progress(&b);
		if (b.notifies - before > most)
			most = b.notifies - before;
		side_progress(&a);
	}
	check(most <= WEFT_PROGRESS_MAX, "one progress() told of %u puts",
	      most);
	for (i = 0; i < n; i++)
		wait_for(&a, &b, w[i].done);
	target_close(&t);
	ends_close(&a, &b, ep);
}

struct shares {
	unsigned int got[6];
};

static void count_share(struct side *s, uint8_t id, void *data, size_t len)
{
	struct shares *sh = s->hook_arg;

	sh->got[id]++;
}

/* Those that send without end do not keep out those that send now and then. */
static void fair(void)
{
	enum { N = 6, LOUD = 4 }; /* the last two are quiet */
	const unsigned int TOTAL = rounds(row->one_socket ? 4000 : 100000);
	const uint64_t end = now_ms() + 2 * WAIT_MS;
	unsigned int asked[N] = { 0 }, since[N] = { 0 }, worst = 0, i;
	struct shares sh = { { 0 } };
	struct side a[N], b;

	side_open(&b);
	for (i = 0; i < N; i++) {
		side_open(&a[i]);
		a[i].ep = side_connect(&a[i], &b, NULL);
		wait_for(&a[i], &b, a[i].ops->ready(a[i].ep));
	}
	b.hook = count_share;
	b.hook_arg = &sh;
	while (b.messages < TOTAL && now_ms() < end) {
		for (i = 0; i < N; i++) {
			if (i < LOUD) {
				fill(&a[i], a[i].ep, (uint8_t)i, 200);
			} else if (sh.got[i] == asked[i]) {
				asked[i] += fill(&a[i], a[i].ep, (uint8_t)i, 1);
				since[i] = b.messages;
			} else if (b.messages - since[i] > worst) {
				worst = b.messages - since[i];
			}
			side_progress(&a[i]);
		}
		side_progress(&b);
	}
	check(b.messages >= TOTAL, "only %u messages came", b.messages);
	for (i = 0; i < N; i++)
		check(sh.got[i], "sender %u was never heard", i);
	/* an adapter brings them when and as it likes */
	for (i = 0; i < LOUD && !row->one_socket; i++)
		check(sh.got[i] > TOTAL / LOUD / 4, "sender %u had %u of %u", i,
		      sh.got[i], TOTAL);
	check(worst < TOTAL / 8 || row->one_socket,
	      "a quiet one waited for %u others", worst);
	b.hook = NULL;
	for (i = 0; i < N; i++) {
		wait_for(&a[i], &b, !a[i].ops->flush(a[i].ep, NULL));
		check_int(a[i].errors, 0);
		side_close(&a[i]);
	}
	side_close(&b);
}

static unsigned int engine_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	char path[300], name[32];
	struct dirent *d;
	unsigned int n = 0;
	FILE *f;

	while ((d = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm",
			 d->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		n += fgets(name, sizeof(name), f) &&
		     !strcmp(name, "weft-tcp\n");
		fclose(f);
	}
	closedir(tasks);
	return n;
}

/* On few cores: none for a caller that spins, one for one that sleeps. */
static void caller_sleeps(void)
{
	struct side a, b;
	unsigned int i;

	if (!row->sockets)
		skip_test("has no threads");
	sides_open(&a, &b);
	if (weft_host_cpus() >= 8)
		skip_test("has threads from the start on 8 processors or more");
	/* arm() may say busy before it counts */
	for (i = 0; i < 1000 && !engine_threads(); i++) {
		put_checked(&a, &b, 300000, i);
		a.ops->arm(a.iface);
	}
	check(i >= 64, "a thread after %u calls of arm()", i);
	check_int(engine_threads(), 1);
	put_checked(&b, &a, 300000, 7);
	sides_close(&a, &b);
}

const struct conformance_test wait_tests[] = {
	{ "no wakeup is lost (level)", level },
	{ "no wakeup is lost (edge)", edge },
	{ "a flush wakes the peer that it waits for, and is woken", flushes },
	{ "a put wakes its source and a notified target", bulk },
	{ "an idle interface can sleep", idle },
	{ "endpoints that go while both sides sleep are gone", parting },
	{ "sides that sleep meet, and a put finds its target", met_asleep },
	{ "one progress delivers at most WEFT_PROGRESS_MAX messages", bounded },
	{ "one progress delivers at most WEFT_PROGRESS_MAX notifications",
	  bounded_notices },
	{ "busy senders do not starve quiet ones", fair },
	{ "a caller that sleeps gets a thread for its streams", caller_sleeps },
	{ NULL, NULL },
};

/* SPDX-License-Identifier: BSD-3-Clause */
/* "Limits", "Dead endpoints" and "Counters" of the contract. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stats/stats.h"
#include "tests/lib/fds.h"

#define PIECE 1000u

/* One byte per entry, of which there are as many as a message may have. */
static void fullest_message(struct side *a, struct side *b)
{
	const unsigned int n = (unsigned int)a->attr.max_iov;
	struct iovec *iov = calloc(n, sizeof(*iov));
	uint8_t *src = malloc(n);
	unsigned int i;

	pattern_fill(src, n, 1);
	for (i = 0; i < n; i++)
		iov[i] = (struct iovec){ src + i, 1 };
	check_int(a->ops->message(a->ep, 1, iov, n), 0);
	wait_for(a, b, b->first);
	check_message(b, 1, n, 1);
	free(src);
	free(iov);
}

static void fullest_put_and_get(struct side *a, struct side *b,
				struct target *t)
{
	const unsigned int n = (unsigned int)a->attr.max_iov;
	struct weft_iov *iov = calloc(n, sizeof(*iov));
	uint8_t *src = malloc(t->len);
	struct wait_op w;
	unsigned int i;

	pattern_fill(src, t->len, 2);
	for (i = 0; i < n; i++)
		iov[i] = (struct weft_iov){ src + i * PIECE, PIECE, NULL };
	wait_op_init(&w);
	check_int(a->ops->put(a->ep, iov, n, (uintptr_t)t->buf, t->key, NULL,
			      &w.op),
		  -EINPROGRESS);
	wait_status(a, b, w, 0);
	pattern_check("put of all entries", t->buf, t->len, 2);
	memset(src, 0, t->len);
	wait_op_init(&w);
	check_int(a->ops->get(a->ep, iov, n, (uintptr_t)t->buf, t->key, &w.op),
		  -EINPROGRESS);
	wait_status(a, b, w, 0);
	pattern_check("get of all entries", src, t->len, 2);
	free(src);
	free(iov);
}

static size_t packs(void *dest, void *arg)
{
	++*(unsigned int *)arg;
	return 0;
}

/* Each call that has too many entries is answered @want, and takes nothing. */
static void one_too_many(struct side *s, struct target *t, int want)
{
	const unsigned int n = (unsigned int)s->attr.max_iov + 1;
	struct iovec *message = calloc(n, sizeof(*message));
	struct weft_iov *iov = calloc(n, sizeof(*iov));
	struct wait_op w;

	wait_op_init(&w);
	check_int(s->ops->message(s->ep, 1, message, n), want);
	check_int(s->ops->put(s->ep, iov, n, (uintptr_t)t->buf, t->key, NULL,
			      &w.op),
		  want);
	check_int(s->ops->get(s->ep, iov, n, (uintptr_t)t->buf, t->key, &w.op),
		  want);
	check_int(w.done, 0);
	free(message);
	free(iov);
}

static void entries(void)
{
	struct side a, b;
	struct target t;
	uint8_t *data;
	struct iovec iov;
	unsigned int sent = 0;

	sides_open(&a, &b);
	target_open(&t, a.attr.max_iov * PIECE);
	fullest_message(&a, &b);
	fullest_put_and_get(&a, &b, &t);
	one_too_many(&a, &t, -EMSGSIZE);
	/* whether there is room or not */
	data = calloc(1, 50000);
	iov = (struct iovec){ data, fit(&a, 50000) };
	for (; a.ops->ready(a.ep); sent++)
		check_int(a.ops->message(a.ep, 2, &iov, 1), 0);
	one_too_many(&a, &t, -EMSGSIZE);
	wait_for(&a, &b, b.messages == sent + 1);
	target_close(&t);
	free(data);
	sides_close(&a, &b);
}

static void answers_dead(struct side *s, struct target *t, int error)
{
	unsigned int packed = 0;

	check(s->ops->ready(s->ep), "a dead endpoint is waited for");
	check_int(s->ops->message(s->ep, 1, NULL, 0), error);
	check_int(s->ops->message_pack(s->ep, 1, packs, &packed), error);
	check_int(packed, 0);
	one_too_many(s, t, error);
	s->ops->fence(s->ep);
	check(!s->ops->unsent(s->ep), "dead, yet something is to leave");
}

static void dead(void)
{
	struct side a, b;
	struct target t;

	sides_open(&a, &b);
	target_open(&t, 1);
	a.ops->cancel(a.ep);
	answers_dead(&a, &t, -ECANCELED);
	check_int(a.errors, 0);
	target_close(&t);
	sides_close(&a, &b);

	sides_open(&a, &b);
	target_open(&t, 1);
	side_close(&b);
	wait_for(&a, NULL, a.errors);
	check_int(a.error, -ESHUTDOWN);
	answers_dead(&a, &t, a.error);
	check_int(a.ops->flush(a.ep, NULL), 0);
	target_close(&t);
	side_close(&a);
}

/* ---- counters ------------------------------------------------------------ */

/* The linker has the devices call this one (-Wl,--wrap). */
struct weft_stats *__real_weft_stats_open(const char *device,
					  const char *netdev);
struct weft_stats *__wrap_weft_stats_open(const char *device,
					  const char *netdev);
static bool no_memory;

struct weft_stats *__wrap_weft_stats_open(const char *device,
					  const char *netdev)
{
	return no_memory ? NULL : __real_weft_stats_open(device, netdev);
}

static void uncounted(void)
{
	struct side a, b;
	struct target t;

	no_memory = true;
	sides_open(&a, &b);
	target_open(&t, a.attr.max_iov * PIECE);
	fullest_message(&a, &b);
	fullest_put_and_get(&a, &b, &t);
	target_close(&t);
	sides_close(&a, &b);
}

/* As many as UCX's tcp: a program may have a worker for each of its threads. */
static void descriptors(void)
{
	enum { N = 8 };
	unsigned int before, opened, i;
	struct side a, b, s[N];

	if (!row->sockets)
		skip_test("has more, for the peers of its host");
	sides_open(&a, &b);
	before = count_fds();
	for (i = 0; i < N; i++)
		side_open(&s[i]);
	opened = count_fds();
	check_int(opened - before, 2 * N);
	for (i = 0; i < N; i++) {
		s[i].ep = side_connect(&s[i], &a, NULL);
		send_pattern(&s[i], &a, s[i].ep, 1, 100, i);
		wait_for(&s[i], &a, a.first);
		check_message(&a, 1, 100, i);
	}
	/* the message stream, both of whose ends are here */
	check_int(count_fds() - opened, 2 * N);
	for (i = 0; i < N; i++)
		side_close(&s[i]);
	sides_close(&a, &b);
}

const struct conformance_test limit_tests[] = {
	{ "max_iov entries are taken, one more is -EMSGSIZE", entries },
	{ "calls on a dead endpoint return its error", dead },
	{ "an interface works without memory for counters", uncounted },
	{ "an interface takes two descriptors, and one for each peer",
	  descriptors },
	{ NULL, NULL },
};

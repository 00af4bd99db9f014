/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: by them the owner of memory fills and checks it for a peer. */
#include <errno.h>
#include <string.h>

#include "tests/gpu/gpumem.h"
#include "tests/gpu/soak.h"

struct note *queue_note(struct peer *p, enum what what, unsigned int kind)
{
	struct note *n = &p->queue[p->tail % QUEUE];

	if (p->tail++ - p->head == QUEUE)
		fail("more than %u messages wait", QUEUE);
	memset(n, 0, sizeof(*n));
	n->what = what;
	n->kind = kind;
	return n;
}

void queue_region(struct peer *p, unsigned int kind)
{
	struct note *n = queue_note(p, REGION, kind);

	n->addr = (uintptr_t)p->mine[kind].p;
	ops->mem_pack(p->mine[kind].mem, n->key);
}

/* Noise has bytes behind it, which say what they are. */
static bool send_note(struct peer *p, struct note *n)
{
	static uint8_t bytes[8192];
	struct iovec iov[2] = { { n, sizeof(*n) }, { bytes, n->len } };
	uint32_t i;
	int r;

	n->seq = p->sent;
	n->from = me;
	n->life = board->rank[me].life;
	if (n->what != NOISE)
		iov[1].iov_len = 0;
	for (i = 0; i < iov[1].iov_len; i++)
		bytes[i] = gpumem_byte(i, n->seq);
	r = ops->message(p->ep, 1, iov, 2, NULL);
	if (r == -EAGAIN)
		return false;
	if (r && !p->failed)
		fail("message: %s", strerror(-r));
	p->sent++;
	return true;
}

void send_notes(struct peer *p)
{
	while (p->ep && p->head != p->tail &&
	       send_note(p, &p->queue[p->head % QUEUE]))
		p->head++;
}

/* As the owner of a region. */
static void serve(struct peer *p, const struct note *n)
{
	struct memory *m = &p->mine[n->kind];

	if (n->len > SIZE || n->off > SIZE - n->len)
		fail("a note of rank %d is damaged", p->rank);
	if (n->what == CHECK)
		mem_check_all(m, n->off, n->len, n->seed, "put");
	mem_fill(m, n->off, n->len, n->what == FILL ? n->seed : POISON);
	/* it uses none of it until it is told: no operation of its may fail */
	if (n->what != FILL && !board->stop && !rnd(20)) {
		mem_renew(m);
		queue_region(p, n->kind);
	}
	queue_note(p, READY, n->kind);
}

void take_note(struct peer *p, const struct note *n, const void *behind,
	       size_t len)
{
	const uint8_t *bytes = behind;
	struct job *job = &p->job[n->kind % KINDS];
	uint32_t i;

	if (n->seq != p->received++)
		fail("message %u of rank %d is number %u", n->seq, p->rank,
		     p->received - 1);
	switch (n->what) {
	case REGION:
		job->next.addr = n->addr;
		memcpy(job->next.key, n->key, sizeof(n->key));
		break;
	case READY:
		job->ready = true;
		break;
	case NOISE:
		if (len != sizeof(*n) + n->len)
			fail("%zu bytes of noise, not %u", len, n->len);
		for (i = 0; i < n->len; i++)
			if (bytes[i] != gpumem_byte(i, n->seq))
				fail("noise is wrong at byte %u", i);
		break;
	default:
		serve(p, n);
	}
	atomic_fetch_add(&board->rank[me].messages, 1);
}

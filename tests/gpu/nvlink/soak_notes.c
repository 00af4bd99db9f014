/* SPDX-License-Identifier: BSD-3-Clause */
/* Notes: by them the owner of memory fills and checks it for a peer. */
#include <errno.h>
#include <string.h>

#include "tests/gpu/nvlink/gpumem.h"
#include "tests/gpu/nvlink/soak.h"

struct note *queue_note(struct peer *p, enum what what, unsigned int kind)
{
	struct note *n = &p->queue[p->tail % QUEUE];

	if (p->tail++ - p->head == QUEUE)
		fail("more than %u notes wait", QUEUE);
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

void send_notes(struct peer *p)
{
	struct box *box = &board->box[me][p->rank];
	unsigned int tail = box->tail;
	struct note *n;

	for (; p->head != p->tail && tail - box->head < QUEUE; p->head++) {
		n = &box->note[tail % QUEUE];
		*n = p->queue[p->head % QUEUE];
		n->seq = p->sent++;
		n->life = board->rank[me].life;
		n->to = p->life;
		atomic_store(&box->tail, ++tail);
	}
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
	/* the peer uses none of it until it knows: none of its operations may
	 * fail */
	if (n->what != FILL && !board->stop && !rnd(20)) {
		mem_renew(m);
		queue_region(p, n->kind);
	}
	queue_note(p, READY, n->kind);
}

static void take_note(struct peer *p, const struct note *n)
{
	struct job *job = &p->job[n->kind % KINDS];

	if (n->seq != p->received++)
		fail("note %u of rank %d is number %u", n->seq, p->rank,
		     p->received - 1);
	switch (n->what) {
	case REGION:
		job->next.addr = n->addr;
		memcpy(job->next.key, n->key, sizeof(n->key));
		break;
	case READY:
		job->ready = true;
		break;
	default:
		serve(p, n);
	}
	atomic_fetch_add(&board->rank[me].notes, 1);
}

/* What was for another life of either is dropped. */
void take_notes(struct peer *p)
{
	struct box *box = &board->box[p->rank][me];
	struct note n;

	while (box->head != box->tail && p->tail - p->head < QUEUE / 2) {
		n = box->note[box->head % QUEUE];
		/* of one that is not met yet */
		if (n.life > p->life)
			return;
		atomic_fetch_add(&box->head, 1);
		if (n.life == p->life && n.to == board->rank[me].life &&
		    !p->failed)
			take_note(p, &n);
	}
}

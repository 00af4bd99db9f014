/* SPDX-License-Identifier: BSD-3-Clause */
/* The endpoints to the others, which come and go. */
#include <string.h>

#include "tests/gpu/nvlink/soak.h"

struct peer peers[RANKS];

bool is_leaving(const struct peer *p)
{
	return board->rank[p->rank].leaves ||
	       board->rank[p->rank].life != p->life;
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	fail("a message of %zu bytes, id %u", len, id);
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	fail("a notification");
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	struct peer *p = user;

	if (!is_leaving(p))
		fail("rank %d is there, but: %s", p->rank, strerror(-err));
	p->failed = true;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
}

const struct weft_iface_cb peer_callbacks = { .on_message = on_message,
					      .on_notify = on_notify,
					      .on_error = on_error,
					      .on_ready = on_ready };

static void drop_peer(struct peer *p)
{
	unsigned int i;

	ops->ep_destroy(p->ep);
	p->ep = NULL;
	for (i = 0; i < KINDS; i++) {
		struct job *job = &p->job[i];

		if (!job->done)
			fail("an operation outlives its endpoint");
		job->state = IDLE;
		job->next.addr = 0;
		mem_fill(&job->local, 0, SIZE, POISON);
		mem_stays_clear(&p->mine[i], "after its user's end");
		mem_renew(&p->mine[i]);
	}
}

static void meet(struct peer *p, unsigned int life)
{
	struct weft_address addr = board->rank[p->rank].addr;
	unsigned int i;
	int err;

	if (board->rank[p->rank].life != life)
		return;
	if (!ops->reaches(iface, &addr, NULL))
		fail("rank %d is out of reach", p->rank);
	p->life = life;
	p->failed = false;
	p->sent = p->received = 0;
	p->head = p->tail = 0;
	p->put_bytes = p->get_bytes = 0;
	err = ops->ep_create(iface, &addr, p, &p->ep);
	if (err && !is_leaving(p))
		fail("ep_create: %s", strerror(-err));
	if (err) {
		p->ep = NULL;
		return;
	}
	for (i = 0; i < KINDS; i++)
		queue_region(p, i);
	atomic_store(&board->met[me][p->rank], life);
}

/* It knows our present life: what we send it does not overtake that. */
static bool has_met(const struct peer *p)
{
	return p->ep && !p->failed &&
	       board->met[p->rank][me] == board->rank[me].life;
}

void step_peer(struct peer *p)
{
	const unsigned int life = board->rank[p->rank].life;
	unsigned int i;

	if (p->ep && p->failed)
		drop_peer(p);
	if (!p->ep && life && life != p->life && !board->rank[p->rank].leaves)
		meet(p, life);
	if (!has_met(p))
		return;
	take_notes(p);
	for (i = 0; i < KINDS; i++)
		step_job(&p->job[i]);
	send_notes(p);
}

bool is_idle(const struct peer *p)
{
	unsigned int i;

	/* notes need no connection, but what is counted does */
	if (!has_met(p) || !ops->ready(p->ep) || p->head != p->tail)
		return false;
	for (i = 0; i < KINDS; i++)
		if (p->job[i].state != IDLE || !p->job[i].next.addr)
			return false;
	return true;
}

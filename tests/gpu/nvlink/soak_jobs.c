/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets, one at a time with each region of a peer. */
#include <errno.h>
#include <string.h>

#include "tests/gpu/nvlink/soak.h"

static unsigned long last_seed;

static void on_done(struct weft_op *op, int status)
{
	struct job *job = container_of(op, struct job, op);

	if (job->done)
		fail("an operation ends twice");
	job->done = true;
	job->status = status;
}

/* In up to three pieces, whose registration is named or is not. */
static bool begin(struct job *job, bool get)
{
	struct weft_iov iov[3];
	struct peer *p = job->peer;
	unsigned int n = 1 + rnd(3), i;
	size_t at = job->off, left = job->len, len;
	int r;

	for (i = 0; i < n; i++) {
		len = i + 1 == n ? left : rnd(left + 1);
		iov[i] = (struct weft_iov){ job->local.p + at, len,
					    rnd(2) ? job->local.mem : NULL };
		at += len;
		left -= len;
	}
	job->op.done = on_done;
	job->done = false;
	r = get ? ops->get(p->ep, iov, n, job->there.addr + job->off,
			   job->there.key, &job->op)
		: ops->put(p->ep, iov, n, job->there.addr + job->off,
			   job->there.key, NULL, &job->op);
	if (r == -EINPROGRESS)
		return true;
	if (r != -EAGAIN)
		fail("an operation does not begin: %s", strerror(-r));
	job->done = true; /* no room */
	return false;
}

static void tell(struct job *job, enum what what)
{
	struct note *n = queue_note(job->peer, what, job - job->peer->job);

	n->off = job->off;
	n->len = job->len;
	n->seed = job->seed;
	job->ready = false;
}

static void start_job(struct job *job)
{
	size_t max = rnd(8) ? 1 + rnd(20000) : SIZE;

	job->len = 1 + rnd(max);
	job->off = rnd(SIZE - job->len + 1);
	job->seed = 1000 + 1000 * (unsigned int)me + ++last_seed;
	job->there = job->next;
	job->status = 0;
	job->began = now();
	if (rnd(2)) {
		tell(job, FILL);
		job->state = FILLING;
		return;
	}
	mem_fill(&job->local, job->off, job->len, job->seed);
	if (!begin(job, false)) {
		mem_fill(&job->local, job->off, job->len, POISON);
		return;
	}
	job->state = PUTTING;
}

const struct nvl_conn *conn_of(const struct peer *p)
{
	return nvl_conn(weft_ep_conn(p->ep));
}

/* False: not yet, or its peer has left: the endpoint fails next. */
static bool has_succeeded(struct job *job, unsigned long *bytes)
{
	if (!job->done || (job->status && is_leaving(job->peer)))
		return false;
	if (job->status)
		fail("an operation of %zu bytes at %zu: %s", job->len, job->off,
		     strerror(-job->status));
	*bytes += job->len;
	return true;
}

static void end_put(struct job *job)
{
	atomic_fetch_add(&board->rank[me].puts, 1);
	mem_fill(&job->local, job->off, job->len, POISON);
	job->state = IDLE;
}

static void end_get(struct job *job)
{
	atomic_fetch_add(&board->rank[me].gets, 1);
	mem_check_all(&job->local, job->off, job->len, job->seed, "get");
	mem_fill(&job->local, job->off, job->len, POISON);
	job->state = IDLE;
}

void cancel_jobs(struct peer *p)
{
	unsigned int i;

	ops->cancel(p->ep);
	for (i = 0; i < KINDS; i++) {
		if (!p->job[i].done)
			fail("an operation is under way after cancel");
		mem_stays_clear(&p->job[i].local, "after cancel");
	}
}

void step_job(struct job *job)
{
	switch (job->state) {
	case IDLE:
		if (job->next.addr && !board->stop && !rnd(4))
			start_job(job);
		return;
	case PUTTING:
		if (!has_succeeded(job, &job->peer->put_bytes))
			break;
		tell(job, CHECK);
		job->state = CHECKING;
		break;
	case CHECKING:
		if (job->ready)
			end_put(job);
		break;
	case FILLING:
		if (!job->ready)
			break;
		if (begin(job, true))
			job->state = GETTING;
		break;
	case GETTING:
		if (!has_succeeded(job, &job->peer->get_bytes))
			break;
		tell(job, EMPTY);
		job->state = EMPTYING;
		break;
	case EMPTYING:
		if (job->ready)
			end_get(job);
		break;
	}
	if (job->state != IDLE && now() - job->began > STUCK_S)
		fail("rank %d: an operation of %zu bytes at %zu is in state %d "
		     "for %.0f s",
		     job->peer->rank, job->len, job->off, job->state, STUCK_S);
}

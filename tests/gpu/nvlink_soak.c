/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVLink device for as long as one likes: processes put, get and send to
 * each other at random, from and to host and GPU memory that is mapped or is
 * not, while one after the other is killed, or leaves, and is started again.
 *   nvlink_soak [-t SECONDS] [-s SEED]
 * Every byte is checked, and those before and behind; so is the order of
 * messages, and in the end what both sides have counted.  With WEFT_LIBCUDA
 * naming the fake driver it checks itself, and that nothing is left mapped.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "devices/ep.h"
#include "devices/nvlink/nvl.h"
#include "tests/gpu/gpumem.h"
#include "tests/lib/fake_cuda.h"
#include "util/cuda.h"

#define RANKS	3
#define KINDS	4	    /* of memory: GPUMEM_ three, and the host's */
#define HOST	3u	    /* ... behind those */
#define SIZE	(4ul << 20) /* two of the fake driver's parts */
#define EDGE	4096ul	    /* looked at on both sides of what was moved */
#define POISON	7u	    /* seed of what nobody has written */
#define STUCK_S 60.0
#define QUEUE	64u

/* What all processes see. */
static struct board {
	struct {
		struct weft_address addr;
		_Atomic unsigned int life; /* of @addr; 0: none yet */
		/* on its way out: errors are expected of it from now on */
		_Atomic bool leaves;
		_Atomic unsigned long puts, gets, direct, messages, refused;
	} rank[RANKS];
	/* the life of the second one to which the first has an endpoint */
	_Atomic unsigned int met[RANKS][RANKS];
	_Atomic bool stop;
	_Atomic unsigned int arrived[RANKS]; /* at barriers */
	struct {
		unsigned long put_bytes, get_bytes;
	} sum[RANKS][RANKS];
} * board;

/* ---- this process -------------------------------------------------------- */

enum what {
	REGION = 1, /* here is memory of mine, of this kind and key */
	CHECK,	    /* look at what I have put into it... */
	FILL,	    /* fill it, I am going to get it... */
	EMPTY,	    /* nor do I need it any more... */
	READY,	    /* done; or not, if it is not the same any more: @stale */
	NOISE,
};

struct note {
	uint32_t seq, life;
	uint8_t from, what, kind, stale;
	uint32_t epoch, len;
	uint64_t off, seed;
	uint64_t addr;
	uint8_t key[WEFT_RKEY_MAX];
};

struct memory {
	unsigned int kind;
	char *p;
	struct weft_mem *mem;
	uint32_t epoch;
};

enum state { IDLE, PUTTING, FILLING, GETTING, EMPTYING };

/* What this process does with one region of a peer. */
struct job {
	struct weft_op op;
	struct peer *peer;
	enum state state;
	bool done, ready, stale;
	int status;
	double began;
	struct memory local;
	struct there {
		uint64_t addr; /* 0: not known yet */
		uint8_t key[WEFT_RKEY_MAX];
		uint32_t epoch;
	} there, next; /* used now, and by what starts next */
	size_t off, len;
	uint64_t seed;
};

static struct peer {
	int rank;
	unsigned int life; /* met, or failed to */
	struct weft_ep *ep;
	bool failed;
	uint32_t sent, received;
	struct job job[KINDS];
	struct memory mine[KINDS]; /* for its use */
	struct note queue[QUEUE];
	unsigned int head, tail;
	unsigned long put_bytes, get_bytes, mapped_bytes, direct;
} peers[RANKS];

static const struct weft_dev_ops *const ops = &weft_nvlink_ops;
static struct weft_iface *iface;
static int me;
static uint32_t rnd_state;
static volatile sig_atomic_t leave;
static unsigned long last_seed;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static uint32_t rnd(uint32_t below)
{
	rnd_state = rnd_state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)rnd_state * below >> 32);
}

#define fail(...) fail_at(__LINE__, __VA_ARGS__)
static void __attribute__((noreturn, format(printf, 2, 3)))
fail_at(int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "rank %d, line %d: ", me, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

/* ---- memory -------------------------------------------------------------- */

static const enum gpumem_kind kinds[] = { GPUMEM_MALLOC, GPUMEM_VMM,
					  GPUMEM_PARTS };

static void mem_fill(struct memory *m, size_t off, size_t len, uint64_t seed)
{
	size_t i;

	if (m->kind != HOST)
		gpumem_fill(m->p, off, len, seed);
	for (i = off; m->kind == HOST && i < off + len; i++)
		m->p[i] = gpumem_byte(i, seed);
}

static void mem_check(struct memory *m, size_t off, size_t len, uint64_t seed,
		      const char *what)
{
	uint64_t bad = 0;
	size_t i;

	if (m->kind != HOST)
		bad = len ? gpumem_check(m->p, off, len, seed) : 0;
	for (i = off; m->kind == HOST && i < off + len; i++)
		bad += (uint8_t)m->p[i] != gpumem_byte(i, seed);
	if (bad)
		fail("%s: %zu bytes at %zu of kind %u: %llu places are wrong",
		     what, len, off, m->kind, (unsigned long long)bad);
}

/* [@off, @off + @len) has @seed's, and its surroundings what they had. */
static void mem_check_all(struct memory *m, size_t off, size_t len,
			  uint64_t seed, const char *what)
{
	const size_t before = weft_min(off, EDGE);
	const size_t behind = weft_min(SIZE - off - len, EDGE);

	mem_check(m, off, len, seed, what);
	mem_check(m, off - before, before, POISON, "before it");
	mem_check(m, off + len, behind, POISON, "behind it");
}

static void mem_open(struct memory *m, unsigned int kind)
{
	const uint32_t epoch = m->epoch + 1;
	int err;

	memset(m, 0, sizeof(*m));
	m->kind = kind;
	m->epoch = epoch;
	m->p = kind == HOST ? aligned_alloc(EDGE, SIZE)
			    : gpumem_alloc(kinds[kind], SIZE);
	if (!m->p)
		fail("no memory");
	mem_fill(m, 0, SIZE, POISON);
	err = ops->mem_register(m->p, SIZE,
				kind == HOST ? WEFT_MEM_HOST : WEFT_MEM_CUDA,
				&m->mem);
	if (err)
		fail("mem_register: %s", strerror(-err));
}

static void mem_close(struct memory *m)
{
	ops->mem_release(m->mem);
	if (m->kind == HOST)
		free(m->p);
	else
		gpumem_free(kinds[m->kind], m->p, SIZE);
}

/* Nothing lands after release, whoever has what under way. */
static void mem_renew(struct memory *m)
{
	int err;

	ops->mem_release(m->mem);
	m->mem = NULL;
	mem_fill(m, 0, SIZE, POISON);
	sched_yield();
	mem_check(m, 0, SIZE, POISON, "after release");
	err = ops->mem_register(m->p, SIZE,
				m->kind == HOST ? WEFT_MEM_HOST : WEFT_MEM_CUDA,
				&m->mem);
	if (err)
		fail("mem_register: %s", strerror(-err));
	m->epoch++;
}

/* ---- messages ------------------------------------------------------------ */

static struct note *queue_note(struct peer *p, enum what what,
			       unsigned int kind)
{
	struct note *n = &p->queue[p->tail % QUEUE];

	if (p->tail++ - p->head == QUEUE)
		fail("more than %u messages wait", QUEUE);
	memset(n, 0, sizeof(*n));
	n->what = what;
	n->kind = kind;
	return n;
}

static void queue_region(struct peer *p, unsigned int kind)
{
	struct note *n = queue_note(p, REGION, kind);

	n->addr = (uintptr_t)p->mine[kind].p;
	n->epoch = p->mine[kind].epoch;
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

static void send_notes(struct peer *p)
{
	while (p->ep && p->head != p->tail &&
	       send_note(p, &p->queue[p->head % QUEUE]))
		p->head++;
}

static bool is_leaving(const struct peer *p)
{
	return board->rank[p->rank].leaves ||
	       board->rank[p->rank].life != p->life;
}

/* As the owner of a region. */
static void serve(struct peer *p, const struct note *n)
{
	struct memory *m = &p->mine[n->kind];
	const bool stale = n->epoch != m->epoch;
	struct note *reply;

	if (n->len > SIZE || n->off > SIZE - n->len)
		fail("a note of rank %d is damaged", p->rank);
	if (!stale && n->what == CHECK)
		mem_check_all(m, n->off, n->len, n->seed, "put");
	if (!stale)
		mem_fill(m, n->off, n->len, n->what == FILL ? n->seed : POISON);
	reply = queue_note(p, READY, n->kind);
	reply->stale = stale;
}

static void take_note(struct peer *p, const struct note *n, const void *behind,
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
		job->next.epoch = n->epoch;
		memcpy(job->next.key, n->key, sizeof(n->key));
		break;
	case READY:
		job->ready = true;
		job->stale |= n->stale;
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

/* ---- jobs ---------------------------------------------------------------- */

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
	n->epoch = job->there.epoch;
	job->ready = false;
}

static void start_job(struct job *job)
{
	size_t max = rnd(8) ? 1 + rnd(20000) : SIZE;

	job->len = 1 + rnd(max);
	job->off = rnd(SIZE - job->len + 1);
	job->seed = 1000 + 1000 * (unsigned int)me + ++last_seed;
	job->there = job->next;
	job->stale = false;
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
	ops->fence(job->peer->ep);
	tell(job, CHECK);
	job->state = PUTTING;
}

static const struct nvl_conn *conn_of(const struct peer *p)
{
	return nvl_conn(weft_ep_conn(p->ep));
}

/* May it have been moved without a ring? */
static bool may_be_mapped(const struct job *job)
{
	const unsigned int kind = job - job->peer->job;

	return job->local.kind != HOST && kind != HOST &&
	       kinds[kind] != GPUMEM_MALLOC;
}

/* A key that its owner has taken back may be refused, and nothing else. */
static bool has_succeeded(struct job *job)
{
	if (!job->status)
		return true;
	if (job->status != -EACCES || !job->stale)
		fail("an operation of %zu bytes at %zu: %s%s", job->len,
		     job->off, strerror(-job->status),
		     job->stale ? " (stale)" : "");
	atomic_fetch_add(&board->rank[me].refused, 1);
	return false;
}

/* For the parent, who wants some. */
static void note_direct(struct peer *p)
{
	const struct nvl_conn *conn = conn_of(p);
	unsigned long direct;

	if (!conn || !conn->stats)
		return;
	direct = conn->stats->direct_put_bytes + conn->stats->direct_get_bytes;
	atomic_fetch_add(&board->rank[me].direct, direct - p->direct);
	p->direct = direct;
}

static void count_success(struct job *job, unsigned long *bytes)
{
	*bytes += job->len;
	if (may_be_mapped(job))
		job->peer->mapped_bytes += job->len;
	note_direct(job->peer);
}

static void end_put(struct job *job)
{
	if (has_succeeded(job)) {
		count_success(job, &job->peer->put_bytes);
		atomic_fetch_add(&board->rank[me].puts, 1);
	}
	mem_fill(&job->local, job->off, job->len, POISON);
	job->state = IDLE;
}

static void end_get(struct job *job)
{
	if (has_succeeded(job)) {
		count_success(job, &job->peer->get_bytes);
		atomic_fetch_add(&board->rank[me].gets, 1);
		if (!job->stale)
			mem_check_all(&job->local, job->off, job->len,
				      job->seed, "get");
	}
	mem_fill(&job->local, job->off, job->len, POISON);
	job->state = IDLE;
}

static void step_job(struct job *job)
{
	switch (job->state) {
	case IDLE:
		if (job->next.addr && !board->stop && !rnd(4))
			start_job(job);
		return;
	case PUTTING:
		if (job->done && job->ready)
			end_put(job);
		break;
	case FILLING:
		if (!job->ready)
			break;
		if (job->stale)
			job->state = IDLE;
		else if (begin(job, true))
			job->state = GETTING;
		break;
	case GETTING:
		if (!job->done)
			break;
		/* an error is right only if the reply says that it was stale */
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

/* ---- peers --------------------------------------------------------------- */

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	struct note n;

	(void)arg;
	if (id != 1 || len < sizeof(n))
		fail("a message of %zu bytes, id %u", len, id);
	memcpy(&n, data, sizeof(n));
	if (n.from >= RANKS || n.kind >= KINDS)
		fail("a message of rank %u, kind %u", n.from, n.kind);
	/* of one that has been given up: what it sent may come late */
	if (n.life == peers[n.from].life && !peers[n.from].failed)
		take_note(&peers[n.from], &n, (char *)data + sizeof(n), len);
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	(void)arg;
	(void)tag;
	(void)size;
	fail("a notification");
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	struct peer *p = user;

	(void)arg;
	(void)ep;
	if (!is_leaving(p))
		fail("rank %d is there, but: %s", p->rank, strerror(-err));
	p->failed = true;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	(void)arg;
	(void)ep;
	(void)user;
}

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
	p->put_bytes = p->get_bytes = p->mapped_bytes = p->direct = 0;
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

/* It knows this life of ours: what we send it does not overtake that. */
static bool has_met(const struct peer *p)
{
	return p->ep && !p->failed &&
	       board->met[p->rank][me] == board->rank[me].life;
}

static void step_peer(struct peer *p)
{
	const unsigned int life = board->rank[p->rank].life;
	unsigned int i;

	if (p->ep && p->failed)
		drop_peer(p);
	if (!p->ep && life && life != p->life && !board->rank[p->rank].leaves)
		meet(p, life);
	if (!has_met(p))
		return;
	if (!board->stop && p->tail - p->head < QUEUE / 4) {
		i = rnd(KINDS);
		if (!rnd(200)) {
			mem_renew(&p->mine[i]);
			queue_region(p, i);
		}
		if (!rnd(20))
			queue_note(p, NOISE, 0)->len = rnd(8000);
	}
	for (i = 0; i < KINDS; i++)
		step_job(&p->job[i]);
	send_notes(p);
}

static bool is_idle(const struct peer *p)
{
	unsigned int i;

	if (!has_met(p) || p->head != p->tail)
		return false;
	for (i = 0; i < KINDS; i++)
		if (p->job[i].state != IDLE || !p->job[i].next.addr)
			return false;
	return true;
}

/* ---- a life -------------------------------------------------------------- */

static void (*get_live)(struct fake_cuda_live *);

static void find_fake(void)
{
	const char *name = getenv("WEFT_LIBCUDA");
	void *lib = name && *name ? dlopen(name, RTLD_NOW) : NULL;

	if (lib)
		*(void **)&get_live = dlsym(lib, "fake_cuda_live");
}

static void on_term(int sig)
{
	(void)sig;
	leave = 1;
}

static void nap(void)
{
	struct pollfd fd = { .fd = ops->event_fd(iface), .events = POLLIN };

	if (rnd(4) || ops->arm(iface))
		sched_yield();
	else
		poll(&fd, 1, 1 + rnd(5));
}

static void step_all(void)
{
	unsigned int i, n = ops->progress(iface);

	for (i = 0; i < RANKS; i++)
		if (i != (unsigned int)me)
			step_peer(&peers[i]);
	if (!n)
		nap();
}

static bool is_all_idle(void)
{
	unsigned int i;

	for (i = 0; i < RANKS; i++)
		if (i != (unsigned int)me && !is_idle(&peers[i]))
			return false;
	return true;
}

static void barrier(unsigned int number)
{
	const double until = now() + STUCK_S;
	unsigned int i;

	atomic_store(&board->arrived[me], number);
	for (i = 0; i < RANKS; i++)
		while (board->arrived[i] < number) {
			if (now() > until)
				fail("rank %u does not come", i);
			step_all();
		}
}

/* What one has put the other one has got, by their counters. */
static void compare_counters(void)
{
	const double until = now() + STUCK_S;
	const struct weft_counters *c;
	unsigned int i;

	for (i = 0; i < RANKS; i++) {
		board->sum[me][i].put_bytes = peers[i].put_bytes;
		board->sum[me][i].get_bytes = peers[i].get_bytes;
	}
	barrier(2);
	for (i = 0; i < RANKS; i++) {
		if (i == (unsigned int)me)
			continue;
		c = conn_of(&peers[i])->stats;
		if (c->tx_put_bytes != peers[i].put_bytes ||
		    c->get_bytes != peers[i].get_bytes)
			fail("%lu bytes put, %lu counted; %lu got, %lu counted",
			     peers[i].put_bytes, (unsigned long)c->tx_put_bytes,
			     peers[i].get_bytes, (unsigned long)c->get_bytes);
		while (c->rx_put_bytes != board->sum[i][me].put_bytes ||
		       c->tx_get_bytes != board->sum[i][me].get_bytes) {
			if (now() > until)
				fail("rank %u put %lu bytes, %lu counted; got "
				     "%lu, %lu counted",
				     i, board->sum[i][me].put_bytes,
				     (unsigned long)c->rx_put_bytes,
				     board->sum[i][me].get_bytes,
				     (unsigned long)c->tx_get_bytes);
			step_all();
		}
		note_direct(&peers[i]);
		if (peers[i].direct > peers[i].mapped_bytes)
			fail("%lu bytes went without a ring, not %lu",
			     peers[i].direct, peers[i].mapped_bytes);
	}
	barrier(3);
}

static void open_all(unsigned int life)
{
	const struct weft_iface_cb cb = { .on_message = on_message,
					  .on_notify = on_notify,
					  .on_error = on_error,
					  .on_ready = on_ready };
	const struct weft_iface_params params = { .netdev = "nvl", .cb = &cb };
	struct weft_iface_attr attr;
	unsigned int i, k;
	int err;

	err = ops->iface_open(&params, &iface);
	if (err)
		fail("iface_open: %s", strerror(-err));
	ops->iface_query(iface, &attr);
	for (i = 0; i < RANKS; i++) {
		peers[i].rank = i;
		atomic_store(&board->met[me][i], 0);
		for (k = 0; k < KINDS && i != (unsigned int)me; k++) {
			peers[i].job[k].peer = &peers[i];
			peers[i].job[k].done = true;
			mem_open(&peers[i].mine[k], k);
			mem_open(&peers[i].job[k].local, rnd(KINDS));
		}
	}
	board->rank[me].addr = attr.addr;
	atomic_store(&board->rank[me].life, life);
	atomic_store(&board->rank[me].leaves, false);
}

static void close_all(void)
{
	unsigned int i, k;

	for (i = 0; i < RANKS; i++)
		if (peers[i].ep)
			ops->ep_destroy(peers[i].ep);
	for (i = 0; i < RANKS; i++)
		for (k = 0; k < KINDS && i != (unsigned int)me; k++) {
			if (!peers[i].job[k].done)
				fail("an operation outlives its endpoint");
			mem_close(&peers[i].mine[k]);
			mem_close(&peers[i].job[k].local);
		}
	ops->iface_close(iface);
}

static int live(int rank, unsigned int life, uint32_t seed)
{
	struct fake_cuda_live before, after;
	int n = 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGTERM, on_term);
	me = rank;
	rnd_state = seed + 977 * life + 31 * rank;
	find_fake();
	if (weft_cuda_init())
		fail("no CUDA driver");
	weft_cuda()->device_count(&n);
	gpumem_open(rank % n);
	if (get_live)
		get_live(&before);
	open_all(life);
	while (!leave && !(board->stop && is_all_idle()))
		step_all();
	if (!leave) {
		barrier(1);
		compare_counters();
	}
	atomic_store(&board->rank[me].leaves, true);
	close_all();
	if (get_live) {
		get_live(&after);
		if (memcmp(&before, &after, sizeof(before)))
			fail("something lives on in the driver: %u mappings, "
			     "%u handles, %u streams",
			     after.maps - before.maps,
			     after.handles - before.handles,
			     after.streams - before.streams);
	}
	return 0;
}

/* ---- the parent ---------------------------------------------------------- */

static pid_t pids[RANKS];
static unsigned int lives[RANKS];
static uint32_t seed = 1;

static void start(int rank)
{
	fflush(NULL);
	pids[rank] = fork();
	if (!pids[rank])
		_exit(live(rank, ++lives[rank], seed));
	lives[rank]++;
	if (pids[rank] < 0)
		fail("fork: %s", strerror(errno));
}

static void end_all(void)
{
	int i;

	for (i = 0; i < RANKS; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
}

/* None ends unless it is told to. */
static bool is_one_gone(void)
{
	int status, i;

	for (i = 0; i < RANKS; i++) {
		if (waitpid(pids[i], &status, WNOHANG) != pids[i])
			continue;
		fprintf(stderr, "rank %d ended by itself, status %#x\n", i,
			status);
		pids[i] = 0;
		return true;
	}
	return false;
}

static bool end_one(int rank, int sig)
{
	int status;

	atomic_store(&board->rank[rank].leaves, true);
	kill(pids[rank], sig);
	if (waitpid(pids[rank], &status, 0) != pids[rank])
		return false;
	pids[rank] = 0;
	if (sig == SIGKILL || (WIFEXITED(status) && !WEXITSTATUS(status)))
		return true;
	fprintf(stderr, "rank %d could not leave, status %#x\n", rank, status);
	return false;
}

static bool is_up(int rank)
{
	return board->rank[rank].life == lives[rank];
}

static bool have_all_met(void)
{
	int i, j;

	for (i = 0; i < RANKS; i++)
		for (j = 0; j < RANKS; j++)
			if (i != j && board->met[i][j] != lives[j])
				return false;
	return true;
}

/* Puts and gets, and some of them without a ring. */
static bool has_all_happened(void)
{
	unsigned long puts = 0, gets = 0, direct = 0;
	int i;

	for (i = 0; i < RANKS; i++) {
		puts += board->rank[i].puts;
		gets += board->rank[i].gets;
		direct += board->rank[i].direct;
	}
	return puts && gets && direct;
}

static bool soak(double seconds, unsigned int *killed, unsigned int *left)
{
	const double end = now() + seconds;
	double next = now() + 1;
	int rank;

	for (rank = 0; rank < RANKS; rank++)
		start(rank);
	rnd_state = seed;
	while (now() < end || !have_all_met() || !has_all_happened()) {
		if (now() > end + STUCK_S) {
			fprintf(stderr, "too little has happened\n");
			return false;
		}
		usleep(10000);
		if (is_one_gone())
			return false;
		rank = rnd(RANKS);
		if (now() < next || now() >= end || !is_up(rank))
			continue;
		next = now() + 0.2 + rnd(800) * 1e-3;
		if (rnd(3)) {
			++*killed;
			if (!end_one(rank, SIGKILL))
				return false;
		} else {
			++*left;
			if (!end_one(rank, SIGTERM))
				return false;
		}
		start(rank);
	}
	return true;
}

static bool finish(void)
{
	int status, rank;
	bool good = true;

	atomic_store(&board->stop, true);
	for (rank = 0; rank < RANKS; rank++) {
		if (waitpid(pids[rank], &status, 0) != pids[rank] || status) {
			fprintf(stderr, "rank %d: status %#x\n", rank, status);
			good = false;
			end_all();
		}
	}
	return good;
}

int main(int argc, char **argv)
{
	unsigned long puts = 0, gets = 0, direct = 0, messages = 0, refused = 0;
	char dir[] = "/tmp/weft-soak-XXXXXX", cmd[64];
	unsigned int killed = 0, left = 0, i;
	double seconds = 5;
	bool good;
	int c;

	while ((c = getopt(argc, argv, "t:s:")) != -1) {
		if (c == 't')
			seconds = atof(optarg);
		else if (c == 's')
			seed = strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	if (!mkdtemp(dir) || setenv("WEFT_RUN_DIR", dir, 1))
		return 2;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		return 2;
	good = soak(seconds, &killed, &left);
	if (!good)
		end_all();
	else
		good = finish();
	for (i = 0; i < RANKS; i++) {
		puts += board->rank[i].puts;
		gets += board->rank[i].gets;
		direct += board->rank[i].direct;
		messages += board->rank[i].messages;
		refused += board->rank[i].refused;
	}
	printf("seed %u: %lu puts, %lu gets, %lu messages, %lu refused; "
	       "%u killed, %u left; %lu bytes without a ring\n",
	       seed, puts, gets, messages, refused, killed, left, direct);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	if (system(cmd))
		return 2;
	return !good;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer of the NVLink device that has proven itself and then fills shared
 * memory and the socket with anything.  The first byte says what inbox it
 * hands over (0: a proper one); then steps of {kind, control, length, bytes},
 * length at most 96.  control mends the bytes so that more of them get past
 * the first checks.
 *   0  an operation record    1 key and address of registered memory
 *                             2 the next place in the ring, total = length
 *                             4 a chunk  8 the next put  16 a known type
 *                             32 the ring it has
 *   1  a message              1 its length  2 for the program
 *   2  a counter of the inbox that it fills: {which, value}; 1: added to it
 *   3  a counter of the inbox that it reads: {which, value}; 1: added to it
 *   4  a frame                1 a known type  2 one descriptor  4 two
 *                             8 sizes as the first ring's
 *   5  asks for a ring and takes it
 *   6  the program itself puts (0), gets (1) or sends a message (2)
 *   7  time passes
 * Nothing may be written outside the registered memory and what the program
 * gets into, no message may be longer than the interface says, every operation
 * must end once, and so must the endpoint when the peer has gone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/nvl_liar.h"
#include "util/util.h"

#define GUARD  4096
#define TARGET 8192
#define POISON 0xa5
#define OPS    16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct guarded {
	uint8_t before[GUARD], bytes[TARGET], behind[GUARD];
};

struct fop {
	struct weft_op op;
	unsigned int done;
};

static const struct weft_dev_ops *const dev = &weft_nvlink_ops;
static struct liar_victim victim;
static struct guarded target, landing;
static struct fop fops[OPS];
static unsigned int nfops, ended;
static uint32_t sequence, put_seq;

static void __attribute__((noreturn)) broken(const char *what)
{
	fprintf(stderr, "nvl: %s\n", what);
	abort();
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	volatile uint8_t *bytes = data;
	uint8_t all = 0;
	size_t i;

	(void)arg;
	if (len > victim.attr.max_message || id >= WEFT_MSG_IDS)
		broken("a message is longer than the interface says");
	for (i = 0; i < len; i++)
		all |= bytes[i];
	(void)all;
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	(void)arg;
	(void)ep;
	(void)user;
	(void)err;
	ended++;
}

static void op_done(struct weft_op *op, int status)
{
	(void)status;
	if (((struct fop *)op)->done++)
		broken("an operation ends twice");
}

static void start(void)
{
	const struct weft_iface_cb cb = { .on_message = on_message,
					  .on_error = on_error };

	liar_victim_open(&victim, &cb, target.bytes, TARGET);
}

static void mend_op(struct liar *l, struct nvl_op *op, uint8_t control)
{
	if (control & 1) {
		op->addr = (uintptr_t)target.bytes + op->addr % TARGET;
		op->slot = victim.key.slot;
		op->generation = victim.key.generation;
		op->token = victim.key.token;
	}
	if (control & 2) {
		op->ring = l->ring;
		op->pos = l->ring_pos;
		op->len = op->len % 4096 + 1;
		op->total = op->len;
		l->ring_pos +=
			(op->len + NVL_ALIGN - 1) & ~(uint64_t)(NVL_ALIGN - 1);
	}
	if (control & 32)
		op->ring = l->ring;
	if (control & 16)
		op->type = op->type % NVL_OP_GET_FAIL + 1;
	if (control & 4) {
		op->type = NVL_OP_CHUNK;
		op->flags &= NVL_CHUNK_NOTIFY;
	}
	if (control & 8)
		op->seq = put_seq++;
}

static void say_op(struct liar *l, uint8_t control, const uint8_t *p, size_t n)
{
	struct nvl_op op = { 0 };

	memcpy(&op, p, weft_min(n, sizeof(op)));
	mend_op(l, &op, control);
	liar_op(l, &op);
}

static void say_message(struct liar *l, uint8_t control, const uint8_t *p,
			size_t n)
{
	struct nvl_msg m = { 0 };

	memcpy(&m, p, weft_min(n, sizeof(m)));
	n -= weft_min(n, sizeof(m));
	if (control & 1)
		m.len = (uint32_t)n;
	if (control & 2) {
		m.kind = NVL_MSG_USER;
		m.id %= WEFT_MSG_IDS;
	}
	liar_message(l, &m, p + sizeof(m), n);
}

static void set_counter(uint8_t *inbox, uint8_t control, const uint8_t *p,
			size_t n)
{
	_Atomic uint64_t *at;
	uint64_t value = 0;

	if (!n)
		return;
	memcpy(&value, p + 1, weft_min(n - 1, sizeof(value)));
	at = (_Atomic uint64_t *)inbox +
	     *p % (sizeof(struct nvl_inbox_head) / sizeof(value));
	if (control & 1)
		value += atomic_load(at);
	atomic_store(at, value);
}

static void say_frame(struct liar *l, uint8_t control, const uint8_t *p,
		      size_t n)
{
	const unsigned int nfds = (control & 2 ? 1 : 0) + (control & 4 ? 1 : 0);
	struct nvl_frame f = { 0 };
	int fds[2] = { -1, -1 };

	memcpy(&f, p, weft_min(n, sizeof(f)));
	if (control & 1) {
		f.magic = NVL_FRAME_MAGIC;
		f.type = f.type % (NVL_FRAME_TYPES - 1) + 1;
	}
	if (control & 8)
		f.size = 64 << 10;
	if (nfds)
		fds[0] = liar_memfd(f.size % (1 << 20), control & 16);
	if (nfds > 1)
		fds[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	liar_frame(l, &f, fds, nfds);
	if (nfds)
		close(fds[0]);
	if (nfds > 1)
		close(fds[1]);
}

static void act(struct weft_ep *ep, uint8_t control, const uint8_t *p, size_t n)
{
	struct weft_iov iov = { target.bytes, TARGET, NULL };
	struct iovec message = { target.bytes, 64 };
	uint8_t key[WEFT_RKEY_MAX];
	struct fop *f = &fops[nfops];
	int r;

	dev->mem_pack(victim.mem, key);
	memcpy(key, p, weft_min(n, dev->rkey_len));
	if (ended || nfops == OPS || !dev->ready(ep))
		return;
	f->op.done = op_done;
	f->done = 0;
	if (control % 3 == 0) {
		r = dev->put(ep, &iov, 1, 4096, key, NULL, &f->op);
	} else if (control % 3 == 1) {
		iov.addr = landing.bytes;
		r = dev->get(ep, &iov, 1, 4096, key, &f->op);
	} else {
		dev->message(ep, 1, &message, 1, NULL);
		return;
	}
	if (r == -EINPROGRESS)
		nfops++;
}

static void say(struct liar *l, struct weft_ep *ep, const uint8_t *data,
		size_t size)
{
	size_t n;

	for (; size >= 3; data += 3 + n, size -= 3 + n) {
		n = weft_min((size_t)data[2] % 97, size - 3);
		switch (data[0] % 8) {
		case 0:
			say_op(l, data[1], data + 3, n);
			continue;
		case 1:
			say_message(l, data[1], data + 3, n);
			continue;
		case 2:
			set_counter(l->theirs, data[1], data + 3, n);
			continue;
		case 3:
			set_counter(l->ours, data[1], data + 3, n);
			continue;
		case 4:
			say_frame(l, data[1], data + 3, n);
			continue;
		case 5:
			liar_ring(l);
			continue;
		case 6:
			act(ep, data[1], data + 3, n);
			continue;
		}
		dev->progress(victim.iface);
		liar_read(l);
	}
}

static bool poisoned(const uint8_t *p)
{
	size_t i;

	for (i = 0; i < GUARD && p[i] == POISON; i++)
		;
	return i == GUARD;
}

static void check(void)
{
	unsigned int i;

	if (ended != 1)
		broken("the endpoint does not end once");
	for (i = 0; i < nfops; i++)
		if (!fops[i].done)
			broken("an operation does not end");
	if (!poisoned(target.before) || !poisoned(target.behind) ||
	    !poisoned(landing.before) || !poisoned(landing.behind))
		broken("memory that nobody gave was written");
}

/* What it hands over as its inbox. */
static int inbox(uint8_t how)
{
	switch (how % 4) {
	case 1:
		return liar_memfd(NVL_INBOX_SIZE, false);
	case 2:
		return liar_memfd(NVL_INBOX_SIZE - 4096, true);
	case 3:
		return eventfd(0, EFD_CLOEXEC);
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weft_ep *ep;
	struct liar liar;
	int mine, i;

	if (!size)
		return 0;
	if (!victim.iface)
		start();
	memset(&target, POISON, sizeof(target));
	memset(&landing, POISON, sizeof(landing));
	nfops = ended = put_seq = 0;
	mine = inbox(data[0]);
	liar_dial(&liar, victim.iface, &victim.attr.addr, sequence++, mine);
	if (mine >= 0)
		close(mine);
	if (dev->ep_create(victim.iface, &victim.liar, NULL, &ep))
		broken("no endpoint is made");
	dev->progress(victim.iface);
	say(&liar, ep, data + 1, size - 1);
	for (i = 0; i < 8; i++)
		dev->progress(victim.iface);
	liar_close(&liar);
	/* within its own number of looks: nothing here takes time */
	for (i = 0; i < 1000 && !ended; i++)
		dev->progress(victim.iface);
	dev->ep_destroy(ep);
	check();
	for (i = 0; i < 4; i++)
		dev->progress(victim.iface);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/victim.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/util.h"

#define GUARD  4096
#define POISON 0xa5
#define OPS    16

struct fop {
	struct weft_op op;
	unsigned int done;
};

static struct guarded {
	uint8_t before[GUARD], bytes[VICTIM_MEMORY], behind[GUARD];
} target, landing;
static struct fop fops[OPS];
static unsigned int nfops;

struct victim victim;
uint8_t *const victim_memory = target.bytes;
unsigned int victim_ended;

void victim_broken(const char *what)
{
	fprintf(stderr, "%s: %s (%s)\n", victim.name, what, strerror(errno));
	abort();
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	volatile uint8_t *bytes = data;
	uint8_t all = 0;
	size_t i;

	if (len > victim.max_message || id >= WEFT_MSG_IDS)
		victim_broken("a message is longer than the interface says");
	for (i = 0; i < len; i++)
		all |= bytes[i];
	(void)all;
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	++*(unsigned int *)arg;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
}

const struct weft_iface_cb victim_cb = {
	.arg = &victim_ended,
	.on_message = on_message,
	.on_notify = on_notify,
	.on_error = on_error,
	.on_ready = on_ready,
};

static void op_done(struct weft_op *op, int status)
{
	if (((struct fop *)op)->done++)
		victim_broken("an operation ends twice");
}

void victim_begin(void)
{
	memset(&target, POISON, sizeof(target));
	memset(&landing, POISON, sizeof(landing));
	nfops = victim_ended = 0;
}

void victim_act(struct weft_ep *ep, uint8_t control, const uint8_t *p, size_t n)
{
	struct weft_iov iov = { target.bytes, VICTIM_MEMORY, NULL };
	struct iovec message = { target.bytes, 64 };
	const struct weft_dev_ops *dev = victim.dev;
	uint8_t key[WEFT_RKEY_MAX];
	struct fop *f = &fops[nfops];
	int r;

	dev->mem_pack(victim.mem, key);
	memcpy(key, p, weft_min(n, dev->rkey_len));
	if (victim_ended || nfops == OPS || !dev->ready(ep))
		return;
	f->op.done = op_done;
	f->done = 0;
	if (control % 3 == 0) {
		r = dev->put(ep, &iov, 1, 4096, key, NULL, &f->op);
	} else if (control % 3 == 1) {
		iov.addr = landing.bytes;
		r = dev->get(ep, &iov, 1, 4096, key, &f->op);
	} else {
		dev->message(ep, 1, &message, 1);
		return;
	}
	if (r == -EINPROGRESS)
		nfops++;
}

static bool poisoned(const uint8_t *p)
{
	size_t i;

	for (i = 0; i < GUARD && p[i] == POISON; i++)
		;
	return i == GUARD;
}

void victim_check_memory(void)
{
	if (!poisoned(target.before) || !poisoned(target.behind) ||
	    !poisoned(landing.before) || !poisoned(landing.behind))
		victim_broken("memory that was not registered was written");
}

void victim_check(void)
{
	unsigned int i;

	if (victim_ended != 1)
		victim_broken("the endpoint does not end once");
	for (i = 0; i < nfops; i++)
		if (!fops[i].done)
			victim_broken("an operation does not end");
	victim_check_memory();
}

void fuzz_counter(void *base, size_t len, uint8_t control, const uint8_t *p,
		  size_t n)
{
	_Atomic uint64_t *at;
	uint64_t value = 0;

	if (!n)
		return;
	memcpy(&value, p + 1, weft_min(n - 1, sizeof(value)));
	at = (_Atomic uint64_t *)base + *p % (len / sizeof(value));
	if (control & 1)
		value += atomic_load(at);
	atomic_store(at, value);
}

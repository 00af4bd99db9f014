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
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/victim.h"
#include "tests/lib/nvl_liar.h"
#include "util/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct weft_dev_ops *const dev = &weft_nvlink_ops;
static struct liar_victim lied_to;
static uint32_t sequence, put_seq;

static void start(void)
{
	victim.name = "nvl";
	victim.dev = dev;
	liar_victim_open(&lied_to, &victim_cb, victim_memory, VICTIM_MEMORY);
	victim.mem = lied_to.mem;
	victim.max_message = lied_to.attr.max_message;
}

static void mend_op(struct liar *l, struct nvl_op *op, uint8_t control)
{
	if (control & 1) {
		op->addr = (uintptr_t)victim_memory + op->addr % VICTIM_MEMORY;
		op->slot = lied_to.key.slot;
		op->generation = lied_to.key.generation;
		op->token = lied_to.key.token;
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
			fuzz_counter(l->theirs, sizeof(struct nvl_inbox_head),
				     data[1], data + 3, n);
			continue;
		case 3:
			fuzz_counter(l->ours, sizeof(struct nvl_inbox_head),
				     data[1], data + 3, n);
			continue;
		case 4:
			say_frame(l, data[1], data + 3, n);
			continue;
		case 5:
			liar_ring(l);
			continue;
		case 6:
			victim_act(ep, data[1], data + 3, n);
			continue;
		}
		dev->progress(lied_to.iface);
		liar_read(l);
	}
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
	if (!lied_to.iface)
		start();
	victim_begin();
	put_seq = 0;
	mine = inbox(data[0]);
	liar_dial(&liar, lied_to.iface, &lied_to.attr.addr, sequence++, mine);
	if (mine >= 0)
		close(mine);
	if (dev->ep_create(lied_to.iface, &lied_to.liar, NULL, &ep))
		victim_broken("no endpoint is made");
	dev->progress(lied_to.iface);
	say(&liar, ep, data + 1, size - 1);
	for (i = 0; i < 8; i++)
		dev->progress(lied_to.iface);
	liar_close(&liar);
	/* within its own number of looks: nothing here takes time */
	for (i = 0; i < 1000 && !victim_ended; i++)
		dev->progress(lied_to.iface);
	dev->ep_destroy(ep);
	victim_check();
	for (i = 0; i < 4; i++)
		dev->progress(lied_to.iface);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer of the NVLink device that has proven itself and then says anything, by
 * frames and by keys.  The first byte: 1: it does not join first.  Then steps
 * of {kind, control, length, bytes}, length at most 144.
 *   0  a frame                1 a known type  2 one descriptor  4 two
 *                             8 of the allocation that the program knows
 *                             16 asks for the program's, with its key
 *                             32 the descriptor is a GPU's  64 it is sealed
 *   1  a word of its table    {slot, value}
 *   2  the program puts (0) or gets (1); the bytes overwrite an honest key
 *   3  time passes
 * Nothing may be written outside the memory that the program gave, every
 * operation must end once, and so must the endpoint when the peer has gone.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/fuzz/victim.h"
#include "tests/lib/nvl_liar.h"
#include "util/util.h"

#define BASE 4096u /* which victim_act() names */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct weft_dev_ops *const dev = &weft_nvlink_ops;
static struct liar_victim lied_to;
static uint32_t sequence;

static void start(void)
{
	victim.name = "nvl";
	victim.dev = dev;
	liar_victim_open(&lied_to, &victim_cb);
	victim.mem = lied_to.mem;
	victim.max_message = lied_to.attr.max_message;
}

static void say_frame(struct liar *l, uint8_t control, const uint8_t *p,
		      size_t n)
{
	const unsigned int nfds = (control & 2 ? 1 : 0) + (control & 4 ? 1 : 0);
	struct nvl_frame f = { 0 };
	unsigned int i;
	int fds[2];

	memcpy(&f, p, weft_min(n, sizeof(f)));
	if (control & 1) {
		f.magic = NVL_FRAME_MAGIC;
		f.type = f.type % (NVL_FRAME_TYPES - 1) + 1;
	}
	if (control & 8)
		f.id = BASE;
	if (control & 16) {
		f.id = lied_to.key.id;
		f.token = lied_to.key.token;
	}
	fds[0] = control & 32 ? liar_part(LIAR_PART)
			      : liar_memfd(f.type == NVL_FRAME_TABLE
						   ? sizeof(struct nvl_table)
						   : f.len % (1 << 20),
					   control & 64);
	fds[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	liar_frame_fds(l, &f, fds, nfds);
	for (i = 0; i < 2; i++)
		close(fds[i]);
}

static void say_word(struct liar *l, const uint8_t *p, size_t n)
{
	uint32_t word[2] = { 0 };

	memcpy(word, p, weft_min(n, sizeof(word)));
	if (l->table)
		atomic_store(&l->table->serial[word[0] % NVL_LIVES], word[1]);
}

/* One of two allocations: mapped at once, and after a second part. */
static void act(struct liar *l, struct weft_ep *ep, uint8_t control,
		const uint8_t *p, size_t n)
{
	struct nvl_key key;

	if (!l->table)
		return;
	key = liar_pack(l, BASE, (control & 4 ? 2 : 1) * LIAR_PART);
	memcpy(&key, p, weft_min(n, sizeof(key)));
	victim_act(ep, control & 1, (uint8_t *)&key, sizeof(key));
}

static void say(struct liar *l, struct weft_ep *ep, const uint8_t *data,
		size_t size)
{
	size_t n;

	for (; size >= 3; data += 3 + n, size -= 3 + n) {
		n = weft_min((size_t)data[2] % 145, size - 3);
		switch (data[0] % 4) {
		case 0:
			say_frame(l, data[1], data + 3, n);
			continue;
		case 1:
			say_word(l, data + 3, n);
			continue;
		case 2:
			act(l, ep, data[1], data + 3, n);
			continue;
		}
		while (dev->arm(lied_to.iface))
			dev->progress(lied_to.iface);
		dev->progress(lied_to.iface);
		liar_read(l);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weft_ep *ep;
	struct liar liar;
	int i;

	if (!size)
		return 0;
	if (!lied_to.iface)
		start();
	victim_begin();
	liar_dial(&liar, lied_to.iface, &lied_to.attr.addr, sequence++);
	if (dev->ep_create(lied_to.iface, &lied_to.liar, NULL, &ep))
		victim_broken("no endpoint is made");
	if (!(data[0] & 1)) {
		liar_join(&liar);
		for (i = 0; i < 1000 && !dev->ready(ep); i++)
			dev->progress(lied_to.iface);
	}
	say(&liar, ep, data + 1, size - 1);
	for (i = 0; i < 8; i++)
		dev->progress(lied_to.iface);
	liar_close(&liar);
	/* an engine takes some time */
	for (i = 0; i < 100000 && !victim_ended; i++)
		if (!dev->progress(lied_to.iface))
			sched_yield();
	dev->ep_destroy(ep);
	victim_check();
	for (i = 0; i < 4; i++)
		dev->progress(lied_to.iface);
	return 0;
}

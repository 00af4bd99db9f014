/* SPDX-License-Identifier: BSD-3-Clause */
/* The InfiniBand device: puts that tell their target. */
#include <stdio.h>

#include "tests/unit/devices/ib/ib_pair.h"
#include "util/drivers/verbs.h"

#define PUTS 24 /* under way together */
#define UNIT (LEN / PUTS)

static struct weft_mem *mem;
static uint8_t key[WEFT_RKEY_MAX];
static struct wait_op ops[PUTS];
static unsigned int notified, wrong;

static void up(void)
{
	begin();
	memset(ops, 0, sizeof(ops));
	notified = wrong = 0;
	pair_up();
	cr_assert(zero(int, ib->mem_register(dst, LEN, WEFT_MEM_HOST, &mem)));
	ib->mem_pack(mem, &key);
}

static void down(void)
{
	ib->mem_release(mem);
	pair_down();
	end();
}

static void fill(unsigned int round)
{
	size_t i;

	for (i = 0; i < LEN; i++)
		src[i] = (uint8_t)(i / 7 + i / 4099 + round);
	memset(dst, 0xa5, LEN);
}

/* The @i-th put, of @len bytes of the @i-th unit. */
static void put_one(unsigned int i, size_t len,
		    const struct weft_notify *notify)
{
	const uint64_t limit = now_ms() + WAIT_MS;
	struct weft_iov iov = { src + i * UNIT, len, NULL };
	int ret;

	ops[i] = (struct wait_op)WAIT_OP;
	while ((ret = ib->put(a.ep, &iov, len ? 1 : 0,
			      (uintptr_t)dst + i * UNIT, &key, notify,
			      &ops[i].op)) == -EAGAIN &&
	       now_ms() < limit)
		progress_all();
	cr_assert(eq(int, ret, -EINPROGRESS), "put %u", i);
}

static bool all_done(int status)
{
	unsigned int i;

	for (i = 0; i < PUTS; i++)
		if (!ops[i].done || ops[i].status != status)
			return false;
	return true;
}

static const size_t sizes[] = { UNIT, 0, 1, 64, 65, 8192, UNIT - 1 };
static uint64_t high; /* bits of the tags above an immediate's */

static size_t size_of(unsigned int i)
{
	return sizes[i % (sizeof(sizes) / sizeof(*sizes))];
}

static void look_at_one(uint64_t tag, uint64_t size)
{
	const unsigned int i = tag & 0xff;

	notified++;
	wrong += (tag & ~0xffull) != high || i >= PUTS || size != size_of(i) ||
		 memcmp(src + i * UNIT, dst + i * UNIT, size) != 0;
}

static void tell(unsigned int rounds)
{
	struct weft_notify notify;
	unsigned int round, i;

	b.notify_hook = look_at_one;
	for (round = 0; round < rounds; round++) {
		fill(round);
		for (i = 0; i < PUTS; i++) {
			notify.tag = high | i;
			put_one(i, size_of(i), &notify);
		}
		cr_assert(until(all_done(0) && notified == (round + 1) * PUTS));
		/* notifications take nothing from messages */
		cr_assert(until(ib->ready(b.ep)));
		cr_assert(zero(int, send_number(&b, round)));
		cr_assert(until(a.messages == round + 1));
	}
	cr_expect(zero(uint, wrong));
	cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
}

static const uint64_t tags[] = {
	0, 0xfedcba00, /* by an immediate */
	0x1200000000,  /* by a message */
};

Test(ib_notify, notification_comes_once_after_all_bytes, .timeout = 120)
{
	size_t i;

	for (i = 0; i < sizeof(tags) / sizeof(*tags); i++) {
		high = tags[i];
		up();
		tell(12);
		cr_expect(eq(uint, fake_verbs_immediates(),
			     high <= UINT32_MAX ? 12 * PUTS : 0));
		down();
	}
}

/*
 * A key is revoked under many puts: the first that the adapter refuses says
 * why, none tells, and both endpoints end.
 */
static void revoke_under(const struct weft_notify *notify)
{
	unsigned int i;

	up();
	b.notify_hook = look_at_one;
	fill(0);
	put_one(0, UNIT, NULL); /* asks for the key */
	cr_assert(until(ops[0].done));
	fake_verbs_cut(true);
	for (i = 0; i < PUTS; i++)
		put_one(i, UNIT, i % 2 ? notify : NULL);
	ib->mem_release(mem);
	fake_verbs_cut(false);
	cr_expect(until(a.errors && b.errors));
	for (i = 0; i < PUTS; i++) {
		cr_expect(yes(ops[i].done), "put %u", i);
		cr_expect(eq(int, ops[i].status, i ? -ECONNRESET : -EACCES),
			  "put %u", i);
	}
	cr_expect(eq(int, a.error, -ECONNRESET));
	cr_expect(eq(int, b.error, -ECONNRESET));
	cr_expect(yes(strstr(logged, "'fake0:1' lost its peer")), "%s", logged);
	cr_expect(yes(strstr(logged, "'fake1:1' lost its peer")), "%s", logged);
	cr_expect(zero(uint, notified));
	cr_assert(zero(int, ib->mem_register(dst, LEN, WEFT_MEM_HOST, &mem)));
	down();
}

Test(ib_notify, a_revoked_key_ends_both_endpoints, .timeout = 120)
{
	const struct weft_notify notify = { 0 };

	revoke_under(NULL);
	revoke_under(&notify);
}

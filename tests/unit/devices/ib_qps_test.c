/* SPDX-License-Identifier: BSD-3-Clause */
/* The InfiniBand device with several queue pairs, and puts that tell. */
#include <stdio.h>

#include "tests/unit/devices/ib_pair.h"
#include "util/verbs.h"

#define PUTS	24	/* under way together */
#define UNIT	150000

static uint8_t *src, *dst;
static struct weft_mem *mem;
static uint8_t key[WEFT_RKEY_MAX];
static struct wait_op ops[PUTS];
static unsigned int notified, wrong;

static void begin_with(const char *qps)
{
	begin();
	setenv("WEFT_IB_QPS", qps, 1);
	weft_settings_reset();
	src = malloc(PUTS * UNIT);
	dst = malloc(PUTS * UNIT);
	memset(ops, 0, sizeof(ops));
	notified = wrong = 0;
}

static void register_target(void)
{
	cr_assert(zero(int, ib->mem_register(dst, PUTS * UNIT, WEFT_MEM_HOST,
					     &mem)));
	ib->mem_pack(mem, &key);
}

static void up(void)
{
	pair_up();
	register_target();
}

static void down(void)
{
	ib->mem_release(mem);
	pair_down();
	free(src);
	free(dst);
	end();
}

static void fill(unsigned int round)
{
	size_t i;

	for (i = 0; i < PUTS * UNIT; i++)
		src[i] = (uint8_t)(i / 7 + i / 4099 + round);
	memset(dst, 0xa5, PUTS * UNIT);
}

/* The @i-th put, of @len bytes of the @i-th unit. */
static void put_one(unsigned int i, size_t len,
		    const struct weft_notify *notify)
{
	const uint64_t limit = weft_now_ms() + WAIT_MS;
	struct weft_iov iov = { src + i * UNIT, len, NULL };
	int ret;

	ops[i] = (struct wait_op){ .op.done = op_done };
	while ((ret = ib->put(a.ep, &iov, len ? 1 : 0, (uintptr_t)dst + i * UNIT,
			      &key, notify, &ops[i].op)) == -EAGAIN &&
	       weft_now_ms() < limit)
		turn();
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

/* ---- order ---------------------------------------------------------------- */

static void look_at_all(uint32_t number)
{
	(void)number;
	wrong += memcmp(src, dst, PUTS * UNIT) != 0;
}

/* The fake executes queue pairs in any order: only the fence makes this true. */
Test(ib_qps, a_message_comes_behind_the_puts_before_its_fence, .timeout = 120)
{
	struct weft_ep_attr attr;
	unsigned int round, i;

	begin_with("4");
	up();
	b.told = look_at_all;
	ib->ep_query(a.ep, &attr);
	cr_expect(eq(uint, attr.streams, 4));
	for (round = 0; round < 40; round++) {
		fill(round);
		for (i = 0; i < PUTS; i++)
			put_one(i, UNIT, NULL);
		ib->fence(a.ep);
		cr_assert(until(ib->ready(a.ep)));
		cr_assert(zero(int, send_number(&a, round)));
		cr_assert(until(b.messages == round + 1 && all_done(0)));
	}
	cr_expect(zero(uint, wrong));
	cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
	down();
}

/* Without a fence a message does not wait for what other queue pairs have. */
Test(ib_qps, without_a_fence_nothing_waits, .timeout = 120)
{
	unsigned int i, early = 0;

	begin_with("4");
	up();
	fill(0);
	for (i = 0; i < PUTS; i++) {
		put_one(i, UNIT, NULL);
		early += !send_number(&a, early);
	}
	cr_expect(gt(uint, early, 0));
	cr_expect(until(all_done(0) && b.messages == early));
	cr_expect(zero(int, memcmp(src, dst, PUTS * UNIT)));
	cr_expect(yes(!b.disorder));
	down();
}

/* ---- puts that tell ------------------------------------------------------- */

static void count_told(uint32_t number)
{
	wrong += notified != number + 2;
}

static const size_t sizes[] = { UNIT, 0, 1, 64, 65, 8192, UNIT - 1 };
static uint64_t high;		/* bits of the tags above an immediate's */

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

	b.notified = look_at_one;
	for (round = 0; round < rounds; round++) {
		fill(round);
		for (i = 0; i < PUTS; i++) {
			notify.tag = high | i;
			put_one(i, size_of(i), &notify);
		}
		cr_assert(until(all_done(0) &&
				notified == (round + 1) * PUTS));
		/* what is told takes nothing from messages */
		cr_assert(until(ib->ready(b.ep)));
		cr_assert(zero(int, send_number(&b, round)));
		cr_assert(until(a.messages == round + 1));
	}
	cr_expect(zero(uint, wrong));
	cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
}

static const struct {
	const char *qps;
	uint64_t high;
} tellings[] = {
	{ "1", 0x12345600 },		/* by an immediate */
	{ "3", 0xfedcba00 },
	{ "8", 0 },
	{ "1", 0x1200000000 },		/* by a message */
	{ "4", 0x1200000000 },
};

Test(ib_qps, a_put_that_tells_tells_once_and_when_it_is_there, .timeout = 120)
{
	size_t i;

	for (i = 0; i < sizeof(tellings) / sizeof(*tellings); i++) {
		high = tellings[i].high;
		begin_with(tellings[i].qps);
		up();
		tell(12);
		cr_expect(eq(uint, fake_verbs_immediates(),
			     high <= UINT32_MAX ? 12 * PUTS : 0));
		down();
	}
}

/*
 * Queue pairs break again and again under puts that tell: each tells once, or
 * not at all where it failed, and no credit is lost with it.
 */
static void break_them(const char *qps)
{
	struct weft_notify notify;
	unsigned int round, i, good, ended = 0, refused = 0;
	uint32_t to_a = 0;

	begin_with(qps);
	up();
	b.notified = look_at_one;
	for (round = 0; round < 40; round++) {
		fill(round);
		good = notified;
		for (i = 0; i < PUTS; i++) {
			if (i == round % PUTS)
				fake_verbs_next_status(IBV_WC_REM_ACCESS_ERR);
			notify.tag = high | i;
			put_one(i, size_of(i), &notify);
			/* gives credits back on the way */
			to_a += !send_number(&b, to_a);
		}
		for (i = 0; i < PUTS; i++) {
			cr_assert(until(ops[i].done), "put %u", i);
			if (!ops[i].status)
				good++;
			else if (ops[i].status == -EACCES)
				refused++;
			ended++;
		}
		cr_assert(until(notified == good), "%u of %u", notified, good);
		cr_assert(until(ib->ready(b.ep)), "round %u", round);
	}
	cr_expect(until(a.messages == to_a));
	cr_expect(eq(uint, ended, 40 * PUTS));
	cr_expect(gt(uint, refused, 20));
	cr_expect(eq(uint, notified + refused, ended));
	cr_expect(zero(uint, wrong));
	cr_expect(yes(!a.disorder));
	cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
	down();
}

Test(ib_qps, what_tells_survives_broken_queue_pairs, .timeout = 240)
{
	high = 0x100;			/* by an immediate */
	break_them("1");
	break_them("4");
	high = 0x1200000000;		/* by a message */
	break_them("1");
	break_them("4");
}

/* A key is revoked under many puts: each fails alone, whatever their number. */
static void revoke_under(const char *qps, const struct weft_notify *notify)
{
	unsigned int i, round;

	begin_with(qps);
	up();
	fill(0);
	for (round = 0; round < 3; round++) {
		put_one(0, UNIT, NULL);		/* asks for the key */
		cr_assert(until(ops[0].done));
		fake_verbs_cut(true);
		for (i = 0; i < PUTS; i++)
			put_one(i, UNIT, i % 2 ? notify : NULL);
		ib->mem_release(mem);
		fake_verbs_cut(false);
		for (i = 0; i < PUTS; i++) {
			cr_assert(until(ops[i].done), "put %u", i);
			cr_expect(eq(int, ops[i].status, -EACCES));
		}
		register_target();
	}
	cr_expect(zero(uint, notified));
	cr_assert(zero(int, send_number(&a, 0)));
	cr_expect(until(b.messages == 1));
	cr_expect(zero(uint, a.errors + b.errors), "%s", logged);
	high = 0;
	tell(2);
	down();
}

Test(ib_qps, a_revoked_key_ends_its_transfers_alone, .timeout = 120)
{
	const struct weft_notify notify = { 0 };

	revoke_under("1", NULL);
	revoke_under("4", NULL);
	revoke_under("1", &notify);
	revoke_under("8", &notify);
}

/* What cannot be posted again fails, and nothing is amiss behind it. */
static void cannot_repeat(uint64_t tag)
{
	const struct weft_notify notify = { tag };
	struct weft_mem *local;

	begin_with("1");
	up();
	fill(0);
	cr_assert(zero(int, ib->mem_register(src, PUTS * UNIT, WEFT_MEM_HOST,
					     &local)));
	fake_verbs_next_status(IBV_WC_LOC_PROT_ERR);
	fake_verbs_fail_call("reg_mr");
	put_one(0, UNIT, &notify);
	cr_assert(until(ops[0].done));
	cr_expect(lt(int, ops[0].status, 0));
	cr_expect(eq(str, (char *)fake_verbs_failed(), "reg_mr"));
	high = 0;
	tell(4);
	cr_expect(eq(uint, notified, 4 * PUTS));
	ib->mem_release(local);
	down();
}

Test(ib_qps, what_cannot_be_repeated_fails_alone, .timeout = 120)
{
	cannot_repeat(5);
	cannot_repeat(0x1200000000);
}

/* ---- completion queues ---------------------------------------------------- */

#define PAIRS	62	/* with three each, one more than a queue has room for */

/* What was told before a message is delivered before it, though read late. */
Test(ib_qps, a_notification_is_not_overtaken_by_what_is_behind_it,
     .timeout = 120)
{
	const struct weft_notify notify = { 0 };
	struct weft_ep *of_a[PAIRS], *of_b[PAIRS];
	unsigned int i, round;
	uint64_t end;

	begin_with("3");
	cr_assert(zero(int, open_side(&a, "fake0:1")));
	cr_assert(zero(int, open_side(&b, "fake1:1")));
	for (i = 0; i < PAIRS; i++) {
		cr_assert(zero(int, connect_side(&a, &b)));
		cr_assert(zero(int, connect_side(&b, &a)));
		of_a[i] = a.ep;
		of_b[i] = b.ep;
	}
	for (i = 0; i < PAIRS; i++)
		cr_assert(until(ib->ready(of_a[i]) && ib->ready(of_b[i])));
	register_target();
	fill(0);
	b.notified = look_at_one;
	b.told = count_told;
	high = 0;
	put_one(0, UNIT, &notify);	/* asks for the key */
	cr_assert(until(ops[0].done && notified == 1));
	for (round = 0; round < 12; round++) {
		put_one(0, UNIT, &notify);
		end = weft_now_ms() + WAIT_MS;
		ib->fence(a.ep);
		/* b does not look meanwhile */
		while ((!ops[0].done || !ib->ready(a.ep)) &&
		       weft_now_ms() < end)
			ib->progress(a.iface);
		cr_assert(zero(int, send_number(&a, round)));
		while (ib->flush(a.ep, NULL) && weft_now_ms() < end)
			ib->progress(a.iface);
		cr_assert(until(b.messages == round + 1));
	}
	cr_expect(zero(uint, wrong));
	for (i = 0; i < PAIRS; i++) {
		ib->ep_destroy(of_a[i]);
		ib->ep_destroy(of_b[i]);
	}
	a.ep = b.ep = NULL;
	down();
}

/* ---- how many ------------------------------------------------------------- */

static void open_with(struct side *s, struct side *to, const char *qps)
{
	setenv("WEFT_IB_QPS", qps, 1);
	weft_settings_reset();
	cr_assert(zero(int, connect_side(s, to)));
}

/* As many as both sides want, whoever wants more. */
static void unequal(const char *of_a, const char *of_b, unsigned int n)
{
	struct weft_ep_attr attr;
	unsigned int i;

	begin_with(of_a);
	cr_assert(zero(int, open_side(&a, "fake0:1")));
	cr_assert(zero(int, open_side(&b, "fake1:1")));
	open_with(&a, &b, of_a);
	open_with(&b, &a, of_b);
	cr_assert(until(ib->ready(a.ep) && ib->ready(b.ep)), "%s", logged);
	ib->ep_query(a.ep, &attr);
	cr_expect(eq(uint, attr.streams, n));
	ib->ep_query(b.ep, &attr);
	cr_expect(eq(uint, attr.streams, n));
	register_target();
	high = 0;
	tell(4);
	/* and after the next ones were made */
	fill(0);
	fake_verbs_next_status(IBV_WC_REM_ACCESS_ERR);
	for (i = 0; i < PUTS; i++)
		put_one(i, UNIT, NULL);
	for (i = 0; i < PUTS; i++)
		cr_assert(until(ops[i].done));
	a.messages = notified = 0;
	tell(4);
	down();
}

Test(ib_qps, as_many_as_both_sides_want, .timeout = 120)
{
	unequal("4", "2", 2);
	unequal("1", "8", 1);
	unequal("3", "3", 3);
}

/* NCCL's and UCX's own names for it. */
Test(ib_qps, settings)
{
	begin_with("auto");
	unsetenv("WEFT_IB_QPS");
	weft_settings_reset();
	cr_expect(eq(uint, weft_settings()->ib_qps, 1));
	setenv("UCX_IB_NUM_PATHS", "2", 1);
	weft_settings_reset();
	cr_expect(eq(uint, weft_settings()->ib_qps, 2));
	setenv("NCCL_IB_QPS_PER_CONNECTION", "4", 1);
	weft_settings_reset();
	cr_expect(eq(uint, weft_settings()->ib_qps, 4));
	setenv("NCCL_IB_QPS_PER_CONNECTION", "128", 1);
	weft_settings_reset();
	cr_expect(eq(uint, weft_settings()->ib_qps, 8));
	cr_expect(yes(strstr(logged, "NCCL_IB_QPS_PER_CONNECTION")), "%s",
		  logged);
	free(src);
	free(dst);
	end();
}

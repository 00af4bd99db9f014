/* SPDX-License-Identifier: BSD-3-Clause */
/* What a key allows, and that nothing lands once it is revoked. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "devices/common/region.h"

TestSuite(region, .timeout = 60);

#define BASE 0x10000000ull
#define LEN  0x1000ull

static struct weft_mem *add(uint64_t base, size_t len)
{
	struct weft_mem *mem = NULL;

	cr_assert_eq(weft_region_add((void *)(uintptr_t)base, len,
				     WEFT_MEM_HOST, &mem),
		     0);
	return mem;
}

static bool allows(const struct weft_rkey *rkey, uint64_t addr, size_t len)
{
	void *p = weft_region_get(rkey, addr, len);

	if (p) {
		cr_expect_eq((uintptr_t)p, addr);
		weft_region_put(rkey);
	}
	return p;
}

Test(region, access_is_bounded)
{
	struct weft_mem *mem = add(BASE, LEN);
	const struct weft_rkey *key = &mem->rkey;

	cr_expect(allows(key, BASE, LEN));
	cr_expect(allows(key, BASE, 0));
	cr_expect(allows(key, BASE + LEN, 0));
	cr_expect(allows(key, BASE + LEN - 1, 1));
	cr_expect(!allows(key, BASE - 1, 1));
	cr_expect(!allows(key, BASE - 1, LEN));
	cr_expect(!allows(key, BASE, LEN + 1));
	cr_expect(!allows(key, BASE + 1, LEN));
	cr_expect(!allows(key, BASE + LEN, 1));
	cr_expect(!allows(key, BASE + LEN + 1, 0));
	cr_expect(!allows(key, 0, 0));
	/* sums that wrap around */
	cr_expect(!allows(key, UINT64_MAX, 1));
	cr_expect(!allows(key, BASE + 1, SIZE_MAX));
	cr_expect(!allows(key, BASE, SIZE_MAX));
	cr_expect(!allows(key, UINT64_MAX - 1, BASE + 2));
	weft_region_remove(mem);
}

Test(region, region_may_end_at_the_last_address)
{
	struct weft_mem *mem = add(UINT64_MAX - 9, 10);

	cr_expect(allows(&mem->rkey, UINT64_MAX - 9, 10));
	cr_expect(allows(&mem->rkey, UINT64_MAX, 1));
	cr_expect(!allows(&mem->rkey, UINT64_MAX, 2));
	weft_region_remove(mem);
}

/* Each part of a key counts. */
Test(region, forged_keys_are_refused)
{
	struct weft_mem *mem = add(BASE, LEN), *other = add(BASE, LEN);
	struct weft_rkey key;

	cr_expect(mem->rkey.token != other->rkey.token);
	for (int bit = 0; bit < 64; bit++) {
		key = mem->rkey;
		key.token ^= 1ull << bit;
		cr_expect(!allows(&key, BASE, 1), "token, bit %d", bit);
	}
	key = mem->rkey;
	key.generation++;
	cr_expect(!allows(&key, BASE, 1));
	key = mem->rkey;
	key.slot = other->rkey.slot;
	cr_expect(!allows(&key, BASE, 1));
	key.slot = 1024; /* in a block that is not there */
	cr_expect(!allows(&key, BASE, 1));
	key.slot = UINT32_MAX;
	cr_expect(!allows(&key, BASE, 1));
	weft_region_remove(other);
	cr_expect(allows(&mem->rkey, BASE, 1));
	weft_region_remove(mem);
}

Test(region, a_revoked_key_stays_revoked)
{
	struct weft_mem *mem = add(BASE, LEN);
	struct weft_rkey old = mem->rkey;

	weft_region_remove(mem);
	cr_expect(!allows(&old, BASE, 1));
	mem = add(BASE, LEN);
	cr_assert_eq(mem->rkey.slot, old.slot, "the slot is used again");
	cr_expect(!allows(&old, BASE, 1));
	cr_expect(allows(&mem->rkey, BASE, 1));
	weft_region_remove(mem);
}

/* More than one block of the table, and all of it reused. */
Test(region, slots_are_reused_beyond_one_block)
{
	enum { N = 3000 };
	static struct weft_mem *mem[N];
	uint32_t highest = 0;

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < N; i++) {
			mem[i] = add(BASE + i, 1);
			if (!round && mem[i]->rkey.slot > highest)
				highest = mem[i]->rkey.slot;
			cr_assert_leq(mem[i]->rkey.slot, highest,
				      "slots are not reused");
		}
		for (int i = 0; i < N; i++) {
			cr_assert(allows(&mem[i]->rkey, BASE + i, 1));
			cr_assert(!allows(&mem[i]->rkey, BASE + i + 1, 1));
		}
		for (int i = 0; i < N; i++)
			weft_region_remove(mem[i]);
	}
}

Test(region, packed_keys_are_little_endian)
{
	const struct weft_rkey key = { 0x01020304, 0x05060708,
				       0x090a0b0c0d0e0f10 };
	const uint8_t bytes[WEFT_RKEY_LEN] = { 4,  3,  2,  1,  8,  7,  6,  5,
					       16, 15, 14, 13, 12, 11, 10, 9 };
	uint8_t buf[WEFT_RKEY_LEN + 1];
	struct weft_rkey back;

	buf[WEFT_RKEY_LEN] = 0xa5;
	weft_rkey_pack(&key, buf);
	cr_expect_arr_eq(buf, bytes, sizeof(bytes));
	cr_expect_eq(buf[WEFT_RKEY_LEN], 0xa5);
	weft_rkey_unpack(bytes, &back);
	cr_expect_eq(back.slot, key.slot);
	cr_expect_eq(back.generation, key.generation);
	cr_expect_eq(back.token, key.token);
}

/*
 * Removal against peers' bytes that are landing: a thread that holds a
 * reference sees the memory as it was, until it gives the reference back.
 */
#define LANDERS 3
#define ROUNDS	500

static struct weft_rkey landing;
static _Atomic uint32_t round_no, landed;
static _Atomic bool gone, over, late;

static void *land(void *arg)
{
	uint32_t seen = 0;

	while (!atomic_load(&over)) {
		if (atomic_load(&round_no) == seen) {
			sched_yield();
			continue;
		}
		seen = atomic_load(&round_no);
		while (weft_region_get(&landing, BASE, LEN)) {
			sched_yield();
			if (atomic_load(&gone))
				atomic_store(&late, true);
			atomic_fetch_add(&landed, 1);
			weft_region_put(&landing);
		}
		atomic_fetch_sub((_Atomic int *)arg, 1);
	}
	return NULL;
}

Test(region, removal_waits_for_what_is_landing)
{
	pthread_t t[LANDERS];
	_Atomic int busy = 0;
	struct weft_mem *mem;
	uint32_t before;

	for (int i = 0; i < LANDERS; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, land, &busy), 0);
	for (int round = 0; round < ROUNDS; round++) {
		mem = add(BASE, LEN);
		landing = mem->rkey;
		before = atomic_load(&landed);
		atomic_store(&gone, false);
		atomic_store(&busy, LANDERS);
		atomic_fetch_add(&round_no, 1);
		while (atomic_load(&landed) == before)
			sched_yield();
		weft_region_remove(mem);
		atomic_store(&gone, true);
		while (atomic_load(&busy))
			sched_yield();
		cr_assert(!atomic_load(&late), "round %d", round);
	}
	atomic_store(&over, true);
	for (int i = 0; i < LANDERS; i++)
		pthread_join(t[i], NULL);
}

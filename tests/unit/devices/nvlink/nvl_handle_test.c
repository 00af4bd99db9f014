/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of cudaMalloc(), which a peer maps by the driver's IPC handle.  The
 * peer is another process: none opens a handle of its own.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/devices/nvlink/nvl_handle.h"

TestSuite(nvl_handle, .init = begin_ipc_pair, .fini = nvl_handle_end,
	  .timeout = 120);

/* ---- what is mapped, and when -------------------------------------------- */

Test(nvl_handle, opened_at_the_first_use_and_once)
{
	have_peer();
	own(LEN);
	command(REPORT);
	cr_expect(eq(uint, sh->opened, 0));
	expect_put(to, LEN, key, 0);
	cr_expect(eq(uint, sh->opened, 1));
	expect_put(to + 7, LEN - 100, key, 0);
	pattern_fill(to, LEN, ++sh->seed);
	name(to, LEN, key);
	command(GET);
	cr_expect(eq(int, sh->status, 0));
	cr_expect(yes(sh->right));
	cr_expect(eq(uint, sh->opened, 1));
}

/* The driver maps the block once, and the peer has it open twice. */
Test(nvl_handle, two_allocations_of_one_block)
{
	struct weft_mem *other;
	uint8_t other_key[WEFT_RKEY_MAX], *other_to;

	have_peer();
	own(65536);
	other_to = fake.fake_cuda_malloc(1, 5000);
	other = register_gpu(other_to, 5000, &other_key);
	expect_put(to, 65536, key, 0);
	expect_put(other_to, 5000, other_key, 0);
	cr_expect(eq(uint, sh->open, 2));
	nvl->mem_release(other);
	wait_for((command(REPORT), sh->open == 1));
	expect_put(to, 65536, key, 0);
	/* what lies beside it is mapped, too, and no business of the peer's */
	memset(other_to, POISON, 5000);
	name(other_to, 8, key);
	command(PUT);
	cr_expect(eq(int, sh->status, -EACCES));
	cr_expect(eq(uint, other_to[0], POISON));
	release_all();
	wait_for(is_closed());
}

/* Of two GPUs; a second one of a GPU the driver refuses. */
Test(nvl_handle, each_context_opens_its_own)
{
	have_peer();
	own(LEN);
	expect_put(to, LEN, key, 0);
	sh->from = GPU_1;
	expect_put(to, LEN, key, 0);
	cr_expect(eq(uint, sh->open, 2));
	sh->from = GREEN_0;
	expect_put(to, LEN, key, -EACCES);
	wait_for(is_poison());
	sh->from = GPU_0;
	expect_put(to, LEN, key, 0);
	release_all();
	wait_for(is_closed());
}

/* As UCX registers it. */
Test(nvl_handle, registration_that_is_longer_than_the_allocation)
{
	have_peer();
	to = fake.fake_cuda_malloc(1, 70001);
	mem = register_gpu(to, 70016, &key);
	expect_put(to, 70001, key, 0);
	name(to + 70000, 3, key);
	command(PUT);
	cr_expect(eq(int, sh->status, -EACCES));
}

/* Those used last are kept. */
Test(nvl_handle, more_allocations_than_a_peer_keeps)
{
	enum { N = NVL_IMPORTS + 1, SMALL = 512 };
	static struct weft_mem *m[N];
	static uint8_t keys[N][WEFT_RKEY_MAX];
	static uint8_t *at[N];
	unsigned int i;

	have_peer();
	for (i = 0; i < N; i++) {
		own(SMALL);
		m[i] = mem;
		at[i] = to;
		memcpy(keys[i], key, sizeof(key));
	}
	for (i = 0; i < NVL_IMPORTS; i++)
		expect_put(at[i], SMALL, keys[i], 0);
	expect_put(at[0], SMALL, keys[0], 0);
	cr_expect(eq(uint, sh->opened, NVL_IMPORTS));
	expect_put(at[N - 1], SMALL, keys[N - 1], 0);
	cr_expect(eq(uint, sh->mapped, NVL_IMPORTS));
	cr_expect(eq(uint, sh->opened, N));
	expect_put(at[0], SMALL, keys[0], 0);
	cr_expect(eq(uint, sh->opened, N));
	expect_put(at[1], SMALL, keys[1], 0);
	cr_expect(eq(uint, sh->opened, N + 1));
	for (i = 0; i < N - 1; i++)
		nvl->mem_release(m[i]);
	release_all();
	wait_for(is_closed());
}

/* ---- reach --------------------------------------------------------------- */

Test(nvl_handle, memory_without_a_handle_is_out_of_reach)
{
	have_peer();
	to = fake.fake_cuda_pool(1, LEN);
	register_all();
	cr_expect(not(may_be_mapped()));
	cr_expect(eq(int, reaches(key), -EHOSTUNREACH));
	expect_put(to, LEN, key, -EACCES);
	cr_expect(eq(uint, sh->opened, 0));
}

static void set_pid(uint8_t *packed, uint32_t pid)
{
	struct nvl_key k = unpack(packed);

	memcpy(k.handle + 8, &pid, sizeof(pid));
	memcpy(packed, &k, sizeof(k));
}

/* Processes of two pods have it by chance: the driver takes it for its own. */
Test(nvl_handle, handle_with_the_openers_pid_is_out_of_reach)
{
	struct nvl_key k;

	have_peer();
	own(LEN);
	k = unpack(key);
	cr_expect(
		ne(int, memcmp(k.handle + 8, (uint32_t[]){ getpid() }, 4), 0));
	set_pid(key, peer);
	cr_expect(eq(int, reaches(key), -EHOSTUNREACH));
	expect_put(to, LEN, key, -EACCES);
	/* and what is refused is tried again, until one is not; a put twice */
	cr_expect(eq(int, reaches(key), -EHOSTUNREACH));
	cr_expect(eq(uint, sh->opened, 4));
	nvl->mem_pack(mem, &key);
	cr_expect(eq(int, reaches(key), 0));
	cr_expect(eq(uint, sh->opened, 5));
	cr_expect(eq(int, reaches(key), 0));
	cr_expect(eq(uint, sh->opened, 5));
	cr_expect(eq(uint, sh->open, 0));
	expect_put(to, LEN, key, 0);
}

/* Where its device node is hidden, say: descriptors may be another matter. */
Test(nvl_handle, refused_handle_is_out_of_reach_and_fails)
{
	struct weft_mem *virt;
	uint8_t virt_key[WEFT_RKEY_MAX], *virt_to;

	have_peer();
	own(LEN);
	sh->status = WEFT_CU_INVALID_CONTEXT;
	command(REFUSE);
	cr_expect(eq(int, reaches(key), -EHOSTUNREACH));
	expect_put(to, LEN, key, -EACCES);
	cr_expect(yes(is_closed()));
	virt_to = fake.fake_cuda_vmm(1, LEN);
	virt = register_gpu(virt_to, LEN, &virt_key);
	cr_expect(eq(int, reaches(virt_key), 0));
	expect_put(virt_to, LEN, virt_key, 0);
	nvl->mem_release(virt);
	sh->status = 0;
	command(REFUSE);
	cr_expect(eq(int, reaches(key), 0));
	expect_put(to, LEN, key, 0);
}

/* The driver opens none, and what it names is here. */
Test(nvl_handle, own_process_copies_without_a_handle)
{
	load_fake();
	open_both();
	meet_both();
	from = fake.fake_cuda_malloc(0, LEN);
	own(LEN);
	cr_assert(yes(may_be_mapped()));
	cr_expect(eq(int, nvl->mem_reaches(&key), 0));
	cr_expect(eq(int, put_checked(&a, from, to, LEN, &key), 0));
	cr_expect(eq(int, get_checked(&a, from, to, LEN, &key), 0));
	cr_expect(eq(uint, fake.fake_cuda_called(OPEN), 0));
	release_all();
	/* for which its key was good */
	memset(to, POISON, LEN);
	cr_expect(eq(int, get_checked(&a, from, to, LEN, &key), -EACCES));
	meet_again();
}

/* By keys that say that memory of this process is a peer's. */
Test(nvl_handle, a_peer_cannot_name_memory_of_this_process)
{
	uint8_t lie[WEFT_RKEY_MAX], *other;
	struct nvl_key k;
	unsigned int i;

	load_fake();
	open_both();
	meet_both();
	from = fake.fake_cuda_malloc(0, LEN);
	to = fake.fake_cuda_malloc(1, LEN);
	other = fake.fake_cuda_malloc(1, LEN);
	mem = register_gpu(other, 4096, &key);
	for (i = 0; i < 3; i++) {
		k = unpack(key);
		k.token ^= i == 1;
		if (i < 2)
			k.addr = k.base = (uintptr_t)to;
		k.len = LEN;
		memcpy(lie, &k, sizeof(k));
		memset(to, POISON, LEN);
		memset(other + 4096, POISON, 1);
		cr_expect(eq(int,
			     put_checked(&a, from, i < 2 ? to : other + 4095, 2,
					 &lie),
			     -EACCES));
		meet_again();
		cr_expect(yes(is_poison()));
		cr_expect(eq(int, other[4096], POISON));
		/* where the true one was used before */
		cr_expect(eq(int, put_checked(&a, from, other, 4096, &key), 0));
	}
}

/* A copy behind the end of the memory would end the peer's context. */
Test(nvl_handle, an_owner_cannot_have_more_mapped_than_there_is)
{
	struct nvl_key k;

	have_peer();
	own(LEN);
	expect_put(to, LEN, key, 0);
	release_all();
	wait_for(is_closed());
	register_all();
	k = unpack(key);
	memcpy(sh->handle.bytes, k.handle, sizeof(k.handle));
	sh->len = LEN;
	command(MAP);
	cr_expect(eq(int, sh->status, 0));
	sh->len = LEN + 1;
	command(MAP);
	cr_expect(eq(int, sh->status, WEFT_CU_INVALID_VALUE));
	cr_expect(yes(is_closed()));
	/* nor by a key that says so */
	k.size = k.len = LEN + SEGMENT;
	memcpy(key, &k, sizeof(k));
	name(to, 8, key);
	command(PUT);
	cr_expect(eq(int, sh->status, -EACCES));
	cr_expect(yes(is_closed()));
}

/* ---- the end ------------------------------------------------------------- */

Test(nvl_handle, peer_closes_what_was_released)
{
	have_peer();
	own(LEN);
	expect_put(to, LEN, key, 0);
	cr_expect(eq(uint, sh->open, 1));
	release_all();
	wait_for(is_closed());
	expect_put(to, LEN, key, -EACCES);
	cr_expect(yes(is_poison()));
}

/* What was mapped at its place before is not unmapped yet. */
Test(nvl_handle, place_that_is_taken_is_tried_again)
{
	have_peer();
	own(LEN);
	expect_put(to, LEN, key, 0);
	release_all();
	fake.fake_cuda_free(to);
	own(LEN);
	command(FAIL_ONCE);
	expect_put(to, LEN, key, 0);
	cr_expect(eq(uint, sh->open, 1));
	release_all();
	wait_for(is_closed());
}

/* It is mapped by an interface that the program does not run any more. */
Test(nvl_handle, place_that_another_interface_has_mapped)
{
	uint8_t *was;
	unsigned int i;

	have_peer();
	own(2 * SEGMENT);
	for (i = 0; i < 4; i++) {
		expect_put(to, 2 * SEGMENT, key, 0);
		release_all();
		fake.fake_cuda_free(to);
		was = to;
		own(2 * SEGMENT);
		cr_assert(eq(ptr, to, was));
		command(OTHER);
	}
	expect_put(to, 2 * SEGMENT, key, 0);
	/* both have it open now, and each one's use is its own */
	command(OTHER);
	expect_put(to, 2 * SEGMENT, key, 0);
	cr_expect(eq(uint, sh->open, 2));
	release_all();
	wait_for((command(REPORT), sh->open == 1));
	command(OTHER);
	wait_for(is_closed());
}

/* Memory that is mapped and lives is opened again where it was closed. */
Test(nvl_handle, key_that_lies_about_its_place_costs_time_alone)
{
	uint8_t lie[WEFT_RKEY_MAX] = { 0 };
	struct nvl_key k;

	have_peer();
	own(LEN);
	expect_put(to, LEN, key, 0);
	command(OTHER);
	k = unpack(key);
	k.whole.serial++;
	k.id++;
	memcpy(k.handle, "no handle", 9);
	memcpy(lie, &k, sizeof(k));
	expect_put(to, LEN, lie, -EACCES);
	cr_expect(yes(is_poison()));
	command(OTHER);
	wait_for((command(REPORT), !sh->open));
	expect_put(to, LEN, key, 0);
	cr_expect(eq(uint, sh->open, 1));
	release_all();
	wait_for(is_closed());
}

/* By a kernel, say, that waits for what this thread is to send. */
Test(nvl_handle, unmapping_that_does_not_end_keeps_no_one)
{
	have_peer();
	own(LEN);
	expect_put(to, LEN, key, 0);
	sh->status = 1;
	command(STALL);
	release_all();
	wait_for((command(REPORT), !sh->mapped));
	cr_expect(eq(uint, sh->open, 1));
	own(LEN);
	command(FAIL_ONCE);
	expect_put(to, LEN, key, 0);
	sh->status = 0;
	command(STALL);
	release_all();
	wait_for(is_closed());
}

/* Its owner has freed it since its word was looked at. */
Test(nvl_handle, memory_that_ends_while_its_handle_is_opened)
{
	struct nvl_key k;

	have_peer();
	own(LEN);
	k = unpack(key);
	k.whole.serial++;
	memcpy(key, &k, sizeof(k));
	command(FAIL_ONCE);
	expect_put(to, LEN, key, 0);
	wait_for(is_closed());
	sh->status = WEFT_CU_INVALID_VALUE;
	command(REFUSE);
	expect_put(to, LEN, key, -EACCES);
	cr_expect(yes(is_closed()));
}

/* The mapping of what was there before is of no use for it. */
Test(nvl_handle, freed_and_allocated_again_at_the_same_address)
{
	uint8_t *was;
	unsigned int i;

	have_peer();
	/* another one keeps the block */
	fake.fake_cuda_malloc(1, 512);
	own(100000);
	for (i = 0; i < 5; i++) {
		expect_put(to, 100000, key, 0);
		release_all();
		fake.fake_cuda_free(to);
		was = to;
		own(100000);
		cr_assert(eq(ptr, to, was));
	}
	release_all();
	wait_for(is_closed());
	cr_expect(eq(uint, sh->opened, 5));
}

/* By a program that does not keep to the rules: the handle is the former's. */
Test(nvl_handle, what_took_the_place_of_registered_memory_is_not_mapped)
{
	have_peer();
	own(LEN);
	fake.fake_cuda_free(to);
	cr_assert(eq(ptr, fake.fake_cuda_malloc(1, LEN), to));
	cr_expect(eq(int, reaches(key), -EHOSTUNREACH));
	expect_put(to, LEN, key, -EACCES);
	cr_expect(yes(is_poison()));
}

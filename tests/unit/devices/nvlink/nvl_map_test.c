/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a peer maps by descriptors: when, for whom, and until when. */
#include <unistd.h>

#include "devices/nvlink/nvl_conn.h"
#include "devices/nvlink/nvl_sock.h"
#include "tests/lib/fds.h"
#include "tests/unit/devices/nvlink/nvl_mapped.h"

TestSuite(nvl_map, .init = begin_pair, .fini = end_mapped, .timeout = 120);

/* ---- what is mapped, and when -------------------------------------------- */

Test(nvl_map, every_byte_of_many_sizes)
{
	static const size_t sizes[] = { 1,	     7,
					4096,	     65537,
					SEGMENT,     SEGMENT + 1,
					2 * SEGMENT, 2 * SEGMENT + 12345 };
	unsigned long put = 0, got = 0;
	unsigned int i;
	size_t half;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		half = sizes[i] / 2 + 1;
		cr_expect(eq(int,
			     put_checked(&a, from + 3, to + 11, sizes[i], &key),
			     0));
		cr_expect(eq(
			int,
			get_checked(&a, from + 5, to + SEGMENT - 1, half, &key),
			0));
		put += sizes[i];
		got += half;
	}
	cr_expect(eq(ulong, counter(&a, tx_puts), ARRAY_SIZE(sizes)));
	cr_expect(eq(ulong, counter(&a, tx_put_bytes), put));
	cr_expect(eq(ulong, counter(&a, gets), ARRAY_SIZE(sizes)));
	cr_expect(eq(ulong, counter(&a, get_bytes), got));
	cr_expect(eq(ulong, counter(&b, tx_put_bytes), 0));
}

/* Each export takes a driver long: other connections are served between. */
Test(nvl_map, mapped_at_the_first_use_one_descriptor_a_round)
{
	unsigned int n, so_far, total = 0, most = 0;
	struct wait_op w;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	cr_expect(eq(uint, fake.fake_cuda_called(EXPORT), 0));
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	while (!w.done) {
		side_progress(&a);
		so_far = fake.fake_cuda_called(EXPORT);
		side_progress(&b);
		n = fake.fake_cuda_called(EXPORT) - so_far;
		total += n;
		most = n > most ? n : most;
	}
	cr_expect(eq(int, w.status, 0));
	cr_expect(eq(uint, total, 3));
	cr_expect(eq(uint, most, 1));
	cr_expect(eq(uint, fake.fake_cuda_called(IMPORT), 3));
	put_all();
	cr_expect(eq(uint, fake.fake_cuda_called(EXPORT), 3));
}

Test(nvl_map, an_allocation_is_mapped_once_for_all_registrations)
{
	uint8_t part_key[WEFT_RKEY_MAX];
	struct weft_mem *part;

	pair_up_mapped();
	part = register_gpu(to + SEGMENT + 5, SEGMENT, &part_key);
	cr_expect(
		eq(int,
		   put_checked(&a, from, to + SEGMENT + 5, SEGMENT, &part_key),
		   0));
	cr_expect(eq(uint, fake.fake_cuda_called(IMPORT), 3));
	cr_expect(eq(uint, conn_of(&a)->nimports, 1));
	nvl->mem_release(part);
}

/* It is mapped as well. */
Test(nvl_map, bytes_beside_a_registration_are_refused)
{
	const size_t at = SEGMENT + 5;
	const struct {
		size_t at, len;
	} beside[] = { { 0, 8 },
		       { at - 1, 8 },
		       { at + SEGMENT - 7, 8 },
		       { at, SEGMENT + 1 } };
	uint8_t part_key[WEFT_RKEY_MAX];
	struct weft_mem *part;
	unsigned int i;

	pair_up_mapped();
	part = register_gpu(to + at, SEGMENT, &part_key);
	for (i = 0; i < ARRAY_SIZE(beside); i++) {
		memset(to, POISON, LEN);
		cr_expect(eq(int,
			     put_checked(&a, from, to + beside[i].at,
					 beside[i].len, &part_key),
			     -EACCES));
		meet_again();
		memset(to + beside[i].at, POISON, beside[i].len);
		cr_expect(yes(is_poison()));
	}
	nvl->mem_release(part);
	put_all();
}

Test(nvl_map, two_gpus_of_a_peer_copy_to_one_mapping)
{
	uint8_t *other;

	pair_up_mapped();
	other = fake.fake_cuda_malloc(1, LEN);
	cr_expect(eq(int, put_checked(&a, other, to, LEN, &key), 0));
	cr_expect(eq(int, get_checked(&a, other, to, LEN, &key), 0));
	cr_expect(eq(uint, fake.fake_cuda_called(IMPORT), 3));
}

/* As packed, and for the runtime that asks; who puts all the same, learns. */
static void cannot_be_mapped(void)
{
	cr_expect(not(may_be_mapped()));
	cr_expect(eq(int, nvl->mem_reaches(&key), -EHOSTUNREACH));
	put_fails(-EACCES);
	cr_expect(eq(uint, fake.fake_cuda_called(EXPORT), 0));
}

Test(nvl_map, memory_without_descriptors_is_not_mapped)
{
	pair_up(0);
	cannot_be_mapped();
}

Test(nvl_map, one_allocation_without_a_descriptor_is_enough)
{
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	cr_expect(yes(may_be_mapped()));
	cr_expect(eq(int, nvl->mem_reaches(&key), 0));
	release_all();
	fake.fake_cuda_unmap(to + SEGMENT, SEGMENT);
	fake.fake_cuda_map(to + SEGMENT, 1, SEGMENT, 0);
	register_all();
	cannot_be_mapped();
}

/* ---- what does not work -------------------------------------------------- */

Test(nvl_map, what_the_driver_refuses_fails_and_ends_both_sides)
{
	static const struct {
		const char *call;
		int err, status;
	} refused[] = {
		{ IMPORT, WEFT_CU_INVALID_DEVICE, -ENODEV },
		{ "cuMemSetAccess", WEFT_CU_INVALID_DEVICE, -EACCES },
		{ "cuMemAddressReserve", WEFT_CU_OUT_OF_MEMORY, -ENOMEM },
		{ "cuMemMap", WEFT_CU_OUT_OF_MEMORY, -ENOMEM },
		{ EXPORT, WEFT_CU_OUT_OF_MEMORY, -ENOMEM },
	};
	unsigned int i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		fake.fake_cuda_refuse(refused[i].call, refused[i].err);
		put_fails(refused[i].status);
		cr_expect(eq(uint, log_lines("cannot copy to a peer's"), i + 1),
			  "%s", refused[i].call);
		wait_for(is_unmapped());
		fake.fake_cuda_refuse(refused[i].call, 0);
	}
	put_all();
}

/* Each try took a page of what peers watch, of which there are some. */
Test(nvl_map, context_that_opens_late_copies_as_well)
{
	struct wait_op w;
	unsigned int i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	fake.fake_cuda_refuse("cuStreamCreate", WEFT_CU_OUT_OF_MEMORY);
	for (i = 0; i < 2 * WEFT_MARK_PAGES; i++)
		cr_assert(eq(int, start_put(&w), -ENOMEM));
	fake.fake_cuda_refuse("cuStreamCreate", 0);
	put_all();
}

/*
 * Its streams went with the context whose address the new one has; the page
 * that peers watch is the new one's.
 */
Test(nvl_map, context_that_took_the_place_of_another_one)
{
	unsigned int i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	for (i = 0; i < WEFT_MARK_PAGES; i++) {
		put_all();
		fake.fake_cuda_reset(0);
		fake.fake_cuda_context(0);
		from = fake.fake_cuda_malloc(0, LEN);
	}
	put_all();
}

/* The peer could not see when its copies have ended. */
Test(nvl_map, context_without_a_page_for_peers_copies_nothing)
{
	struct wait_op w;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	nvl_iface(a.iface)->engines.marks_used = UINT32_MAX;
	cr_expect(eq(int, start_put(&w), -ENOSPC));
	cr_expect(zero(uint, a.errors));
}

/* What the driver says of their end is what peers see then. */
Test(nvl_map, driver_without_stream_writes_works)
{
	setenv(FAKE_CUDA_NO_WRITE, "1", 1);
	pair_up_mapped();
	cr_expect(eq(int, get_checked(&a, from, to, LEN, &key), 0));
	release_all();
	wait_for(is_unmapped());
	cr_expect(eq(uint, log_lines(""), 0));
}

/* A put for which the owner has yet to send descriptors. */
static void put_until_fetched(struct wait_op *w)
{
	cr_assert(eq(int, start_put(w), -EINPROGRESS));
	while (weft_list_empty(&conn_of(&b)->fetches)) {
		side_progress(&a);
		/* the frames alone */
		weft_events_handle(&nvl_iface(b.iface)->base.events);
	}
}

/* Its socket is full: what would wait for room is not exported yet. */
Test(nvl_map, no_descriptor_waits_in_the_owner)
{
	struct nvl_frame wake = { .type = NVL_FRAME_WAKE };
	struct wait_op w;
	unsigned int i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_fetched(&w);
	while (weft_list_empty(&conn_of(&b)->frames_out))
		cr_assert(eq(int, nvl_sock_send(conn_of(&b), &wake, -1), 0));
	for (i = 0; i < 10 * NVL_POLLS; i++)
		side_progress(&b);
	cr_expect(eq(uint, fake.fake_cuda_called(EXPORT), 0));
	wait_for(w.done);
	cr_expect(eq(int, w.status, 0));
}

/* It has some again soon. */
Test(nvl_map, an_owner_without_descriptors_exports_later)
{
	struct wait_op w;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_fetched(&w);
	allow_fds(false);
	/* what the driver says of it is not documented */
	fake.fake_cuda_refuse(EXPORT, WEFT_CU_OPERATING_SYSTEM);
	cr_assert(yes(step_until(side_progress(&b),
				 fake.fake_cuda_called(EXPORT) >= 3)));
	allow_fds(true);
	fake.fake_cuda_refuse(EXPORT, 0);
	wait_for(w.done);
	cr_expect(eq(int, w.status, 0));
}

/* What it would map is lost on its way. */
Test(nvl_map, an_importer_without_descriptors_fails_loudly)
{
	struct wait_op w;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_fetched(&w);
	while (!weft_list_empty(&conn_of(&b)->fetches))
		side_progress(&b);
	allow_fds(false);
	cr_assert(yes(step_until(side_progress(&a), w.done)));
	allow_fds(true);
	cr_expect(eq(int, w.status, -EMFILE));
	cr_expect(eq(uint, log_lines("'ulimit -n'"), 1));
	meet_again();
	wait_for(is_unmapped());
	put_all();
}

/* Nor is what lies there then. */
Test(nvl_map, released_and_freed_during_its_fetch_it_is_not_exported)
{
	struct wait_op w;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_fetched(&w);
	release_all();
	fake.fake_cuda_unmap(to + SEGMENT, SEGMENT);
	fake.fake_cuda_map(to + SEGMENT, 1, SEGMENT, WEFT_CU_HANDLE_POSIX_FD);
	wait_for(w.done);
	cr_expect(eq(int, w.status, -EACCES));
	cr_expect(eq(uint, fake.fake_cuda_called(EXPORT), 0));
	meet_again();
	register_all();
	put_all();
}

/* By a program that does not keep to the rules. */
Test(nvl_map, what_took_the_place_of_registered_memory_is_not_exported)
{
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	fake.fake_cuda_unmap(to + SEGMENT, SEGMENT);
	fake.fake_cuda_map(to + SEGMENT, 1, SEGMENT, WEFT_CU_HANDLE_POSIX_FD);
	put_fails(-EINVAL);
	cr_expect(eq(uint, fake.fake_cuda_called(EXPORT), 1));
}

/* Not so many allocations at a time that peers could be kept from them. */
Test(nvl_map, key_of_a_full_table_says_that_it_cannot_be_mapped)
{
	static struct weft_mem *all[NVL_LIVES];
	const unsigned int most = NVL_LIVES - NVL_LIVES_KEPT;
	unsigned int i, n;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	/* two are the connections', two those of the first registration */
	for (n = 0; n < NVL_LIVES && may_be_mapped(); n++) {
		all[n] = register_gpu(to, LEN, &key);
	}
	cr_expect(eq(uint, n, most - 4 + 1));
	cr_expect(eq(int, nvl->mem_reaches(&key), -EHOSTUNREACH));
	cr_expect(eq(int, put_checked(&a, from, to, LEN, &key), -EACCES));
	/* there is one for a connection */
	meet_again();
	nvl->mem_pack(mem, &key);
	put_all();
	for (i = 0; i < n; i++)
		nvl->mem_release(all[i]);
}

/* ---- keys that lie ------------------------------------------------------- */

static void pack_lie(struct nvl_key k)
{
	memcpy(key, &k, sizeof(k));
}

Test(nvl_map, an_owner_cannot_use_up_addresses)
{
	struct nvl_key k;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	k = unpack(key);
	k.size = 9ull << 40;
	pack_lie(k);
	put_fails(-ENOSPC);
	wait_for(is_unmapped());
}

/* Nor anything beside what it has. */
Test(nvl_map, keys_that_lie_are_refused)
{
	struct nvl_key lies[10];
	unsigned int i;

	pair_up_mapped();
	for (i = 0; i < ARRAY_SIZE(lies); i++)
		lies[i] = unpack(key);
	lies[0].kind = NVL_KEY_NONE;
	lies[1].kind = NVL_KEY_PARTS + 1;
	lies[2].size = 0;
	lies[3].base = lies[3].addr + 1;
	lies[4].base = 0;
	lies[5].len = lies[5].size + 1;
	lies[6].life.slot = NVL_LIVES;
	lies[7].life.slot = UINT32_MAX;
	lies[8].life.serial++;
	lies[9].addr++;
	for (i = 0; i < ARRAY_SIZE(lies); i++) {
		pack_lie(lies[i]);
		put_fails(-EACCES);
	}
	nvl->mem_pack(mem, &key);
	put_all();
}

/* Its owner sends what there is, and no more: the rest is not awaited. */
static void start_a_put_that_waits(struct wait_op *w)
{
	struct nvl_key k;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	k = unpack(key);
	k.size = 1ull << 40;
	pack_lie(k);
	cr_assert(eq(int, start_put(w), -EINPROGRESS));
	wait_for(fake.fake_cuda_called("cuMemMap") == 3 + 3);
	cr_expect(eq(ulong, conn_of(&a)->imported, 1ul << 40));
	cr_expect(eq(uint, w->done, 0));
}

Test(nvl_map, put_that_waits_for_descriptors_is_cancelled)
{
	struct wait_op w;

	start_a_put_that_waits(&w);
	nvl->cancel(a.ep);
	cr_expect(eq(uint, w.done, 1));
	cr_expect(eq(int, w.status, -ECANCELED));
	cr_expect(zero(uint, a.errors));
}

Test(nvl_map, put_that_waits_for_descriptors_ends_with_its_peer)
{
	struct wait_op w;

	start_a_put_that_waits(&w);
	side_close(&b);
	wait_for(w.done && a.errors);
	cr_expect(eq(int, w.status, -ECONNRESET));
	cr_expect(eq(int, a.error, -ECONNRESET));
	wait_for(is_unmapped());
}

/* What comes of it still finds a place. */
Test(nvl_map, cancelled_before_its_descriptors_have_come)
{
	struct wait_op w;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_fetched(&w);
	nvl->cancel(a.ep);
	cr_expect(eq(int, w.status, -ECANCELED));
	wait_for(!conn_of(&a)->npending);
	cr_expect(zero(uint, a.errors + b.errors));
	release_all();
	wait_for(is_unmapped());
}

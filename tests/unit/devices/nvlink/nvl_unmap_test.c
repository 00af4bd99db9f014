/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a peer has mapped by descriptors: its end, and that of copies. */
#include "devices/nvlink/nvl_conn.h"
#include "tests/unit/devices/nvlink/nvl_mapped.h"
#include "util/clock.h"

TestSuite(nvl_unmap, .init = begin_pair, .fini = end_mapped, .timeout = 120);

/* Taken, but no engine has it yet. */
Test(nvl_unmap, put_revoked_before_it_is_handed_over_does_not_land)
{
	struct wait_op w, flushed = WAIT_OP;

	pair_up_mapped();
	memset(to, POISON, LEN);
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	cr_assert(eq(int, nvl->flush(a.ep, &flushed.op), -EINPROGRESS));
	release_all();
	wait_for(w.done && flushed.done);
	cr_expect(eq(int, w.status, -EACCES));
	cr_expect(eq(int, flushed.status, -EIO));
	meet_again();
	cr_expect(yes(is_poison()));
	/* nor later */
	put_fails(-EACCES);
	register_all();
	put_all();
}

Test(nvl_unmap, key_of_memory_that_was_released_and_freed_is_refused)
{
	pair_up_mapped();
	release_all();
	fake.fake_cuda_unmap(to, SEGMENT);
	fake.fake_cuda_map(to, 1, SEGMENT, WEFT_CU_HANDLE_POSIX_FD);
	put_fails(-EACCES);
	/* nor before it was ever mapped */
	cr_expect(eq(uint, fake.fake_cuda_called(EXPORT), 3));
	put_fails(-EACCES);
	cr_expect(eq(uint, fake.fake_cuda_called(EXPORT), 3));
}

Test(nvl_unmap, peer_unmaps_what_was_released)
{
	pair_up_mapped();
	cr_expect(not(is_unmapped()));
	release_all();
	wait_for(is_unmapped());
	cr_expect(zero(uint, a.errors + b.errors));
}

static void fall_asleep(struct side *s)
{
	while (nvl->arm(s->iface) == -EBUSY || side_is_woken(s, 0))
		progress_all();
}

/* It makes no progress but to sleep: the owner wakes it, if it is worth it. */
Test(nvl_unmap, sleeping_peer_unmaps_256_mib)
{
	const size_t len = 128ul * SEGMENT;
	uint8_t *large, large_key[WEFT_RKEY_MAX];
	struct weft_mem *m;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	large = fake.fake_cuda_segments(1, 128, WEFT_CU_HANDLE_POSIX_FD);
	fake.fake_cuda_live(&before);
	put_all();
	m = register_gpu(large, len, &large_key);
	cr_assert(eq(int, put_checked(&a, from, large + len - 8, 8, &large_key),
		     0));
	fall_asleep(&a);
	release_all();
	cr_expect(not(side_is_woken(&a, 0)));
	nvl->mem_release(m);
	cr_expect(yes(side_is_woken(&a, 0)));
	cr_expect(yes(step_until(side_progress(&a), is_unmapped())));
}

static uint64_t clock_ahead(void)
{
	static uint64_t ahead_ms;

	ahead_ms += 5;
	return (now_ms() + ahead_ms) * 1000000;
}

/* For what else it may copy to no release would wait. */
Test(nvl_unmap, peer_that_was_given_up_copies_no_more)
{
	uint8_t other_key[WEFT_RKEY_MAX];
	struct weft_mem *other;

	pair_up_mapped();
	other = register_gpu(to, LEN, &other_key);
	/* it has stopped while it hands over a copy */
	atomic_store(&nvl_iface(a.iface)->engines.marks->claimed, 1);
	weft_clock_set(clock_ahead);
	release_all();
	weft_clock_set(NULL);
	cr_expect(eq(uint, log_lines("did not end within"), 1));
	/* and goes on */
	atomic_store(&nvl_iface(a.iface)->engines.marks->claimed, 0);
	memcpy(key, other_key, sizeof(key));
	put_fails(-EACCES);
	put_all();
	nvl->mem_release(other);
}

/* The same address, another allocation: the first one is still mapped. */
Test(nvl_unmap, reused_address_is_another_mapping)
{
	unsigned int i;

	pair_up_mapped();
	for (i = 0; i < 5; i++) {
		release_all();
		fake.fake_cuda_unmap(to + SEGMENT, SEGMENT);
		fake.fake_cuda_map(to + SEGMENT, 1, SEGMENT,
				   WEFT_CU_HANDLE_POSIX_FD);
		register_all();
		put_all();
	}
	cr_expect(eq(uint, fake.fake_cuda_called(IMPORT), 6 * 3));
}

Test(nvl_unmap, nothing_lands_after_cancel)
{
	struct wait_op w[64];
	uint8_t *seen = malloc(LEN);
	unsigned int i, canceled = 0;
	struct weft_iov iov = { NULL, 65536, NULL };

	pair_up_mapped();
	memset(to, POISON, LEN);
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		w[i] = (struct wait_op)WAIT_OP;
		iov.addr = from + i * 65536;
		cr_assert(eq(int,
			     nvl->put(a.ep, &iov, 1, (uintptr_t)to + i * 65536,
				      &key, NULL, &w[i].op),
			     -EINPROGRESS));
		if (i == ARRAY_SIZE(w) / 2)
			progress_all();
	}
	nvl->cancel(a.ep);
	memcpy(seen, to, LEN);
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		cr_expect(eq(uint, w[i].done, 1));
		canceled += w[i].status == -ECANCELED;
	}
	cr_expect(gt(uint, canceled, 0));
	for (i = 0; i < 100; i++)
		progress_all();
	fake.fake_cuda_free(fake.fake_cuda_malloc(0, 4096)); /* drains */
	cr_expect(eq(int, memcmp(seen, to, LEN), 0));
	cr_expect(zero(uint, b.errors));
	release_all();
	free(seen);
}

/* The window of a connection, and of the engine, many times. */
Test(nvl_unmap, many_more_than_fit)
{
	struct wait_op *w = calloc(4000, sizeof(*w));
	struct weft_iov iov = { NULL, 1024, NULL };
	unsigned int i, refused = 0;
	int r;

	pair_up_mapped();
	fake.fake_cuda_delay(0);
	pattern_fill(from, LEN, 77);
	memset(to, POISON, LEN);
	for (i = 0; i < 4000; i++) {
		w[i] = (struct wait_op)WAIT_OP;
		iov.addr = from + i * 1024;
		while ((r = nvl->put(a.ep, &iov, 1, (uintptr_t)to + i * 1024,
				     &key, NULL, &w[i].op)) == -EAGAIN) {
			refused++;
			wait_for(nvl->ready(a.ep));
		}
		cr_assert(eq(int, r, -EINPROGRESS));
	}
	for (i = 0; i < 4000; i++)
		wait_for(w[i].done);
	cr_expect(gt(uint, refused, 0));
	cr_expect(eq(int, memcmp(from, to, 4000 * 1024), 0));
	release_all();
	free(w);
}

Test(nvl_unmap, endpoints_end_with_copies_under_way)
{
	struct wait_op w;

	pair_up_mapped();
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	progress_all();
	nvl->ep_destroy(a.ep);
	a.ep = NULL;
	cr_expect(eq(uint, w.done, 1));
	side_close(&a);
	memset(to, POISON, LEN);
	wait_for(b.errors);
	cr_expect(eq(int, b.error, -ESHUTDOWN));
	release_all();
	cr_expect(yes(is_poison()));
	side_close(&b);
	cr_expect(eq(uint, log_lines(""), 0));
}

/* What it still copies from is not freed before it is back (seen by ASan). */
Test(nvl_unmap, copy_that_ends_after_the_watchdog_is_harmless)
{
	struct nvl_conn *conn;
	struct wait_op w;

	pair_up_mapped();
	conn = conn_of(&a);
	fake.fake_cuda_hold(true);
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	wait_for(conn->copies);
	nvl_conn_break(conn, -ECONNRESET);
	conn->watchdog_ms = 0;
	wait_for(a.errors && w.done);
	cr_expect(eq(int, w.status, -ECONNRESET));
	cr_expect(eq(uint, conn->copies, 1));
	fake.fake_cuda_hold(false);
	wait_for(!conn->copies);
}

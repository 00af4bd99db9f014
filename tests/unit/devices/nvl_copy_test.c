/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies handed to the driver together, by every call that drivers have for it.
 */
#include "devices/nvlink/nvl.h"
#include "devices/engine/copy.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN (1u << 20)

static uint8_t *from, *to;
static struct weft_mem *mem;
static uint8_t key[WEFT_RKEY_MAX];

static void begin(void)
{
	begin_folder();
	setenv(FAKE_NVML, "1", 1);
	nvl_tune.chunk_min = nvl_tune.chunk_max = LEN / 16;
}

static void finish(void)
{
	end_folder();
}

TestSuite(nvl_copy, .init = begin, .fini = finish, .timeout = 120);

static void pair_up(void)
{
	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	meet(&a, &b);
	from = fake.fake_cuda_malloc(0, LEN);
	to = fake.fake_cuda_malloc(1, LEN);
	cr_assert(eq(int, nvl->mem_register(to, LEN, WEFT_MEM_CUDA, &mem), 0));
	nvl->mem_pack(mem, &key);
}

static void part(void)
{
	nvl->mem_release(mem);
	side_close(&a);
	side_close(&b);
	cr_expect(eq(uint, log_lines(""), 0));
}

/* In sixteen pieces; which of the two calls were made. */
static void moves_by(bool newer, bool older)
{
	const char *const names[] = { "cuMemcpyBatchAsync_v2",
				      "cuMemcpyBatchAsync" };
	const bool used[] = { newer, older };
	unsigned int i;

	pair_up();
	for (i = 0; i < 3; i++) {
		cr_expect(eq(int, put_checked(&a, from, to, LEN, &key), 0));
		cr_expect(eq(int, get_checked(&a, from, to, LEN, &key), 0));
	}
	cr_expect(eq(int, staged(a.ep), WEFT_STAGING_GPU));
	for (i = 0; i < ARRAY_SIZE(names); i++)
		cr_expect(eq(int, fake.fake_cuda_called(names[i]) > 0, used[i]),
			  "%s", names[i]);
	part();
}

Test(nvl_copy, copies_go_in_batches)
{
	moves_by(true, false);
}

Test(nvl_copy, copies_go_in_batches_of_cuda_12)
{
	setenv(FAKE_CUDA_BATCH, "old", 1);
	moves_by(false, true);
}

Test(nvl_copy, driver_without_batches_copies_one_by_one)
{
	setenv(FAKE_CUDA_BATCH, "no", 1);
	moves_by(false, false);
}

/* What it refuses goes one by one, and all of it arrives. */
Test(nvl_copy, refused_batch_is_copied_one_by_one)
{
	setenv(FAKE_CUDA_BATCH, "old", 1);
	pair_up();
	fake.fake_cuda_refuse("cuMemcpyBatchAsync", WEFT_CU_NOT_SUPPORTED);
	cr_expect(eq(int, put_checked(&a, from, to, LEN, &key), 0));
	cr_expect(gt(uint, fake.fake_cuda_called("cuMemcpyBatchAsync"), 0));
	part();
}

/* Hands a put to engines that do not begin. */
static void put_held(struct wait_op *w)
{
	const struct weft_iov iov = { from, LEN, NULL };
	unsigned int i;

	fake.fake_cuda_hold(true);
	cr_assert(eq(int,
		     nvl->put(a.ep, &iov, 1, (uintptr_t)to, &key, NULL, &w->op),
		     -EINPROGRESS));
	for (i = 0; i < 100; i++)
		progress_all();
}

/* The reader sees nothing of a batch before its end: it is not a long one. */
Test(nvl_copy, four_copies_end_together)
{
	struct wait_op w = WAIT_OP;
	struct weft_stream *st;
	struct weft_engine *gpu;
	unsigned int i, copies = 0, batches = 0;

	pair_up();
	cr_assert(eq(int, put_checked(&a, from, to, LEN, &key), 0));
	nvl_tune.chunk_min = nvl_tune.chunk_max = LEN / 32;
	gpu = weft_list_first(&nvl_iface(a.iface)->engines.list,
			      struct weft_engine, link);
	put_held(&w);
	for (i = 0; i < WEFT_TX_STREAMS; i++) {
		st = &gpu->streams[i];
		copies += st->nflying;
		batches += atomic_load(&st->mark->issued) -
			   atomic_load(&st->mark->finished);
	}
	cr_expect(eq(uint, copies, 32), "not all are with the engine");
	cr_expect(eq(uint, batches, 32 / 4));
	fake.fake_cuda_hold(false);
	cr_expect(until(w.done));
	cr_expect(eq(int, w.status, 0));
	cr_expect(eq(int, memcmp(from, to, LEN), 0));
	part();
}

/*
 * What ends in events leaves the flag behind; two thousand million batches
 * later it looks as if it were ahead.
 */
Test(nvl_copy, completion_flag_2_31_behind_is_not_ahead)
{
	const uint32_t far = 0x80000010;
	struct wait_op w = WAIT_OP;
	struct weft_engine *gpu;
	struct weft_stream *st;
	unsigned int i, busy = 0;

	pair_up();
	cr_assert(eq(int, put_checked(&a, from, to, LEN, &key), 0));
	gpu = weft_list_first(&nvl_iface(a.iface)->engines.list,
			      struct weft_engine, link);
	for (i = 0; i < WEFT_STREAMS; i++) {
		st = &gpu->streams[i];
		cr_assert(yes(st->flag && !st->nflying));
		atomic_store(&st->mark->issued, *st->flag + far);
		atomic_store(&st->mark->finished, *st->flag + far);
	}
	put_held(&w);
	for (i = 0; i < WEFT_STREAMS; i++) {
		st = &gpu->streams[i];
		busy += atomic_load(&st->mark->issued) != *st->flag + far;
		cr_expect(eq(u32, atomic_load(&st->mark->finished),
			     *st->flag + far));
	}
	cr_expect(gt(uint, busy, 0));
	cr_expect(yes(!w.done));
	fake.fake_cuda_hold(false);
	cr_expect(until(w.done));
	cr_expect(eq(int, w.status, 0));
	cr_expect(eq(int, put_checked(&a, from, to, LEN, &key), 0));
	part();
}

static void cancel_at_first(struct side *s, uint8_t id, void *data, size_t len)
{
	(void)data;
	(void)len;
	if (id == 1)
		nvl->cancel(s->ep);
	else
		cr_expect(eq(int, memcmp(from, to, LEN), 0));
}

/* Whose copies are queued then, and not with an engine. */
Test(nvl_copy, what_a_peer_puts_lands_although_its_target_cancels)
{
	uint8_t *back, back_key[WEFT_RKEY_MAX];
	struct wait_op w = WAIT_OP, own = WAIT_OP;
	struct iovec none = { NULL, 0 };
	struct weft_iov iov = { NULL, LEN, NULL };
	struct weft_mem *back_mem;
	struct nvl_conn *conn;

	pair_up();
	meet(&b, &a);
	back = fake.fake_cuda_malloc(0, LEN);
	cr_assert(eq(int,
		     nvl->mem_register(back, LEN, WEFT_MEM_CUDA, &back_mem),
		     0));
	nvl->mem_pack(back_mem, &back_key);
	cr_assert(eq(int, put_checked(&a, from, to, LEN, &key), 0));
	pattern_fill(from, LEN, 99);
	iov.addr = from;
	cr_assert(eq(int,
		     nvl->put(a.ep, &iov, 1, (uintptr_t)to, &key, NULL, &w.op),
		     -EINPROGRESS));
	conn = nvl_conn(weft_ep_conn(a.ep));
	cr_assert(yes(step_until(side_progress(&a),
				 !conn->ntransfers && !conn->copies)));
	cr_assert(eq(int, nvl->message(a.ep, 1, &none, 1, NULL), 0));
	nvl->fence(a.ep);
	cr_assert(eq(int, nvl->message(a.ep, 2, &none, 1, NULL), 0));
	iov.addr = to;
	cr_assert(eq(int,
		     nvl->put(b.ep, &iov, 1, (uintptr_t)back, &back_key, NULL,
			      &own.op),
		     -EINPROGRESS));
	b.hook = cancel_at_first;
	wait_for(w.done && b.messages == 2);
	cr_expect(eq(int, w.status, 0));
	cr_expect(eq(int, own.status, -ECANCELED));
	nvl->mem_release(back_mem);
	part();
}

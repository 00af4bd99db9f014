/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that peers map: who copies, until when, and what is left. */
#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "devices/nvlink/nvl_sock.h"
#include "tests/unit/devices/nvl_mapped.h"
#include "util/clock.h"

static struct fake_cuda_live before;

TestSuite(nvl_direct, .init = begin_pair, .fini = end_pair, .timeout = 120);

static void pair_up(int types)
{
	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	meet(&a, &b);
	from = fake.fake_cuda_malloc(0, LEN);
	to = fake.fake_cuda_segments(1, 3, types);
	fake.fake_cuda_live(&before);
	register_all();
}

static void put_all(void)
{
	cr_assert(eq(int, put_checked(&a, from, to, LEN, &key), 0));
}

/* The second one queries, and goes over a ring. */
static void put_until_direct(void)
{
	const unsigned long so_far = counter(&a, direct_put_bytes);

	while (counter(&a, direct_put_bytes) == so_far)
		put_all();
}

static bool is_direct_soon(void)
{
	unsigned int i;

	for (i = 0; i < 20 && !counter(&a, direct_put_bytes); i++)
		put_all();
	return counter(&a, direct_put_bytes);
}

static void pair_up_direct(void)
{
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_direct();
}

static int start_put(struct wait_op *w)
{
	struct weft_iov iov = { from, LEN, NULL };

	return nvl->put(a.ep, &iov, 1, (uintptr_t)to, &key, NULL, &w->op);
}

/* Of what other tests keep in one process nothing stays, but for streams. */
static bool is_unmapped(void)
{
	struct fake_cuda_live now;

	fake.fake_cuda_live(&now);
	return now.reservations <= before.reservations + 2 &&
	       weft_list_empty(&conn_of(&a)->imports);
}

/* ---- who copies ---------------------------------------------------------- */

Test(nvl_direct, every_byte_of_many_sizes)
{
	static const size_t sizes[] = { 1,	     7,
					4096,	     65537,
					SEGMENT,     SEGMENT + 1,
					2 * SEGMENT, 2 * SEGMENT + 12345 };
	unsigned long sum = 0, ring;
	unsigned int i;

	pair_up_direct();
	ring = counter(&a, tx_put_bytes) - counter(&a, direct_put_bytes);
	sum = counter(&a, direct_put_bytes);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		cr_expect(eq(int,
			     put_checked(&a, from + 3, to + 11, sizes[i], &key),
			     0));
		sum += sizes[i];
		cr_expect(eq(int,
			     get_checked(&a, from + 5, to + SEGMENT - 1,
					 sizes[i] / 2 + 1, &key),
			     0));
	}
	cr_expect(eq(ulong, counter(&a, direct_put_bytes), sum));
	cr_expect(eq(ulong, counter(&a, tx_put_bytes), sum + ring));
	cr_expect(eq(ulong, counter(&a, direct_get_bytes),
		     counter(&a, get_bytes)));
	nvl->mem_release(mem);
}

/* Gets query, too. */
Test(nvl_direct, both_sides_count_the_same)
{
	unsigned int i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	for (i = 0; i < 4 || !counter(&a, direct_get_bytes); i++)
		cr_assert(eq(int, get_checked(&a, from, to, LEN, &key), 0));
	for (i = 0; i < 4; i++)
		put_all();
	wait_for(counter(&b, rx_put_bytes) == counter(&a, tx_put_bytes));
	wait_for(counter(&b, tx_get_bytes) == counter(&a, get_bytes));
	cr_expect(eq(ulong, counter(&b, rx_puts), counter(&a, tx_puts)));
	cr_expect(eq(ulong, counter(&b, tx_gets), counter(&a, gets)));
	nvl->mem_release(mem);
}

/* Each takes a driver long: a peer's other connections are served between. */
Test(nvl_direct, owner_exports_one_descriptor_at_a_time)
{
	const char *call = "cuMemExportToShareableHandle";
	unsigned int n, so_far, total = 0, most = 0;
	struct wait_op w = WAIT_OP;
	struct weft_mem *plain;
	uint8_t plain_key[WEFT_RKEY_MAX], *plain_to;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	/* makes the ring, whose memory is exported as well */
	plain_to = fake.fake_cuda_malloc(1, 4096);
	cr_assert(eq(int,
		     nvl->mem_register(plain_to, 4096, WEFT_MEM_CUDA, &plain),
		     0));
	nvl->mem_pack(plain, &plain_key);
	cr_assert(
		eq(int, put_checked(&a, from, plain_to, 4096, &plain_key), 0));
	nvl->mem_release(plain);
	put_all();
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	while (!w.done || total < 3) {
		side_progress(&a);
		so_far = fake.fake_cuda_called(call);
		side_progress(&b);
		n = fake.fake_cuda_called(call) - so_far;
		total += n;
		most = n > most ? n : most;
	}
	cr_expect(eq(uint, total, 3));
	cr_expect(eq(uint, most, 1));
	put_until_direct();
	nvl->mem_release(mem);
}

/* Neither a query nor a descriptor, whose exporting it would wait for. */
Test(nvl_direct, buffers_used_once_are_not_mapped)
{
	unsigned int i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	for (i = 0; i < 20; i++) {
		put_all();
		nvl->mem_release(mem);
		register_all();
	}
	cr_expect(eq(ulong, conn_of(&a)->views.n, 0));
	cr_expect(not(conn_of(&a)->marks_sent));
	cr_expect(yes(is_direct_soon()));
	nvl->mem_release(mem);
}

/* They are remembered, while many others are used once. */
Test(nvl_direct, buffers_used_by_turns_are_mapped)
{
	struct weft_mem *part[40], *m;
	uint8_t part_key[40][WEFT_RKEY_MAX], once[WEFT_RKEY_MAX];
	unsigned int i, round;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	for (i = 0; i < 40; i++) {
		cr_assert(eq(int,
			     nvl->mem_register(to + i * 64, 64, WEFT_MEM_CUDA,
					       &part[i]),
			     0));
		nvl->mem_pack(part[i], &part_key[i]);
	}
	for (round = 0; conn_of(&a)->views.n < 40; round++) {
		cr_assert(lt(uint, round, 100));
		for (i = 0; i < 40; i++)
			cr_assert(eq(int,
				     put_checked(&a, from, to + i * 64, 64,
						 &part_key[i]),
				     0));
		for (i = 0; i < NVL_VIEWS / 2; i++) {
			cr_assert(
				eq(int,
				   nvl->mem_register(to, 8, WEFT_MEM_CUDA, &m),
				   0));
			nvl->mem_pack(m, &once);
			cr_assert(eq(int, put_checked(&a, from, to, 8, &once),
				     0));
			nvl->mem_release(m);
		}
	}
	for (i = 0; i < 40; i++)
		nvl->mem_release(part[i]);
	nvl->mem_release(mem);
}

/* Of exported memory: the fake driver has one of its own for each handle. */
static unsigned int count_exported(void)
{
	struct fake_cuda_live now;
	DIR *d = opendir("/proc/self/fd");
	char target[64];
	unsigned int n = 0;
	struct dirent *e;

	while ((e = readdir(d))) {
		memset(target, 0, sizeof(target));
		if (readlinkat(dirfd(d), e->d_name, target,
			       sizeof(target) - 1) > 0)
			n += !strncmp(target, "/memfd:fakecuda", 15);
	}
	closedir(d);
	fake.fake_cuda_live(&now);
	return n - now.handles;
}

/* To export is slow where no other descriptor is open: that of a ring is. */
Test(nvl_direct, descriptor_is_open_as_long_as_there_is_a_ring)
{
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	cr_assert(eq(uint, count_exported(), 0));
	put_all();
	cr_expect(eq(uint, count_exported(), 1));
	put_until_direct();
	nvl->mem_release(mem);
	cr_expect(eq(uint, count_exported(), 1));
	nvl_tune.idle_ms = 1;
	wait_for(!count_exported());
}

/* Another registration of it is another query, but no other mapping. */
Test(nvl_direct, an_allocation_is_mapped_once)
{
	struct weft_mem *part;
	uint8_t part_key[WEFT_RKEY_MAX];
	unsigned long so_far;
	unsigned int imports;

	pair_up_direct();
	imports = fake.fake_cuda_called("cuMemImportFromShareableHandle");
	cr_assert(eq(int,
		     nvl->mem_register(to + SEGMENT + 5, SEGMENT, WEFT_MEM_CUDA,
				       &part),
		     0));
	nvl->mem_pack(part, &part_key);
	so_far = counter(&a, direct_put_bytes);
	while (counter(&a, direct_put_bytes) == so_far)
		cr_assert(eq(int,
			     put_checked(&a, from, to + SEGMENT + 5, SEGMENT,
					 &part_key),
			     0));
	cr_expect(eq(uint,
		     fake.fake_cuda_called("cuMemImportFromShareableHandle"),
		     imports));
	/* beside what it allows there is memory that is mapped as well */
	cr_expect(eq(int, put_checked(&a, from, to, 8, &part_key), -EACCES));
	meet_again();
	nvl->mem_release(part);
	put_until_direct();
	nvl->mem_release(mem);
}

static void stays_with_the_ring(void)
{
	unsigned int i;

	for (i = 0; i < 5; i++) {
		put_all();
		cr_assert(eq(int, get_checked(&a, from, to, LEN, &key), 0));
	}
	cr_expect(eq(ulong, counter(&a, direct_put_bytes), 0));
	cr_expect(eq(ulong, counter(&a, direct_get_bytes), 0));
	cr_expect(yes(weft_list_empty(&conn_of(&a)->imports)));
	nvl->mem_release(mem);
}

static bool may_be_mapped(void)
{
	return key[WEFT_RKEY_LEN] & NVL_LOC_DIRECT;
}

Test(nvl_direct, memory_without_descriptors_goes_by_a_ring)
{
	pair_up(0);
	cr_expect(not(may_be_mapped()));
	stays_with_the_ring();
	cr_expect(eq(int, staged(a.ep), WEFT_STAGING_GPU));
}

Test(nvl_direct, one_allocation_without_a_descriptor_is_enough)
{
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	nvl->mem_release(mem);
	fake.fake_cuda_unmap(to + SEGMENT, SEGMENT);
	fake.fake_cuda_map(to + SEGMENT, 1, SEGMENT, 0);
	register_all();
	cr_expect(not(may_be_mapped()));
	stays_with_the_ring();
}

Test(nvl_direct, setting_keeps_it_to_the_ring)
{
	setenv("WEFT_NVL_DIRECT", "off", 1);
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	cr_expect(not(may_be_mapped()));
	stays_with_the_ring();
	cr_expect(eq(int, staged(a.ep), WEFT_STAGING_GPU));
}

/* The writer's driver does not reach that GPU: not even its ring. */
Test(nvl_direct, what_cannot_be_imported_goes_by_a_ring)
{
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	fake.fake_cuda_refuse("cuMemImportFromShareableHandle",
			      WEFT_CU_INVALID_DEVICE);
	stays_with_the_ring();
	cr_expect(eq(int, staged(a.ep), WEFT_STAGING_HOST));
	cr_expect(eq(uint,
		     fake.fake_cuda_called("cuMemImportFromShareableHandle"),
		     3),
		  "more than it, and a ring each way");
}

Test(nvl_direct, without_access_it_goes_by_a_ring)
{
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	fake.fake_cuda_refuse("cuMemSetAccess", WEFT_CU_INVALID_DEVICE);
	stays_with_the_ring();
}

Test(nvl_direct, an_owner_that_cannot_export_it_uses_the_ring)
{
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	fake.fake_cuda_refuse("cuMemExportToShareableHandle",
			      WEFT_CU_OUT_OF_MEMORY);
	stays_with_the_ring();
}

/* One of the writer's GPUs reaches it, and another one the ring alone. */
Test(nvl_direct, access_that_is_refused_is_not_sought_again)
{
	const char *call = "cuMemSetAccess";
	uint8_t plain_key[WEFT_RKEY_MAX], *plain, *other;
	struct weft_mem *m;
	unsigned int so_far, i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	other = fake.fake_cuda_malloc(1, LEN);
	plain = fake.fake_cuda_malloc(1, LEN);
	cr_assert(eq(int, nvl->mem_register(plain, LEN, WEFT_MEM_CUDA, &m), 0));
	nvl->mem_pack(m, &plain_key);
	cr_assert(eq(int, put_checked(&a, other, plain, LEN, &plain_key), 0));
	nvl->mem_release(m);
	put_until_direct();
	fake.fake_cuda_refuse(call, WEFT_CU_INVALID_DEVICE);
	so_far = fake.fake_cuda_called(call);
	for (i = 0; i < 5; i++)
		cr_assert(eq(int, put_checked(&a, other, to, LEN, &key), 0));
	cr_expect(eq(uint, fake.fake_cuda_called(call), so_far + 1));
	nvl->mem_release(mem);
}

/* Each try took a page of what peers watch, of which there are some. */
Test(nvl_direct, context_that_opens_late_copies_as_well)
{
	struct wait_op w = WAIT_OP;
	unsigned int i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	fake.fake_cuda_refuse("cuStreamCreate", WEFT_CU_OUT_OF_MEMORY);
	for (i = 0; i < 2 * WEFT_MARK_PAGES; i++) {
		w.done = 0;
		cr_assert(eq(int, start_put(&w), -EINPROGRESS));
		wait_for(w.done);
		cr_assert(eq(int, w.status, -ENOMEM));
		meet_again();
	}
	fake.fake_cuda_refuse("cuStreamCreate", 0);
	cr_expect(yes(is_direct_soon()));
	nvl->mem_release(mem);
}

/* A process whose copies no other can await may not copy. */
Test(nvl_direct, driver_without_stream_writes_uses_the_ring)
{
	setenv(FAKE_CUDA_NO_WRITE, "1", 1);
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	stays_with_the_ring();
}

/* A put whose key has been queried: the owner has yet to send descriptors. */
static void put_until_fetched(struct wait_op *w)
{
	put_all();
	*w = (struct wait_op)WAIT_OP;
	cr_assert(eq(int, start_put(w), -EINPROGRESS));
	while (weft_list_empty(&conn_of(&b)->fetches)) {
		side_progress(&a);
		side_progress(&b);
	}
}

/* Its socket is full: what would wait for room is not exported yet. */
Test(nvl_direct, no_descriptor_waits_in_the_owner)
{
	struct nvl_frame none = { .type = NVL_FRAME_RING_NONE, .loc = 5 };
	const char *call = "cuMemExportToShareableHandle";
	unsigned int so_far, i;
	struct wait_op w;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_fetched(&w);
	so_far = fake.fake_cuda_called(call);
	while (weft_list_empty(&conn_of(&b)->frames_out))
		cr_assert(eq(int, nvl_sock_send(conn_of(&b), &none, -1), 0));
	for (i = 0; i < 10; i++) {
		usleep(2 * NVL_EXPORT_MS * 1000);
		side_progress(&b);
	}
	cr_expect(eq(uint, fake.fake_cuda_called(call), so_far));
	wait_for(w.done);
	put_until_direct();
	nvl->mem_release(mem);
}

/* No descriptor is left; what the limit was. */
static rlim_t use_up_descriptors(void)
{
	const int next = dup(0);
	struct rlimit l;
	rlim_t was;

	cr_assert(ge(int, next, 0));
	close(next);
	cr_assert(eq(int, getrlimit(RLIMIT_NOFILE, &l), 0));
	was = l.rlim_cur;
	l.rlim_cur = next;
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &l), 0));
	return was;
}

/* It has some again soon. */
Test(nvl_direct, an_owner_without_descriptors_exports_later)
{
	const char *call = "cuMemExportToShareableHandle";
	unsigned int so_far, i;
	struct rlimit l;
	struct wait_op w;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_fetched(&w);
	/* one on its way to the peer would be lost there */
	for (i = 0; i < 10; i++)
		side_progress(&a);
	cr_assert(eq(int, getrlimit(RLIMIT_NOFILE, &l), 0));
	l.rlim_cur = use_up_descriptors();
	/* what the driver says of it is not documented */
	fake.fake_cuda_refuse(call, WEFT_CU_OPERATING_SYSTEM);
	so_far = fake.fake_cuda_called(call);
	wait_for(fake.fake_cuda_called(call) >= so_far + 3);
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &l), 0));
	fake.fake_cuda_refuse(call, 0);
	wait_for(w.done);
	cr_expect(yes(is_direct_soon()));
	nvl->mem_release(mem);
}

/* What it would map is lost on its way, so all goes over the ring. */
Test(nvl_direct, an_importer_without_descriptors_stays_with_the_ring)
{
	struct rlimit l;
	struct wait_op w;
	unsigned int i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_fetched(&w);
	while (!weft_list_empty(&conn_of(&b)->fetches))
		side_progress(&b);
	cr_assert(eq(int, getrlimit(RLIMIT_NOFILE, &l), 0));
	l.rlim_cur = use_up_descriptors();
	for (i = 0; i < 1000; i++)
		side_progress(&a);
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &l), 0));
	cr_expect(eq(uint, log_lines("'ulimit -n'"), 1));
	wait_for(w.done);
	cr_expect(eq(int, w.status, 0));
	cr_expect(not(is_direct_soon()));
	cr_expect(zero(uint, a.errors + b.errors));
	cr_expect(yes(is_unmapped()));
	nvl->mem_release(mem);
}

/* Its address is another allocation's then; the GPU is no other. */
Test(nvl_direct, freed_during_its_fetch_the_next_one_is_mapped)
{
	const char *call = "cuMemExportToShareableHandle";
	unsigned int so_far;
	struct wait_op w;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_until_fetched(&w);
	nvl->mem_release(mem);
	so_far = fake.fake_cuda_called(call);
	fake.fake_cuda_unmap(to + SEGMENT, SEGMENT);
	fake.fake_cuda_map(to + SEGMENT, 1, SEGMENT, WEFT_CU_HANDLE_POSIX_FD);
	while (!weft_list_empty(&conn_of(&b)->fetches))
		side_progress(&b);
	wait_for(w.done);
	cr_expect(eq(uint, fake.fake_cuda_called(call), so_far));
	register_all();
	cr_expect(yes(is_direct_soon()));
	nvl->mem_release(mem);
}

/* As the owner, who has said nothing yet: what is reserved for that, if so. */
static uint64_t lie_about_size(uint64_t size)
{
	struct nvl_frame f = {
		.type = NVL_FRAME_MAP_GRANT, .id = 7, .size = size, .len = 1
	};
	static struct wait_op w = WAIT_OP;
	struct weft_rkey k;
	unsigned int i;

	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_all();
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	weft_rkey_unpack(key, &k);
	f.slot = k.slot;
	f.generation = k.generation;
	f.token = k.token;
	cr_assert(eq(int, nvl_sock_send(conn_of(&b), &f, -1), 0));
	for (i = 0; i < 1000; i++)
		side_progress(&a);
	return conn_of(&a)->imported;
}

Test(nvl_direct, an_owner_may_have_much_mapped)
{
	cr_expect(eq(ulong, lie_about_size(1ul << 40), 1ul << 40));
	nvl->mem_release(mem);
}

Test(nvl_direct, an_owner_cannot_use_up_addresses)
{
	cr_expect(eq(ulong, lie_about_size(9ul << 40), 0));
	cr_expect(yes(weft_list_empty(&conn_of(&a)->imports)));
	nvl->mem_release(mem);
}

static unsigned int count_grants(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < NVL_VIEWS; i++)
		n += conn_of(&b)->granted[i];
	return n;
}

/* What a release waits for is bounded by the peers, not by their queries. */
Test(nvl_direct, a_key_is_granted_once)
{
	struct nvl_frame want = { .type = NVL_FRAME_MAP_WANT };
	struct weft_rkey k;
	unsigned int i;

	pair_up_direct();
	weft_rkey_unpack(key, &k);
	want.slot = k.slot;
	want.generation = k.generation;
	want.token = k.token;
	for (i = 0; i < 5; i++)
		cr_assert(eq(int, nvl_sock_send(conn_of(&a), &want, -1), 0));
	for (i = 0; i < 1000; i++)
		side_progress(&b);
	cr_expect(eq(uint, count_grants(), 1));
	nvl->mem_release(mem);
}

/* ---- order --------------------------------------------------------------- */

static bool right_when_told;

static void look(struct side *s, uint8_t id, void *data, size_t len)
{
	(void)s;
	(void)id;
	(void)data;
	(void)len;
	right_when_told = !memcmp(from, to, LEN);
}

Test(nvl_direct, message_behind_a_fence_comes_after_every_copy)
{
	struct wait_op w[3] = { WAIT_OP, WAIT_OP, WAIT_OP };
	struct iovec none = { NULL, 0 };
	struct weft_iov iov;
	unsigned int i, round;

	pair_up_direct();
	b.hook = look;
	for (round = 0; round < 20; round++) {
		pattern_fill(from, LEN, 1000 + round);
		memset(to, POISON, LEN);
		fake.fake_cuda_hold(true);
		right_when_told = false;
		for (i = 0; i < 3; i++) {
			iov = (struct weft_iov){ from + i * SEGMENT, SEGMENT,
						 NULL };
			w[i].done = 0;
			cr_assert(eq(int,
				     nvl->put(a.ep, &iov, 1,
					      (uintptr_t)to + i * SEGMENT, &key,
					      NULL, &w[i].op),
				     -EINPROGRESS));
		}
		nvl->fence(a.ep);
		cr_assert(eq(int, nvl->message(a.ep, 1, &none, 1, NULL), 0));
		for (i = 0; i < 50; i++)
			progress_all();
		cr_assert(eq(uint, b.messages, round));
		fake.fake_cuda_hold(false);
		wait_for(b.messages == round + 1);
		cr_assert(yes(right_when_told));
		wait_for(w[0].done && w[1].done && w[2].done);
	}
	nvl->mem_release(mem);
}

/* 2^31 puts ago, which no fence has been called since. */
static void skip_ahead(void)
{
	struct nvl_conn *ca = conn_of(&a), *cb = conn_of(&b);
	const uint64_t many = 1ull << 31;

	ca->put_next = ca->put_acked = cb->placed = many;
	ca->direct_next = ca->direct_placed = many;
	atomic_store(&ca->tx.head->direct_placed, many);
}

static void messages_pass(void)
{
	struct iovec none = { NULL, 0 };
	unsigned int i, so_far;

	skip_ahead();
	for (i = 0; i < 4; i++) {
		put_all();
		so_far = b.messages;
		cr_assert(eq(int, nvl->message(a.ep, 1, &none, 1, NULL), 0));
		wait_for(b.messages == so_far + 1);
	}
	nvl->mem_release(mem);
}

Test(nvl_direct, messages_pass_after_many_puts)
{
	pair_up_direct();
	messages_pass();
}

Test(nvl_direct, messages_pass_after_many_puts_over_a_ring)
{
	pair_up(0);
	put_all();
	messages_pass();
}

/* Would a program that sleeps wake up? */
static bool is_woken(struct side *s)
{
	struct pollfd p = { .fd = nvl->event_fd(s->iface), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Its receiver sleeps meanwhile: nothing else would wake it. */
Test(nvl_direct, such_a_message_wakes_its_receiver)
{
	struct wait_op w = WAIT_OP;
	struct iovec none = { NULL, 0 };

	pair_up_direct();
	fake.fake_cuda_hold(true);
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	nvl->fence(a.ep);
	cr_assert(eq(int, nvl->message(a.ep, 1, &none, 1, NULL), 0));
	while (nvl->arm(b.iface) == -EBUSY || is_woken(&b))
		progress_all();
	fake.fake_cuda_hold(false);
	cr_assert(yes(step_until(side_progress(&a), w.done)));
	cr_expect(yes(is_woken(&b)));
	wait_for(b.messages == 1);
	nvl->mem_release(mem);
}

/* ---- the end ------------------------------------------------------------- */

/* Taken, but no engine has it yet. */
Test(nvl_direct, revoked_put_is_not_handed_over)
{
	struct wait_op w = WAIT_OP, late = WAIT_OP, flushed = WAIT_OP;
	struct iovec none = { NULL, 0 };

	pair_up_direct();
	memset(to, POISON, LEN);
	cr_assert(eq(int, nvl->message(a.ep, 1, &none, 1, NULL), 0));
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	cr_assert(eq(int, nvl->flush(a.ep, &flushed.op), -EINPROGRESS));
	nvl->fence(a.ep);
	cr_assert(eq(int, nvl->message(a.ep, 2, &none, 1, NULL), 0));
	nvl->mem_release(mem);
	/* the peer reads it all when the end is there, too */
	cr_assert(yes(step_until(side_progress(&a), w.done && a.errors)));
	cr_expect(eq(int, w.status, -EACCES));
	cr_expect(lt(int, flushed.status, 0));
	meet_again();
	cr_expect(eq(uint, b.messages, 1));
	cr_expect(yes(is_poison()));
	cr_assert(eq(int, start_put(&late), -EINPROGRESS));
	wait_for(late.done);
	cr_expect(eq(int, late.status, -EACCES));
	cr_expect(yes(is_poison()));
	meet_again();
	register_all();
	put_until_direct();
	nvl->mem_release(mem);
}

Test(nvl_direct, peer_unmaps_what_was_released)
{
	pair_up_direct();
	cr_expect(not(weft_list_empty(&conn_of(&a)->imports)));
	nvl->mem_release(mem);
	wait_for(is_unmapped());
	cr_expect(eq(ulong, conn_of(&a)->views.n, 0));
}

/* It makes no progress but to sleep: the owner wakes it. */
Test(nvl_direct, sleeping_peer_unmaps_as_well)
{
	pair_up_direct();
	while (nvl->arm(a.iface) == -EBUSY || is_woken(&a))
		progress_all();
	nvl->mem_release(mem);
	cr_assert(yes(is_woken(&a)));
	cr_assert(yes(step_until(side_progress(&a), is_unmapped())));
}

static uint64_t clock_ahead(void)
{
	static uint64_t ahead_ms;

	ahead_ms += 5;
	return (now_ms() + ahead_ms) * 1000000;
}

/* For what else it may copy to nobody would wait. */
Test(nvl_direct, peer_that_was_given_up_goes_by_a_ring)
{
	struct weft_mem *other;
	uint8_t other_key[WEFT_RKEY_MAX];
	unsigned long so_far;

	pair_up_direct();
	cr_assert(eq(int, nvl->mem_register(to, SEGMENT, WEFT_MEM_CUDA, &other),
		     0));
	nvl->mem_pack(other, &other_key);
	so_far = counter(&a, direct_put_bytes);
	while (counter(&a, direct_put_bytes) == so_far)
		cr_assert(eq(int,
			     put_checked(&a, from, to, SEGMENT, &other_key),
			     0));
	/* it has stopped while it hands over a copy */
	atomic_store(&nvl_iface(a.iface)->engines.marks->claimed, 1);
	weft_clock_set(clock_ahead);
	nvl->mem_release(mem);
	weft_clock_set(NULL);
	cr_expect(eq(uint, log_lines("did not end within"), 1));
	/* and goes on */
	atomic_store(&nvl_iface(a.iface)->engines.marks->claimed, 0);
	so_far = counter(&a, direct_put_bytes);
	cr_expect(eq(int, put_checked(&a, from, to, SEGMENT, &other_key), 0));
	cr_expect(eq(ulong, counter(&a, direct_put_bytes), so_far));
	nvl->mem_release(other);
}

/* The same address, another allocation: the first one is still mapped. */
Test(nvl_direct, reused_address_is_another_mapping)
{
	unsigned int i;

	pair_up_direct();
	for (i = 0; i < 5; i++) {
		nvl->mem_release(mem);
		fake.fake_cuda_unmap(to + SEGMENT, SEGMENT);
		fake.fake_cuda_map(to + SEGMENT, 1, SEGMENT,
				   WEFT_CU_HANDLE_POSIX_FD);
		register_all();
		put_until_direct();
		put_all();
	}
	nvl->mem_release(mem);
}

Test(nvl_direct, nothing_lands_after_cancel)
{
	struct wait_op w[64];
	uint8_t *seen = malloc(LEN);
	unsigned int i, canceled = 0;
	struct weft_iov iov = { NULL, 65536, NULL };

	pair_up_direct();
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
	nvl->mem_release(mem);
	free(seen);
}

Test(nvl_direct, many_more_than_fit)
{
	struct wait_op *w = calloc(4000, sizeof(*w));
	struct weft_iov iov = { NULL, 1024, NULL };
	unsigned int i;

	pair_up_direct();
	fake.fake_cuda_delay(0);
	pattern_fill(from, LEN, 77);
	memset(to, POISON, LEN);
	for (i = 0; i < 4000; i++) {
		w[i] = (struct wait_op)WAIT_OP;
		iov.addr = from + i * 1024;
		wait_for(nvl->ready(a.ep));
		cr_assert(eq(int,
			     nvl->put(a.ep, &iov, 1, (uintptr_t)to + i * 1024,
				      &key, NULL, &w[i].op),
			     -EINPROGRESS));
	}
	for (i = 0; i < 4000; i++)
		wait_for(w[i].done);
	cr_expect(eq(int, memcmp(from, to, 4000 * 1024), 0));
	nvl->mem_release(mem);
	free(w);
}

Test(nvl_direct, endpoints_end_with_copies_under_way)
{
	struct wait_op w = WAIT_OP;

	pair_up_direct();
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	progress_all();
	nvl->ep_destroy(a.ep);
	a.ep = NULL;
	cr_expect(eq(uint, w.done, 1));
	side_close(&a);
	memset(to, POISON, LEN);
	wait_for(weft_list_empty(&nvl_iface(b.iface)->conns));
	nvl->mem_release(mem);
	cr_expect(yes(is_poison()));
	side_close(&b);
	cr_expect(eq(uint, log_lines(""), 0));
}

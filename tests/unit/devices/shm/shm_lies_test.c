/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of weft_shm that lie about what is in their windows. */
#include <sys/mman.h>
#include <unistd.h>

#include "devices/local/frame.h"
#include "devices/common/memfd.h"
#include "tests/unit/devices/shm/shm_gpu.h"

TestSuite(shm_lies, .init = shm_gpu_begin, .fini = shm_gpu_end, .timeout = 120);

static void say(enum shm_kind kind, const void *data, size_t len)
{
	struct shm_conn *conn = conn_of(&a);

	memcpy(shm_ring_begin(conn, len), data, len);
	shm_ring_end(conn, (struct shm_record){ .kind = kind, .len = len });
	shm_ring_wake(conn);
}

static void say_place(uint64_t pos, uint64_t len)
{
	const struct shm_place place = { pos, len };

	say(SHM_DATA_AT, &place, sizeof(place));
}

static void say_put(void)
{
	struct weft_rkey k;
	struct shm_op op;

	weft_rkey_unpack(key, &k);
	op = (struct shm_op){ .slot = k.slot,
			      .generation = k.generation,
			      .token = k.token,
			      .addr = (uintptr_t)to,
			      .len = LEN };
	say(SHM_PUT, &op, sizeof(op));
}

/* A put of the whole target, of which the liar says where bytes are. */
static void begin_lies(void)
{
	put_all(from, to, 65536, key, 6); /* position 65536 is the next */
	say_put();
}

static void is_caught(void)
{
	cr_expect(until(b.errors));
	cr_expect(eq(int, b.error, -EPROTO));
	cr_expect(eq(uint, log_lines("has damaged the ring"), 1));
}

static void place_is_caught(uint64_t pos, uint64_t len)
{
	begin_lies();
	say_place(pos, len);
	is_caught();
}

#define AT 65536u
#define PLACE(name, pos, len)                \
	Test(shm_lies, name##_ends_the_peer) \
	{                                    \
		place_is_caught(pos, len);   \
	}
PLACE(place_that_is_odd, AT + 1, 64)
PLACE(place_that_is_free, 0, 64)
PLACE(place_beyond_the_window, AT + SHM_WINDOW, 64)
PLACE(bytes_over_the_end, SHM_WINDOW - 256, 257)
PLACE(more_than_a_window, AT, (uint64_t)SHM_WINDOW + 1)
PLACE(length_that_wraps, AT, (uint64_t)-1)
PLACE(no_bytes, AT, 0)

Test(shm_lies, more_bytes_than_the_put_end_the_peer)
{
	const struct shm_op op = { .len = 64 };

	put_all(from, to, 65536, key, 6);
	say(SHM_PUT, &op, sizeof(op));
	say_place(AT, 65);
	is_caught();
}

/* Whose end is the begin of all positions. */
Test(shm_lies, place_far_beyond_ends_the_peer)
{
	conn_of(&a)->wanted = true;
	say(SHM_WANT, "", 0);
	say_put();
	say_place(-(uint64_t)SHM_CHUNK_ALIGN, SHM_CHUNK_ALIGN);
	is_caught();
}

Test(shm_lies, place_that_is_being_read_ends_the_peer)
{
	begin_lies();
	fake.fake_cuda_hold(true);
	say_place(AT, 512);
	say_place(AT + 256, 256);
	cr_expect(until(conn_of(&b)->base.state == WEFT_CONN_BROKEN));
	fake.fake_cuda_hold(false);
	is_caught();
}

Test(shm_lies, bytes_without_a_put_end_the_peer)
{
	put_all(from, to, 65536, key, 6);
	say_place(AT, 64);
	is_caught();
}

Test(shm_lies, bytes_without_a_window_end_the_peer)
{
	const struct shm_op op = { .len = 64 };

	say(SHM_PUT, &op, sizeof(op));
	say_place(0, 64);
	is_caught();
}

/* Which would be a signal. */
Test(shm_lies, reply_for_gpu_memory_by_the_ring_ends_the_peer)
{
	const struct weft_iov iov = { to, 64, NULL };
	struct wait_op w = WAIT_OP;

	memset(to, 0xa5, 64);
	memset(host, 0x5a, 64);
	cr_assert(
		eq(int,
		   dev->get(b.ep, &iov, 1, (uintptr_t)host_to, host_key, &w.op),
		   -EINPROGRESS));
	say(SHM_REPLY, host, 64);
	cr_expect(yes(step_until(side_progress(&b), b.errors)));
	is_caught();
	cr_expect(yes(w.done && w.status));
	cr_expect(eq(u8, to[0], 0xa5));
}

Test(shm_lies, second_window_wanted_ends_the_peer)
{
	put_all(from, to, 65536, key, 6);
	say(SHM_WANT, "", 0);
	is_caught();
}

Test(shm_lies, window_left_that_was_not_made_ends_the_peer)
{
	say(SHM_LEAVE, "", 0);
	is_caught();
}

Test(shm_lies, window_left_in_use_ends_the_peer)
{
	begin_lies();
	fake.fake_cuda_hold(true);
	say_place(AT, 65536);
	cr_expect(until(conn_of(&b)->copies));
	say(SHM_LEAVE, "", 0);
	for (int i = 0; i < 1000; i++)
		progress_all();
	/* the engine has it: the end waits for that */
	cr_expect(zero(uint, b.errors));
	fake.fake_cuda_hold(false);
	is_caught();
}

Test(shm_lies, bytes_read_that_were_not_sent_end_the_peer)
{
	struct wait_op w = WAIT_OP;

	put_all(from, to, 65536, key, 6);
	atomic_store(&conn_of(&b)->rx.shared->window, 1u << 30);
	cr_assert(eq(int, start_put(from, to, LEN, key, &w), -EINPROGRESS));
	cr_expect(until(a.errors));
	cr_expect(eq(int, a.error, -EPROTO));
	cr_expect(eq(uint, log_lines("bytes of its window read than were sent"),
		     1));
}

/* Messages that no put will release are not kept without end. */
Test(shm_lies, messages_that_wait_for_no_put_end_the_peer)
{
	struct shm_conn *conn = conn_of(&a);
	static const uint8_t big[SHM_MAX_MESSAGE];

	for (unsigned int i = 0; i <= SHM_HELD / SHM_MAX_MESSAGE; i++) {
		cr_assert(until(b.errors ||
				shm_ring_has_room(conn, sizeof(big))));
		if (b.errors)
			break;
		memcpy(shm_ring_begin(conn, sizeof(big)), big, sizeof(big));
		shm_ring_end(conn, (struct shm_record){ .kind = SHM_MESSAGE,
							.len = sizeof(big),
							.fenced = 1,
							.fence = 1000 });
		shm_ring_wake(conn);
	}
	is_caught();
	cr_expect(zero(uint, b.messages));
}

/* b reads no window: it wants one, and gets what a liar sends. */
static void frame_is_caught(size_t size, int fd, bool wanted)
{
	const struct shm_frame f = { SHM_FRAME_MAGIC, SHM_FRAME_WINDOW, size };

	conn_of(&b)->wanted = wanted;
	cr_assert(
		zero(int, weft_frame_send(conn_of(&a)->fd, &f, sizeof(f), fd)));
	if (fd >= 0)
		close(fd);
	cr_expect(until(b.errors));
	cr_expect(yes(b.error == -EPROTO || b.error == -EINVAL), "%d", b.error);
}

static int sealed(size_t size)
{
	void *p;

	return weft_memfd_make("liar", size, &p);
}

Test(shm_lies, window_that_was_not_wanted_ends_the_peer)
{
	frame_is_caught(SHM_WINDOW, sealed(SHM_WINDOW), false);
}

Test(shm_lies, window_of_another_size_ends_the_peer)
{
	frame_is_caught(4096, sealed(4096), true);
}

Test(shm_lies, window_that_is_smaller_than_it_says_ends_the_peer)
{
	frame_is_caught(SHM_WINDOW, sealed(SHM_WINDOW_SMALL), true);
}

Test(shm_lies, window_without_memory_ends_the_peer)
{
	frame_is_caught(SHM_WINDOW, -1, true);
}

Test(shm_lies, window_that_may_shrink_ends_the_peer)
{
	const int fd = memfd_create("liar", MFD_CLOEXEC);

	cr_assert(zero(int, ftruncate(fd, SHM_WINDOW)));
	frame_is_caught(SHM_WINDOW, fd, true);
}

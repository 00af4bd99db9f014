/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a peer of the NVLink device may not say: each lie ends the connection
 * with -EPROTO, writes nothing, and leaves the interface as it was.  Each has
 * an honest twin that is taken, so that it is the lie that is refused.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/engine/copy.h"
#include "tests/lib/nvl_liar.h"
#include "util/clock.h"
#include "util/log.h"

#define LEN    4096u
#define POISON 0xa5

static const struct weft_dev_ops *const nvl = &weft_nvlink_ops;
static struct liar_victim victim;
static struct weft_ep *ep;
static struct liar liar;
static uint8_t target[3 * LEN];
static unsigned int notified;
static int ended;

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	(void)arg;
	(void)tag;
	(void)size;
	notified++;
}

static void on_error(void *arg, struct weft_ep *dead, void *user, int err)
{
	(void)arg;
	(void)dead;
	(void)user;
	ended = err;
}

/* @inbox: a descriptor of the peer's; -1: a proper one */
static void meet(int inbox)
{
	const struct weft_iface_cb cb = { .on_notify = on_notify,
					  .on_error = on_error };
	struct liar_victim *v = &victim;

	memset(target, POISON, sizeof(target));
	liar_victim_open(v, &cb, target + LEN, LEN);
	cr_assert(eq(int, liar_dial(&liar, v->iface, &v->attr.addr, 0, inbox),
		     0));
	cr_assert(eq(int, nvl->ep_create(v->iface, &v->liar, NULL, &ep), 0));
}

static void begin(void)
{
	meet(-1);
	cr_assert(liar_ring(&liar), "no ring is offered");
}

static void finish(void)
{
	liar_close(&liar);
	nvl->ep_destroy(ep);
	nvl->mem_release(victim.mem);
	nvl->iface_close(victim.iface);
}

/* An honest put of 256 bytes: what the lies are made of. */
static struct nvl_op honest(void)
{
	struct nvl_op op = {
		.type = NVL_OP_CHUNK,
		.flags = NVL_CHUNK_NOTIFY,
		.ring = liar.ring,
		.len = 256,
		.total = 256,
		.addr = (uintptr_t)target + LEN,
		.slot = victim.key.slot,
		.generation = victim.key.generation,
		.token = victim.key.token,
	};

	return op;
}

static void check_untouched(void)
{
	size_t i;

	for (i = 0; i < sizeof(target); i++)
		cr_assert(eq(int, target[i], POISON));
}

#define HUGE_POS ((uint64_t)1 << 40)
#define RING	 (8ul << 20)

struct lie {
	const char *name;
	void (*change)(struct nvl_op *op);
};

#define LIE(name, what)                     \
	static void name(struct nvl_op *op) \
	{                                   \
		what;                       \
	}
LIE(ring_of_no_one, op->ring = 7)
LIE(ring_beyond_all, op->ring = NVL_RINGS)
LIE(place_behind_the_ring, op->pos = RING)
LIE(place_far_behind, op->pos = HUGE_POS)
LIE(place_near_the_end, op->pos = RING - NVL_ALIGN; op->len = op->total = 512)
LIE(place_not_aligned, op->pos = 8)
LIE(longer_than_the_ring, op->len = op->total = RING + 256)
LIE(no_length, op->len = 0)
LIE(longer_than_its_put, op->len = 512)
LIE(number_far_ahead, op->seq = NVL_PUTS)
LIE(number_of_the_past, op->seq = UINT32_MAX)
LIE(reply_to_no_get, op->flags = NVL_CHUNK_GET)
LIE(reply_beyond_gets, op->flags = NVL_CHUNK_GET; op->seq = NVL_GETS)
LIE(ack_of_no_put, op->type = NVL_OP_ACK)
LIE(refusal_of_no_get, op->type = NVL_OP_GET_FAIL)
LIE(get_beyond_gets, op->type = NVL_OP_GET; op->seq = NVL_GETS)
LIE(get_of_nothing, op->type = NVL_OP_GET; op->total = 0)
LIE(no_such_operation, op->type = NVL_OP_GET_FAIL + 1)
LIE(empty_with_a_length, op->ring = NVL_NO_RING)

#define ROW(name)           \
	{                   \
#name, name \
	}
static struct lie lies[] = {
	ROW(ring_of_no_one),	    ROW(ring_beyond_all),
	ROW(place_behind_the_ring), ROW(place_far_behind),
	ROW(place_near_the_end),    ROW(place_not_aligned),
	ROW(longer_than_the_ring),  ROW(no_length),
	ROW(longer_than_its_put),   ROW(number_far_ahead),
	ROW(number_of_the_past),    ROW(reply_to_no_get),
	ROW(reply_beyond_gets),	    ROW(ack_of_no_put),
	ROW(refusal_of_no_get),	    ROW(get_beyond_gets),
	ROW(get_of_nothing),	    ROW(no_such_operation),
	ROW(empty_with_a_length),
};

Test(nvl_lies, malformed_operations_are_refused)
{
	struct nvl_op op;
	size_t i;

	for (i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		begin();
		ended = 0;
		notified = 0;
		op = honest();
		lies[i].change(&op);
		liar_op(&liar, &op);
		liar_wait(&victim, ended);
		cr_assert(eq(int, ended, -EPROTO), "%s", lies[i].name);
		cr_assert(eq(uint, notified, 0), "%s", lies[i].name);
		check_untouched();
		finish();
	}
}

Test(nvl_lies, well_formed_operations_are_accepted, .init = begin,
     .fini = finish)
{
	struct nvl_op op = honest();
	uint8_t bytes[256];
	size_t i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = i ^ 0x3c;
	cr_assert(eq(long, pwrite(liar.ring_fd, bytes, sizeof(bytes), 0),
		     sizeof(bytes)));
	liar_op(&liar, &op);
	liar_wait(&victim, notified);
	cr_assert(eq(int, memcmp(target + LEN, bytes, sizeof(bytes)), 0));
	cr_assert(eq(int, ended, 0));
}

/* Bytes under a wrong key, or beside it, are no lie about the ring. */
static void refuse(struct nvl_op op)
{
	const struct nvl_inbox_head *h = liar_head(liar.ours);

	liar_op(&liar, &op);
	liar_wait(&victim, ended);
	cr_assert(eq(int, ended, -EIO));
	cr_assert(eq(ulong, atomic_load(&h->op_tail), 1));
	cr_assert(eq(uint, atomic_load(&h->cut), NVL_CUT | NVL_FAILED));
	cr_assert(zero(uint, notified));
	check_untouched();
}

Test(nvl_lies, wrong_key_is_answered_and_is_the_end, .init = begin,
     .fini = finish)
{
	struct nvl_op op = honest();

	op.token ^= 1;
	refuse(op);
}

Test(nvl_lies, bytes_beside_the_key_are_answered_and_the_end, .init = begin,
     .fini = finish)
{
	struct nvl_op op = honest();

	op.addr += LEN - 128;
	refuse(op);
}

/* A chunk is counted once; what is not credited yet is not free. */
Test(nvl_lies, chunk_in_a_used_place_is_refused, .init = begin, .fini = finish)
{
	struct nvl_op op = honest();

	liar_op(&liar, &op);
	liar_wait(&victim, notified);
	op.seq = 1;
	liar_op(&liar, &op);
	liar_wait(&victim, ended);
	cr_assert(eq(int, ended, -EPROTO));
	cr_assert(eq(uint, notified, 1));
}

/* No chunk lies in two pieces, also where there would be room for both. */
Test(nvl_lies, chunk_across_the_rings_end_is_refused, .init = begin,
     .fini = finish)
{
	struct nvl_op op = honest();

	liar_op(&liar, &op);
	liar_wait(&victim, notified);
	op.seq = 1;
	op.pos = RING - NVL_ALIGN;
	op.len = op.total = 2 * NVL_ALIGN;
	liar_op(&liar, &op);
	liar_wait(&victim, ended);
	cr_assert(eq(int, ended, -EPROTO));
	cr_assert(eq(uint, notified, 1));
}

static void op_done(struct weft_op *op, int status)
{
	(void)op;
	(void)status;
}

/* A put of the program's, and then more credit than was ever sent. */
Test(nvl_lies, credit_beyond_what_was_sent_is_refused, .init = begin,
     .fini = finish)
{
	struct nvl_frame offer = { .type = NVL_FRAME_RING_OFFER,
				   .ring = 3,
				   .size = 64 << 10 };
	struct weft_iov iov = { target + LEN, LEN, NULL };
	struct weft_op op = { .done = op_done }, second = op;
	int fd = liar_memfd(offer.size, true);

	liar_wait(&victim, nvl->ready(ep));
	cr_assert(eq(int, liar_frame(&liar, &offer, &fd, 1), 0));
	close(fd);
	cr_assert(eq(int, nvl->put(ep, &iov, 1, 4096, &victim.key, NULL, &op),
		     -EINPROGRESS));
	liar_wait(&victim,
		  atomic_load(&liar_head(liar.theirs)->op_head) ==
				  liar.op_tail &&
			  atomic_load(&liar_head(liar.ours)->op_tail) == 1);
	atomic_store(&liar_head(liar.ours)->credit[3], LEN * 2);
	/* looked at when there is more to send */
	nvl->put(ep, &iov, 1, 4096, &victim.key, NULL, &second);
	liar_wait(&victim, ended);
	cr_assert(eq(int, ended, -EPROTO));
}

#define COUNTER(name, statement)                                        \
	Test(nvl_lies, name, .init = begin, .fini = finish)             \
	{                                                               \
		struct nvl_inbox_head *theirs = liar_head(liar.theirs); \
                                                                        \
		statement;                                              \
		liar_wait(&victim, ended);                              \
		cr_assert(eq(int, ended, -EPROTO));                     \
	}
COUNTER(operations_beyond_the_inbox,
	atomic_store(&theirs->op_tail, NVL_OP_SLOTS + 1))
COUNTER(messages_beyond_the_inbox,
	atomic_store(&theirs->msg_tail, NVL_MSG_RING + 16))
COUNTER(messages_not_aligned, atomic_store(&theirs->msg_tail, 8))
COUNTER(frames_that_never_came, atomic_fetch_add(&theirs->frames, 1))
COUNTER(bytes_put_run_backwards, atomic_store(&theirs->direct_put_bytes, -1);
	atomic_store(&theirs->direct_puts, 1))
COUNTER(bytes_got_run_backwards, atomic_store(&theirs->direct_get_bytes, -1);
	atomic_store(&theirs->direct_gets, 1))

static void message_of(uint32_t len, uint8_t kind, uint8_t id)
{
	struct nvl_msg m = { .len = len, .kind = kind, .id = id };

	liar_message(&liar, &m, "0123456789abcdef", 16);
	liar_wait(&victim, ended);
	cr_assert(eq(int, ended, -EPROTO));
}

Test(nvl_lies, message_longer_than_announced_is_refused, .init = begin,
     .fini = finish)
{
	message_of(17, NVL_MSG_USER, 1);
}

Test(nvl_lies, message_id_out_of_range_is_refused, .init = begin,
     .fini = finish)
{
	message_of(16, NVL_MSG_USER, WEFT_MSG_IDS);
}

Test(nvl_lies, message_of_unknown_type_is_refused, .init = begin,
     .fini = finish)
{
	message_of(16, NVL_MSG_CLOSE + 1, 1);
}

Test(nvl_lies, read_counter_ahead_of_sent_is_refused, .init = begin,
     .fini = finish)
{
	uint8_t byte = 0;
	struct iovec iov = { &byte, 1 };
	int i, r = 0;

	atomic_store(&liar_head(liar.ours)->msg_head, HUGE_POS);
	for (i = 0; i < 100000 && !ended; i++) {
		r = nvl->message(ep, 1, &iov, 1, NULL);
		if (r == -EAGAIN)
			nvl->progress(victim.iface);
	}
	liar_wait(&victim, ended);
	cr_assert(eq(int, ended, -EPROTO));
}

Test(nvl_lies, unread_replies_are_bounded, .init = begin, .fini = finish)
{
	struct nvl_frame want = { .type = NVL_FRAME_RING_WANT, .loc = 5 };
	unsigned int i;

	for (i = 0; i < 1u << 18 && !ended; i++)
		if (liar_frame(&liar, &want, NULL, 0))
			nvl->progress(victim.iface);
	cr_assert(eq(int, ended, -ENOBUFS));
}

/* Frames, and descriptors that are not what they should be. */
static void frame_of(struct nvl_frame f, int fd)
{
	liar_frame(&liar, &f, &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
	liar_wait(&victim, ended);
	cr_assert(lt(int, ended, 0));
	cr_assert(ne(int, ended, -ECONNRESET));
}

#define FRAME(name, fd, ...)                                     \
	Test(nvl_lies, name, .init = begin, .fini = finish)      \
	{                                                        \
		frame_of((struct nvl_frame){ __VA_ARGS__ }, fd); \
	}
#define OFFER .type = NVL_FRAME_RING_OFFER, .ring = 1
FRAME(offer_unsealed, liar_memfd(65536, false), OFFER, .size = 65536)
FRAME(offer_of_another_size, liar_memfd(65536, true), OFFER, .size = 131072)
FRAME(offer_of_no_size, liar_memfd(65536, true), OFFER)
FRAME(offer_of_too_much, liar_memfd(65536, true), OFFER, .size = 1ull << 40)
FRAME(offer_of_a_wild_ring, liar_memfd(65536, true), OFFER + NVL_RINGS,
      .size = 65536)
FRAME(offer_without_a_descriptor, -1, OFFER, .size = 65536)
FRAME(offer_of_a_pipe, eventfd(0, EFD_CLOEXEC), OFFER, .size = 65536)
FRAME(recall_of_no_ring, -1, .type = NVL_FRAME_RING_RECALL, .ring = 5)
FRAME(closed_and_not_recalled, -1, .type = NVL_FRAME_RING_CLOSED)
FRAME(state_of_no_ring, -1, .type = NVL_FRAME_RING_STATE, .ring = 9)
FRAME(want_of_a_wild_place, -1, .type = NVL_FRAME_RING_WANT, .loc = NVL_LOCS)
FRAME(marks_unsealed, liar_memfd(WEFT_MARKS_SIZE, false),
      .type = NVL_FRAME_MARKS)
FRAME(marks_of_another_size, liar_memfd(4096, true), .type = NVL_FRAME_MARKS)
FRAME(marks_without_a_descriptor, -1, .type = NVL_FRAME_MARKS)
FRAME(memory_wanted_before_marks, -1, .type = NVL_FRAME_MAP_WANT)
FRAME(grant_that_nobody_asked_for, -1, .type = NVL_FRAME_MAP_GRANT, .size = LEN)
FRAME(part_of_no_allocation, liar_memfd(65536, true),
      .type = NVL_FRAME_MAP_PART, .len = 65536)
FRAME(handle_of_no_allocation, -1, .type = NVL_FRAME_MAP_HANDLE, .len = 65536)
FRAME(handle_with_a_descriptor, liar_memfd(65536, true),
      .type = NVL_FRAME_MAP_HANDLE, .len = 65536)
FRAME(no_part_of_no_allocation, -1, .type = NVL_FRAME_MAP_NONE)
static void inbox_of(int fd)
{
	meet(fd);
	close(fd);
	liar_wait(&victim, ended);
	cr_assert(eq(int, ended, -EINVAL));
}

Test(nvl_lies, inbox_unsealed, .fini = finish)
{
	inbox_of(liar_memfd(NVL_INBOX_SIZE, false));
}

Test(nvl_lies, inbox_of_another_size, .fini = finish)
{
	inbox_of(liar_memfd(4096, true));
}

FRAME(second_inbox, liar_memfd(NVL_INBOX_SIZE, true), .type = NVL_FRAME_INBOX)
/* One that is lost on its way, as where a security module keeps it back. */
static char logged[1024];

static void catch (void *arg, enum weft_level level, const char *file, int line,
		   const char *text)
{
	(void)arg;
	(void)level;
	(void)file;
	(void)line;
	strncat(logged, text, sizeof(logged) - strlen(logged) - 1);
}

Test(nvl_lies, missing_descriptor_ends_the_endpoint_and_warns, .init = begin,
     .fini = finish)
{
	struct nvl_frame f = { OFFER, .size = 65536 };
	struct rlimit limit, none;
	int fd = liar_memfd(65536, true);

	weft_log_set_sink(catch, NULL);
	cr_assert(eq(int, liar_frame(&liar, &f, &fd, 1), 0));
	close(fd);
	cr_assert(eq(int, getrlimit(RLIMIT_NOFILE, &limit), 0));
	none = limit;
	none.rlim_cur = 3;
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &none), 0));
	liar_wait(&victim, ended);
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &limit), 0));
	cr_expect(eq(int, ended, -EMFILE));
	cr_expect(strstr(logged, "'ulimit -n'") != NULL, "%s", logged);
	cr_expect(strstr(logged, "SELinux or AppArmor") != NULL, "%s", logged);
}

FRAME(not_a_frame, -1, .magic = 1, .type = NVL_FRAME_RING_WANT)

/* It sleeps, is rung, sleeps again and never reads what it is rung by. */
Test(nvl_lies, unread_wakeups_are_bounded, .init = begin, .fini = finish,
     .timeout = 120)
{
	struct nvl_inbox_head *ours = liar_head(liar.ours);
	const unsigned int rounds = 20000;
	struct iovec iov = { target, 16 };
	unsigned int i, heard;

	liar_wait(&victim, nvl->ready(ep));
	for (i = 0; i < rounds; i++) {
		atomic_store(&ours->sleeping, 1);
		cr_assert(eq(int, nvl->message(ep, 1, &iov, 1, NULL), 0));
		cr_assert(eq(uint, atomic_load(&ours->sleeping), 0));
		atomic_store(&ours->msg_head, atomic_load(&ours->msg_tail));
		nvl->progress(victim.iface);
	}
	cr_assert(eq(int, ended, 0));
	liar_read(&liar);
	heard = liar.frames[NVL_FRAME_WAKE];
	cr_assert(gt(uint, heard, 0));
	cr_assert(lt(uint, heard, rounds));
	/* once it reads, it is rung again, once */
	nvl->progress(victim.iface);
	atomic_store(&ours->sleeping, 1);
	cr_assert(eq(int, nvl->message(ep, 1, &iov, 1, NULL), 0));
	cr_assert(eq(int, nvl->message(ep, 1, &iov, 1, NULL), 0));
	liar_read(&liar);
	cr_assert(eq(uint, liar.frames[NVL_FRAME_WAKE], heard + 1));
}

/* Wakes do nothing else: a frame behind them is counted, and taken. */
Test(nvl_lies, endless_wakeups_are_harmless, .init = begin, .fini = finish)
{
	struct nvl_frame wake = { .type = NVL_FRAME_WAKE };
	struct nvl_frame want = { .type = NVL_FRAME_RING_WANT, .loc = 5 };
	unsigned int i;

	for (i = 0; i < 1000; i++)
		liar_wait(&victim, liar_frame(&liar, &wake, NULL, 0) == 0);
	for (i = 0; i < 10000; i++)
		nvl->progress(victim.iface);
	cr_assert(eq(int, ended, 0));
	cr_assert(eq(int, liar_frame(&liar, &want, NULL, 0), 0));
	nvl->progress(victim.iface);
	liar_read(&liar);
	cr_assert(eq(uint, liar.frames[NVL_FRAME_RING_NONE], 1));
}

FRAME(a_wake_with_a_descriptor, liar_memfd(4096, true), .type = NVL_FRAME_WAKE)

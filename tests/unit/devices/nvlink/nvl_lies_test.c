/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a peer of the NVLink device may not say: each lie ends the connection
 * with an error and leaves the interface as it was.  Each has an honest twin
 * that is taken, so that it is the lie that is refused.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/engine/copy.h"
#include "tests/lib/fds.h"
#include "tests/lib/nvl_liar.h"
#include "util/clock.h"
#include "util/log.h"

#define LEN  4096u
#define BASE 0x100000000ull /* of memory that the liar says it has */
#define PART ((size_t)LIAR_PART)

static const struct weft_dev_ops *const nvl = &weft_nvlink_ops;
static struct liar_victim victim;
static struct weft_ep *ep;
static struct liar liar;
static uint8_t source[LEN]; /* the program's */
static int ended;

static void on_error(void *arg, struct weft_ep *dead, void *user, int err)
{
	ended = err;
}

/* Proven, and nothing said. */
static void meet(void)
{
	const struct weft_iface_cb cb = { .on_error = on_error };

	ended = 0;
	liar_victim_open(&victim, &cb);
	liar_dial(&liar, victim.iface, &victim.attr.addr, 0);
	cr_assert(eq(int, nvl->ep_create(victim.iface, &victim.liar, NULL, &ep),
		     0));
}

static void begin(void)
{
	meet();
	liar_join(&liar);
	liar_wait(&victim, nvl->ready(ep));
	liar_read(&liar);
}

static void finish(void)
{
	liar_close(&liar);
	nvl->ep_destroy(ep);
	liar_victim_close(&victim);
}

/* Of the program. */
static struct {
	struct weft_op op;
	unsigned int done;
	int status;
} put;

static void put_done(struct weft_op *op, int status)
{
	put.done++;
	put.status = status;
}

/* Of LEN bytes, with a key of @size bytes, whose descriptors are asked for. */
static void put_and_fetch(uint64_t size)
{
	const struct nvl_key key = liar_pack(&liar, BASE, size);
	struct weft_iov iov = { source, LEN, NULL };
	const unsigned int so_far = liar.frames[NVL_FRAME_FETCH];

	put.op.done = put_done;
	put.done = 0;
	cr_assert(eq(int, nvl->put(ep, &iov, 1, BASE, &key, NULL, &put.op),
		     -EINPROGRESS));
	liar_wait(&victim, (liar_read(&liar),
			    liar.frames[NVL_FRAME_FETCH] == so_far + 1));
}

static void send_part(uint64_t len, int fd)
{
	struct nvl_frame f = { .type = NVL_FRAME_PART, .id = BASE, .len = len };

	cr_assert(eq(int, liar_frame(&liar, &f, fd), 0));
	if (fd >= 0)
		close(fd);
}

static struct nvl_frame fetch_of(const struct nvl_key *key)
{
	return (struct nvl_frame){ .type = NVL_FRAME_FETCH,
				   .id = key->id,
				   .token = key->token };
}

/* ---- frames -------------------------------------------------------------- */

enum when { PROVEN, TABLE, MARKS, OPEN, FETCHING };
enum what {
	NO_FD,
	TWO_FDS,
	EVENTFD,
	UNSEALED,
	SHORT,
	A_TABLE,
	A_MARKS,
	A_PART
};

static void come_to(enum when when)
{
	if (when >= OPEN) {
		begin();
	} else {
		meet();
		if (when >= TABLE)
			liar_table(&liar);
		if (when >= MARKS)
			liar_marks(&liar);
	}
	if (when == FETCHING)
		put_and_fetch(2 * PART);
}

static int make_fd(enum what what, uint32_t type)
{
	const size_t size = type == NVL_FRAME_TABLE ? sizeof(struct nvl_table)
						    : WEFT_MARKS_SIZE;

	switch (what) {
	case EVENTFD:
		return eventfd(0, EFD_CLOEXEC);
	case UNSEALED:
		return liar_memfd(size, false);
	case SHORT:
		return liar_memfd(4096, true);
	case A_TABLE:
		return liar_memfd(sizeof(struct nvl_table), true);
	case A_MARKS:
		return liar_memfd(WEFT_MARKS_SIZE, true);
	case A_PART:
		return liar_part(PART);
	default:
		return -1;
	}
}

static void lie(enum when when, struct nvl_frame f, enum what what, int status)
{
	int fds[2];

	come_to(when);
	fds[0] = make_fd(what == TWO_FDS ? A_PART : what, f.type);
	fds[1] = fds[0];
	liar_frame_fds(&liar, &f, fds,
		       what == TWO_FDS ? 2
		       : what != NO_FD ? 1
				       : 0);
	if (fds[0] >= 0)
		close(fds[0]);
	liar_wait(&victim, ended);
	cr_expect(eq(int, ended, status), "frame %u, state %u, what %u", f.type,
		  when, what);
	finish();
}

#define FRAME(t, ...) ((struct nvl_frame){ .type = NVL_FRAME_##t, __VA_ARGS__ })

Test(nvl_lies, frames_that_are_none)
{
	lie(OPEN, (struct nvl_frame){ .type = 0 }, NO_FD, -EPROTO);
	lie(OPEN, (struct nvl_frame){ .type = NVL_FRAME_TYPES }, NO_FD,
	    -EPROTO);
	lie(OPEN, FRAME(WAKE, .magic = 1), NO_FD, -EPROTO);
	lie(PROVEN, FRAME(TABLE, .magic = 1), A_TABLE, -EPROTO);
	lie(OPEN, FRAME(WAKE), EVENTFD, -EPROTO);
	lie(OPEN, FRAME(FETCH), EVENTFD, -EPROTO);
	lie(FETCHING, FRAME(NONE, .id = BASE), A_PART, -EPROTO);
	lie(FETCHING, FRAME(PART, .id = BASE, .len = PART), NO_FD, -EPROTO);
	lie(FETCHING, FRAME(PART, .id = BASE, .len = PART), TWO_FDS, -EPROTO);
}

Test(nvl_lies, frames_at_the_wrong_time)
{
	static const uint32_t early[] = {
		NVL_FRAME_READY, NVL_FRAME_WAKE,  NVL_FRAME_BYE,
		NVL_FRAME_CLOSE, NVL_FRAME_FETCH, NVL_FRAME_NONE,
	};
	unsigned int i;

	for (i = 0; i < sizeof(early) / sizeof(*early); i++) {
		lie(PROVEN, (struct nvl_frame){ .type = early[i] }, NO_FD,
		    -EPROTO);
		lie(TABLE, (struct nvl_frame){ .type = early[i] }, NO_FD,
		    -EPROTO);
		if (i > 1)
			lie(MARKS, (struct nvl_frame){ .type = early[i] },
			    NO_FD, -EPROTO);
	}
	lie(PROVEN, FRAME(MARKS), A_MARKS, -EPROTO);
	lie(PROVEN, FRAME(PART, .len = PART), A_PART, -EPROTO);
	lie(TABLE, FRAME(TABLE), A_TABLE, -EPROTO);
	lie(MARKS, FRAME(MARKS), A_MARKS, -EPROTO);
	lie(OPEN, FRAME(TABLE), A_TABLE, -EPROTO);
	lie(OPEN, FRAME(MARKS), A_MARKS, -EPROTO);
	lie(OPEN, FRAME(READY), NO_FD, -EPROTO);
}

Test(nvl_lies, shared_memory_that_is_none)
{
	lie(PROVEN, FRAME(TABLE), UNSEALED, -EINVAL);
	lie(PROVEN, FRAME(TABLE), SHORT, -EINVAL);
	lie(PROVEN, FRAME(TABLE), EVENTFD, -EINVAL);
	lie(PROVEN, FRAME(TABLE), NO_FD, -EPROTO);
	lie(TABLE, FRAME(MARKS), UNSEALED, -EINVAL);
	lie(TABLE, FRAME(MARKS), SHORT, -EINVAL);
	lie(TABLE, FRAME(MARKS), EVENTFD, -EINVAL);
	lie(TABLE, FRAME(MARKS), NO_FD, -EPROTO);
}

Test(nvl_lies, parts_that_no_one_asked_for)
{
	lie(OPEN, FRAME(PART, .id = BASE, .len = PART), A_PART, -EPROTO);
	lie(OPEN, FRAME(NONE, .id = BASE, .err = -EACCES), NO_FD, -EPROTO);
	lie(FETCHING, FRAME(PART, .id = BASE + 1, .len = PART), A_PART,
	    -EPROTO);
	lie(FETCHING, FRAME(PART, .id = BASE), A_PART, -EPROTO);
	lie(FETCHING, FRAME(PART, .id = BASE, .len = 2 * PART + 1), A_PART,
	    -EPROTO);
	lie(FETCHING, FRAME(PART, .id = BASE, .len = UINT64_MAX), A_PART,
	    -EPROTO);
}

/* ---- their honest twins, and what they are not worth --------------------- */

/* A thread of the peer's that ends memory overtakes its READY. */
Test(nvl_lies, honest_wake_before_all_is_ready, .init = meet, .fini = finish)
{
	struct nvl_frame wake = { .type = NVL_FRAME_WAKE };
	struct nvl_frame ready = { .type = NVL_FRAME_READY };

	liar_table(&liar);
	liar_marks(&liar);
	cr_assert(eq(int, liar_frame(&liar, &wake, -1), 0));
	cr_assert(eq(int, liar_frame(&liar, &ready, -1), 0));
	liar_wait(&victim, nvl->ready(ep));
	cr_expect(eq(int, ended, 0));
}

Test(nvl_lies, honest_parts_are_mapped_and_written_to, .init = begin,
     .fini = finish)
{
	uint8_t got[LEN];
	int part[2] = { liar_part(PART), liar_part(PART) };
	unsigned int i;

	for (i = 0; i < LEN; i++)
		source[i] = i ^ i >> 5;
	put_and_fetch(2 * PART);
	send_part(PART, dup(part[0]));
	send_part(PART, dup(part[1]));
	liar_wait(&victim, put.done);
	cr_expect(eq(int, put.status, 0));
	cr_expect(eq(int, ended, 0));
	cr_assert(eq(long, pread(part[0], got, LEN, 0), LEN));
	cr_expect(eq(int, memcmp(got, source, LEN), 0));
	/* one more than there is */
	send_part(PART, part[0]);
	liar_wait(&victim, ended);
	cr_expect(eq(int, ended, -EPROTO));
	close(part[1]);
}

/* The put fails, as with any memory that cannot be mapped. */
static void part_fails(int fd, uint64_t len)
{
	begin();
	put_and_fetch(2 * PART);
	send_part(len, fd);
	send_part(2 * PART - len, liar_part(PART));
	liar_wait(&victim, put.done && ended);
	cr_expect(lt(int, put.status, 0));
	cr_expect(eq(int, ended, -EIO));
	liar_read(&liar);
	cr_expect(eq(uint, liar.frames[NVL_FRAME_FAILED], 1));
	finish();
}

Test(nvl_lies, parts_that_cannot_be_mapped)
{
	part_fails(eventfd(0, EFD_CLOEXEC), PART);
	part_fails(liar_memfd(PART, true), PART);
	/* less than it says, and not as the driver makes them */
	part_fails(liar_part(PART / 2), PART);
	part_fails(liar_part(PART), PART + 4096);
}

/* Why there are none has to be the reason of a failure. */
Test(nvl_lies, none_for_a_reason_that_is_none)
{
	static const int reasons[] = { 0, 1, -EINPROGRESS, -ECANCELED };
	unsigned int i;

	for (i = 0; i < sizeof(reasons) / sizeof(*reasons); i++) {
		struct nvl_frame none =
			FRAME(NONE, .id = BASE, .err = reasons[i]);

		begin();
		put_and_fetch(2 * PART);
		cr_assert(eq(int, liar_frame(&liar, &none, -1), 0));
		liar_wait(&victim, put.done && ended);
		cr_expect(eq(int, put.status, -EACCES));
		cr_expect(eq(int, ended, -EIO));
		finish();
	}
}

/* As many as a registration has at most. */
Test(nvl_lies, parts_are_bounded, .init = begin, .fini = finish)
{
	unsigned int i;
	int fd = liar_part(PART);

	put_and_fetch((NVL_PARTS + 1) * PART);
	for (i = 0; i <= NVL_PARTS; i++) {
		cr_expect(eq(int, ended, 0));
		send_part(PART, dup(fd));
		if (i % 8 == 7 || i == NVL_PARTS - 1)
			liar_wait(&victim, nvl->arm(victim.iface) == 0);
	}
	close(fd);
	liar_wait(&victim, ended);
	cr_expect(eq(int, ended, -EPROTO));
}

Test(nvl_lies, fetch_with_its_key_is_answered, .init = begin, .fini = finish)
{
	struct nvl_frame f = fetch_of(&victim.key);

	cr_assert(eq(int, liar_frame(&liar, &f, -1), 0));
	liar_wait(&victim,
		  (liar_read(&liar), liar.frames[NVL_FRAME_PART] == 1));
	cr_expect(eq(uint, liar.frames[NVL_FRAME_NONE], 0));
}

Test(nvl_lies, fetch_without_it_gets_none, .init = begin, .fini = finish)
{
	struct nvl_frame f;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		f = fetch_of(&victim.key);
		f.token ^= i == 0;
		f.id += i == 1;
		liar.none = 0;
		cr_assert(eq(int, liar_frame(&liar, &f, -1), 0));
		liar_wait(&victim, (liar_read(&liar),
				    liar.frames[NVL_FRAME_NONE] == i + 1));
		cr_expect(eq(int, liar.none, -EACCES));
	}
	cr_expect(eq(uint, liar.frames[NVL_FRAME_PART], 0));
	cr_expect(eq(int, ended, 0));
}

Test(nvl_lies, fetch_of_what_is_being_fetched, .init = begin, .fini = finish)
{
	struct nvl_frame f = fetch_of(&victim.key);

	cr_assert(eq(int, liar_frame(&liar, &f, -1), 0));
	cr_assert(eq(int, liar_frame(&liar, &f, -1), 0));
	liar_wait(&victim, ended);
	cr_expect(eq(int, ended, -EPROTO));
}

/* What it says is alive is not, and the reverse: words of its own. */
Test(nvl_lies, word_of_a_life_that_is_over, .init = begin, .fini = finish)
{
	const struct nvl_key key = liar_pack(&liar, BASE, PART);
	struct weft_iov iov = { source, LEN, NULL };

	atomic_store(&liar.table->serial[0], 2);
	put.op.done = put_done;
	cr_assert(eq(int, nvl->put(ep, &iov, 1, BASE, &key, NULL, &put.op),
		     -EINPROGRESS));
	liar_wait(&victim, put.done && ended);
	cr_expect(eq(int, put.status, -EACCES));
	cr_expect(eq(int, ended, -EIO));
}

/* ---- floods -------------------------------------------------------------- */

Test(nvl_lies, unread_replies_are_bounded, .init = begin, .fini = finish)
{
	struct nvl_frame f = fetch_of(&victim.key);
	unsigned int i;

	f.token ^= 1;
	for (i = 0; i < 1u << 18 && !ended; i++)
		if (liar_frame(&liar, &f, -1))
			nvl->progress(victim.iface);
	cr_expect(eq(int, ended, -ENOBUFS));
}

/* A frame behind them is taken. */
Test(nvl_lies, endless_wakes_are_harmless, .init = begin, .fini = finish)
{
	struct nvl_frame wake = { .type = NVL_FRAME_WAKE };
	struct nvl_frame f = fetch_of(&victim.key);
	unsigned int i;

	for (i = 0; i < 10000; i++)
		liar_wait(&victim, liar_frame(&liar, &wake, -1) == 0);
	liar_wait(&victim, liar_frame(&liar, &f, -1) == 0);
	liar_wait(&victim,
		  (liar_read(&liar), liar.frames[NVL_FRAME_PART] == 1));
	cr_expect(eq(int, ended, 0));
}

Test(nvl_lies, garbage, .init = begin, .fini = finish)
{
	uint8_t bytes[1000];
	unsigned int i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = i * 37;
	cr_assert(eq(long, send(liar.fd, bytes, sizeof(bytes), MSG_NOSIGNAL),
		     sizeof(bytes)));
	liar_wait(&victim, ended);
	cr_expect(eq(int, ended, -EPROTO));
}

/* One that is lost on its way, as where a security module keeps it back. */
static char logged[1024];

static void catch (void *arg, enum weft_level level, const char *file, int line,
		   const char *text)
{
	strncat(logged, text, sizeof(logged) - strlen(logged) - 1);
}

Test(nvl_lies, missing_descriptor_ends_the_endpoint_and_warns, .init = meet,
     .fini = finish)
{
	weft_log_set_sink(catch, NULL);
	liar_table(&liar);
	allow_fds(false);
	liar_wait(&victim, ended);
	allow_fds(true);
	cr_expect(eq(int, ended, -EMFILE));
	cr_expect(strstr(logged, "'ulimit -n'") != NULL, "%s", logged);
	cr_expect(strstr(logged, "SELinux or AppArmor") != NULL, "%s", logged);
}

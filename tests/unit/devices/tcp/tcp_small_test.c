/* SPDX-License-Identifier: BSD-3-Clause */
/* Small puts and gets of the TCP device share system calls, counted here. */
#include <sys/syscall.h>
#include <unistd.h>

#include "settings/settings.h"
#include "tests/unit/devices/sides.h"

#define N      200u /* within the window of puts */
#define SIZE   1024u
#define FILLER (64u << 10)

static const struct weft_dev_ops *const tcp = &weft_tcp_ops;

/* ---- system calls -------------------------------------------------------- */

static unsigned int writes;

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	writes++;
	return syscall(SYS_sendto, fd, buf, len, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	writes++;
	return syscall(SYS_sendmsg, fd, msg, flags);
}

/* ---- two sides, and blocks between them ---------------------------------- */

static uint8_t *here, *there; /* N blocks each */
static struct weft_mem *mem;  /* there */
static uint8_t key[WEFT_RKEY_MAX];
static struct wait_op ops[N];
static unsigned int posted;

static void begin(void)
{
	clearenv();
	/* no keepalive among the writes, however long this one waits */
	setenv("WEFT_PEER_TIMEOUT", "10m", 1);
	weft_settings_reset();
	log_keep();
	cr_assert(zero(int, side_init(&a, tcp, "lo", AF_INET)));
	cr_assert(zero(int, side_init(&b, tcp, "lo", AF_INET)));
	dial_both();
	cr_assert(until(tcp->ready(a.ep) && tcp->ready(b.ep)));
	here = calloc(N, SIZE);
	there = calloc(N, SIZE);
	cr_assert(zero(int, tcp->mem_register(there, (size_t)N * SIZE,
					      WEFT_MEM_HOST, &mem)));
	tcp->mem_pack(mem, key);
	posted = writes = 0;
}

static void end(void)
{
	side_close(&a);
	side_close(&b);
	if (mem)
		tcp->mem_release(mem);
	free(here);
	free(there);
}

TestSuite(tcp_small, .init = begin, .fini = end, .timeout = 120);

/* Starts @n more, in order here and backwards there. */
static void post(bool get, unsigned int n)
{
	struct weft_iov iov = { .len = SIZE };
	uint64_t addr;
	int ret;

	for (; n--; posted++) {
		wait_op_init(&ops[posted]);
		iov.addr = here + (size_t)posted * SIZE;
		addr = (uintptr_t)there + (size_t)(N - 1 - posted) * SIZE;
		ret = get ? tcp->get(a.ep, &iov, 1, addr, key, &ops[posted].op)
			  : tcp->put(a.ep, &iov, 1, addr, key, NULL,
				     &ops[posted].op);
		cr_assert(eq(int, ret, -EINPROGRESS));
	}
}

static bool all_done(void)
{
	unsigned int i;

	for (i = 0; i < posted; i++)
		if (!ops[i].done)
			return false;
	return true;
}

static void fill(uint8_t *blocks)
{
	pattern_fill(blocks, (size_t)N * SIZE, 7);
}

static void blocks_are_equal(void)
{
	unsigned int i;

	for (i = 0; i < posted; i++) {
		cr_assert(zero(int, ops[i].status));
		cr_assert(zero(int, memcmp(here + (size_t)i * SIZE,
					   there + (size_t)(N - 1 - i) * SIZE,
					   SIZE)),
			  "block %u", i);
	}
}

/* ---- tests --------------------------------------------------------------- */

/* Alone, a put and its acknowledgement are a write each. */
static void writes_are_few(void)
{
	cr_expect(until(all_done()));
	blocks_are_equal();
	cr_expect(le(uint, writes, N / 8), "of %u blocks", N);
}

Test(tcp_small, puts_and_acknowledgements_share_writes)
{
	fill(here);
	post(false, N);
	cr_expect(le(uint, writes, 2 + N * (SIZE + 80) / (64 << 10)));
	writes_are_few();
}

Test(tcp_small, gets_and_answers_share_writes)
{
	fill(there);
	post(true, N);
	writes_are_few();
}

static void first_leaves_at_once(bool get)
{
	post(get, 1);
	cr_expect(eq(uint, writes, 1));
	post(get, 1);
	cr_expect(eq(uint, writes, 1));
	tcp->progress(a.iface);
	cr_expect(eq(uint, writes, 2));
	cr_expect(until(all_done()));
	blocks_are_equal();
}

Test(tcp_small, first_put_leaves_at_once_and_more_with_progress)
{
	fill(here);
	first_leaves_at_once(false);
}

Test(tcp_small, first_get_leaves_at_once_and_more_with_progress)
{
	fill(there);
	first_leaves_at_once(true);
}

Test(tcp_small, what_waits_leaves_before_the_caller_sleeps)
{
	fill(here);
	post(false, 2);
	cr_expect(eq(uint, writes, 1));
	(void)tcp->arm(a.iface);
	cr_expect(eq(uint, writes, 2));
	cr_expect(until(all_done()));
	blocks_are_equal();
}

/* One write for both, and the message comes last. */
static void message_takes_them_along(size_t len)
{
	uint8_t *text = malloc(len);
	struct iovec iov = { text, len };

	fill(here);
	pattern_fill(text, len, 9);
	post(false, N);
	tcp->fence(a.ep);
	while (!b.messages) {
		if (writes && tcp->ready(a.ep) && iov.iov_len) {
			cr_assert(zero(int, tcp->message(a.ep, 3, &iov, 1)));
			iov.iov_len = 0;
		}
		tcp->progress(b.iface);
	}
	pattern_check("message", b.first->data, len, 9);
	cr_assert(eq(sz, b.first->len, len));
	cr_expect(zero(int, memcmp(here, there + (N - 1) * SIZE, SIZE)));
	cr_expect(zero(int, memcmp(here + (N - 1) * SIZE, there, SIZE)));
	writes_are_few();
	free(text);
}

Test(tcp_small, small_message_takes_them_along)
{
	message_takes_them_along(100);
}

Test(tcp_small, large_message_takes_them_along)
{
	message_takes_them_along(100000);
}

/* Each message says which it is, and comes behind the puts before its fence. */
static unsigned int in_order;

static void check_order(struct side *s, uint8_t id, void *data, size_t len)
{
	unsigned int said[2], i; /* its number; puts before it */

	cr_assert(eq(sz, len, FILLER));
	memcpy(said, data, sizeof(said));
	cr_assert(eq(uint, said[0], in_order));
	for (i = 0; i < said[1]; i++)
		cr_assert(zero(int, memcmp(here + (size_t)i * SIZE,
					   there + (size_t)(N - 1 - i) * SIZE,
					   SIZE)),
			  "block %u, message %u", i, said[0]);
	in_order++;
}

/*
 * A peer that reads nothing: the socket fills up with puts, messages and
 * answers, and none is lost or passes another.
 */
Test(tcp_small, full_socket_delays_and_loses_nothing)
{
	static unsigned int filler[FILLER / sizeof(unsigned int)];
	struct iovec iov = { filler, FILLER };
	unsigned int sent = 0, n;

	fill(here);
	b.hook = check_order;
	for (n = 0; n < 20; n++) {
		post(false, N / 20);
		tcp->fence(a.ep);
		while (tcp->ready(a.ep)) {
			filler[0] = sent;
			filler[1] = posted;
			cr_assert(zero(int, tcp->message(a.ep, 1, &iov, 1)));
			if (++sent % 16 == 0)
				break;
		}
		if (!tcp->ready(a.ep))
			break;
	}
	cr_assert(lt(uint, n, 20), "the socket took it all");
	cr_expect(until(in_order == sent && all_done()));
	blocks_are_equal();
}

/* After a's endpoint was cancelled b sends as before. */
static void peer_lives(void)
{
	const unsigned int messages = a.messages;
	struct iovec iov = { key, sizeof(key) };

	run_for(&a, &b, 50);
	cr_assert(zero(int, tcp->message(b.ep, 1, &iov, 1)));
	cr_expect(until(a.messages > messages));
	cr_expect(zero(uint, b.errors));
}

/* They were copied: what the caller does with their memory then is its own. */
Test(tcp_small, cancelled_puts_leave_the_peer_whole)
{
	unsigned int i;

	fill(here);
	post(false, N);
	tcp->cancel(a.ep);
	for (i = 0; i < N; i++) {
		cr_assert(eq(uint, ops[i].done, 1));
		cr_assert(eq(int, ops[i].status, -ECANCELED));
	}
	memset(here, 0, (size_t)N * SIZE);
	peer_lives();
	pattern_fill(here, (size_t)N * SIZE, 7);
	for (i = 0; i < N; i++)
		cr_assert(zero(int, memcmp(here + (size_t)i * SIZE,
					   there + (size_t)(N - 1 - i) * SIZE,
					   SIZE)),
			  "block %u", i);
}

static void peer_closes(bool get)
{
	unsigned int i;

	fill(get ? there : here);
	post(get, N);
	side_close(&b);
	cr_expect(until(a.errors == 1));
	for (i = 0; i < N; i++) {
		cr_assert(eq(uint, ops[i].done, 1));
		cr_assert(eq(int, ops[i].status, -ECONNRESET));
	}
	cr_expect(eq(int, a.error, -ECONNRESET));
}

Test(tcp_small, puts_fail_when_the_peer_closes)
{
	peer_closes(false);
}

Test(tcp_small, gets_fail_when_the_peer_closes)
{
	peer_closes(true);
}

/*
 * What b still had to answer is nothing that it lost: a left in order, with
 * messages behind a put over a bulk stream and a small one.
 */
Test(tcp_small, answers_owed_to_a_closed_peer_are_no_loss)
{
	const size_t large = N * SIZE - SIZE;
	struct weft_iov iov = { here, large };
	struct iovec text = { key, sizeof(key) };
	unsigned int i;

	fill(here);
	for (i = 0; i < 2; i++) { /* the first one opens the stream */
		wait_op_init(&ops[0]);
		cr_assert(eq(int,
			     tcp->put(a.ep, &iov, 1, (uintptr_t)there, key,
				      NULL, &ops[0].op),
			     -EINPROGRESS));
		if (!i)
			cr_assert(until(ops[0].done));
	}
	posted = 1;
	post(false, 1);
	tcp->fence(a.ep);
	for (i = 0; i < 3 * WEFT_PROGRESS_MAX; i++)
		cr_assert(zero(int, tcp->message(a.ep, 1, &text, 1)));
	for (i = 0; i < 10; i++)
		tcp->progress(a.iface);
	side_close(&a);
	cr_expect(until(b.errors == 1));
	cr_expect(eq(uint, b.messages, 3 * WEFT_PROGRESS_MAX));
	cr_expect(eq(int, b.error, -ESHUTDOWN), "%d", b.error);
}

/* No byte of a get lands after its end, whichever peer answers. */
Test(tcp_small, cancelled_gets_land_no_more)
{
	unsigned int i;

	fill(there);
	post(true, N);
	tcp->progress(a.iface);
	side_progress(&b); /* answers all that it has read */
	tcp->cancel(a.ep);
	memset(here, 0x5a, (size_t)N * SIZE);
	peer_lives();
	for (i = 0; i < N * SIZE; i++)
		cr_assert(eq(uint, here[i], 0x5a));
}

static void take_back(struct side *s, uint8_t id, void *data, size_t len)
{
	tcp->mem_release(mem);
	mem = NULL;
}

/* Nothing is between two frames when a callback runs. */
Test(tcp_small, callback_may_release_what_was_put)
{
	struct iovec iov = { key, sizeof(key) };

	fill(here);
	b.hook = take_back;
	post(false, N);
	cr_assert(zero(int, tcp->message(a.ep, 1, &iov, 1)));
	cr_expect(until(!mem && all_done()));
	blocks_are_equal();
}

/* Memory that is taken back is refused: one get says so, and all end. */
Test(tcp_small, released_source_ends_all)
{
	unsigned int i, refused = 0;

	fill(there);
	post(true, N / 2);
	tcp->mem_release(mem);
	mem = NULL;
	cr_expect(until(all_done() && a.errors && b.errors));
	for (i = 0; i < posted; i++) {
		refused += ops[i].status == -EACCES;
		cr_assert(ops[i].status == -EACCES ||
			  ops[i].status == -ECONNRESET);
	}
	cr_assert(eq(uint, refused, 1));
}

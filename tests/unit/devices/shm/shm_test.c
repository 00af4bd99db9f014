/* SPDX-License-Identifier: BSD-3-Clause */
/* How often weft_shm copies, and memory that is not there. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "devices/shm/shm_ring.h"
#include "tests/lib/fallocate.h"
#include "tests/unit/devices/sides.h"

static void begin(void)
{
	begin_folder();
	log_keep();
	cr_assert(zero(int, side_init(&a, &weft_shm_ops, "shm", AF_UNSPEC)));
	cr_assert(zero(int, side_init(&b, &weft_shm_ops, "shm", AF_UNSPEC)));
}

TestSuite(shm, .init = begin, .fini = end_pair, .timeout = 60);

static bool is_in(const struct shm_ring *ring, const void *p)
{
	const uint8_t *byte = p;

	return byte >= (uint8_t *)ring->shared + SHM_SMALL_AT &&
	       byte < (uint8_t *)ring->shared + SHM_SIZE;
}

static struct shm_conn *conn_of(struct side *s)
{
	return shm_conn(weft_ep_conn(s->ep));
}

static size_t packed, taken;

/* The caller's copy, which is the first, ... */
static size_t pack(void *dest, void *arg)
{
	packed += is_in(&conn_of(&a)->tx, dest);
	pattern_fill(dest, SHM_MAX_MESSAGE, (unsigned int)(uintptr_t)arg);
	return SHM_MAX_MESSAGE;
}

/* ... and what the peer's program copies from. */
static void take(struct side *s, uint8_t id, void *data, size_t len)
{
	taken += is_in(&conn_of(s)->rx, data);
	check_int(len, SHM_MAX_MESSAGE);
	pattern_check("message", data, len, s->messages);
}

/* Three times around the ring, so that many lie at its end. */
Test(shm, message_is_not_copied_between_the_two_programs)
{
	const unsigned int n = 3 * SHM_SHORT / SHM_MAX_MESSAGE;
	ssize_t len;

	dial_both();
	b.hook = take;
	for (uintptr_t i = 1; i <= n; i++) {
		cr_assert(until(a.ops->ready(a.ep)));
		len = a.ops->message_pack(a.ep, 1, pack, (void *)i);
		cr_assert(eq(long, len, SHM_MAX_MESSAGE));
	}
	cr_expect(until(b.messages == n));
	cr_expect(eq(sz, packed, n));
	cr_expect(eq(sz, taken, n));
}

static bool lacks_pages, is_old;

/* madvise() of this program: finds no memory, or is of Linux before 5.14. */
int madvise(void *p, size_t len, int how);
int madvise(void *p, size_t len, int how)
{
	if (how == MADV_POPULATE_WRITE && (is_old || (lacks_pages && len))) {
		errno = is_old ? EINVAL : EFAULT;
		return -1;
	}
	return (int)syscall(SYS_madvise, p, len, how);
}

/* The pattern of a number that nothing before it had. */
static void send_next(unsigned int *sent)
{
	const ssize_t len = a.ops->message_pack(a.ep, 1, pack,
						(void *)(uintptr_t)++ * sent);

	cr_assert(eq(long, len, SHM_MAX_MESSAGE));
}

/* Sends while there is room, which progress() may make; how many. */
static unsigned int send_all(unsigned int progress, unsigned int *sent)
{
	const unsigned int before = *sent;

	for (;; progress--) {
		while (a.ops->ready(a.ep))
			send_next(sent);
		if (!progress)
			return *sent - before;
		side_progress(&a);
	}
}

static void send_each(unsigned int n, unsigned int *sent)
{
	for (; n; n--) {
		send_next(sent);
		cr_assert(until(b.messages == *sent));
	}
}

static unsigned int connect_both(void)
{
	dial_both();
	b.hook = take;
	cr_assert(until(a.ops->ready(a.ep)));
	return SHM_SHORT_BEGIN / SHM_MAX_MESSAGE;
}

/*
 * A reader that the scheduler keeps waiting finds much in its turn; one that
 * runs, what a processor's cache holds.
 */
Test(shm, ring_is_long_while_its_reader_stands)
{
	unsigned int short_ring = connect_both();
	const unsigned int long_ring = SHM_LONG / SHM_MAX_MESSAGE;
	const unsigned int small_ring = SHM_SMALL / SHM_MAX_MESSAGE;
	unsigned int n, sent = 0;

	for (int round = 0; round < 5; round++) {
		n = send_all(SHM_STUCK / 2, &sent);
		/* and in the first round a small one before */
		cr_expect(all(gt(uint, n, short_ring / 2),
			      lt(uint, n, short_ring + small_ring)),
			  "%u messages", n);
		n = send_all(SHM_STUCK, &sent);
		cr_expect(
			all(gt(uint, n, long_ring - 8), le(uint, n, long_ring)),
			"%u messages", n);
		cr_expect(eq(int, conn_of(&a)->tx.in, SHM_IN_LONG));
		cr_expect(until(b.messages == sent));
		side_progress(&a);
		cr_expect(eq(int, conn_of(&a)->tx.in, SHM_IN_SHORT));
		/* several times around the short one */
		send_each(70, &sent);
		/* it is busy by now */
		short_ring = SHM_SHORT / SHM_MAX_MESSAGE;
	}
}

static bool has_pages(struct shm_conn *conn, enum shm_which which)
{
	static unsigned char is[SHM_LONG / 4096];
	const size_t len = shm_ring_size(which);

	cr_assert(zero(int,
		       mincore((uint8_t *)conn->tx.shared + shm_ring_at(which),
			       len, is)));
	return memchr(is, 1, len / 4096);
}

/* Larger than the processors' own caches; cleared by the kernel in steps. */
Test(shm, ring_of_a_busy_pair_grows_in_steps)
{
	const unsigned int busy = SHM_BUSY / SHM_MAX_MESSAGE;
	unsigned int sent = 0;
	struct shm_conn *conn;
	size_t before;

	connect_both();
	conn = conn_of(&a);
	send_each(busy / 2, &sent);
	cr_expect(eq(int, conn->tx.in, SHM_IN_SMALL));
	do {
		before = conn->grown;
		send_each(1, &sent);
		cr_assert(le(sz, conn->grown - before, SHM_STEP));
	} while (conn->grown < SHM_SHORT_REST && sent < 2 * busy);
	cr_expect(eq(int, conn->tx.in, SHM_IN_SHORT));
	cr_expect(eq(sz, shm_iface(a.iface)->grown, SHM_SHORT_REST));
}

/*
 * Its pages went while the next record was to come in those that it has no
 * more; what is sent at once then is bounded by what is left.
 */
Test(shm, ring_that_was_larger_goes_on_at_its_begin)
{
	const unsigned int upper = (SHM_SHORT + SHM_SHORT_BEGIN) / 2;
	const unsigned int busy = SHM_BUSY / SHM_MAX_MESSAGE;
	struct shm_conn *conn;
	unsigned int n, sent = 0;

	connect_both();
	conn = conn_of(&a);
	send_each(2 * busy, &sent);
	while (conn->tx.tail[SHM_IN_SHORT] % SHM_SHORT < upper)
		send_each(1, &sent);
	for (int i = 0; i < 3; i++) {
		shm_ring_tick(conn, conn->look_ms);
		side_progress(&b);
	}
	cr_assert(eq(int, conn->tx.in, SHM_IN_SMALL));
	cr_assert(zero(sz, conn->grown));
	cr_assert(not(has_pages(conn, SHM_IN_SHORT)));
	cr_expect(zero(sz, shm_iface(a.iface)->grown));
	for (int round = 0; round < 3; round++) {
		n = send_all(SHM_STUCK / 2, &sent);
		cr_expect(eq(int, conn->tx.in, SHM_IN_SHORT));
		cr_expect(gt(uint, n, SHM_SHORT_BEGIN / SHM_MAX_MESSAGE / 2));
		cr_expect(until(b.messages == sent));
	}
	cr_expect(lt(u64, conn->tx.tail[SHM_IN_SHORT] % SHM_SHORT,
		     SHM_BEGIN_PAGES));
}

/* Records without bytes, until there is no room; how many. */
static unsigned int fill(struct shm_conn *conn)
{
	unsigned int n = 0;

	for (; shm_ring_has_room(conn, 0) && n <= SHM_SIZE; n++) {
		shm_ring_begin(conn, 0);
		shm_ring_end(conn, (struct shm_record){ .kind = SHM_MESSAGE });
	}
	shm_ring_wake(conn);
	return n;
}

static void read_to_end(struct shm_conn *conn, enum shm_which which)
{
	atomic_store(&conn->tx.shared->head[which], conn->tx.tail[which]);
}

static void watch_for(struct shm_conn *conn, enum shm_which which)
{
	for (unsigned int i = 0; i <= SHM_STUCK; i++)
		shm_ring_watch(conn, true);
	cr_assert(eq(int, conn->tx.in, which));
}

/* A way back takes room, too; its reader may have gone on in between. */
Test(shm, ring_that_is_full_is_left_and_taken_again)
{
	struct weft_counters stats = { 0 };
	static struct shm_iface iface;
	struct shm_conn conn = { .fd = -1, .stats = &stats, .iface = &iface };
	const unsigned int most = SHM_LONG / sizeof(struct shm_record);
	int fd;

	cr_assert(zero(int, shm_ring_make(&conn.tx, &fd)));
	cr_expect(eq(uint, fill(&conn),
		     SHM_SMALL / sizeof(struct shm_record) - 2));
	shm_ring_watch(&conn, false);
	cr_expect(eq(int, conn.tx.in, SHM_IN_SMALL));
	shm_ring_watch(&conn, true);
	cr_expect(eq(int, conn.tx.in, SHM_IN_SHORT));
	fill(&conn);
	watch_for(&conn, SHM_IN_LONG);
	cr_expect(eq(uint, fill(&conn), most - 2));
	read_to_end(&conn, SHM_IN_SHORT);
	watch_for(&conn, SHM_IN_SHORT);
	fill(&conn);
	watch_for(&conn, SHM_IN_LONG);
	cr_expect(zero(uint, fill(&conn)));
	read_to_end(&conn, SHM_IN_LONG);
	read_to_end(&conn, SHM_IN_SHORT);
	watch_for(&conn, SHM_IN_SHORT);
	fill(&conn);
	watch_for(&conn, SHM_IN_LONG);
	cr_expect(le(uint, fill(&conn), most - 2));
	shm_ring_close(&conn.tx);
	close(fd);
}

/*
 * What is behind the last record has been written before, as every word of it:
 * its reader takes none of that for records.
 */
Test(shm, ring_that_was_written_before_ends_behind_its_last_record)
{
	struct weft_counters stats = { 0 };
	struct shm_conn conn = { .fd = -1, .stats = &stats };
	struct shm_record r;
	uint8_t *data;
	int fd;

	cr_assert(zero(int, shm_ring_make(&conn.tx, &fd)));
	close(fd);
	conn.rx = conn.tx;
	for (size_t len, i = 0; i < 3 * SHM_SHORT / 64; i++) {
		len = i * 7 % 200;
		cr_assert(yes(shm_ring_has_room(&conn, len)));
		memset(shm_ring_begin(&conn, len), 0xff, len);
		shm_ring_end(&conn, (struct shm_record){ .kind = SHM_MESSAGE,
							 .len = len });
		do {
			cr_assert(eq(int, shm_ring_next(&conn, &r, &data), 1));
			shm_ring_release(&conn, &r);
		} while (r.kind == SHM_PAD);
		cr_assert(eq(uint, r.len, len));
		cr_assert(zero(int, shm_ring_next(&conn, &r, &data)));
	}
	shm_ring_close(&conn.tx);
}

/* A peer that lies could else leave a ring without an end. */
Test(shm, ring_of_a_peer_that_is_gone_ends)
{
	unsigned int n;

	connect_both();
	b.hook = NULL;
	side_progress(&b);
	for (n = 0; n < SHM_SMALL; n += sizeof(struct shm_record))
		memcpy((uint8_t *)conn_of(&a)->tx.shared + SHM_SMALL_AT + n,
		       &(struct shm_record){ .kind = SHM_MESSAGE },
		       sizeof(struct shm_record));
	shutdown(conn_of(&a)->fd, SHUT_RDWR);
	cr_expect(until(b.errors));
	cr_expect(gt(uint, b.messages,
		     SHM_SMALL / (unsigned int)sizeof(struct shm_record)));
}

static size_t bytes_of_short(const struct shm_conn *conn)
{
	return SHM_BEGIN_PAGES + weft_min(conn->grown, SHM_SHORT_REST - 4096u);
}

static bool has_grown(struct shm_conn *conn)
{
	return has_pages(conn, SHM_IN_SHORT) || has_pages(conn, SHM_IN_LONG);
}

/* 8 MiB for each pair of a host's processes would be all of its memory. */
Test(shm, ring_that_is_used_no_more_gives_its_memory_back)
{
	const unsigned int *nmade;
	unsigned int sent = 0;

	connect_both();
	nmade = shm_iface(a.iface)->nmade;
	cr_expect(not(has_grown(conn_of(&a))));
	for (int round = 0; round < 2; round++) {
		send_all(2 * SHM_STUCK, &sent);
		cr_expect(yes(has_pages(conn_of(&a), SHM_IN_SHORT)));
		cr_expect(yes(has_pages(conn_of(&a), SHM_IN_LONG)));
		cr_expect(until(b.messages == sent));
		cr_expect(until(!has_grown(conn_of(&a))));
		cr_expect(zero(uint, nmade[SHM_IN_SHORT]));
		cr_expect(zero(uint, nmade[SHM_IN_LONG]));
		cr_expect(eq(int, conn_of(&a)->tx.in, SHM_IN_SMALL));
	}
}

/* One that is used now and then keeps them: they are not made each time. */
Test(shm, ring_that_is_used_keeps_its_memory)
{
	const uint64_t end = now_ms() + 3 * SHM_IDLE_MS;
	unsigned int sent = 0;

	connect_both();
	send_all(1, &sent);
	while (now_ms() < end) {
		cr_assert(until(b.messages == sent));
		cr_assert(eq(int, conn_of(&a)->tx.in, SHM_IN_SHORT));
		shm_ring_tick(conn_of(&a), conn_of(&a)->look_ms);
		cr_assert(eq(int, conn_of(&a)->tx.in, SHM_IN_SHORT));
		cr_assert(eq(long,
			     a.ops->message_pack(a.ep, 1, pack,
						 (void *)(uintptr_t)++sent),
			     SHM_MAX_MESSAGE));
	}
	cr_expect(until(b.messages == sent));
}

/* A process that sleeps is not spared. */
Test(shm, ring_gives_its_memory_back_while_its_writer_sleeps)
{
	unsigned int sent = 0;

	connect_both();
	send_all(2 * SHM_STUCK, &sent);
	cr_expect(until(b.messages == sent));
	while (has_grown(conn_of(&a))) {
		while (a.ops->arm(a.iface))
			side_progress(&a);
		cr_assert(yes(side_is_woken(&a, WAIT_MS)));
		side_progress(&a);
		side_progress(&b);
	}
}

Test(shm, rings_of_an_interface_have_a_limit)
{
	struct weft_ep *eps[12];
	unsigned int i, n = 0;
	struct shm_conn *conn;
	size_t bytes = 0;

	for (i = 0; i < ARRAY_SIZE(eps); i++) {
		cr_assert(zero(int, side_dial(&a, &b)));
		cr_assert(until(a.ops->ready(a.ep)));
		eps[i] = a.ep;
	}
	for (i = 0; i < ARRAY_SIZE(eps); i++) {
		a.ep = eps[i];
		send_all(2 * SHM_STUCK, &n);
	}
	for (n = i = 0; i < ARRAY_SIZE(eps); i++) {
		conn = shm_conn(weft_ep_conn(eps[i]));
		n += has_pages(conn, SHM_IN_LONG);
		cr_expect(yes(has_pages(conn, SHM_IN_SHORT)), "%u", i);
		bytes += SHM_SMALL_END + bytes_of_short(conn) +
			 has_pages(conn, SHM_IN_LONG) * SHM_LONG;
		if (i)
			a.ops->ep_destroy(eps[i]);
	}
	cr_expect(all(ge(uint, n, 4), lt(uint, n, ARRAY_SIZE(eps))));
	cr_expect(le(sz, bytes, SHM_MOST));
	a.ep = eps[0];
}

/* Where each process has met 127 others, theirs are 1 GiB together. */
Test(shm, rings_of_many_processes_have_a_limit)
{
	static struct shm_iface iface;
	struct shm_conn conns[4] = { 0 };
	struct weft_counters stats = { 0 };
	size_t bytes = 127 * SHM_SMALL_END;
	int fd;

	iface.base.session.conns.n = 127;
	for (unsigned int i = 0; i < ARRAY_SIZE(conns); i++) {
		conns[i].fd = -1;
		conns[i].stats = &stats;
		conns[i].iface = &iface;
		cr_assert(zero(int, shm_ring_make(&conns[i].tx, &fd)));
		close(fd);
		fill(&conns[i]);
		for (unsigned int k = 0; k < 2 * SHM_STUCK; k++)
			shm_ring_watch(&conns[i], true);
		bytes += has_pages(&conns[i], SHM_IN_SHORT) *
				 bytes_of_short(&conns[i]) +
			 has_pages(&conns[i], SHM_IN_LONG) * SHM_LONG;
		shm_ring_close(&conns[i].tx);
	}
	cr_expect(gt(sz, bytes, 127 * SHM_SMALL_END));
	cr_expect(le(sz, 128 * bytes, (size_t)1 << 30), "%zu", bytes);
}

/* Who has sent what there is to send waits for no room. */
Test(shm, ring_stays_short_while_nothing_waits)
{
	unsigned int sent = 0;

	connect_both();
	a.ops->message_pack(a.ep, 1, pack, (void *)(uintptr_t)++sent);
	for (unsigned int i = 0; i < 10 * SHM_STUCK; i++)
		side_progress(&a);
	cr_expect(eq(int, conn_of(&a)->tx.in, SHM_IN_SMALL));
	send_all(1, &sent);
	cr_expect(until(b.messages == sent));
	for (unsigned int i = 0; i < 20; i++)
		a.ops->message_pack(a.ep, 1, pack, (void *)(uintptr_t)++sent);
	for (unsigned int i = 0; i < 10 * SHM_STUCK; i++)
		side_progress(&a);
	cr_expect(eq(int, conn_of(&a)->tx.in, SHM_IN_SHORT));
	cr_expect(until(b.messages == sent));
}

static void put_without_memory(void)
{
	const size_t len = 3 * SHM_SHORT;
	uint8_t *from = malloc(len), *to = calloc(1, len);
	const struct weft_iov iov = { from, len, NULL };
	struct wait_op w = WAIT_OP;
	uint8_t key[WEFT_RKEY_MAX];
	struct weft_mem *mem;

	pattern_fill(from, len, 5);
	cr_assert(zero(int, b.ops->mem_register(to, len, WEFT_MEM_HOST, &mem)));
	b.ops->mem_pack(mem, key);
	cr_assert(eq(int,
		     a.ops->put(a.ep, &iov, 1, (uintptr_t)to, key, NULL, &w.op),
		     -EINPROGRESS));
	cr_expect(until(w.done));
	cr_expect(zero(int, w.status));
	pattern_check("put", to, len, 5);
	b.ops->mem_release(mem);
	free(from);
	free(to);
}

Test(shm, ring_stays_small_without_memory_for_more)
{
	const unsigned int small_ring = SHM_SMALL / SHM_MAX_MESSAGE;
	unsigned int sent = 0;

	connect_both();
	lacks_pages = true;
	cr_expect(lt(uint, send_all(10 * SHM_STUCK, &sent), small_ring));
	cr_expect(until(b.messages == sent));
	put_without_memory();
	cr_expect(eq(int, conn_of(&a)->tx.in, SHM_IN_SMALL));
}

Test(shm, ring_stays_short_without_memory_for_more)
{
	const unsigned int short_ring = connect_both();
	unsigned int sent = 0;

	send_all(1, &sent);
	cr_expect(until(b.messages == sent));
	lacks_pages = true;
	cr_expect(lt(uint, send_all(10 * SHM_STUCK, &sent), short_ring));
	cr_expect(until(b.messages == sent));
}

/* The bytes of memory that a new ring has. */
static long bytes_of_new(void)
{
	struct shm_ring ring;
	struct stat st;
	int fd;

	cr_assert(zero(int, shm_ring_make(&ring, &fd)));
	cr_assert(zero(int, fstat(fd, &st)));
	shm_ring_close(&ring);
	close(fd);
	return st.st_blocks * 512;
}

/* There the reader has made the short one whole. */
Test(shm, ring_is_short_on_an_old_kernel)
{
	unsigned int sent = 0;

	is_old = true;
	cr_expect(ge(long, bytes_of_new(), SHM_SHORT_AT + SHM_BEGIN_PAGES));
	connect_both();
	send_all(10 * SHM_STUCK, &sent);
	cr_expect(eq(int, conn_of(&a)->tx.in, SHM_IN_SHORT));
	shm_ring_tick(conn_of(&a), conn_of(&a)->look_ms);
	cr_expect(until(b.messages == sent));
	shm_ring_tick(conn_of(&a), UINT64_MAX);
	cr_expect(eq(int, conn_of(&a)->tx.in, SHM_IN_SHORT));
	cr_expect(yes(has_pages(conn_of(&a), SHM_IN_SHORT)));
}

/* Memory that is promised only would end the process, once it is written. */
Test(shm, ring_is_allocated_or_the_endpoint_fails)
{
	cr_expect(ge(long, bytes_of_new(), SHM_SMALL_END));
	lacking = ENOSPC;
	cr_assert(zero(int, side_dial(&b, &a)));
	cr_expect(until(b.errors));
	cr_expect(eq(int, b.error, -ENOSPC));
	cr_expect(ge(uint, log_lines("KiB of shared memory"), 1));
}

static bool unsealed;

/* fcntl() of this program: makes memory whose size may change. */
int fcntl(int fd, int cmd, ...)
{
	va_list args;
	long arg;

	va_start(args, cmd);
	arg = va_arg(args, long);
	va_end(args);
	return unsealed && cmd == F_ADD_SEALS
		       ? 0
		       : (int)syscall(SYS_fcntl, fd, cmd, arg);
}

/* A peer that shrinks its ring would end the process, at the next write. */
Test(shm, ring_that_its_peer_may_shrink_ends_the_endpoint)
{
	unsealed = true;
	cr_assert(zero(int, side_dial(&b, &a)));
	cr_expect(until(b.errors));
	cr_expect(eq(int, b.error, -EINVAL));
	cr_expect(ge(uint, log_lines("not sealed"), 1));
}

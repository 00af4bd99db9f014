/* SPDX-License-Identifier: BSD-3-Clause */
/* How often weft_shm copies, and memory that is not there. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "devices/shm/shm.h"
#include "tests/lib/fallocate.h"
#include "tests/unit/devices/sides.h"

static char run_folder[] = "/tmp/weft-shm-test-XXXXXX";

static void begin(void)
{
	cr_assert(mkdtemp(run_folder) != NULL);
	setenv("WEFT_RUN_DIR", run_folder, 1);
	log_keep();
	cr_assert(zero(int, side_init(&a, &weft_shm_ops, "shm", AF_UNSPEC)));
	cr_assert(zero(int, side_init(&b, &weft_shm_ops, "shm", AF_UNSPEC)));
}

static void finish(void)
{
	char cmd[64];

	side_close(&a);
	side_close(&b);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", run_folder);
	cr_expect(eq(int, system(cmd), 0));
}

TestSuite(shm, .init = begin, .fini = finish, .timeout = 60);

static bool is_in(const struct shm_ring *ring, const void *p)
{
	const uint8_t *byte = p;

	return byte >= (uint8_t *)ring->shared + SHM_SHORT_AT &&
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

	cr_assert(zero(int, side_dial(&a, &b)));
	cr_assert(zero(int, side_dial(&b, &a)));
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

static bool lacks_pages;

/* madvise() of this program: finds no memory. */
int madvise(void *p, size_t len, int how);
int madvise(void *p, size_t len, int how)
{
	if (lacks_pages && how == MADV_POPULATE_WRITE) {
		errno = EFAULT;
		return -1;
	}
	return (int)syscall(SYS_madvise, p, len, how);
}

/* Sends while there is room, which progress() may make; how many. */
static unsigned int send_all(unsigned int progress, unsigned int *sent)
{
	const unsigned int before = *sent;

	for (;; progress--) {
		while (a.ops->ready(a.ep))
			cr_assert(eq(long,
				     a.ops->message_pack(a.ep, 1, pack,
							 (void *)(uintptr_t)++ *
								 sent),
				     SHM_MAX_MESSAGE));
		if (!progress)
			return *sent - before;
		side_progress(&a);
	}
}

static unsigned int connect_both(void)
{
	cr_assert(zero(int, side_dial(&a, &b)));
	cr_assert(zero(int, side_dial(&b, &a)));
	b.hook = take;
	cr_assert(until(a.ops->ready(a.ep)));
	return SHM_SHORT / SHM_MAX_MESSAGE;
}

/*
 * A reader that the scheduler keeps waiting finds much in its turn; one that
 * runs, what a processor's cache holds.
 */
Test(shm, ring_is_long_while_its_reader_stands)
{
	const unsigned int short_ring = connect_both();
	const unsigned int long_ring = SHM_LONG / SHM_MAX_MESSAGE;
	unsigned int n, sent = 0;

	for (int round = 0; round < 5; round++) {
		n = send_all(SHM_STUCK / 2, &sent);
		cr_expect(all(gt(uint, n, short_ring / 2),
			      lt(uint, n, short_ring)),
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
		for (n = 0; n < 70; n++) {
			cr_assert(eq(
				long,
				a.ops->message_pack(a.ep, 1, pack,
						    (void *)(uintptr_t)++sent),
				SHM_MAX_MESSAGE));
			cr_expect(until(b.messages == sent));
		}
	}
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
	for (n = 0; n < SHM_SHORT; n += sizeof(struct shm_record))
		memcpy((uint8_t *)conn_of(&a)->tx.shared + SHM_SHORT_AT + n,
		       &(struct shm_record){ .kind = SHM_MESSAGE },
		       sizeof(struct shm_record));
	shutdown(conn_of(&a)->fd, SHUT_RDWR);
	cr_expect(until(b.errors));
	cr_expect(gt(uint, b.messages,
		     SHM_SHORT / (unsigned int)sizeof(struct shm_record)));
}

static bool has_pages(struct shm_conn *conn)
{
	static unsigned char is[SHM_LONG / 4096];

	cr_assert(zero(int, mincore((uint8_t *)conn->tx.shared + SHM_LONG_AT,
				    SHM_LONG, is)));
	return memchr(is, 1, sizeof(is));
}

/* 8 MiB for each pair of a host's processes would be all of its memory. */
Test(shm, ring_that_is_long_no_more_gives_its_memory_back)
{
	unsigned int sent = 0;

	connect_both();
	for (int round = 0; round < 2; round++) {
		send_all(2 * SHM_STUCK, &sent);
		cr_expect(yes(has_pages(conn_of(&a))));
		cr_expect(until(b.messages == sent));
		cr_expect(until(!has_pages(conn_of(&a))));
		cr_expect(zero(uint, shm_iface(a.iface)->nlong));
	}
}

/* A process that sleeps is not spared. */
Test(shm, ring_gives_its_memory_back_while_its_writer_sleeps)
{
	struct pollfd fd = { .events = POLLIN };
	unsigned int sent = 0;

	connect_both();
	send_all(2 * SHM_STUCK, &sent);
	cr_expect(until(b.messages == sent));
	fd.fd = a.ops->event_fd(a.iface);
	while (has_pages(conn_of(&a))) {
		while (a.ops->arm(a.iface))
			side_progress(&a);
		cr_assert(eq(int, poll(&fd, 1, WAIT_MS), 1));
		side_progress(&a);
	}
}

Test(shm, few_rings_of_an_interface_are_long)
{
	struct weft_ep *eps[SHM_LONGS + 3];
	unsigned int i, n = 0;
	struct shm_conn *conn;

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
		n += conn->long_made;
		cr_expect(eq(int, has_pages(conn), conn->long_made));
		if (i)
			a.ops->ep_destroy(eps[i]);
	}
	cr_expect(eq(uint, n, SHM_LONGS));
	a.ep = eps[0];
}

/* Who has sent what there is to send waits for no room. */
Test(shm, ring_stays_short_while_nothing_waits)
{
	unsigned int sent = 0;

	for (connect_both(); sent < 20;)
		a.ops->message_pack(a.ep, 1, pack, (void *)(uintptr_t)++sent);
	for (unsigned int i = 0; i < 10 * SHM_STUCK; i++)
		side_progress(&a);
	cr_expect(eq(int, conn_of(&a)->tx.in, SHM_IN_SHORT));
	cr_expect(until(b.messages == sent));
}

Test(shm, ring_stays_short_without_memory_for_more)
{
	const unsigned int short_ring = connect_both();
	unsigned int sent = 0;

	lacks_pages = true;
	cr_expect(lt(uint, send_all(10 * SHM_STUCK, &sent), short_ring));
	cr_expect(until(b.messages == sent));
}

/* Memory that is promised only would end the process, once it is written. */
Test(shm, ring_is_allocated_or_the_endpoint_fails)
{
	struct shm_ring ring;
	struct stat st;
	int fd;

	cr_assert(zero(int, shm_ring_make(&ring, &fd)));
	cr_assert(zero(int, fstat(fd, &st)));
	cr_expect(ge(long, st.st_blocks * 512, (long)SHM_LONG_AT));
	shm_ring_close(&ring);
	close(fd);
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

/* SPDX-License-Identifier: BSD-3-Clause */
/* How often weft_shm copies, and memory that is not there. */
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
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
	cr_assert(zero(int, side_init(&a, &weft_shm_ops, "shm", AF_UNSPEC, 0)));
	cr_assert(zero(int, side_init(&b, &weft_shm_ops, "shm", AF_UNSPEC, 0)));
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

	return byte >= ring->bytes && byte < ring->bytes + SHM_RING;
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
	(void)id;
	taken += is_in(&conn_of(s)->rx, data);
	check_int(len, SHM_MAX_MESSAGE);
	pattern_check("message", data, len, s->messages);
}

/* Three times around the ring, so that many lie at its end. */
Test(shm, message_is_copied_by_nobody_between_the_two_programs)
{
	const unsigned int n = 3 * SHM_RING / SHM_MAX_MESSAGE;
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

/* Memory that is promised only would end the process, once it is written. */
Test(shm, ring_is_allocated_or_the_endpoint_fails)
{
	struct shm_ring ring;
	struct stat st;
	int fd;

	cr_assert(zero(int, shm_ring_make(&ring, &fd)));
	cr_assert(zero(int, fstat(fd, &st)));
	cr_expect(ge(long, st.st_blocks * 512, (long)SHM_SIZE));
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

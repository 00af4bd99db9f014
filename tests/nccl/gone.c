/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gone source|target LOSS PLUGIN: the second half of what one transfer of a
 * connection reads or writes cannot be accessed.  LOSS is unmapped, read-only,
 * truncated or, of a target, a folder whose file system is too small.  That
 * transfer must fail on both sides, and so must what another connection of the
 * same two ranks begins later; no other receive may succeed with wrong bytes.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/nccl/perf/perf.h"

#define LEN	((size_t)4 << 20)
#define OPS	4 /* the third cannot be accessed */
#define LOST	2
#define BOUND_S 60

static const char *loss;
static int loser;
static int fd = -1;

static void *map(struct perf *p)
{
	char *at;

	if (p->rank == loser && loss[0] == '/')
		fd = open(loss, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	else
		fd = memfd_create("gone", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, LEN))
		perf_fail(p, "cannot make a file");
	at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		perf_fail(p, "cannot map a file");
	return at;
}

static void lose_half(struct perf *p, char *at)
{
	const size_t half = LEN / 2;
	int ret = 0;

	if (!strcmp(loss, "unmapped"))
		ret = munmap(at + half, half);
	else if (!strcmp(loss, "read-only"))
		ret = mprotect(at + half, half, PROT_READ);
	else if (!strcmp(loss, "truncated"))
		ret = ftruncate(fd, half);
	if (ret)
		perf_fail(p, "cannot lose memory");
}

static void one_way(struct perf *p)
{
	struct perf_link l, apart;
	void *comm = perf_join_one(p, 0, 1, &l);
	void *other = perf_join_one(p, 0, 1, &apart);
	struct perf_buf b[OPS], late;
	struct perf_op op[OPS], late_op;
	char *at = map(p);
	void *mr;
	int i;

	for (i = 0; i < OPS; i++) {
		perf_buf_new(p, &b[i], comm, LEN, 0);
		op[i] = perf_part(!p->rank, &b[i], 0, LEN);
		if (!p->rank)
			perf_fill(b[i].data, LEN, i);
	}
	perf_buf_new(p, &late, other, LEN, 0);
	late_op = perf_part(!p->rank, &late, 0, LEN);
	perf_check(p, perf_reg(&p->plugin, comm, at, LEN, NCCL_PTR_HOST, &mr),
		   "regMr");
	if (!p->rank)
		perf_fill(at, LEN, LOST);
	op[LOST].data = at;
	op[LOST].mr = mr;
	/* the first crosses, and shows that the way is open */
	perf_finish(p, op, 1, 1);
	if (p->rank == loser)
		lose_half(p, at);
	/* a receive that is posted on another connection meanwhile ends, too */
	if (p->rank)
		perf_step(p, &late_op, 1, 1);
	perf_meet(p);
	perf_end_all(p, op + 1, OPS - 1, BOUND_S);
	if (!op[LOST].result)
		perf_fail(p, "the %s reports a success",
			  p->rank ? "receiver" : "sender");
	if (!*perf_last_warning())
		perf_fail(p, "nothing was logged");
	for (i = 0; p->rank && i < OPS; i++)
		if (op[i].done && !op[i].result)
			perf_look(p, &b[i], 0, LEN, LEN, i, "received");
	perf_meet(p);
	perf_end_all(p, &late_op, 1, BOUND_S);
	if (!late_op.result)
		perf_fail(p, "the other connection lives on");
	perf_meet(p);
	perf_check(p, perf_dereg(&p->plugin, comm, mr), "deregMr");
	for (i = 0; i < OPS; i++)
		perf_buf_free(p, &b[i]);
	perf_buf_free(p, &late);
	if (p->rank) {
		perf_close_recv(&p->plugin, comm);
		perf_close_recv(&p->plugin, other);
	} else {
		perf_close_send(&p->plugin, comm);
		perf_close_send(&p->plugin, other);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	struct perf_options opt = { .time_limit = 3 * BOUND_S };

	if (argc != 4)
		return 2;
	loser = strcmp(argv[1], "source") != 0;
	loss = argv[2];
	opt.plugin = argv[3];
	return perf_main(one_way, &opt);
}

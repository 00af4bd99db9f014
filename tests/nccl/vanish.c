/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vanish busy|waiting NETNS0 NETNS1 CUT0 CUT1 PLUGIN: two ranks lose each other
 * without a FIN or an RST, as when a host loses power: rank n runs CUTn.  Both
 * must get an error in bounded time, and leave nothing of the plugin's.
 * "busy": sends are under way; "waiting": the send is posted after the cut.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/nccl/perf/perf.h"

#define LEN	((size_t)8 << 20)
#define OPS	4
#define BOUND_S 60

static const char *cut[2];
static bool busy;

static void vanish(struct perf *p)
{
	perf_meet(p);
	if (system(cut[p->rank]))
		perf_fail(p, "'%s' failed", cut[p->rank]);
	perf_meet(p);
}

/* What was sent before may have come, whole; all else ends in an error. */
static void hear(struct perf *p, struct perf_op *op, struct perf_buf *b)
{
	unsigned int i, failed = 0;

	perf_end_all(p, op + 1, OPS - 1, BOUND_S);
	for (i = 1; i < OPS; i++) {
		failed += op[i].result != NCCL_SUCCESS;
		if (op[i].result || op[i].send)
			continue;
		if (!busy)
			perf_fail(p, "a receive completed without a send");
		perf_look(p, b, i * LEN, LEN, LEN, i, "received");
	}
	if (!failed)
		perf_fail(p, "no operation failed");
}

static void one_way(struct perf *p)
{
	struct perf_link l;
	void *comm = perf_join_one(p, 0, 1, &l);
	struct perf_op op[OPS];
	struct perf_buf b;
	int i;

	perf_buf_new(p, &b, comm, OPS * LEN, 0);
	for (i = 0; i < OPS; i++)
		op[i] = perf_part(!p->rank, &b, i * LEN, LEN);
	for (i = 0; !p->rank && i < OPS; i++)
		perf_fill(op[i].data, LEN, i);
	/* the first crosses, and shows that the way is open */
	perf_finish(p, op, 1, 1);
	perf_meet(p);
	/* busy, the last send has no receive: it cannot be done in time */
	for (i = 0; i < (busy ? 20 : p->rank); i++)
		perf_step(p, op + 1, OPS - 1 - (busy && p->rank), OPS - 1);
	vanish(p);
	hear(p, op, &b);
	perf_dereg(&p->plugin, comm, b.mr);
	if (p->rank)
		perf_close_recv(&p->plugin, comm);
	else
		perf_close_send(&p->plugin, comm);
	perf_buf_drop(&b);
}

int main(int argc, char **argv)
{
	struct perf_options opt = { .time_limit = 2 * BOUND_S };

	if (argc != 7)
		return 2;
	busy = !strcmp(argv[1], "busy");
	opt.netns[0] = argv[2];
	opt.netns[1] = argv[3];
	cut[0] = argv[4];
	cut[1] = argv[5];
	opt.plugin = argv[6];
	return perf_main(one_way, &opt);
}

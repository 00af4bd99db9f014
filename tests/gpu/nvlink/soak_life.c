/* SPDX-License-Identifier: BSD-3-Clause */
/* One process: its interface, its rounds, and what it has counted. */
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/gpu/nvlink/gpumem.h"
#include "tests/gpu/nvlink/soak.h"
#include "tests/lib/cuda/fake_cuda.h"
#include "util/drivers/cuda.h"

struct weft_iface *iface;
static volatile sig_atomic_t leave;

static void (*get_live)(struct fake_cuda_live *);

static void find_fake(void)
{
	const char *name = getenv("WEFT_LIBCUDA");
	void *lib = name && *name ? dlopen(name, RTLD_NOW) : NULL;

	if (lib)
		*(void **)&get_live = dlsym(lib, "fake_cuda_live");
}

static void on_term(int sig)
{
	leave = 1;
}

static void nap(void)
{
	struct pollfd fd = { .fd = ops->event_fd(iface), .events = POLLIN };

	if (rnd(4) || ops->arm(iface))
		sched_yield();
	else
		poll(&fd, 1, 1 + rnd(5));
}

static void step_all(void)
{
	unsigned int i, n = ops->progress(iface);

	for (i = 0; i < RANKS; i++)
		if (i != (unsigned int)me)
			step_peer(&peers[i]);
	if (!n)
		nap();
}

static bool is_all_idle(void)
{
	unsigned int i;

	for (i = 0; i < RANKS; i++)
		if (i != (unsigned int)me && !is_idle(&peers[i]))
			return false;
	return true;
}

static void barrier(unsigned int number)
{
	const double until = now() + STUCK_S;
	unsigned int i;

	atomic_store(&board->arrived[me], number);
	for (i = 0; i < RANKS; i++)
		while (board->arrived[i] < number) {
			if (now() > until)
				fail("rank %u does not come", i);
			step_all();
		}
}

static void compare_counters(void)
{
	const struct weft_counters *c;
	unsigned int i;

	for (i = 0; i < RANKS; i++) {
		if (i == (unsigned int)me)
			continue;
		c = conn_of(&peers[i])->stats;
		if (c->tx_put_bytes != peers[i].put_bytes ||
		    c->get_bytes != peers[i].get_bytes)
			fail("%lu bytes put, %lu counted; %lu got, %lu counted",
			     peers[i].put_bytes, (unsigned long)c->tx_put_bytes,
			     peers[i].get_bytes, (unsigned long)c->get_bytes);
	}
	barrier(2);
}

static void open_all(unsigned int life)
{
	const struct weft_iface_params params = { .netdev = "nvl",
						  .cb = &peer_callbacks };
	struct weft_iface_attr attr;
	unsigned int i, k;
	int err;

	err = ops->iface_open(&params, &iface);
	if (err)
		fail("iface_open: %s", strerror(-err));
	ops->iface_query(iface, &attr);
	for (i = 0; i < RANKS; i++) {
		peers[i].rank = i;
		atomic_store(&board->met[me][i], 0);
		for (k = 0; k < KINDS && i != (unsigned int)me; k++) {
			peers[i].job[k].peer = &peers[i];
			peers[i].job[k].done = true;
			mem_open(&peers[i].mine[k], k);
			mem_open(&peers[i].job[k].local, rnd(KINDS));
		}
	}
	board->rank[me].addr = attr.addr;
	atomic_store(&board->rank[me].life, life);
	atomic_store(&board->rank[me].leaves, false);
}

/* In the midst of what it and its peers do, who expect failures by now. */
static void leave_all(void)
{
	unsigned int i, k;

	for (i = 0; i < RANKS; i++) {
		if (peers[i].ep)
			cancel_jobs(&peers[i]);
		for (k = 0; k < KINDS && i != (unsigned int)me; k++)
			mem_renew(&peers[i].mine[k]);
	}
}

static void close_all(void)
{
	unsigned int i, k;

	for (i = 0; i < RANKS; i++)
		if (peers[i].ep)
			ops->ep_destroy(peers[i].ep);
	for (i = 0; i < RANKS; i++)
		for (k = 0; k < KINDS && i != (unsigned int)me; k++) {
			if (!peers[i].job[k].done)
				fail("an operation outlives its endpoint");
			mem_close(&peers[i].mine[k]);
			mem_close(&peers[i].job[k].local);
		}
	ops->iface_close(iface);
}

int live(int rank, unsigned int life, uint32_t seed)
{
	struct fake_cuda_live before, after;
	int n = 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGTERM, on_term);
	me = rank;
	rnd_state = seed + 977 * life + 31 * rank;
	find_fake();
	if (weft_cuda_init())
		fail("no CUDA driver");
	weft_cuda()->device_count(&n);
	gpumem_open(rank % n);
	if (get_live)
		get_live(&before);
	open_all(life);
	while (!leave && !(board->stop && is_all_idle()))
		step_all();
	if (!leave) {
		barrier(1);
		compare_counters();
	}
	atomic_store(&board->rank[me].leaves, true);
	leave_all();
	close_all();
	if (get_live) {
		get_live(&after);
		if (memcmp(&before, &after, sizeof(before)))
			fail("something lives on in the driver: %u mappings, "
			     "%u handles, %u streams",
			     after.maps - before.maps,
			     after.handles - before.handles,
			     after.streams - before.streams);
	}
	return 0;
}

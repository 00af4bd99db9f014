/* SPDX-License-Identifier: BSD-3-Clause */
/* A GPU's budget for rings, between processes of one run folder. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/nvlink/nvl_budget.h"
#include "devices/nvlink/nvl_ring.h"
#include "tests/unit/devices/nvl_pair.h"

#define PROCESSES    8
#define UNITS	     4u /* the budget: half of them get one */
#define MAX_CHILDREN 16

/* What the processes tell. */
static struct {
	_Atomic unsigned int units[MAX_CHILDREN]; /* on the GPU; +1: counted */
	_Atomic int owner[2][UNITS * 4];
	_Atomic unsigned int wrong, taken;
} * common;
static pid_t pids[MAX_CHILDREN];
static unsigned int npids;

static void begin(void)
{
	begin_folder();
	setenv("WEFT_NVL_BUDGET", "16m", 1);
	setenv(FAKE_NVML, "1", 1);
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(common != MAP_FAILED);
}

static void end(unsigned int i)
{
	if (!pids[i])
		return;
	kill(pids[i], SIGKILL);
	waitpid(pids[i], NULL, 0);
	pids[i] = 0;
}

static void finish(void)
{
	unsigned int i;

	for (i = 0; i < npids; i++)
		end(i);
	end_folder();
}

TestSuite(nvl_budget, .init = begin, .fini = finish, .timeout = 120);

static void start(void (*run)(unsigned int i))
{
	unsigned int i = npids++;

	cr_assert(lt(uint, i, MAX_CHILDREN));
	pids[i] = fork();
	if (!pids[i]) {
		run(i);
		_exit(0);
	}
	cr_assert(gt(int, pids[i], 0));
}

/* ---- rings -------------------------------------------------------------- */

static unsigned int units_of(struct side *s)
{
	struct nvl_iface *iface = (struct nvl_iface *)s->iface;
	struct nvl_conn *conn, *tmp;
	unsigned int i, n = 0;

	weft_list_for_each (conn, tmp, &iface->conns, link)
		for (i = 0; i < NVL_RINGS; i++)
			if (conn->rxrings[i])
				n += conn->rxrings[i]->units;
	return n;
}

/* The first GPU of the host is the second one of every other process. */
static void a_ring(unsigned int i)
{
	const int first = i % 2;
	struct weft_mem *mem;
	uint8_t key[WEFT_RKEY_MAX];
	uint8_t *src, *dst;

	setenv(FAKE_CUDA_NODES, first ? "10" : "01", 1);
	load_fake();
	if (open_side(&a) || open_side(&b) || side_dial(&a, &b))
		_exit(1);
	src = fake.fake_cuda_malloc(!first, 4096);
	dst = fake.fake_cuda_malloc(first, 4096);
	if (nvl->mem_register(dst, 4096, WEFT_MEM_CUDA, &mem))
		_exit(1);
	nvl->mem_pack(mem, &key);
	if (!until(nvl->ready(a.ep)) || put_checked(&a, src, dst, 4096, &key))
		_exit(1);
	atomic_store(&common->units[i], units_of(&b) + 1);
	for (;;)
		pause();
}

static unsigned int wait_told(unsigned int i)
{
	const uint64_t end = now_ms() + WAIT_MS;

	while (!atomic_load(&common->units[i])) {
		cr_assert(lt(u64, now_ms(), end), "process %u: nothing", i);
		cr_assert(eq(int, waitpid(pids[i], NULL, WNOHANG), 0),
			  "process %u has ended", i);
		usleep(1000);
	}
	return atomic_load(&common->units[i]) - 1;
}

/* However they count the GPUs; and what killed ones had is there again. */
Test(nvl_budget, processes_share_one_budget)
{
	unsigned int i, all = 0, freed = 0, again = 0;

	for (i = 0; i < PROCESSES; i++)
		start(a_ring);
	for (i = 0; i < PROCESSES; i++)
		all += wait_told(i);
	cr_assert(eq(uint, all, UNITS));
	for (i = 0; i < PROCESSES && freed < 2; i++) {
		if (wait_told(i)) {
			freed += wait_told(i);
			end(i);
		}
	}
	cr_assert(eq(uint, freed, 2));
	for (i = PROCESSES; i < PROCESSES + 4; i++) {
		start(a_ring);
		again += wait_told(i);
	}
	cr_expect(eq(uint, again, freed));
}

/* ---- units -------------------------------------------------------------- */

static void take_and_give(unsigned int i)
{
	const unsigned int limit = ARRAY_SIZE(common->owner[0]);
	static const char *const names[] = { "gpu-a", "gpu-b" };
	struct weft_folder *run = weft_folder_open();
	unsigned int round, first, n, u, which;
	int me = i + 1, none;

	if (!run)
		_exit(1);
	for (round = 0; round < 500; round++) {
		which = (round + i) % 2;
		n = nvl_budget_take(run, names[which], 3, limit, &first);
		if (n && first + n > limit)
			atomic_fetch_add(&common->wrong, 1);
		for (u = first; n && u < weft_min(first + n, limit); u++) {
			none = 0;
			if (!atomic_compare_exchange_strong(
				    &common->owner[which][u], &none, me))
				atomic_fetch_add(&common->wrong, 1);
		}
		sched_yield();
		atomic_fetch_add(&common->taken, n);
		for (u = first; n && u < weft_min(first + n, limit); u++)
			if (atomic_exchange(&common->owner[which][u], 0) != me)
				atomic_fetch_add(&common->wrong, 1);
		nvl_budget_give(names[which], first, n);
	}
	weft_folder_close(run);
}

/* A unit has one owner at a time. */
Test(nvl_budget, a_unit_has_one_owner_at_a_time)
{
	unsigned int i;
	int status;

	for (i = 0; i < PROCESSES; i++)
		start(take_and_give);
	for (i = 0; i < PROCESSES; i++) {
		cr_assert(eq(int, waitpid(pids[i], &status, 0), pids[i]));
		pids[i] = 0;
		cr_expect(eq(int, status, 0));
	}
	cr_expect(eq(uint, atomic_load(&common->wrong), 0));
	cr_expect(gt(uint, atomic_load(&common->taken), PROCESSES * 500));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What is made when, by whom, and what is left when a peer is killed. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/nvlink/nvl_budget.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_map.h"
#include "tests/lib/fallocate.h"
#include "tests/lib/fds.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN (256u << 10)

TestSuite(nvl_setup, .init = begin_pair, .fini = end_pair, .timeout = 120);

/* ---- nothing before bulk ------------------------------------------------ */

static const char *const makers[] = {
	"cuMemCreate",	  "cuMemImportFromShareableHandle",
	"cuMemMap",	  "cuMemHostRegister_v2",
	"cuStreamCreate",
};

static void count(unsigned int n[ARRAY_SIZE(makers)])
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(makers); i++)
		n[i] = fake.fake_cuda_called(makers[i]);
}

static void expect_same(const unsigned int n[ARRAY_SIZE(makers)],
			const char *when)
{
	unsigned int i, now[ARRAY_SIZE(makers)];

	count(now);
	for (i = 0; i < ARRAY_SIZE(makers); i++)
		cr_expect(eq(uint, now[i], n[i]), "%s: %s", when, makers[i]);
}

static void thousand_messages(void)
{
	uint8_t bytes[64] = { 1 };
	struct iovec iov = { bytes, sizeof(bytes) };
	unsigned int i;
	int r;

	for (i = 0; i < 1000; i++) {
		wait_for((r = nvl->message(a.ep, 1, &iov, 1, NULL)) != -EAGAIN);
		cr_assert(eq(int, r, 0));
		progress_all();
	}
}

/* As UCX has it: a key for each buffer, and one ring for all of them. */
Test(nvl_setup, first_bulk_put_makes_the_only_ring)
{
	unsigned int none[ARRAY_SIZE(makers)] = { 0 };
	unsigned int ring[ARRAY_SIZE(makers)], i;
	struct weft_mem *mem[21], *own[21];
	uint8_t *src[21], *dst[21];
	uint8_t key[21][WEFT_RKEY_MAX];

	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		src[i] = fake.fake_cuda_malloc(0, LEN);
		dst[i] = fake.fake_cuda_malloc(1, LEN);
		cr_assert(eq(
			int,
			nvl->mem_register(src[i], LEN, WEFT_MEM_CUDA, &own[i]),
			0));
		cr_assert(eq(
			int,
			nvl->mem_register(dst[i], LEN, WEFT_MEM_CUDA, &mem[i]),
			0));
		nvl->mem_pack(mem[i], &key[i]);
	}
	meet(&a, &b);
	thousand_messages();
	expect_same(none, "before bulk");

	cr_assert(eq(int, put_checked(&a, src[0], dst[0], LEN, &key[0]), 0));
	count(ring);
	cr_expect(eq(uint, ring[0], 1), "not one ring");
	for (i = 1; i < ARRAY_SIZE(mem); i++)
		cr_assert(eq(int, put_checked(&a, src[i], dst[i], LEN, &key[i]),
			     0));
	expect_same(ring, "with fresh buffers");
	cr_expect(eq(int, staged(a.ep), WEFT_STAGING_GPU));
	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		nvl->mem_release(mem[i]);
		nvl->mem_release(own[i]);
	}
}

/* The writer has nothing to send, and so no reason to look at credits. */
Test(nvl_setup, idle_ring_is_given_back)
{
	struct fake_cuda_live before, now;
	uint8_t key[WEFT_RKEY_MAX], *src, *dst;
	struct weft_mem *mem;
	unsigned int round;

	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	meet(&a, &b);
	src = fake.fake_cuda_malloc(0, LEN);
	dst = fake.fake_cuda_malloc(1, LEN);
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, &mem), 0));
	nvl->mem_pack(mem, &key);
	fake.fake_cuda_live(&before);
	for (round = 0; round < 3; round++) {
		cr_assert(eq(int, put_checked(&a, src, dst, LEN, &key), 0));
		fake.fake_cuda_live(&now);
		cr_expect(eq(uint, now.maps, before.maps + 2));
		nvl_tune.idle_ms = 1;
		wait_for((fake.fake_cuda_live(&now), now.maps == before.maps));
		nvl_tune.idle_ms = 30000;
	}
	nvl->mem_release(mem);
	cr_expect(eq(uint, log_lines(""), 0));
}

/* ---- no context where there is none ------------------------------------- */

/* Of a pool, or of cuMemCreate(): the driver names no context for it. */
static void takes_no_context(uint8_t *p)
{
	const unsigned int made =
		fake.fake_cuda_called("cuDevicePrimaryCtxRetain");
	uint8_t host[64] = { 0 };
	struct weft_iov iov = { p, sizeof(host), NULL };
	struct weft_mem *mem = NULL, *plain;
	struct wait_op w = WAIT_OP;
	uint8_t key[WEFT_RKEY_MAX];
	void *current = &mem;
	int r;

	cr_expect(eq(int, nvl->mem_register(p, LEN, WEFT_MEM_CUDA, &mem),
		     -ENODEV));
	cr_expect(eq(uint, log_lines("belongs to no CUDA context"), 1));
	/* nor for a transfer of it, which fails */
	cr_assert(
		eq(int,
		   nvl->mem_register(host, sizeof(host), WEFT_MEM_HOST, &plain),
		   0));
	nvl->mem_pack(plain, &key);
	r = nvl->put(a.ep, &iov, 1, (uintptr_t)host, &key, NULL, &w.op);
	if (r == -EINPROGRESS) {
		wait_for(w.done);
		r = w.status;
	}
	cr_expect(lt(int, r, 0));
	nvl->mem_release(plain);
	cr_expect(eq(uint, fake.fake_cuda_called("cuDevicePrimaryCtxRetain"),
		     made));
	weft_cuda()->ctx_current(&current);
	cr_expect(eq(ptr, current, NULL));

	/* the program makes one: now it goes */
	cr_assert(fake.fake_cuda_context(1) != NULL);
	cr_expect(eq(int, nvl->mem_register(p, LEN, WEFT_MEM_CUDA, &mem), 0));
	nvl->mem_release(mem);
}

/* A process that has initialised CUDA, and given up its contexts. */
static void without_contexts(void)
{
	load_fake();
	cr_assert(eq(int, weft_cuda_init(), 0));
	cr_assert(eq(int, weft_cuda()->primary_release(0), 0));
	cr_assert(eq(int, weft_cuda()->primary_release(1), 0));
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	meet(&a, &b);
}

Test(nvl_setup, pool_memory_needs_no_own_context)
{
	without_contexts();
	takes_no_context(fake.fake_cuda_pool(1, LEN));
}

Test(nvl_setup, virtual_memory_needs_no_own_context)
{
	without_contexts();
	takes_no_context(fake.fake_cuda_vmm(1, LEN));
}

/* ---- a peer that is killed ---------------------------------------------- */

static struct {
	struct weft_address addr;
	uint8_t key[WEFT_RKEY_MAX];
	uint64_t at;
	_Atomic int step; /* 1: the above is there; 2: it has put */
} * common;		  /* of both processes */

/* Offers its memory on GPU @me, and writes to the other's. */
static void exchange(int me, struct weft_mem **mem)
{
	struct wait_op w = WAIT_OP;
	struct weft_iface_attr attr;
	struct weft_iov iov = { NULL, LEN, NULL };
	uint8_t *dst;

	dst = fake.fake_cuda_malloc(me, LEN);
	iov.addr = memset(fake.fake_cuda_malloc(me, LEN), 0x60 + me, LEN);
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, mem), 0));
	nvl->iface_query(a.iface, &attr);
	common[me].addr = attr.addr;
	nvl->mem_pack(*mem, &common[me].key);
	common[me].at = (uintptr_t)dst;
	atomic_store(&common[me].step, 1);
	wait_for(atomic_load(&common[!me].step));
	cr_assert(eq(int,
		     nvl->ep_create(a.iface, &common[!me].addr, NULL, &a.ep),
		     0));
	wait_for(nvl->ready(a.ep));
	cr_assert(eq(int,
		     nvl->put(a.ep, &iov, 1, common[!me].at, &common[!me].key,
			      NULL, &w.op),
		     -EINPROGRESS));
	wait_for(w.done);
	cr_assert(eq(int, w.status, 0));
	atomic_store(&common[me].step, 2);
	wait_for(atomic_load(&common[!me].step) == 2);
	for (unsigned int i = 0; i < LEN; i++)
		cr_assert(eq(int, dst[i], 0x60 + !me));
}

static pid_t start_peer(void)
{
	struct weft_mem *mem;
	pid_t pid = fork();

	if (pid)
		return pid;
	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	exchange(1, &mem);
	for (;;)
		progress_all();
}

/* Of a budget of one unit on GPU @phys; both processes use it up. */
static bool unit_is_free(struct weft_folder *run, int phys)
{
	char name[64] = "gpu-";
	unsigned int first, i, n;

	for (i = 0; i < 16; i++)
		sprintf(name + 4 + 2 * i, "%02x", 0xa0 + phys);
	n = nvl_budget_take(run, name, 1, 1, &first);
	nvl_budget_give(name, first, n);
	return n;
}

Test(nvl_setup, killed_peer_leaves_no_ring_or_mapping)
{
	struct fake_cuda_live before, during, after;
	struct weft_mem *mem;
	struct weft_folder *run;
	unsigned int fds;
	pid_t pid;

	setenv("WEFT_NVL_BUDGET", "4m", 1);
	common = mmap(NULL, 2 * sizeof(*common), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(common != MAP_FAILED);
	pid = start_peer();
	cr_assert(gt(int, pid, 0));
	load_fake();
	run = weft_folder_open();
	cr_assert(run != NULL);
	cr_assert(eq(int, open_side(&a), 0));
	fake.fake_cuda_live(&before);
	fds = count_fds();
	cr_expect(unit_is_free(run, 0) && unit_is_free(run, 1));
	exchange(0, &mem);
	fake.fake_cuda_live(&during);
	cr_expect(eq(uint, during.maps, before.maps + 2),
		  "not a ring each way");
	cr_expect(gt(uint, count_fds(), fds));
	cr_expect(not(unit_is_free(run, 0)));
	cr_expect(not(unit_is_free(run, 1)));

	kill(pid, SIGKILL);
	cr_assert(eq(int, waitpid(pid, NULL, 0), pid));
	wait_for(a.errors);
	nvl->ep_destroy(a.ep);
	a.ep = NULL;
	progress_all();
	fake.fake_cuda_live(&after);
	cr_expect(eq(uint, after.maps, before.maps));
	cr_expect(eq(uint, after.handles, before.handles));
	cr_expect(eq(uint, after.reservations, before.reservations));
	/* the interface's marks are all that stays */
	cr_expect(eq(uint, count_fds(), fds + 1));
	cr_expect(unit_is_free(run, 0));
	cr_expect(unit_is_free(run, 1));
	nvl->mem_release(mem);
	side_close(&a);
	fake.fake_cuda_live(&after);
	cr_expect(eq(int, memcmp(&before, &after, sizeof(before)), 0),
		  "something lives on");
	weft_folder_close(run);
}

/* ---- endpoints ---------------------------------------------------------- */

static bool no_mmap;

/* mmap() of this program, which a connection's key is kept in. */
void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (!no_mmap)
		return (void *)syscall(SYS_mmap, at, len, prot, flags, fd,
				       offset);
	errno = ENOMEM;
	return MAP_FAILED;
}

/* The n-th of both sides share a connection: what failed has no number. */
Test(nvl_setup, failed_endpoint_takes_no_number)
{
	struct weft_list *conns;

	load_fake();
	cr_assert(zero(int, open_side(&a)));
	cr_assert(zero(int, open_side(&b)));
	no_mmap = true;
	cr_expect(eq(int, side_dial(&a, &b), -ENOMEM));
	no_mmap = false;
	cr_assert(zero(int, side_dial(&a, &b)));
	cr_assert(zero(int, side_dial(&b, &a)));
	wait_for(nvl->ready(a.ep) && nvl->ready(b.ep));
	conns = &((struct nvl_iface *)a.iface)->conns;
	cr_expect(conns->next->next == conns, "more than one connection");
}

/* A bug of weft ends neither the program nor the connection. */
Test(nvl_setup, an_illegal_change_of_state_is_logged_and_not_made)
{
	struct nvl_conn *conn;

	load_fake();
	cr_assert(zero(int, open_side(&a)));
	cr_assert(zero(int, open_side(&b)));
	meet(&a, &b);
	conn = nvl_conn(weft_ep_conn(a.ep));
	weft_conn_set_state(&conn->base, WEFT_CONN_WAITING);
	cr_expect(eq(int, conn->base.state, WEFT_CONN_OPEN));
	cr_expect(eq(uint, log_lines("is open and cannot become waiting"), 1));
}

/* ---- memory that is not there ------------------------------------------- */

/* Memory that is promised only would end the process, once it is written. */
Test(nvl_setup, host_ring_is_allocated_or_fails)
{
	struct nvl_mapping m;
	struct stat st;

	load_fake();
	cr_assert(zero(int, nvl_map_host_make(&m, 4 << 20)));
	cr_assert(zero(int, fstat(m.fd, &st)));
	cr_expect(ge(long, st.st_blocks * 512, 4 << 20));
	munmap(m.host, 4 << 20);
	close(m.fd);
	lacking = ENOSPC;
	cr_expect(eq(int, nvl_map_host_make(&m, 4 << 20), -ENOSPC));
	cr_expect(eq(uint, log_lines("cannot set up a ring"), 1));
	/* a sandbox that cannot say is not worse off than before */
	lacking = EOPNOTSUPP;
	cr_assert(zero(int, nvl_map_host_make(&m, 4 << 20)));
	munmap(m.host, 4 << 20);
	close(m.fd);
}

Test(nvl_setup, inbox_is_allocated_or_fails)
{
	struct nvl_inbox box = { 0 };
	struct stat st;
	int fd = -1;

	load_fake();
	cr_assert(zero(int, nvl_inbox_make(&box, &fd)));
	cr_assert(zero(int, fstat(fd, &st)));
	cr_expect(ge(long, st.st_blocks * 512, (long)NVL_INBOX_SIZE));
	nvl_inbox_close(&box);
	close(fd);
	lacking = ENOSPC;
	cr_expect(eq(int, nvl_inbox_make(&box, &fd), -ENOSPC));
	cr_expect(eq(uint, log_lines("324 KiB of shared memory"), 1));
	/* and the endpoint hears of it */
	cr_assert(zero(int, open_side(&a)));
	cr_assert(zero(int, open_side(&b)));
	cr_assert(zero(int, side_dial(&b, &a)));
	wait_for(b.errors);
	cr_expect(eq(int, b.error, -ENOSPC));
}

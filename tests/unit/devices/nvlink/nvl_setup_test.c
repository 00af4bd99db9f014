/* SPDX-License-Identifier: BSD-3-Clause */
/* What is made when, by whom, and what is left when a peer is killed. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/nvlink/nvl_life.h"
#include "tests/lib/fallocate.h"
#include "tests/lib/fds.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN (256u << 10)

TestSuite(nvl_setup, .init = begin_pair, .fini = end_pair, .timeout = 120);

/* ---- nothing before the first put ---------------------------------------- */

/* As UCX has it: a key for each buffer. */
Test(nvl_setup, streams_are_made_by_the_first_put_alone)
{
	static const char *const makers[] = { "cuMemImportFromShareableHandle",
					      "cuMemHostRegister_v2",
					      "cuStreamCreate" };
	uint8_t key[8][WEFT_RKEY_MAX], *src[8], *dst[8];
	struct weft_mem *mem[8], *own[8];
	unsigned int i;

	load_fake();
	open_both();
	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		src[i] = fake.fake_cuda_malloc(0, LEN);
		dst[i] = fake.fake_cuda_vmm(1, LEN);
		own[i] = register_gpu(src[i], LEN, NULL);
		mem[i] = register_gpu(dst[i], LEN, &key[i]);
	}
	meet_both();
	for (i = 0; i < ARRAY_SIZE(makers); i++)
		cr_expect(eq(uint, fake.fake_cuda_called(makers[i]), 0));
	for (i = 0; i < ARRAY_SIZE(mem); i++)
		cr_assert(eq(int, put_checked(&a, src[i], dst[i], LEN, &key[i]),
			     0));
	cr_expect(eq(uint, fake.fake_cuda_called(makers[0]), ARRAY_SIZE(mem)));
	cr_expect(eq(uint, fake.fake_cuda_called(makers[1]), 1));
	cr_expect(eq(uint, fake.fake_cuda_called(makers[2]), WEFT_STREAMS));
	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		nvl->mem_release(mem[i]);
		nvl->mem_release(own[i]);
	}
	cr_expect(eq(uint, log_lines(""), 0));
}

/* ---- no context where there is none ------------------------------------- */

/* Of a pool, or of cuMemCreate(): the driver names no context for it. */
static void takes_no_context(uint8_t *p)
{
	const unsigned int made =
		fake.fake_cuda_called("cuDevicePrimaryCtxRetain");
	struct weft_iov iov = { p, 64, NULL };
	struct weft_mem *mem = NULL;
	struct wait_op w = WAIT_OP;
	uint8_t key[WEFT_RKEY_MAX] = { 0 };
	void *current = &mem;

	cr_expect(eq(int, nvl->mem_register(p, LEN, WEFT_MEM_CUDA, &mem),
		     -ENODEV));
	cr_expect(eq(uint, log_lines("belongs to no CUDA context"), 1));
	/* nor for a transfer of it */
	cr_expect(eq(int, nvl->put(a.ep, &iov, 1, 4096, &key, NULL, &w.op),
		     -ENODEV));
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
	open_both();
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

	dst = fake.fake_cuda_vmm(me, LEN);
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

Test(nvl_setup, killed_peer_leaves_no_mapping)
{
	struct fake_cuda_live before, during, after;
	struct weft_mem *mem;
	unsigned int fds;
	pid_t pid;

	common = mmap(NULL, 2 * sizeof(*common), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(common != MAP_FAILED);
	pid = start_peer();
	cr_assert(gt(int, pid, 0));
	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	fake.fake_cuda_live(&before);
	fds = count_fds();
	exchange(0, &mem);
	fake.fake_cuda_live(&during);
	cr_expect(eq(uint, during.maps, before.maps + 2),
		  "not its own, and the peer's");
	cr_expect(gt(uint, count_fds(), fds));

	kill(pid, SIGKILL);
	cr_assert(eq(int, waitpid(pid, NULL, 0), pid));
	wait_for(a.errors);
	cr_expect(eq(int, a.error, -ECONNRESET));
	nvl->ep_destroy(a.ep);
	a.ep = NULL;
	wait_for((fake.fake_cuda_live(&after), after.maps == before.maps + 1));
	cr_expect(eq(uint, after.handles, before.handles + 1));
	nvl->mem_release(mem);
	side_close(&a);
	fake.fake_cuda_free((void *)(uintptr_t)common[0].at);
	fake.fake_cuda_live(&after);
	cr_expect(eq(int, memcmp(&before, &after, sizeof(before)), 0),
		  "something lives on");
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
	open_both();
	no_mmap = true;
	cr_expect(eq(int, side_dial(&a, &b), -ENOMEM));
	no_mmap = false;
	dial_both();
	wait_for(nvl->ready(a.ep) && nvl->ready(b.ep));
	conns = &((struct nvl_iface *)a.iface)->conns;
	cr_expect(conns->next->next == conns, "more than one connection");
}

/* A bug of weft ends neither the program nor the connection. */
Test(nvl_setup, an_illegal_change_of_state_is_logged_and_not_made)
{
	struct nvl_conn *conn;

	load_fake();
	open_both();
	meet(&a, &b);
	conn = nvl_conn(weft_ep_conn(a.ep));
	weft_conn_set_state(&conn->base, WEFT_CONN_WAITING);
	cr_expect(eq(int, conn->base.state, WEFT_CONN_OPEN));
	cr_expect(eq(uint, log_lines("is open and cannot become waiting"), 1));
}

/* ---- memory that is not there ------------------------------------------- */

/* Memory that is promised only would end the process, once it is written. */
Test(nvl_setup, memory_that_peers_read_is_allocated_or_fails)
{
	struct stat st;

	load_fake();
	lacking = ENOSPC;
	cr_expect(eq(int, open_side(&a), -ENOSPC));
	cr_expect(eq(uint, log_lines("64 KiB of shared memory"), 1));
	lacking = 0;
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(zero(int, fstat(nvl_lives_fd(), &st)));
	cr_expect(ge(long, st.st_blocks * 512, (long)sizeof(struct nvl_table)));
	cr_assert(zero(int, fstat(nvl_iface(a.iface)->engines.marks_fd, &st)));
	cr_expect(ge(long, st.st_blocks * 512, (long)WEFT_MARKS_SIZE));
	/* the table is there, the marks are not */
	lacking = ENOSPC;
	cr_expect(eq(int, open_side(&b), -ENOSPC));
	/* a sandbox that cannot say is not worse off than before */
	lacking = EOPNOTSUPP;
	cr_expect(eq(int, open_side(&b), 0));
}

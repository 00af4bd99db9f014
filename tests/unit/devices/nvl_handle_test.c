/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of cudaMalloc(), which a peer maps by the driver's IPC handle.  The
 * peer is another process: none opens a handle of its own.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/devices/nvl_mapped.h"

#define OPEN "cuIpcOpenMemHandle_v2"

enum command { NONE, PUT, GET, REFUSE, MAP, REPORT };

/* What the owner has the peer do, and what came of it. */
static struct shared {
	volatile int command, ready;
	struct weft_address addr;
	uint8_t key[WEFT_RKEY_MAX];
	uint64_t to;
	size_t len;
	int gpu, seed, status;
	struct weft_cu_ipc handle;
	unsigned long direct; /* bytes so far */
	unsigned int opened, open, mapped;
	bool right;
} * sh;
static pid_t peer;

static void begin(void)
{
	char folder[64];

	begin_pair();
	snprintf(folder, sizeof(folder), "%s/ipc", run_folder);
	cr_assert(eq(int, mkdir(folder, 0700), 0));
	setenv(FAKE_CUDA_IPC, folder, 1);
}

static void end(void)
{
	if (peer > 0) {
		kill(peer, SIGKILL);
		cr_expect(eq(int, waitpid(peer, NULL, 0), peer));
	}
	end_pair();
}

TestSuite(nvl_handle, .init = begin, .fini = end, .timeout = 120);

/* ---- the peer ------------------------------------------------------------ */

/* As a program does when its endpoint has failed. */
static void connect_again(void)
{
	if (a.ep)
		nvl->ep_destroy(a.ep);
	a.errors = 0;
	cr_assert(eq(int, nvl->ep_create(a.iface, &sh->addr, NULL, &a.ep), 0));
	wait_for(nvl->ready(a.ep));
}

static int move(bool get, uint8_t *at)
{
	struct weft_iov iov = { at, sh->len, NULL };
	struct wait_op w = WAIT_OP;
	int err;

	if (get)
		err = nvl->get(a.ep, &iov, 1, sh->to, sh->key, &w.op);
	else
		err = nvl->put(a.ep, &iov, 1, sh->to, sh->key, NULL, &w.op);
	cr_assert(eq(int, err, -EINPROGRESS));
	wait_for(w.done);
	if (w.status) {
		wait_for(a.errors);
		connect_again();
	}
	return w.status;
}

static void get_pattern(uint8_t *at)
{
	uint8_t *want = malloc(sh->len);

	memset(at, POISON, sh->len);
	sh->status = move(true, at);
	pattern_fill(want, sh->len, sh->seed);
	sh->right = !memcmp(at, want, sh->len);
	free(want);
}

static void map_handle(void)
{
	struct weft_engine gpu = { .ctx = fake.fake_cuda_context(0) };
	struct nvl_mapping m;

	sh->status = nvl_map_cuda_handle(&m, &gpu, &sh->handle, sh->len);
	if (!sh->status)
		nvl_map_undo(&m);
}

static void obey(uint8_t *const buf[2])
{
	switch (sh->command) {
	case PUT:
		pattern_fill(buf[sh->gpu], sh->len, sh->seed);
		sh->status = move(false, buf[sh->gpu]);
		break;
	case GET:
		get_pattern(buf[sh->gpu]);
		break;
	case REFUSE:
		fake.fake_cuda_refuse(OPEN, sh->status);
		break;
	case MAP:
		map_handle();
		break;
	}
}

static void report(void)
{
	const struct weft_list *imports = &conn_of(&a)->imports, *l;
	struct fake_cuda_live now;

	fake.fake_cuda_live(&now);
	sh->direct =
		counter(&a, direct_put_bytes) + counter(&a, direct_get_bytes);
	sh->opened = fake.fake_cuda_called(OPEN);
	sh->open = now.imports;
	sh->mapped = 0;
	for (l = imports->next; l != imports; l = l->next)
		sh->mapped++;
}

static void be_the_peer(void)
{
	uint8_t *buf[2];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	while (!sh->ready)
		usleep(1000);
	connect_again();
	buf[0] = fake.fake_cuda_malloc(0, LEN);
	buf[1] = fake.fake_cuda_malloc(1, LEN);
	for (;;) {
		side_progress(&a);
		if (sh->command == NONE)
			continue;
		obey(buf);
		report();
		__atomic_store_n(&sh->command, NONE, __ATOMIC_RELEASE);
	}
}

/* ---- the owner ----------------------------------------------------------- */

static void have_peer(void)
{
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(ne(ptr, sh, MAP_FAILED));
	peer = fork();
	cr_assert(ge(int, peer, 0));
	if (!peer)
		be_the_peer();
	load_fake();
	cr_assert(eq(int, open_side(&b), 0));
	sh->addr = b.attr.addr;
	sh->ready = 1;
}

static void command(enum command what)
{
	__atomic_store_n(&sh->command, what, __ATOMIC_RELEASE);
	wait_for(__atomic_load_n(&sh->command, __ATOMIC_ACQUIRE) == NONE);
}

static void name(uint8_t *at, size_t len, const uint8_t *packed)
{
	sh->to = (uintptr_t)at;
	sh->len = len;
	memcpy(sh->key, packed, sizeof(sh->key));
}

/* 0, and every byte is there, or why not. */
static int put_there(uint8_t *at, size_t len, const uint8_t *packed)
{
	uint8_t *want = malloc(len);

	name(at, len, packed);
	sh->seed++;
	memset(at, POISON, len);
	command(PUT);
	pattern_fill(want, len, sh->seed);
	if (!sh->status)
		cr_assert(memcmp(at, want, len) == 0, "its bytes are wrong");
	free(want);
	return sh->status;
}

static void put_until_direct(uint8_t *at, size_t len, const uint8_t *packed)
{
	unsigned long so_far;

	command(REPORT);
	so_far = sh->direct;
	while (sh->direct == so_far)
		cr_assert(eq(int, put_there(at, len, packed), 0));
}

static bool is_direct_soon(uint8_t *at, size_t len, const uint8_t *packed)
{
	unsigned long so_far;
	unsigned int i;

	command(REPORT);
	so_far = sh->direct;
	for (i = 0; i < 20 && sh->direct == so_far; i++)
		cr_assert(eq(int, put_there(at, len, packed), 0));
	return sh->direct != so_far;
}

static void own(size_t len)
{
	to = fake.fake_cuda_malloc(1, len);
	cr_assert(eq(int, nvl->mem_register(to, len, WEFT_MEM_CUDA, &mem), 0));
	nvl->mem_pack(mem, &key);
}

static bool is_closed(void)
{
	command(REPORT);
	return !sh->open && !sh->mapped;
}

/* ---- who copies ---------------------------------------------------------- */

Test(nvl_handle, plain_memory_is_mapped)
{
	unsigned long so_far;

	have_peer();
	own(LEN);
	put_until_direct(to, LEN, key);
	so_far = sh->direct;
	cr_expect(eq(int, put_there(to + 7, LEN - 100, key), 0));
	pattern_fill(to, LEN, ++sh->seed);
	name(to, LEN, key);
	command(GET);
	cr_expect(eq(int, sh->status, 0));
	cr_expect(yes(sh->right));
	cr_expect(eq(ulong, sh->direct, so_far + 2ul * LEN - 100));
	cr_expect(eq(uint, sh->opened, 1));
	nvl->mem_release(mem);
}

/* The driver maps the block once, and the peer has it open twice. */
Test(nvl_handle, two_allocations_of_one_block)
{
	struct weft_mem *other;
	uint8_t other_key[WEFT_RKEY_MAX], *other_to;

	have_peer();
	own(65536);
	other_to = fake.fake_cuda_malloc(1, 5000);
	cr_assert(eq(int,
		     nvl->mem_register(other_to, 5000, WEFT_MEM_CUDA, &other),
		     0));
	nvl->mem_pack(other, &other_key);
	put_until_direct(to, 65536, key);
	put_until_direct(other_to, 5000, other_key);
	cr_expect(eq(uint, sh->open, 2));
	nvl->mem_release(other);
	wait_for((command(REPORT), sh->open == 1));
	cr_expect(eq(int, put_there(to, 65536, key), 0));
	/* what lies beside it is mapped, too, and no business of the peer's */
	memset(other_to, POISON, 5000);
	name(other_to, 8, key);
	command(PUT);
	cr_expect(eq(int, sh->status, -EACCES));
	cr_expect(eq(uint, other_to[0], POISON));
	nvl->mem_release(mem);
	wait_for(is_closed());
}

/* Another context of the peer's copies by the ring: one has it open. */
Test(nvl_handle, another_context_goes_by_a_ring)
{
	unsigned long so_far;
	unsigned int i;

	have_peer();
	own(LEN);
	put_until_direct(to, LEN, key);
	so_far = sh->direct;
	sh->gpu = 1;
	for (i = 0; i < 4; i++)
		cr_assert(eq(int, put_there(to, LEN, key), 0));
	cr_expect(eq(ulong, sh->direct, so_far));
	cr_expect(eq(uint, sh->opened, 1));
	nvl->mem_release(mem);
}

/* As UCX registers it. */
Test(nvl_handle, registration_that_is_longer_than_the_allocation)
{
	unsigned long so_far;

	have_peer();
	to = fake.fake_cuda_malloc(1, 70001);
	cr_assert(
		eq(int, nvl->mem_register(to, 70016, WEFT_MEM_CUDA, &mem), 0));
	nvl->mem_pack(mem, &key);
	put_until_direct(to, 70001, key);
	so_far = sh->direct;
	name(to + 70000, 3, key);
	command(PUT);
	cr_expect(eq(ulong, sh->direct, so_far));
	nvl->mem_release(mem);
}

static bool may_be_mapped(void)
{
	return key[WEFT_RKEY_LEN] & NVL_LOC_DIRECT;
}

Test(nvl_handle, memory_without_a_handle_goes_by_a_ring)
{
	have_peer();
	to = fake.fake_cuda_pool(1, LEN);
	register_all();
	cr_expect(not(may_be_mapped()));
	cr_expect(not(is_direct_soon(to, LEN, key)));
	cr_expect(eq(uint, sh->opened, 0));
	nvl->mem_release(mem);
}

/* It is tried once for a GPU, and memory with descriptors is mapped still. */
Test(nvl_handle, refused_handle_is_for_the_ring)
{
	struct weft_mem *virt;
	uint8_t virt_key[WEFT_RKEY_MAX], *virt_to;
	unsigned int i;

	have_peer();
	sh->status = WEFT_CU_INVALID_CONTEXT;
	command(REFUSE);
	for (i = 0; i < 2; i++) {
		own(LEN);
		cr_expect(not(is_direct_soon(to, LEN, key)));
		nvl->mem_release(mem);
	}
	cr_expect(eq(uint, sh->opened, 1));
	cr_expect(yes(is_closed()));
	virt_to = fake.fake_cuda_vmm(1, LEN);
	cr_assert(eq(int, nvl->mem_register(virt_to, LEN, WEFT_MEM_CUDA, &virt),
		     0));
	nvl->mem_pack(virt, &virt_key);
	put_until_direct(virt_to, LEN, virt_key);
	nvl->mem_release(virt);
}

Test(nvl_handle, own_process_opens_none)
{
	unsigned int i;

	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	meet(&a, &b);
	from = fake.fake_cuda_malloc(0, LEN);
	own(LEN);
	cr_assert(yes(may_be_mapped()));
	for (i = 0; i < 5; i++)
		cr_assert(eq(int, put_checked(&a, from, to, LEN, &key), 0));
	cr_expect(eq(uint, fake.fake_cuda_called(OPEN), 0));
	cr_expect(eq(ulong, counter(&a, direct_put_bytes), 0));
	nvl->mem_release(mem);
}

/* A copy behind what is there would be the end of the peer's context. */
Test(nvl_handle, an_owner_cannot_have_more_mapped_than_there_is)
{
	int (*get)(struct weft_cu_ipc * h, uint64_t at);

	have_peer();
	own(LEN);
	put_until_direct(to, LEN, key);
	nvl->mem_release(mem);
	wait_for(is_closed());
	get = weft_cuda()->ipc_get;
	cr_assert(eq(int, get(&sh->handle, (uintptr_t)to), 0));
	memset(sh->handle.bytes + 8, 0xff, 4);
	sh->len = LEN;
	command(MAP);
	cr_expect(eq(int, sh->status, 0));
	sh->len = LEN + 1;
	command(MAP);
	cr_expect(eq(int, sh->status, WEFT_CU_INVALID_VALUE));
	cr_expect(yes(is_closed()));
}

/* ---- the end ------------------------------------------------------------- */

Test(nvl_handle, peer_closes_what_was_released)
{
	have_peer();
	own(LEN);
	put_until_direct(to, LEN, key);
	cr_expect(eq(uint, sh->open, 1));
	nvl->mem_release(mem);
	wait_for(is_closed());
	memset(to, POISON, LEN);
	name(to, LEN, key);
	command(PUT);
	cr_expect(eq(int, sh->status, -EACCES));
	cr_expect(yes(is_poison()));
}

/* The mapping of what was there before is of no use for it. */
Test(nvl_handle, freed_and_allocated_again_at_the_same_address)
{
	uint8_t *was;
	unsigned int i;

	have_peer();
	/* another one keeps the block */
	fake.fake_cuda_malloc(1, 512);
	own(100000);
	for (i = 0; i < 5; i++) {
		put_until_direct(to, 100000, key);
		nvl->mem_release(mem);
		fake.fake_cuda_free(to);
		was = to;
		own(100000);
		cr_assert(eq(ptr, to, was));
	}
	nvl->mem_release(mem);
	wait_for(is_closed());
	cr_expect(eq(uint, sh->opened, 5));
}

/* Between its registration and its fetch: the handle is for the former one. */
Test(nvl_handle, freed_before_its_fetch_it_is_not_handed_out)
{
	unsigned int i;

	have_peer();
	own(LEN);
	fake.fake_cuda_free(to);
	cr_assert(eq(ptr, fake.fake_cuda_malloc(1, LEN), to));
	for (i = 0; i < 5; i++)
		cr_assert(eq(int, put_there(to, LEN, key), 0));
	cr_expect(eq(uint, sh->opened, 0));
	cr_expect(eq(ulong, sh->direct, 0));
	nvl->mem_release(mem);
}

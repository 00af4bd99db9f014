/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/devices/nvlink/nvl_handle.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared *sh;
pid_t peer;
/* The peer's interfaces: the one that it uses and runs, and the other one. */
static struct side sides[2];
static struct side *with = sides;

void nvl_handle_end(void)
{
	if (peer > 0) {
		kill(peer, SIGKILL);
		cr_expect(eq(int, waitpid(peer, NULL, 0), peer));
	}
	end_mapped();
}

/* ---- the peer ------------------------------------------------------------ */

#define peer_waits(cond) \
	check(step_until(side_progress(with), cond), "no '%s'", #cond)

/* As a program does when its endpoint has failed. */
static void connect_again(void)
{
	if (with->ep)
		nvl->ep_destroy(with->ep);
	with->errors = 0;
	cr_assert(eq(int,
		     nvl->ep_create(with->iface, &sh->addr, NULL, &with->ep),
		     0));
	peer_waits(nvl->ready(with->ep));
}

static int move(bool get, uint8_t *at)
{
	struct weft_iov iov = { at, sh->len, NULL };
	struct wait_op w = WAIT_OP;
	int err;

	if (get)
		err = nvl->get(with->ep, &iov, 1, sh->to, sh->key, &w.op);
	else
		err = nvl->put(with->ep, &iov, 1, sh->to, sh->key, NULL, &w.op);
	cr_assert(eq(int, err, -EINPROGRESS));
	peer_waits(w.done);
	if (w.status) {
		peer_waits(with->errors);
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

static void map_handle(const uint8_t *at)
{
	struct weft_engine engine = { 0 };
	struct weft_cuda_ptr where;
	struct nvl_mapping m;

	weft_cuda_query(at, &where);
	engine.ctx = where.ctx;
	sh->status = nvl_map_handle(&m, &engine, &sh->handle, sh->len);
	if (!sh->status)
		nvl_map_undo(&m);
}

static void obey(uint8_t *const buf[FROMS])
{
	switch (sh->command) {
	case PUT:
		pattern_fill(buf[sh->from], sh->len, sh->seed);
		sh->status = move(false, buf[sh->from]);
		break;
	case GET:
		get_pattern(buf[sh->from]);
		break;
	case REACHES:
		sh->status = nvl->mem_reaches(sh->key);
		break;
	case REFUSE:
		fake.fake_cuda_refuse(OPEN, sh->status);
		break;
	case FAIL_ONCE:
		fake.fake_cuda_fail(OPEN, 1, WEFT_CU_ALREADY_MAPPED);
		break;
	case STALL:
		fake.fake_cuda_stall(sh->status ? CLOSE : NULL);
		break;
	case MAP:
		map_handle(buf[GPU_0]);
		break;
	case OTHER:
		with = &sides[with == sides];
		if (!with->iface) {
			cr_assert(eq(int, open_side(with), 0));
			connect_again();
		}
		break;
	}
}

static void report(void)
{
	struct fake_cuda_live now;

	fake.fake_cuda_live(&now);
	sh->opened = fake.fake_cuda_called(OPEN);
	sh->open = now.imports;
	sh->mapped = conn_of(with)->nimports;
}

static void be_the_peer(void)
{
	uint8_t *buf[FROMS];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	load_fake();
	cr_assert(eq(int, open_side(with), 0));
	while (!sh->ready)
		usleep(1000);
	connect_again();
	buf[GPU_0] = fake.fake_cuda_malloc(0, LEN);
	buf[GPU_1] = fake.fake_cuda_malloc(1, LEN);
	buf[GREEN_0] = fake.fake_cuda_malloc_in(fake.fake_cuda_green(0), LEN);
	for (;;) {
		side_progress(with);
		sched_yield();
		if (sh->command == NONE)
			continue;
		obey(buf);
		report();
		__atomic_store_n(&sh->command, NONE, __ATOMIC_RELEASE);
	}
}

/* ---- the owner ----------------------------------------------------------- */

void have_peer(void)
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

void command(enum command what)
{
	__atomic_store_n(&sh->command, what, __ATOMIC_RELEASE);
	/* busy processors are the peer's then */
	wait_for((sched_yield(),
		  __atomic_load_n(&sh->command, __ATOMIC_ACQUIRE) == NONE));
}

void name(uint8_t *at, size_t len, const uint8_t *packed)
{
	sh->to = (uintptr_t)at;
	sh->len = len;
	memcpy(sh->key, packed, sizeof(sh->key));
}

int put_there(uint8_t *at, size_t len, const uint8_t *packed)
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

void own(size_t len)
{
	to = fake.fake_cuda_malloc(1, len);
	mem = register_gpu(to, len, &key);
}

void expect_put(uint8_t *at, size_t len, const uint8_t *packed, int status)
{
	cr_expect(eq(int, put_there(at, len, packed), status));
}

bool is_closed(void)
{
	command(REPORT);
	return !sh->open && !sh->mapped;
}

int reaches(const uint8_t *packed)
{
	name(to, LEN, packed);
	command(REACHES);
	return sh->status;
}

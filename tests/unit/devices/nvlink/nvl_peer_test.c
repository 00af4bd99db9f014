/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a peer in another process maps: when its copies have ended. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/nvlink/nvl_conn.h"
#include "devices/nvlink/nvl_life.h"
#include "tests/unit/devices/nvlink/nvl_mapped.h"

TestSuite(nvl_peer, .init = begin_pair, .fini = end_pair, .timeout = 120);

struct shared {
	volatile int step;
	struct weft_address addr;
	uint8_t key[WEFT_RKEY_MAX];
	uint64_t to;
};

static void put_there(struct shared *sh, struct weft_mem *mine,
		      struct wait_op *w)
{
	struct weft_iov iov = { from, LEN, mine };

	w->done = 0;
	cr_assert(eq(int,
		     nvl->put(a.ep, &iov, 1, sh->to, sh->key, NULL, &w->op),
		     -EINPROGRESS));
}

/* The other process: it has the memory mapped when this returns. */
static struct weft_mem *be_the_peer(struct shared *sh)
{
	struct wait_op w = WAIT_OP;
	struct weft_mem *mine;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	while (!sh->step)
		usleep(1000);
	cr_assert(eq(int, nvl->ep_create(a.iface, &sh->addr, NULL, &a.ep), 0));
	wait_for(nvl->ready(a.ep));
	from = fake.fake_cuda_malloc(0, LEN);
	mine = register_gpu(from, LEN, NULL);
	put_there(sh, mine, &w);
	wait_for(w.done);
	cr_assert(eq(int, w.status, 0));
	return mine;
}

static struct shared *share(void)
{
	struct shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert(ne(ptr, sh, MAP_FAILED));
	return sh;
}

static void be_the_owner(struct shared *sh)
{
	load_fake();
	cr_assert(eq(int, open_side(&b), 0));
	to = fake.fake_cuda_segments(1, 3, WEFT_CU_HANDLE_POSIX_FD);
	register_all();
	sh->addr = b.attr.addr;
	memcpy(sh->key, key, sizeof(key));
	sh->to = (uintptr_t)to;
	sh->step = 1;
	wait_for(sh->step == 2);
}

static void end_peer(pid_t pid)
{
	kill(pid, SIGKILL);
	cr_assert(eq(int, waitpid(pid, NULL, 0), pid));
}

/* Its engine has a copy, and does not begin with it before step 3. */
static void copy_late(struct shared *sh)
{
	struct weft_mem *mine = be_the_peer(sh);
	struct wait_op w = WAIT_OP;
	unsigned int i;

	fake.fake_cuda_hold(true);
	put_there(sh, mine, &w);
	for (i = 0; i < 10; i++)
		progress_all();
	sh->step = 2;
	while (sh->step < 3)
		usleep(1000);
	/* and makes no progress */
	fake.fake_cuda_hold(false);
	while (sh->step < 4)
		usleep(1000);
	wait_for(w.done);
	sh->step = 5;
	for (;;)
		pause();
}

static void *release(void *arg)
{
	nvl->mem_release(mem);
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
	return NULL;
}

/* As peers see it. */
static bool is_revoked(void)
{
	static const struct nvl_table *table;
	const struct nvl_key k = unpack(key);

	if (!table)
		table = mmap(NULL, sizeof(*table), PROT_READ, MAP_SHARED,
			     nvl_lives_fd(), 0);
	cr_assert(ne(ptr, (void *)table, MAP_FAILED));
	return !nvl_is_alive(table, &k.life);
}

/* Needs what a release holds. */
static struct weft_mem *register_another(void)
{
	void *other = fake.fake_cuda_segments(1, 1, WEFT_CU_HANDLE_POSIX_FD);
	struct weft_mem *m;

	m = register_gpu(other, SEGMENT, NULL);
	return m;
}

static pid_t own_beside_late_copy(struct shared *sh)
{
	pid_t pid = fork();

	cr_assert(ge(int, pid, 0));
	if (!pid)
		copy_late(sh);
	be_the_owner(sh);
	return pid;
}

static void check_release_waits(bool broken)
{
	struct shared *sh = share();
	bool released = false, early;
	struct weft_mem *another;
	pthread_t thread;
	pid_t pid;

	pid = own_beside_late_copy(sh);
	cr_assert(not(is_revoked()));
	if (broken) {
		nvl_conn_break(conn_of(&b), -EIO);
		side_progress(&b);
	}
	cr_assert(
		eq(int, pthread_create(&thread, NULL, release, &released), 0));
	while (!is_revoked())
		usleep(1000);
	/* had it returned now, the copy would land behind it */
	usleep(50000);
	another = register_another();
	early = __atomic_load_n(&released, __ATOMIC_ACQUIRE);
	if (early)
		memset(to, POISON, LEN);
	sh->step = 3;
	pthread_join(thread, NULL);
	if (!early)
		memset(to, POISON, LEN);
	sh->step = 4;
	wait_for(sh->step == 5);
	cr_expect(yes(is_poison()), "a byte landed after release");
	nvl->mem_release(another);
	end_peer(pid);
}

/* It cannot stop the peer's engine; no message says when that has ended. */
Test(nvl_peer, release_waits_for_copies_of_a_peer_that_does_not_run)
{
	check_release_waits(false);
}

Test(nvl_peer, release_waits_while_the_connection_ends)
{
	check_release_waits(true);
}

/* Of its parent's it has nothing, nor what a thread there holds. */
static bool child_opens_its_own(void)
{
	const pid_t pid = fork();
	int status = -1;

	if (!pid) {
		alarm(10);
		_exit(open_side(&c) != 0);
	}
	return waitpid(pid, &status, 0) == pid && !status;
}

Test(nvl_peer, child_of_a_process_that_waits_for_copies)
{
	struct shared *sh = share();
	bool released = false;
	pthread_t thread;
	unsigned int i;
	pid_t pid;

	pid = own_beside_late_copy(sh);
	cr_assert(
		eq(int, pthread_create(&thread, NULL, release, &released), 0));
	while (!is_revoked())
		usleep(1000);
	for (i = 0; i < 100; i++)
		cr_assert(yes(child_opens_its_own()), "child %u", i);
	cr_expect(not(__atomic_load_n(&released, __ATOMIC_ACQUIRE)));
	sh->step = 3;
	pthread_join(thread, NULL);
	end_peer(pid);
}

/* In the middle of handing over: its mark never ends. */
static void be_killed(struct shared *sh)
{
	be_the_peer(sh);
	atomic_store(&nvl_iface(a.iface)->engines.marks->claimed, 1);
	sh->step = 2;
	for (;;)
		pause();
}

/* As long as a peer that is there would be. */
Test(nvl_peer, killed_peer_is_not_waited_for)
{
	struct shared *sh = share();
	pid_t pid;

	pid = fork();
	cr_assert(ge(int, pid, 0));
	if (!pid)
		be_killed(sh);
	be_the_owner(sh);
	end_peer(pid);
	nvl->mem_release(mem);
	wait_for(weft_list_empty(&nvl_iface(b.iface)->conns));
	cr_expect(zero(uint, log_lines("did not end within")));
}

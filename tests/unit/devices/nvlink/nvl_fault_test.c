/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVLink device where the CUDA driver fails: every call of a program's life
 * does once.  Then the bytes are right all the same, or an error is reported;
 * and nothing is left open, mapped or allocated.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "devices/nvlink/nvl.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN (1u << 18)

static uint8_t *gpu0, *gpu1, *vmm, *plain;

TestSuite(nvl_fault, .init = begin_ipc_pair, .fini = end_folder,
	  .timeout = 600);

static int put_asleep(uint8_t *src, uint8_t *dst, const void *key)
{
	struct wait_op w = WAIT_OP;
	struct weft_iov iov = { src, LEN, NULL };
	int ret;

	memset(src, 0x77, LEN);
	memset(dst, 0xa5, LEN);
	ret = nvl->put(a.ep, &iov, 1, (uintptr_t)dst, key, NULL, &w.op);
	if (ret != -EINPROGRESS)
		return ret;
	/* b's end is a's as well */
	sleep_until(&w.done, &a.errors);
	if (!w.done)
		return a.error;
	if (!w.status)
		cr_assert(memcmp(src, dst, LEN) == 0,
			  "the bytes are wrong: '%s' failed",
			  fake.fake_cuda_failed());
	return w.status;
}

/* By descriptors, for two contexts, and by its own address. */
static unsigned int move(struct weft_mem *virt, struct weft_mem *malloced)
{
	unsigned int errors = 0;
	uint8_t key[WEFT_RKEY_MAX];

	nvl->mem_pack(virt, &key);
	errors += !!put_checked(&a, gpu0, vmm, LEN, &key);
	errors += !!get_checked(&a, gpu0, vmm, LEN, &key);
	errors += !!put_asleep(gpu0, vmm, &key);
	if (a.errors || b.errors)
		return errors + 1;
	errors += !!put_checked(&a, gpu1, vmm, LEN, &key);
	if (a.errors || b.errors)
		return errors + 1;
	nvl->mem_pack(malloced, &key);
	/* one that cannot be mapped is for another device */
	if (nvl->mem_reaches(&key))
		return errors + 1;
	errors += !!put_checked(&a, gpu0, plain, LEN, &key);
	errors += !!put_asleep(gpu0, plain, &key);
	return errors;
}

/* What a program does in its life; the number of errors that it got. */
static unsigned int life(int fail)
{
	struct weft_mem *virt = NULL, *malloced = NULL;
	unsigned int errors = 0;

	fake.fake_cuda_fail_at(fail, WEFT_CU_OPERATING_SYSTEM);
	if (open_side(&a) || open_side(&b) || side_dial(&a, &b) ||
	    side_dial(&b, &a))
		errors++;
	if (!errors)
		wait_for((nvl->ready(a.ep) && nvl->ready(b.ep)) || a.errors ||
			 b.errors);
	errors += !!nvl->mem_register(vmm, LEN, WEFT_MEM_CUDA, &virt);
	errors += !!nvl->mem_register(plain, LEN, WEFT_MEM_CUDA, &malloced);
	if (virt && malloced && !errors)
		errors += move(virt, malloced);
	/* a context that is gone takes all that was in it along */
	calls = fake.fake_cuda_calls();
	failed = fake.fake_cuda_failed();
	fake.fake_cuda_fail_at(0, 0);
	unsaid = errors == 1 && !a.errors && !b.errors && malloced &&
		 !malloced->exported;
	if (virt)
		nvl->mem_release(virt);
	if (malloced)
		nvl->mem_release(malloced);
	errors += a.errors + b.errors;
	side_close(&a);
	side_close(&b);
	return errors;
}

static void load(void)
{
	load_fake();
	gpu0 = fake.fake_cuda_malloc(0, LEN);
	gpu1 = fake.fake_cuda_malloc(1, LEN);
	plain = fake.fake_cuda_malloc(1, LEN);
	vmm = fake.fake_cuda_vmm(1, LEN);
	begin_lives(life);
}

Test(nvl_fault, every_failing_driver_call_is_reported_or_survived)
{
	load();
	fail_each_call(life);
}

/* There a stream that is empty tells the end of copies. */
Test(nvl_fault, driver_without_stream_writes_works)
{
	static const char name[] = "cuStreamQuery";
	unsigned int errors;

	setenv(FAKE_CUDA_NO_WRITE, "1", 1);
	load();
	for (int n = 1; n <= 12; n += 3) {
		fake.fake_cuda_fail(name, n, WEFT_CU_OPERATING_SYSTEM);
		errors = life(0);
		fake.fake_cuda_fail(name, 0, 0);
		end_of_life(errors, name, n);
	}
}

/* ---- a host function that is late ---------------------------------------- */

static pthread_t tester;
static atomic_bool hold, held;

/* write() of this program: a driver's thread stalls behind it. */
ssize_t write(int fd, const void *buf, size_t n)
{
	ssize_t r = syscall(SYS_write, fd, buf, n);

	if (n == sizeof(uint64_t) && atomic_load(&hold) &&
	    !pthread_equal(pthread_self(), tester)) {
		atomic_store(&held, true);
		while (atomic_load(&hold))
			usleep(100);
	}
	return r;
}

static void start(struct wait_op *w, uint8_t *src, uint8_t *dst,
		  const void *key)
{
	struct weft_iov iov = { src, 4096, NULL };
	int i;

	*w = (struct wait_op)WAIT_OP;
	cr_assert(eq(int,
		     nvl->put(a.ep, &iov, 1, (uintptr_t)dst, key, NULL, &w->op),
		     -EINPROGRESS));
	for (i = 0; i < 8; i++)
		progress_all();
}

static void sleep_on(void)
{
	while (nvl->arm(a.iface))
		progress_all();
}

/*
 * The driver's thread has woken for one copy and has not left yet: to sleep
 * now for the next copy on that stream needs a wake of its own.
 */
Test(nvl_fault, a_second_copy_wakes_a_sleeper_by_its_own_callback)
{
	struct wait_op w[3];
	struct weft_mem *mem;
	uint8_t key[WEFT_RKEY_MAX];
	unsigned int wakes;

	load_fake();
	tester = pthread_self();
	gpu0 = fake.fake_cuda_malloc(0, LEN);
	vmm = fake.fake_cuda_vmm(1, LEN);
	open_both();
	cr_assert(eq(int, side_dial(&a, &b), 0));
	wait_for(nvl->ready(a.ep));
	mem = register_gpu(vmm, LEN, &key);
	cr_assert(eq(int, put_checked(&a, gpu0, vmm, 4096, &key), 0));

	fake.fake_cuda_hold(true);
	start(&w[0], gpu0, vmm, &key);
	sleep_on();
	atomic_store(&hold, true);
	fake.fake_cuda_hold(false);
	while (!atomic_load(&held))
		usleep(100);
	wait_for(w[0].done);
	/* by turns: the next one takes the other stream */
	start(&w[1], gpu0, vmm, &key);
	wait_for(w[1].done);
	start(&w[2], gpu0, vmm, &key);
	wakes = fake.fake_cuda_called("cuLaunchHostFunc");
	sleep_on();
	cr_expect(
		eq(uint, fake.fake_cuda_called("cuLaunchHostFunc"), wakes + 1));
	atomic_store(&hold, false);
	wait_for(w[2].done);
	nvl->mem_release(mem);
	side_close(&a);
	side_close(&b);
}

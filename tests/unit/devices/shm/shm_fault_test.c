/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory over weft_shm where the CUDA driver fails: every call of a
 * program's life does once.  Then the bytes are right all the same, or an error
 * is reported; and nothing is left open or pinned.
 */

#include "devices/shm/shm.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN (1u << 18)

static const struct weft_dev_ops *const dev = &weft_shm_ops;
static uint8_t *gpu0, *gpu1, *host;

TestSuite(shm_fault, .init = begin_pair, .fini = end_folder, .timeout = 600);

static int move(bool get, uint8_t *local, uint8_t *peer, const void *key)
{
	const struct weft_iov iov = { local, LEN, NULL };
	uint8_t *src = get ? peer : local, *dst = get ? local : peer;
	struct wait_op w = WAIT_OP;
	int ret;

	if (a.errors || b.errors)
		return -EIO;
	pattern_fill(src, LEN, 3);
	memset(dst, 0xa5, LEN);
	ret = (get ? dev->get(a.ep, &iov, 1, (uintptr_t)peer, key, &w.op)
		   : dev->put(a.ep, &iov, 1, (uintptr_t)peer, key, NULL,
			      &w.op));
	if (ret != -EINPROGRESS)
		return ret;
	sleep_until(&w.done, NULL);
	if (!w.status)
		pattern_check(fake.fake_cuda_failed(), dst, LEN, 3);
	return w.status;
}

/* What a program does in its life; the number of errors that it got. */
static unsigned int life(int fail)
{
	struct weft_mem *mem = NULL, *plain = NULL;
	uint8_t key[WEFT_RKEY_MAX], host_key[WEFT_RKEY_MAX];
	unsigned int errors = 0;

	fake.fake_cuda_fail_at(fail, WEFT_CU_OPERATING_SYSTEM);
	cr_assert(zero(int, side_init(&a, dev, "shm", AF_UNSPEC)));
	cr_assert(zero(int, side_init(&b, dev, "shm", AF_UNSPEC)));
	dial_both();
	wait_for(dev->ready(a.ep) && dev->ready(b.ep));
	errors += !!dev->mem_register(gpu1, LEN, WEFT_MEM_CUDA, &mem);
	errors += !!dev->mem_register(host, LEN, WEFT_MEM_HOST, &plain);
	if (mem && plain) {
		dev->mem_pack(mem, key);
		dev->mem_pack(plain, host_key);
		errors += !!move(false, gpu0, gpu1, key);
		errors += !!move(true, gpu0, gpu1, key);
		errors += !!move(false, gpu0, host, host_key);
		errors += !!move(true, gpu0, host, host_key);
	}
	calls = fake.fake_cuda_calls();
	failed = fake.fake_cuda_failed();
	fake.fake_cuda_fail_at(0, 0);
	if (mem)
		dev->mem_release(mem);
	if (plain)
		dev->mem_release(plain);
	errors += a.errors + b.errors;
	side_close(&a);
	side_close(&b);
	return errors;
}

static void load(void)
{
	load_fake();
	shm_tune.chunk = LEN / 8;
	gpu0 = fake.fake_cuda_malloc(0, LEN);
	gpu1 = fake.fake_cuda_malloc(1, LEN);
	host = malloc(LEN);
	begin_lives(life);
}

Test(shm_fault, every_failing_driver_call_is_reported_or_survived)
{
	load();
	fail_each_call(life);
	free(host);
}

/* There a stream that is empty tells the end of copies, and nothing rings. */
Test(shm_fault, driver_without_stream_writes_works)
{
	setenv(FAKE_CUDA_NO_WRITE, "1", 1);
	load();
	free(host);
}

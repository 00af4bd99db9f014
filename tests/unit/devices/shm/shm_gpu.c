/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/devices/shm/shm_gpu.h"

const struct weft_dev_ops *const dev = &weft_shm_ops;
uint8_t *from, *to, *host, *host_to;
struct weft_mem *mem, *host_mem;
uint8_t key[WEFT_RKEY_MAX], host_key[WEFT_RKEY_MAX];

static void open_sides(void)
{
	cr_assert(zero(int, side_init(&a, dev, "shm", AF_UNSPEC)));
	cr_assert(zero(int, side_init(&b, dev, "shm", AF_UNSPEC)));
	meet_both();
}

void shm_gpu_begin(void)
{
	begin_pair();
	load_fake();
	open_sides();
	from = fake.fake_cuda_malloc(0, LEN);
	to = fake.fake_cuda_malloc(1, LEN);
	host = malloc(LEN);
	host_to = malloc(LEN);
	cr_assert(zero(int, dev->mem_register(to, LEN, WEFT_MEM_CUDA, &mem)));
	cr_assert(zero(int, dev->mem_register(host_to, LEN, WEFT_MEM_HOST,
					      &host_mem)));
	dev->mem_pack(mem, key);
	dev->mem_pack(host_mem, host_key);
}

void shm_gpu_end(void)
{
	fake.fake_cuda_hold(false);
	if (mem)
		dev->mem_release(mem);
	dev->mem_release(host_mem);
	end_pair();
	free(host);
	free(host_to);
}

struct shm_conn *conn_of(struct side *s)
{
	return shm_conn(weft_ep_conn(s->ep));
}

int start_put(uint8_t *src, uint8_t *dst, size_t len, const void *k,
	      struct wait_op *w)
{
	const struct weft_iov iov = { src, len, NULL };

	return dev->put(a.ep, &iov, 1, (uintptr_t)dst, k, NULL, &w->op);
}

void put_all(uint8_t *src, uint8_t *dst, size_t len, const void *k,
	     unsigned int seed)
{
	struct wait_op w = WAIT_OP;

	pattern_fill(src, len, seed);
	memset(dst, 0xa5, len);
	cr_assert(until(dev->ready(a.ep)));
	cr_assert(eq(int, start_put(src, dst, len, k, &w), -EINPROGRESS));
	cr_assert(until(w.done));
	cr_assert(zero(int, w.status));
	pattern_check("put", dst, len, seed);
}

void get_all(uint8_t *dst, uint8_t *src, size_t len, const void *k,
	     unsigned int seed)
{
	const struct weft_iov iov[] = {
		{ dst, len / 3, NULL }, { dst + len / 3, len - len / 3, NULL }
	};
	struct wait_op w = WAIT_OP;

	pattern_fill(src, len, seed);
	memset(dst, 0xa5, len);
	cr_assert(until(dev->ready(a.ep)));
	cr_assert(eq(int, dev->get(a.ep, iov, 2, (uintptr_t)src, k, &w.op),
		     -EINPROGRESS));
	cr_assert(until(w.done));
	cr_assert(zero(int, w.status));
	pattern_check("get", dst, len, seed);
}

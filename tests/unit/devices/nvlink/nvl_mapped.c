/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/devices/nvlink/nvl_mapped.h"

uint8_t *from, *to;
struct weft_mem *mem;
uint8_t key[WEFT_RKEY_MAX];
struct fake_cuda_live before;

void register_all(void)
{
	mem = register_gpu(to, LEN, &key);
}

void release_all(void)
{
	if (mem)
		nvl->mem_release(mem);
	mem = NULL;
}

void end_mapped(void)
{
	release_all();
	end_pair();
}

struct nvl_key unpack(const uint8_t *packed)
{
	struct nvl_key k;

	memcpy(&k, packed, sizeof(k));
	return k;
}

bool may_be_mapped(void)
{
	return unpack(key).kind != NVL_KEY_NONE;
}

bool is_poison(void)
{
	size_t i = 0;

	while (i < LEN && to[i] == POISON)
		i++;
	return i == LEN;
}

struct nvl_conn *conn_of(struct side *s)
{
	return weft_list_first(&nvl_iface(s->iface)->conns, struct nvl_conn,
			       link);
}

void pair_up(int types)
{
	load_fake();
	open_both();
	meet_both();
	from = fake.fake_cuda_malloc(0, LEN);
	to = fake.fake_cuda_segments(1, 3, types);
	fake.fake_cuda_live(&before);
	register_all();
}

void put_all(void)
{
	cr_assert(eq(int, put_checked(&a, from, to, LEN, &key), 0));
}

void pair_up_mapped(void)
{
	pair_up(WEFT_CU_HANDLE_POSIX_FD);
	put_all();
}

int start_put(struct wait_op *w)
{
	struct weft_iov iov = { from, LEN, NULL };

	*w = (struct wait_op)WAIT_OP;
	return nvl->put(a.ep, &iov, 1, (uintptr_t)to, &key, NULL, &w->op);
}

void put_fails(int status)
{
	struct wait_op w;

	memset(to, POISON, LEN);
	cr_assert(eq(int, start_put(&w), -EINPROGRESS));
	wait_for(w.done);
	cr_expect(eq(int, w.status, status));
	meet_again();
	cr_expect(yes(is_poison()));
}

bool is_unmapped(void)
{
	struct fake_cuda_live now;

	fake.fake_cuda_live(&now);
	return now.maps == before.maps && now.handles == before.handles &&
	       now.reservations == before.reservations;
}

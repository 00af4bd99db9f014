/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/devices/nvlink/nvl_mapped.h"

uint8_t *from, *to;
struct weft_mem *mem;
uint8_t key[WEFT_RKEY_MAX];

void register_all(void)
{
	cr_assert(eq(int, nvl->mem_register(to, LEN, WEFT_MEM_CUDA, &mem), 0));
	nvl->mem_pack(mem, &key);
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

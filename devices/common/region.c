/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/region.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "util/bytes.h"
#include "util/fork.h"
#include "util/util.h"

#define SLOTS_PER_BLOCK 1024u
#define BLOCKS		1024u
#define NO_SLOT		UINT32_MAX

/*
 * A slot outlives its regions, so that a reader with an old key always finds
 * memory to look at.  `live` and `refs` are a Dekker pair: the reader counts
 * itself in and then looks at live; the remover clears live and then waits for
 * the count.  Both need sequential consistency.
 */
struct slot {
	_Atomic bool live;
	_Atomic uint32_t refs;
	uint32_t generation;
	uint32_t next_free;
	uint64_t token;
	uintptr_t base;
	size_t len;
};

/* Static, so that a plugin that is unloaded and loaded again leaves nothing. */
static struct slot first_block[SLOTS_PER_BLOCK];
static struct slot *_Atomic blocks[BLOCKS] = { first_block };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t free_slot = NO_SLOT;
static uint32_t slots_made;

static struct slot *slot_at(uint32_t i)
{
	struct slot *block;

	if (i >= BLOCKS * SLOTS_PER_BLOCK)
		return NULL;
	block = atomic_load_explicit(&blocks[i / SLOTS_PER_BLOCK],
				     memory_order_acquire);
	return block ? &block[i % SLOTS_PER_BLOCK] : NULL;
}

static int slot_take(uint32_t *index)
{
	struct slot *block;

	if (free_slot != NO_SLOT) {
		*index = free_slot;
		free_slot = slot_at(free_slot)->next_free;
		return 0;
	}
	if (slots_made == BLOCKS * SLOTS_PER_BLOCK)
		return -ENOSPC;
	if (slots_made % SLOTS_PER_BLOCK == 0 && slots_made) {
		block = calloc(SLOTS_PER_BLOCK, sizeof(*block));
		if (!block)
			return -ENOMEM;
		atomic_store_explicit(&blocks[slots_made / SLOTS_PER_BLOCK],
				      block, memory_order_release);
	}
	*index = slots_made++;
	return 0;
}

int weft_region_add(void *addr, size_t len, enum weft_mem_kind kind,
		    struct weft_mem **mem)
{
	struct weft_mem *m;
	struct slot *s;
	uint64_t token;
	int err;

	err = weft_random(&token, sizeof(token));
	if (err)
		return err;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;

	pthread_mutex_lock(&lock);
	err = slot_take(&m->rkey.slot);
	if (err) {
		pthread_mutex_unlock(&lock);
		free(m);
		return err;
	}
	s = slot_at(m->rkey.slot);
	s->generation++;
	s->token = token;
	s->base = (uintptr_t)addr;
	s->len = len;
	m->rkey.generation = s->generation;
	m->rkey.token = token;
	atomic_store(&s->live, true);
	pthread_mutex_unlock(&lock);

	m->addr = addr;
	m->len = len;
	m->kind = kind;
	m->forks = weft_forks();
	*mem = m;
	return 0;
}

void weft_region_remove(struct weft_mem *mem)
{
	struct slot *s = slot_at(mem->rkey.slot);

	atomic_store(&s->live, false);
	if (mem->forks != weft_forks()) { /* references are the parent's */
		free(mem);
		return;
	}
	/*
	 * held for system calls that do not block, or for handing copies to an
	 * engine
	 */
	while (atomic_load(&s->refs))
		sched_yield();
	pthread_mutex_lock(&lock);
	s->next_free = free_slot;
	free_slot = mem->rkey.slot;
	pthread_mutex_unlock(&lock);
	free(mem);
}

void *weft_region_get(const struct weft_rkey *rkey, uint64_t addr, size_t len)
{
	struct slot *s = slot_at(rkey->slot);

	if (!s)
		return NULL;
	atomic_fetch_add(&s->refs, 1);
	if (atomic_load(&s->live) && s->generation == rkey->generation &&
	    s->token == rkey->token && addr >= s->base && len <= s->len &&
	    addr - s->base <= s->len - len)
		return (void *)(uintptr_t)addr;
	atomic_fetch_sub(&s->refs, 1);
	return NULL;
}

void weft_region_put(const struct weft_rkey *rkey)
{
	atomic_fetch_sub(&slot_at(rkey->slot)->refs, 1);
}

void weft_rkey_pack(const struct weft_rkey *rkey, void *buf)
{
	unsigned char *p = buf;

	weft_put_le32(p, rkey->slot);
	weft_put_le32(p + 4, rkey->generation);
	weft_put_le64(p + 8, rkey->token);
}

void weft_rkey_unpack(const void *buf, struct weft_rkey *rkey)
{
	const unsigned char *p = buf;

	rkey->slot = weft_get_le32(p);
	rkey->generation = weft_get_le32(p + 4);
	rkey->token = weft_get_le64(p + 8);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory: a region of the key table, and for each adapter that this
 * process has open a registration of it.
 *
 * There is no cache here: a registration lives as long as its owner says, who
 * alone knows when the pages behind an address change.  What a put is sent
 * from is looked up by address, and may thus be a registration that somebody
 * else releases under it; the adapter then refuses the request, and it is
 * repeated from a registration of its own (ib_tx.c).
 */
#include "devices/ib/ib.h"

#include <errno.h>
#include <stdlib.h>

#include "devices/region.h"
#include "util/log.h"
#include "util/util.h"

#define MAX_DEVICES 32

struct ib_mr {
	struct ib_mr *next;
	struct ib_device *dev;
	struct ibv_mr *mr;
};

struct ib_mem {
	struct weft_mem *region;
	struct ib_mr *mrs;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ib_mem **by_addr;		/* sorted by the region's address */
static size_t count, capacity;
static struct ib_mem **by_slot;
static size_t slots;
static size_t longest;			/* region that ever was in by_addr */

static int register_on(struct ib_mem *m, struct ib_device *dev)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ;
	const struct weft_mem *region = m->region;
	struct ib_mr *r;
	int err;

	if (!region->len)
		return 0;	/* nothing can land there */
	r = malloc(sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->dev = dev;
	r->mr = dev->v->reg_mr(dev->pd, region->addr, region->len, access);
	if (!r->mr) {
		err = errno;
		free(r);
		return weft_fail(err, "cannot register %zu bytes at %p with '%s'%s",
				 region->len, region->addr, dev->name,
				 err == ENOMEM || err == EAGAIN ?
				 "; raise the limit with 'ulimit -l'" : "");
	}
	r->next = m->mrs;
	m->mrs = r;
	return 0;
}

/* By the adapters' reckoning, nothing lands there afterwards. */
static void deregister(struct ib_mem *m)
{
	struct ib_mr *r;
	int err;

	while ((r = m->mrs)) {
		m->mrs = r->next;
		err = r->dev->v->dereg_mr(r->mr);
		if (err)
			weft_fail(err, "cannot deregister %zu bytes at %p from '%s'",
				  m->region->len, m->region->addr,
				  r->dev->name);
		free(r);
	}
}

/* The first of by_addr that begins behind @addr. */
static size_t behind(uintptr_t addr)
{
	size_t low = 0, high = count, mid;

	while (low < high) {
		mid = (low + high) / 2;
		if ((uintptr_t)by_addr[mid]->region->addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int insert(struct ib_mem *m)
{
	const size_t slot = m->region->rkey.slot;
	struct ib_mem **grown;
	size_t at, want;

	if (count == capacity) {
		want = capacity ? capacity * 2 : 64;
		grown = realloc(by_addr, want * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		by_addr = grown;
		capacity = want;
	}
	if (slot >= slots) {
		want = (slot | 63) + 1;
		grown = realloc(by_slot, want * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		memset(grown + slots, 0, (want - slots) * sizeof(*grown));
		by_slot = grown;
		slots = want;
	}
	at = behind((uintptr_t)m->region->addr);
	memmove(by_addr + at + 1, by_addr + at,
		(count - at) * sizeof(*by_addr));
	by_addr[at] = m;
	count++;
	by_slot[slot] = m;
	longest = weft_max(longest, m->region->len);
	return 0;
}

static void remove_from_tables(struct ib_mem *m)
{
	size_t at = behind((uintptr_t)m->region->addr);

	while (by_addr[--at] != m)
		;
	memmove(by_addr + at, by_addr + at + 1,
		(count - at - 1) * sizeof(*by_addr));
	by_slot[m->region->rkey.slot] = NULL;
	if (--count)
		return;
	/* a plugin that is unloaded leaves nothing behind */
	free(by_addr);
	free(by_slot);
	by_addr = by_slot = NULL;
	capacity = slots = longest = 0;
}

int ib_mem_register(void *addr, size_t len, enum weft_mem_kind kind,
		    struct weft_mem **mem)
{
	struct ib_device *devs[MAX_DEVICES];
	struct ib_mem *m;
	unsigned int i, n;
	int err;

	if (kind != WEFT_MEM_HOST)
		return -EOPNOTSUPP;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	err = weft_region_add(addr, len, kind, &m->region);
	if (err) {
		free(m);
		return err;
	}
	/* held until it is in the tables, where their end looks for it */
	n = ib_device_hold(devs, MAX_DEVICES);
	for (i = 0; i < n && !err; i++)
		err = register_on(m, devs[i]);
	if (!err) {
		pthread_mutex_lock(&lock);
		err = insert(m);
		pthread_mutex_unlock(&lock);
	}
	if (err)
		deregister(m);
	else
		*mem = m->region;
	for (i = 0; i < n; i++)
		ib_device_put(devs[i]);
	if (err) {
		weft_region_remove(m->region);
		free(m);
	}
	return err;
}

void ib_mem_pack(struct weft_mem *mem, void *rkey)
{
	weft_rkey_pack(&mem->rkey, rkey);
}

void ib_mem_release(struct weft_mem *mem)
{
	struct ib_mem *m;

	pthread_mutex_lock(&lock);
	m = by_slot[mem->rkey.slot];
	remove_from_tables(m);
	/* under the lock: a device that is closed meanwhile waits here */
	deregister(m);
	pthread_mutex_unlock(&lock);
	weft_region_remove(mem);
	free(m);
}

static struct ib_mr *mr_of(struct ib_mem *m, const struct ib_device *dev)
{
	struct ib_mr *r;

	for (r = m->mrs; r; r = r->next)
		if (r->dev == dev)
			return r;
	return NULL;
}

bool ib_mem_lkey(struct ib_device *dev, uint64_t addr, size_t len,
		 uint32_t *lkey)
{
	const struct weft_mem *region;
	struct ib_mr *r = NULL;
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = behind(addr); i-- && !r;) {
		region = by_addr[i]->region;
		if (addr - (uintptr_t)region->addr >= longest)
			break;
		if (len <= region->len &&
		    addr - (uintptr_t)region->addr <= region->len - len)
			r = mr_of(by_addr[i], dev);
	}
	if (r)
		*lkey = r->mr->lkey;
	pthread_mutex_unlock(&lock);
	return r != NULL;
}

int ib_mem_resolve(struct ib_device *dev, const struct weft_rkey *key,
		   struct ib_key_answer *answer)
{
	const struct weft_rkey *have;
	struct ib_mem *m = NULL;
	struct ib_mr *r;
	int err = -EACCES;

	memset(answer, 0, sizeof(*answer));
	pthread_mutex_lock(&lock);
	if (key->slot < slots)
		m = by_slot[key->slot];
	have = m ? &m->region->rkey : NULL;
	if (!have || have->generation != key->generation ||
	    have->token != key->token)
		goto out;
	/* registered before this device was opened */
	r = mr_of(m, dev);
	if (!r && m->region->len) {
		err = register_on(m, dev);
		if (err)
			goto out;
		r = mr_of(m, dev);
	}
	answer->base = (uintptr_t)m->region->addr;
	answer->len = m->region->len;
	answer->rkey = r ? r->mr->rkey : 0;
	err = 0;
out:
	pthread_mutex_unlock(&lock);
	return err;
}

void ib_mem_device_gone(struct ib_device *dev)
{
	struct ib_mr **at, *r;
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++)
		for (at = &by_addr[i]->mrs; (r = *at);) {
			if (r->dev != dev) {
				at = &r->next;
				continue;
			}
			*at = r->next;
			dev->v->dereg_mr(r->mr);
			free(r);
		}
	pthread_mutex_unlock(&lock);
}

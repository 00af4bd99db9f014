/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory: a registration with each adapter that this process has
 * open.  A peer may use any of them, so a key has the rkey of each.
 *
 * There is no cache: only the owner knows when the pages behind an address
 * change, so it decides how long a registration lives.  A registration keeps
 * its adapters open.
 */
#include "devices/ib/ib_device.h"
#include "devices/ib/ib_mem.h"

#include <errno.h>
#include <stdlib.h>

#include "util/fork.h"
#include "util/log.h"

struct weft_mem {
	void *addr;
	size_t len;
	unsigned int forks; /* util/fork.h: whose it is */
	struct weft_mem *next_inherited;
	/* by the device's number */
	_Atomic(struct ibv_mr *) mr[IB_MAX_DEVICES];
	struct ib_device *dev[IB_MAX_DEVICES]; /* a reference, with mr */
};

static _Atomic(struct weft_mem *) inherited;

/* For registering with a device that was opened later. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int register_on(struct weft_mem *m, struct ib_device *dev)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr;
	int err;

	mr = dev->v->reg_mr(dev->pd, m->addr, m->len, access);
	if (!mr) {
		err = errno;
		return weft_fail(-err,
				 "cannot register %zu bytes at %p with '%s'%s",
				 m->len, m->addr, dev->name,
				 err == ENOMEM || err == EAGAIN
					 ? "; raise the limit with 'ulimit -l'"
					 : "");
	}
	ib_device_ref(dev);
	m->dev[dev->number] = dev;
	atomic_store(&m->mr[dev->number], mr);
	return 0;
}

int ib_mem_lkey(struct weft_mem *m, struct ib_device *dev, uint32_t *lkey)
{
	struct ibv_mr *mr = atomic_load(&m->mr[dev->number]);
	int err = 0;

	if (!mr) {
		pthread_mutex_lock(&lock);
		mr = atomic_load(&m->mr[dev->number]);
		if (!mr)
			err = register_on(m, dev);
		if (!err)
			mr = atomic_load(&m->mr[dev->number]);
		pthread_mutex_unlock(&lock);
	}
	if (mr)
		*lkey = mr->lkey;
	return err;
}

/* Registers with each open device; returns the first error. */
static int register_on_all(struct weft_mem *m)
{
	struct ib_device *devs[IB_MAX_DEVICES];
	unsigned int i, n = ib_device_hold(devs);
	int err = 0, ret;
	uint32_t lkey;

	for (i = 0; i < n; i++) {
		ret = ib_mem_lkey(m, devs[i], &lkey);
		err = err ? err : ret;
		ib_device_put(devs[i]);
	}
	return err;
}

int ib_mem_register(void *addr, size_t len, enum weft_mem_kind kind,
		    struct weft_mem **mem)
{
	struct weft_mem *m;
	int err;

	if (kind != WEFT_MEM_HOST)
		return -EOPNOTSUPP;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->addr = addr;
	m->len = len;
	m->forks = weft_forks();
	/* nothing can land in zero bytes */
	err = len ? register_on_all(m) : 0;
	if (err)
		ib_mem_release(m);
	else
		*mem = m;
	return err;
}

static unsigned int registered_with(struct weft_mem *m)
{
	unsigned int i, mask = 0;

	for (i = 0; i < IB_MAX_DEVICES; i++)
		mask |= atomic_load(&m->mr[i]) ? 1u << i : 0;
	return mask;
}

void ib_mem_pack(struct weft_mem *m, void *rkey)
{
	struct ib_key key = { .mask = 0 };
	struct ibv_mr *mr;
	unsigned int i;

	/* if one fails, that is logged and the key lacks it */
	if (m->len && ib_devices_open() & ~registered_with(m))
		register_on_all(m);
	for (i = 0; i < IB_MAX_DEVICES; i++) {
		mr = atomic_load(&m->mr[i]);
		if (!mr)
			continue;
		key.mask |= 1u << i;
		key.rkey[i] = mr->rkey;
	}
	ib_key_pack(&key, rkey);
}

/* Once deregistered, adapters let nothing land there. */
void ib_mem_release(struct weft_mem *m)
{
	struct ib_device *dev;
	struct ibv_mr *mr;
	unsigned int i;
	int err;

	if (m->forks != weft_forks()) {
		/* the parent's adapter has it: nothing is freed here */
		m->next_inherited = atomic_exchange(&inherited, m);
		return;
	}
	for (i = 0; i < IB_MAX_DEVICES; i++) {
		mr = atomic_load(&m->mr[i]);
		if (!mr)
			continue;
		dev = m->dev[i];
		err = dev->v->dereg_mr(mr);
		if (err)
			weft_fail(-err,
				  "cannot deregister %zu bytes at %p from '%s'",
				  m->len, m->addr, dev->name);
		ib_device_put(dev);
	}
	free(m);
}

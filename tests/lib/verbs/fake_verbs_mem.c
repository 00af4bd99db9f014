/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake's memory registrations. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lib/verbs/fake_verbs_int.h"
#include "util/drivers/cuda.h"

static struct ibv_mr *make_mr(struct ibv_pd *pd, uint64_t addr, uint64_t len,
			      int access)
{
	struct ibv_mr *mr;
	struct fake_smr *s;
	unsigned int i;

	mr = calloc(1, sizeof(*mr));
	fake_lock();
	for (i = 1; fake_shm->mr[i].used; i++)
		if (i + 1 == FAKE_MRS)
			abort();
	s = &fake_shm->mr[i];
	s->used = true;
	s->pid = getpid();
	s->pd = pd->handle;
	/* another low byte each time, as adapters do */
	s->key = i << 8 | ((s->key + 1) & 0xff);
	s->addr = addr;
	s->len = len;
	s->access = access;
	mr->lkey = mr->rkey = s->key;
	fake_live.mrs++;
	fake_unlock();
	mr->pd = pd;
	mr->context = pd->context;
	mr->addr = (void *)(uintptr_t)addr;
	mr->length = len;
	return mr;
}

static bool good_access(size_t len, int access)
{
	return len && (!(access & IBV_ACCESS_REMOTE_WRITE) ||
		       access & IBV_ACCESS_LOCAL_WRITE);
}

struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			   int access)
{
	struct weft_cuda_ptr info;

	if (fake_fails("reg_mr"))
		return NULL;
	if (!good_access(len, access)) {
		errno = EINVAL;
		return NULL;
	}
	/* the kernel has no pages for an address of a GPU's */
	if (weft_cuda_program_gpus() > 0 && !weft_cuda_init() &&
	    !weft_cuda_query(addr, &info) && info.where == WEFT_CUDA_DEVICE) {
		errno = EFAULT;
		return NULL;
	}
	return make_mr(pd, (uintptr_t)addr, len, access);
}

int fake_dereg_mr(struct ibv_mr *mr)
{
	const int err = fake_fails("dereg_mr") ? EIO : 0;

	fake_lock();
	fake_mr_find(mr->lkey)->used = false;
	fake_live.mrs--;
	fake_unlock();
	free(mr);
	return err;
}

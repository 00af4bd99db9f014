/* SPDX-License-Identifier: BSD-3-Clause */
/* weft's CUDA contexts: one per GPU, reference counted. */
#include <errno.h>
#include <pthread.h>

#include "util/cuda.h"
#include "util/log.h"

#define DEVICES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	void *ctx;
	unsigned int users;
} own[DEVICES];

/* No kernel runs in it.  The default limits take twice the memory. */
static void shrink_context(const struct weft_cuda *cu)
{
	cu->ctx_limit(WEFT_CU_LIMIT_STACK_SIZE, 0);
	cu->ctx_limit(WEFT_CU_LIMIT_PRINTF_FIFO_SIZE, 0);
	cu->ctx_limit(WEFT_CU_LIMIT_MALLOC_HEAP_SIZE, 0);
}

/* Called with the lock held. */
static int create_context(int ordinal)
{
	struct weft_cuda_scope s;
	void *popped;
	int dev, r, err;

	err = weft_cuda_enter(&s, NULL);
	if (err)
		return weft_fail(err, "the CUDA driver is gone");
	r = s.cu->device_get(&dev, ordinal);
	if (!r)
		r = s.cu->ctx_create(&own[ordinal].ctx, 0, dev);
	if (!r) {
		shrink_context(s.cu);
		s.cu->ctx_pop(&popped); /* ctx_create made it current */
	}
	weft_cuda_leave(&s);
	if (!r)
		return 0;
	own[ordinal].ctx = NULL;
	return weft_fail(
		-weft_cuda_errno(r),
		"cannot create a CUDA context on GPU %d (%s): it takes 260 MiB of GPU "
		"memory; WEFT_NCCL_NVLINK=off for all ranks does "
		"without",
		ordinal, weft_cuda_error_name(r));
}

int weft_cuda_own_get(int ordinal, void **ctx)
{
	int err = 0;

	if (ordinal < 0 || ordinal >= DEVICES)
		return weft_fail(ENODEV, "there is no GPU %d", ordinal);
	pthread_mutex_lock(&lock);
	if (!own[ordinal].ctx)
		err = create_context(ordinal);
	if (!err) {
		own[ordinal].users++;
		*ctx = own[ordinal].ctx;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

void weft_cuda_own_put(int ordinal)
{
	struct weft_cuda_scope s;

	pthread_mutex_lock(&lock);
	if (!--own[ordinal].users) {
		if (!weft_cuda_enter(&s, NULL)) {
			s.cu->ctx_destroy(own[ordinal].ctx);
			weft_cuda_leave(&s);
		}
		own[ordinal].ctx = NULL;
	}
	pthread_mutex_unlock(&lock);
}

bool weft_cuda_is_vmm(const void *p)
{
	unsigned long long handle;
	struct weft_cuda_scope s;
	bool is = false;

	if (weft_cuda_enter(&s, NULL))
		return false;
	if (!s.cu->mem_retain(&handle, (void *)p)) {
		s.cu->mem_release(handle);
		is = true;
	}
	weft_cuda_leave(&s);
	return is;
}

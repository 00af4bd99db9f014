/* SPDX-License-Identifier: BSD-3-Clause */
/* Export GPU memory as a dma-buf, for other devices to access. */
#include <errno.h>
#include <unistd.h>

#include "util/cuda.h"

static bool has_dmabuf(const struct weft_cuda *cu, int ordinal)
{
	int dev, yes = 0;

	/* drivers before 11.7 lack the attribute */
	return cu->range_handle && !cu->device_get(&dev, ordinal) &&
	       !cu->device_attr(&yes, WEFT_CU_DEVICE_DMA_BUF, dev) && yes;
}

int weft_cuda_dmabuf(const void *p, size_t len, uint64_t *offset)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t at = (uintptr_t)p, start = at & -page;
	const size_t size = (at - start + len + page - 1) & -page;
	struct weft_cuda_scope s;
	struct weft_cuda_ptr info;
	int fd = -1, err, r = WEFT_CU_NOT_SUPPORTED;

	err = weft_cuda_init();
	if (!err)
		err = weft_cuda_query(p, &info);
	if (!err && (info.where != WEFT_CUDA_DEVICE || info.managed))
		err = -EOPNOTSUPP;
	if (!err)
		err = weft_cuda_enter(&s, info.ctx);
	if (err)
		return err;
	if (has_dmabuf(s.cu, info.ordinal))
		r = s.cu->range_handle(&fd, start, size,
				       WEFT_CU_RANGE_DMA_BUF_FD, 0);
	weft_cuda_leave(&s);
	if (r)
		return weft_cuda_errno(r);
	*offset = at - start;
	return fd;
}

bool weft_cuda_has_dmabuf(void)
{
	struct weft_cuda_scope s;
	int i, n = 0;
	bool yes;

	if (weft_cuda_enter(&s, NULL))
		return false;
	if (s.cu->device_count(&n))
		n = 0;
	yes = n > 0;
	for (i = 0; i < n; i++)
		yes &= has_dmabuf(s.cu, i);
	weft_cuda_leave(&s);
	return yes;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA driver by itself, with nothing else in the process: each GPU's
 * context, memory of each allocator, a kernel that fills it and one that looks.
 */
#include <stdio.h>
#include "tests/gpu/nvlink/gpumem.h"
#include "util/drivers/cuda.h"

int main(void)
{
	const size_t size = 3ul << 20;
	char name[120];
	int n = 0;
	void *p;

	if (weft_cuda_init() || weft_cuda()->device_count(&n))
		return 1;
	for (int i = 0; i < n; i++) {
		gpumem_open(i);
		gpumem_name(name, sizeof(name));
		for (int kind = GPUMEM_MALLOC; kind <= GPUMEM_POOL; kind++) {
			p = gpumem_alloc((enum gpumem_kind)kind, size);
			gpumem_fill(p, 0, size, 7);
			if (gpumem_check(p, 0, size, 7))
				return 2;
			gpumem_free((enum gpumem_kind)kind, p, size);
		}
		printf("GPU %d: %s\n", i, name);
	}
	return n ? 0 : 3;
}

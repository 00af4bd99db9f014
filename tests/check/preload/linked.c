/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that is linked with the CUDA driver, here the fake one. */
#include <stdint.h>
#include <stdio.h>

int cuInit(unsigned int flags);
int cuDevicePrimaryCtxRetain(void **ctx, int dev);
int cuCtxPushCurrent_v2(void *ctx);
int cuMemAlloc_v2(uint64_t *ptr, size_t size);
int cuMemFree_v2(uint64_t ptr);
int cuMemRetainAllocationHandle(unsigned long long *handle, void *ptr);
int cuMemRelease(unsigned long long handle);

int main(void)
{
	unsigned long long handle;
	uint64_t p;
	void *ctx;

	if (cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) ||
	    cuCtxPushCurrent_v2(ctx) || cuMemAlloc_v2(&p, 8ul << 20))
		return 1;
	if (cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)p))
		printf("of the driver's, ");
	else
		printf("exportable, ");
	cuMemRelease(handle);
	printf("freed %d\n", cuMemFree_v2(p));
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Another library that interposes functions and looks for those behind it. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int cuMemAlloc_v2(uint64_t *ptr, size_t size);
int cuMemAlloc_v2(uint64_t *ptr, size_t size)
{
	int (*driver)(uint64_t * ptr, size_t size);

	*(void **)&driver =
		dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
	if (driver != cuMemAlloc_v2)
		return driver(ptr, size);
	puts("dlsym() found its caller");
	return -1;
}

int cuInit(unsigned int flags);
int cuInit(unsigned int flags)
{
	const char *name = NULL;
	int (*next)(unsigned int flags);
	Dl_info info;

	*(void **)&next = dlsym(RTLD_NEXT, "cuInit");
	if (next && dladdr((void *)next, &info))
		name = strrchr(info.dli_fname, '/');
	printf("next: %s\n", name ? name + 1 : "none");
	return next ? next(flags) : -1;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Has a CUDA runtime, argv[1], look up the driver's functions. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *runtime = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	int (*alloc)(void **p, size_t size);
	void *p;

	if (runtime)
		*(void **)&alloc = dlsym(runtime, "cudaMalloc");
	if (!runtime || !alloc) {
		puts(dlerror());
		return 1;
	}
	/* without NVIDIA's driver it gets no further than that */
	alloc(&p, 8ul << 20);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded before libweft_cuda.so: prints which library a CUDA runtime gets
 * the driver's functions of.  The rest of a driver is made up, so that the
 * runtime looks up all it wants.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __x86_64__
#define DLSYM_VERSION "GLIBC_2.2.5"
#else
#define DLSYM_VERSION "GLIBC_2.17"
#endif

typedef int (*get_fn)(const char *name, void **fn, int version, uint64_t flags,
		      int *found);
static get_fn next_get;

static int made_up(void)
{
	return 801; /* CUDA_ERROR_NOT_SUPPORTED */
}

static void print(const char *name, void *fn)
{
	const char *file;
	Dl_info info;

	if (!dladdr(fn, &info))
		return;
	file = strrchr(info.dli_fname, '/');
	printf("%s %s\n", name, file ? file + 1 : info.dli_fname);
}

static int get(const char *name, void **fn, int version, uint64_t flags,
	       int *found)
{
	if (next_get(name, fn, version, flags, NULL))
		*fn = (void *)made_up;
	else if (!strncmp(name, "cuMem", 5))
		print(name, *fn);
	if (!strcmp(name, "cuGetProcAddress") && version >= 12000)
		*fn = (void *)get;
	if (found)
		*found = 0;
	return 0;
}

void *dlsym(void *handle, const char *name)
{
	static void *(*next)(void *handle, const char *name);

	/* libc's, to find libweft_cuda.so's by it: that one has no version */
	if (!next) {
		*(void **)&next = dlvsym(RTLD_NEXT, "dlsym", DLSYM_VERSION);
		*(void **)&next = next(RTLD_NEXT, "dlsym");
	}
	if (strcmp(name, "cuGetProcAddress_v2"))
		return next(handle, name);
	*(void **)&next_get = next(handle, name);
	print(name, (void *)next_get);
	return (void *)get;
}

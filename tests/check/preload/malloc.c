/* SPDX-License-Identifier: BSD-3-Clause */
/* An allocator whose first malloc() looks the next one up. */
#include <dlfcn.h>
#include <stddef.h>
#include <unistd.h>

void *malloc(size_t size)
{
	static const char said[] = "dlsym() calls malloc()\n";
	static void *(*next)(size_t size);
	static int depth;

	if (!next && depth++) {
		if (write(STDERR_FILENO, said, sizeof(said) - 1) < 0)
			_exit(2);
		_exit(1);
	}
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "malloc");
	return next(size);
}

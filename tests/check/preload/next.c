/* SPDX-License-Identifier: BSD-3-Clause */
/* Another library that interposes a function and looks for the one behind it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

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

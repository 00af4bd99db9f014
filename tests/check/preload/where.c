/* SPDX-License-Identifier: BSD-3-Clause */
/* Which library a program gets a function of: where LIBRARY FUNCTION... */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	Dl_info info;
	int i;

	for (i = 2; lib && i < argc; i++)
		if (dladdr(dlsym(lib, argv[i]), &info))
			printf("%s %s\n", argv[i],
			       strrchr(info.dli_fname, '/') + 1);
	return !lib;
}

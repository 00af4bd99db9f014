/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * program COPY...: opens libucp_COPY.so of each copy as Python does, with
 * RTLD_LOCAL, then lets each list its components.  "-" is a call from here,
 * where no UCX is visible.  "next/" changes to that folder before.  "+COPY"
 * lets that copy progress a worker instead, again and again.  "^COPY" has a
 * binding of that copy do it, with a call that is a jump.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

signed char uct_query_components(void **, unsigned *) __attribute__((weak));
signed char ucp_config_read(const char *, const char *, void **)
	__attribute__((weak));

static void call_from_here(void)
{
	void *out = "nothing";
	unsigned count = 0;

	if (!uct_query_components || !ucp_config_read) {
		printf("no such function\n");
		return;
	}
	printf("%d ", uct_query_components(&out, &count));
	printf("%d ", ucp_config_read(NULL, NULL, &out));
	printf("%s\n", (char *)out);
}

static int by_binding(const char *copy)
{
	unsigned int (*wrap)(void *);
	char path[4096], name[] = "worker";
	void (*show)(void);
	void *lib;

	snprintf(path, sizeof(path), "%s/libwrap.so", copy);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	*(void **)&wrap = dlsym(lib, "wrap");
	*(void **)&show = dlsym(lib, "ucp_show");
	show();
	printf("progress %u\n", wrap(name));
	return 0;
}

int main(int argc, char **argv)
{
	void (*show[8])(void) = { NULL };
	char path[4096];
	void *ucp;
	int i, work;

	for (i = 1; i < argc && i < 8; i++) {
		if (!strcmp(argv[i], "-"))
			continue;
		if (argv[i][0] == '^') {
			if (by_binding(argv[i] + 1))
				return 2;
			continue;
		}
		if (argv[i][strlen(argv[i]) - 1] == '/') {
			if (chdir(argv[i]))
				return 3;
			continue;
		}
		work = argv[i][0] == '+';
		snprintf(path, sizeof(path), "%s/libucp.so", argv[i] + work);
		ucp = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!ucp) {
			fprintf(stderr, "%s\n", dlerror());
			return 2;
		}
		*(void **)&show[i] = dlsym(ucp, work ? "ucp_work" : "ucp_show");
	}
	for (i = 1; i < argc && i < 8; i++) {
		if (show[i])
			show[i]();
		else if (!strcmp(argv[i], "-"))
			call_from_here();
	}
	return dlerror() ? 4 : 0;
}

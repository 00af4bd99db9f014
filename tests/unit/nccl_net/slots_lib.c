/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls two functions of libc, one of them also by a pointer that it keeps. */
#include <unistd.h>

#pragma GCC visibility push(default)
int lib_pid(void);
int lib_parent(void);
int lib_parent_by_pointer(void);

extern pid_t (*const lib_kept)(void);
pid_t (*const lib_kept)(void) = getppid;

int lib_pid(void)
{
	return getpid();
}

int lib_parent(void)
{
	return getppid();
}

int lib_parent_by_pointer(void)
{
	pid_t (*const *kept)(void) = &lib_kept;

	/* the compiler knows what a constant holds, and would call that */
	__asm__("" : "+r"(kept));
	return (*kept)();
}
#pragma GCC visibility pop

/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls two functions of libc, one of them also by a pointer that it keeps. */
#include <unistd.h>

#pragma GCC visibility push(default)
int lib_pid(void);
int lib_parent(void);
int lib_parent_by_pointer(void);

/* for all the compiler knows, somebody else may be in its place */
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
	return lib_kept();
}
#pragma GCC visibility pop

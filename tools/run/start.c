/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The entry code of a program linked with glibc 2.34 or later calls a new
 * version of __libc_start_main() and leaves the constructors to it, so the
 * program does not start on an older system.  The linker leads that call here
 * (--wrap, m4/weft_old_glibc.m4), and on to the version of the architecture's
 * first glibc, which runs the constructors that it is given.
 */
#if defined(__x86_64__) || defined(__aarch64__)

typedef int (*main_fn)(int argc, char **argv, char **env);

int first_start_main(main_fn main, int argc, char **argv, main_fn init,
		     void (*fini)(void), void (*rtld_fini)(void), void *stack);
WEFT_SYMVER_OF(first_start_main, __libc_start_main, WEFT_GLIBC_BASE);

extern const main_fn __init_array_start[], __init_array_end[];

static int run_constructors(int argc, char **argv, char **env)
{
	for (const main_fn *fn = __init_array_start; fn < __init_array_end;
	     fn++)
		(*fn)(argc, argv, env);
	return 0;
}

int __wrap___libc_start_main(main_fn main, int argc, char **argv, main_fn init,
			     void (*fini)(void), void (*rtld_fini)(void),
			     void *stack);
int __wrap___libc_start_main(main_fn main, int argc, char **argv, main_fn init,
			     void (*fini)(void), void (*rtld_fini)(void),
			     void *stack)
{
	return first_start_main(main, argc, argv,
				init ? init : run_constructors, fini, rtld_fini,
				stack);
}

#endif

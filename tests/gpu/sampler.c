/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a process spends its CPU time, for machines without a profiler: loaded
 * by LD_PRELOAD, it notes the instruction that runs each millisecond of CPU
 * time and writes "FILE OFFSET COUNT" lines to $WEFT_TEST_SAMPLES.XXXXXX at the
 * end.  arms.py --profile turns them into functions.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define SAMPLES	(1u << 18)

static void *seen[SAMPLES];
static unsigned int nseen;
static pid_t owner;

static void on_tick(int sig, siginfo_t *info, void *ctx)
{
	unsigned int i = __atomic_fetch_add(&nseen, 1, __ATOMIC_RELAXED);

	(void)sig;
	(void)info;
	if (i < SAMPLES)
		seen[i] = (void *)((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
}

static int by_address(const void *a, const void *b)
{
	char *x = *(char *const *)a, *y = *(char *const *)b;

	return x < y ? -1 : x > y;
}

__attribute__((constructor)) static void start(void)
{
	struct sigaction sa = { .sa_sigaction = on_tick,
				.sa_flags = SA_SIGINFO | SA_RESTART };
	struct itimerval each = { { 0, 1000 }, { 0, 1000 } };

	if (!getenv("WEFT_TEST_SAMPLES"))
		return;
	owner = getpid();
	sigaction(SIGPROF, &sa, NULL);
	setitimer(ITIMER_PROF, &each, NULL);
}

__attribute__((destructor)) static void end(void)
{
	struct itimerval none = { { 0, 0 }, { 0, 0 } };
	const char *path = getenv("WEFT_TEST_SAMPLES");
	unsigned int i, n, same;
	char name[512];
	Dl_info d;
	FILE *f;

	if (!path || owner != getpid())
		return;
	setitimer(ITIMER_PROF, &none, NULL);
	/* a file each: ranks of pods may share a process id, too */
	snprintf(name, sizeof(name), "%s.XXXXXX", path);
	i = mkstemp(name);
	f = (int)i < 0 ? NULL : fdopen(i, "w");
	if (!f)
		return;
	n = nseen < SAMPLES ? nseen : SAMPLES;
	qsort(seen, n, sizeof(*seen), by_address);
	for (i = 0; i < n; i += same) {
		for (same = 1; i + same < n && seen[i + same] == seen[i]; same++)
			;
		if (dladdr(seen[i], &d) && d.dli_fname)
			fprintf(f, "%s %lx %u\n", d.dli_fname,
				(unsigned long)((char *)seen[i] -
						(char *)d.dli_fbase), same);
		else
			fprintf(f, "? %lx %u\n", (unsigned long)seen[i], same);
	}
	fclose(f);
}

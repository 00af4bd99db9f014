/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the threads of NCCL and of weft spend their CPU time, for machines
 * without a profiler: loaded by LD_PRELOAD, it notes the instruction that runs
 * each millisecond of such a thread's time, and which function of weft it was
 * called from: the first word of the stack that points into weft's plugin.  It
 * writes "COUNT THREAD|FILE OFFSET|FILE OFFSET" lines to
 * $WEFT_TEST_SAMPLES.XXXXXX at the end; arms.py --profile makes a table of
 * them.
 *
 * A thread is known by its name, when it gets one: NCCL_SET_THREAD_NAME=1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define SAMPLES (1u << 17)
#define WORDS	512u /* of the stack, looked at */

struct sample {
	uintptr_t at, from;
	char thread[16];
};

static struct sample seen[SAMPLES];
static unsigned int nseen;
static pid_t owner; /* 0: not asked for */
/* the plugin's code, found on the way and not unloaded before the end */
static uintptr_t weft_begin, weft_end, weft_base;
static char weft_path[256];

static int find_weft(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Phdr) * p;
	int i;

	if (!strstr(info->dlpi_name, "libnccl-net-weft"))
		return 0;
	for (i = 0; i < info->dlpi_phnum; i++) {
		p = &info->dlpi_phdr[i];
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		snprintf(weft_path, sizeof(weft_path), "%s", info->dlpi_name);
		weft_base = info->dlpi_addr;
		weft_end = info->dlpi_addr + p->p_vaddr + p->p_memsz;
		__atomic_store_n(&weft_begin, info->dlpi_addr + p->p_vaddr,
				 __ATOMIC_RELEASE);
	}
	return 1;
}

static uintptr_t caller(uintptr_t at, const uintptr_t *stack)
{
	uintptr_t begin = __atomic_load_n(&weft_begin, __ATOMIC_ACQUIRE);
	unsigned int i;

	if (!begin || (at >= begin && at < weft_end))
		return 0;
	/* a page boundary is where a stack may end */
	for (i = 0; i < WORDS; i++) {
		if (i && !((uintptr_t)(stack + i) & 4095) && i > 64)
			return 0;
		if (stack[i] >= begin && stack[i] < weft_end)
			return stack[i];
	}
	return 0;
}

static void on_tick(int sig, siginfo_t *info, void *ctx)
{
	greg_t *regs = ((ucontext_t *)ctx)->uc_mcontext.gregs;
	struct sample s = { .at = (uintptr_t)regs[REG_RIP] };
	unsigned int i;

	syscall(SYS_prctl, PR_GET_NAME, s.thread, 0, 0, 0);
	s.from = caller(s.at, (uintptr_t *)regs[REG_RSP]);
	i = __atomic_fetch_add(&nseen, 1, __ATOMIC_RELAXED);
	if (i < SAMPLES)
		seen[i] = s;
}

/* From now on @tid is interrupted every millisecond of its CPU time. */
static void sample_thread(clockid_t clock, pid_t tid)
{
	struct itimerspec each = { { 0, 1000000 }, { 0, 1000000 } };
	struct sigevent ev = { .sigev_notify = SIGEV_THREAD_ID,
			       .sigev_signo = SIGPROF };
	timer_t timer;

	if (owner != getpid())
		return;
	if (!weft_begin)
		dl_iterate_phdr(find_weft, NULL);
	ev._sigev_un._tid = tid;
	if (!timer_create(clock, &ev, &timer))
		timer_settime(timer, 0, &each, NULL);
}

static int interesting(const char *name)
{
	return !strncmp(name, "NCCL", 4) || !strncmp(name, "weft", 4);
}

int pthread_setname_np(pthread_t thread, const char *name)
{
	int (*next)(pthread_t, const char *) =
		(int (*)(pthread_t, const char *))dlsym(RTLD_NEXT,
							"pthread_setname_np");
	clockid_t clock;

	/* Linux: the clock's number holds the thread's */
	if (interesting(name) && !pthread_getcpuclockid(thread, &clock))
		sample_thread(clock, (pid_t) ~(clock >> 3));
	return next(thread, name);
}

int prctl(int option, ...)
{
	unsigned long arg[4];
	va_list ap;
	int i;

	va_start(ap, option);
	for (i = 0; i < 4; i++)
		arg[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (option == PR_SET_NAME && interesting((const char *)arg[0]))
		sample_thread(CLOCK_THREAD_CPUTIME_ID,
			      (pid_t)syscall(SYS_gettid));
	return (int)syscall(SYS_prctl, option, arg[0], arg[1], arg[2], arg[3]);
}

static int by_all(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct sample));
}

static void print_place(FILE *f, uintptr_t at)
{
	Dl_info d;

	/* it may be unloaded by now */
	if (weft_begin && at >= weft_begin && at < weft_end)
		fprintf(f, "|%s %lx", weft_path,
			(unsigned long)(at - weft_base));
	else if (at && dladdr((void *)at, &d) && d.dli_fname)
		fprintf(f, "|%s %lx", d.dli_fname,
			(unsigned long)(at - (uintptr_t)d.dli_fbase));
	else
		fprintf(f, "|%s 0", at ? "?" : "-");
}

__attribute__((constructor)) static void start(void)
{
	struct sigaction sa = { .sa_sigaction = on_tick,
				.sa_flags = SA_SIGINFO | SA_RESTART };

	if (!getenv("WEFT_TEST_SAMPLES"))
		return;
	owner = getpid();
	sigaction(SIGPROF, &sa, NULL);
}

__attribute__((destructor)) static void end(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	const char *path = getenv("WEFT_TEST_SAMPLES");
	unsigned int i, n, same;
	char name[512];
	FILE *f;

	if (!path || owner != getpid())
		return;
	sigaction(SIGPROF, &ignore, NULL);
	/* a file each: ranks of pods may share a process id, too */
	snprintf(name, sizeof(name), "%s.XXXXXX", path);
	i = mkstemp(name);
	f = (int)i < 0 ? NULL : fdopen(i, "w");
	if (!f)
		return;
	n = nseen < SAMPLES ? nseen : SAMPLES;
	qsort(seen, n, sizeof(*seen), by_all);
	for (i = 0; i < n; i += same) {
		for (same = 1;
		     i + same < n && !by_all(&seen[i + same], &seen[i]); same++)
			;
		fprintf(f, "%u %s", same, seen[i].thread);
		print_place(f, seen[i].at);
		print_place(f, seen[i].from);
		fprintf(f, "\n");
	}
	fclose(f);
}

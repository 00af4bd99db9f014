/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/gpu/nvlink/pods.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RESULTS 256

static struct common {
	_Atomic unsigned int arrived[2], raised[2]; /* by rank */
	char blob[2][512];
	char step[2][120];
	_Atomic unsigned int nresults;
	struct {
		char what[96], unit[12];
		double value, target;
	} result[RESULTS];
} * common;
static int my_rank;
static unsigned int barriers;

double pods_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

int pods_rank(void)
{
	return my_rank;
}

void pods_fail_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "rank %d, in '%s', %s:%d: ", my_rank,
		common->step[my_rank], file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

void pods_step(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(common->step[my_rank], sizeof(common->step[0]), fmt, ap);
	va_end(ap);
}

void pods_barrier(void (*progress)(void))
{
	atomic_store(&common->arrived[my_rank], ++barriers);
	while (atomic_load(&common->arrived[!my_rank]) < barriers) {
		if (progress)
			progress();
		else
			sched_yield();
	}
}

void pods_raise(void)
{
	atomic_fetch_add(&common->raised[my_rank], 1);
}

unsigned int pods_raised(void)
{
	return atomic_load(&common->raised[!my_rank]);
}

void pods_exchange(const void *mine, void *theirs, size_t len,
		   void (*progress)(void))
{
	if (len > sizeof(common->blob[0]))
		pods_fail("%zu bytes are too many to exchange", len);
	memcpy(common->blob[my_rank], mine, len);
	pods_barrier(progress);
	memcpy(theirs, common->blob[!my_rank], len);
	pods_barrier(progress);
}

void pods_result(double target, const char *unit, double value, const char *fmt,
		 ...)
{
	unsigned int i = atomic_fetch_add(&common->nresults, 1);
	va_list ap;

	if (i >= RESULTS)
		return;
	va_start(ap, fmt);
	vsnprintf(common->result[i].what, sizeof(common->result[i].what), fmt,
		  ap);
	va_end(ap);
	snprintf(common->result[i].unit, sizeof(common->result[i].unit), "%s",
		 unit);
	common->result[i].value = value;
	common->result[i].target = target;
	printf("%-52s %10.2f %s\n", common->result[i].what, value, unit);
	fflush(stdout);
}

/* Targets: GB/s at least, times at most; 0: none. */
static bool met(unsigned int i)
{
	double t = common->result[i].target, v = common->result[i].value;

	if (!t)
		return true;
	return strcmp(common->result[i].unit, "GB/s") ? v <= t : v >= t;
}

int pods_report(const char *title, const char *json)
{
	unsigned int i, n = common ? common->nresults : 0, missed = 0;
	FILE *f = json ? fopen(json, "a") : NULL;

	printf("\n%s\n", title);
	for (i = 0; i < n && i < RESULTS; i++) {
		printf("  %-52s %10.2f %-5s", common->result[i].what,
		       common->result[i].value, common->result[i].unit);
		if (common->result[i].target)
			printf(" target %g: %s", common->result[i].target,
			       met(i) ? "met" : "MISSED");
		printf("\n");
		missed += !met(i);
		if (f)
			fprintf(f,
				"{\"run\":\"%s\",\"what\":\"%s\",\"value\":"
				"%g,\"unit\":\"%s\",\"target\":%g,\"met\":%s}\n",
				title, common->result[i].what,
				common->result[i].value, common->result[i].unit,
				common->result[i].target,
				met(i) ? "true" : "false");
	}
	if (f)
		fclose(f);
	return missed != 0;
}

static void enter_pod(const struct pods_options *opt, int rank)
{
	int flags = CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWPID;
	char name[16];
	int status;
	pid_t pid;

	if (!opt->share_net)
		flags |= CLONE_NEWNET;
	if (unshare(flags))
		pods_fail("cannot unshare namespaces (root is needed): %s",
			  strerror(errno));
	snprintf(name, sizeof(name), "pod%d", rank);
	if (sethostname(name, strlen(name)))
		pods_fail("sethostname: %s", strerror(errno));
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		pods_fail("cannot make mounts private: %s", strerror(errno));
	/* the new PID namespace begins with the next child */
	pid = fork();
	if (pid < 0)
		pods_fail("fork: %s", strerror(errno));
	if (pid) {
		while (waitpid(pid, &status, 0) < 0)
			;
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mount("proc", "/proc", "proc", 0, NULL))
		pods_fail("cannot mount /proc: %s", strerror(errno));
}

static volatile sig_atomic_t expired;

static void on_alarm(int sig)
{
	expired = 1;
}

int pods_run(const struct pods_options *opt, int (*fn)(int rank))
{
	struct sigaction sa = { .sa_handler = on_alarm };
	int rank, status, result = 0;
	pid_t pid[2], p;

	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (common == MAP_FAILED)
		return -1;
	fflush(NULL);
	for (rank = 0; rank < 2; rank++) {
		pid[rank] = fork();
		if (pid[rank])
			continue;
		my_rank = rank;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		enter_pod(opt, rank);
		status = fn(rank);
		fflush(NULL);
		_exit(status);
	}
	expired = 0;
	sigaction(SIGALRM, &sa, NULL);
	alarm(opt->limit_s);
	for (rank = 0; rank < 2;) {
		p = waitpid(-1, &status, 0);
		if (p < 0 && errno == EINTR && expired) {
			fprintf(stderr,
				"not done within %u s: rank 0 in '%s', "
				"rank 1 in '%s'\n",
				opt->limit_s, common->step[0], common->step[1]);
			kill(pid[0], SIGKILL);
			kill(pid[1], SIGKILL);
			result = -1;
		}
		if (p < 0 && errno == ECHILD)
			break;
		if (p < 0)
			continue;
		rank++;
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "rank %d: status %#x\n", p == pid[1],
				status);
			kill(pid[p == pid[0]], SIGKILL);
			result = -1;
		}
	}
	alarm(0);
	return result;
}

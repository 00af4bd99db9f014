/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/run/pids.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/rundir.h"
#include "tools/tool.h"
#include "util/file.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/util.h"

/*
 * A program's own processes and threads count on from its id, so ranges are
 * wider than most programs need.  With the smallest pid_max of a 64-bit kernel,
 * 32768, there are 31 of them.
 */
#define RANGE	   1024
#define RANGES_MAX 64

/* linux/proc_ns.h: PROC_PID_INIT_INO */
#define HOST_NAMESPACE "pid:[4026531836]"

static bool is_needed(void)
{
	char ns[64];
	ssize_t n = readlink("/proc/self/ns/pid", ns, sizeof(ns) - 1);

	if (n <= 0 || access("/dev/nvidiactl", F_OK))
		return false;
	ns[n] = '\0';
	return strcmp(ns, HOST_NAMESPACE) != 0;
}

/* How many ranges there are; the first, of small ids, is never taken. */
static unsigned int count_ranges(void)
{
	char line[32];
	uint64_t max = 32768;

	weft_file_read("/proc/sys/kernel/pid_max", line, sizeof(line));
	weft_parse_u64(line, 1, UINT32_MAX, &max);
	return (unsigned int)weft_min(max / RANGE, RANGES_MAX);
}

/* A process that ends at once; its id, or -errno. */
static pid_t spend_pid(void)
{
	pid_t pid = vfork();

	if (!pid)
		_exit(0);
	if (pid < 0)
		return -errno;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return pid;
}

/*
 * The next process gets @pid, or one soon after.  ns_last_pid (proc(5)) needs
 * CAP_SYS_ADMIN and a writable /proc/sys, which few containers have; without
 * it ids are spent until it is reached: 20 to 60 us each.
 */
static int go_to(pid_t pid)
{
	FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "we");
	bool set = f && fprintf(f, "%d", pid - 1) > 0;
	pid_t spent;

	if (f)
		set = !fclose(f) && set;
	if (set)
		return 0;
	do
		spent = spend_pid();
	while (spent >= 0 && spent < pid - 1);
	return spent < 0 ? spent : 0;
}

/*
 * The first free range of those that lie above the ids in use.  Its lock is
 * held until this process ends.
 */
static int lock_range(int dir, unsigned int first, unsigned int end)
{
	char name[16];
	unsigned int i;
	int fd, err;

	for (i = first; i < end; i++) {
		snprintf(name, sizeof(name), "p-%u", i);
		fd = openat(dir, name,
			    O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0)
			return -errno;
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return (int)i;
		err = errno;
		close(fd);
		if (err != EWOULDBLOCK)
			return -err;
	}
	return -EUSERS;
}

int pids_take_range(void)
{
	struct weft_rundir dir;
	pid_t now;
	int range, err;

	if (!is_needed())
		return -ENOENT;
	err = weft_rundir_open(&dir);
	if (err)
		goto fail;
	now = spend_pid();
	range = now < 0 ? now
			: lock_range(dir.fd, (unsigned int)now / RANGE + 1,
				     count_ranges());
	weft_rundir_close(&dir);
	err = range < 0 ? range : go_to(range * RANGE);
	if (!err)
		return 0;
fail:
	weft_info(
		"this container's process ids may be those of another one, with which CUDA IPC then fails (%s)",
		strerror(-err));
	return err;
}

/*
 * Signals that are not passed on: those that a fault in this process raises,
 * and those that stop it.
 */
static void block_passed(sigset_t *passed, sigset_t *before)
{
	static const int ours[] = { SIGABRT, SIGBUS,  SIGCONT, SIGFPE,
				    SIGILL,  SIGSEGV, SIGSYS,  SIGTRAP,
				    SIGTSTP, SIGTTIN, SIGTTOU };
	size_t i;

	sigfillset(passed);
	for (i = 0; i < ARRAY_SIZE(ours); i++)
		sigdelset(passed, ours[i]);
	sigprocmask(SIG_BLOCK, passed, before);
}

/* Its id once the program has ended, *@status; 0: not yet. */
static pid_t reap(pid_t program, int *status)
{
	pid_t pid;

	do
		pid = waitpid(-1, status, WNOHANG);
	while (pid > 0 && pid != program);
	return pid;
}

int pids_start(char **argv)
{
	sigset_t passed, before;
	siginfo_t info;
	pid_t program;
	int status, err;

	signal(SIGCHLD, SIG_DFL); /* ignored, it would take the status away */
	block_passed(&passed, &before);
	program = fork();
	if (program < 0)
		return tool_error("run", "cannot start '%s': %m", argv[0]);
	if (!program) {
		/* the program ends with this process, as if it had its place */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigprocmask(SIG_SETMASK, &before, NULL);
		execvp(argv[0], argv);
		err = errno == ENOENT ? 127 : 126;
		tool_error("run", "cannot start '%s': %m", argv[0]);
		_exit(err);
	}
	while (!reap(program, &status)) {
		if (sigwaitinfo(&passed, &info) < 0)
			continue;
		/* the program gets the terminal's signals itself */
		if (info.si_signo != SIGCHLD && info.si_code != SI_KERNEL)
			kill(program, info.si_signo);
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status)
				   : WEXITSTATUS(status);
}

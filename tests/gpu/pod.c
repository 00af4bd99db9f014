/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a command as in a pod of its own, for scripts:
 *   pod [-n] NAME COMMAND [ARGUMENT...]
 * UTS, IPC, PID, mount and (but for -n) network namespaces are new; the file
 * system stays.  In a new network namespace `lo` is brought up, as in any pod.
 * The exit code is the command's, 128 + N after signal N.  Needs root.
 */
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void __attribute__((noreturn)) fail(const char *what)
{
	fprintf(stderr, "pod: %s: %s\n", what, strerror(errno));
	exit(125);
}

static void loopback_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &ifr))
		fail("look at lo");
	ifr.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &ifr))
		fail("bring lo up");
	close(fd);
}

static pid_t child;

static void pass_on(int sig)
{
	if (child > 0)
		kill(child, sig);
}

int main(int argc, char **argv)
{
	int flags = CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNS |
		    CLONE_NEWNET;
	bool keep_net = argc > 1 && !strcmp(argv[1], "-n");
	int status;

	argv += 1 + keep_net;
	argc -= 1 + keep_net;
	if (argc < 2) {
		fprintf(stderr, "usage: pod [-n] NAME COMMAND...\n");
		return 2;
	}
	if (keep_net)
		flags &= ~CLONE_NEWNET;
	if (unshare(flags))
		fail("unshare namespaces (root is needed)");
	if (sethostname(argv[0], strlen(argv[0])))
		fail("sethostname");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		fail("make mounts private");
	if (!keep_net)
		loopback_up();
	/* the new PID namespace begins with the next child */
	child = fork();
	if (child < 0)
		fail("fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (mount("proc", "/proc", "proc", 0, NULL))
			fail("mount /proc");
		execvp(argv[1], argv + 1);
		fail(argv[1]);
	}
	signal(SIGTERM, pass_on);
	signal(SIGINT, pass_on);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

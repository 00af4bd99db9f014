/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an idle connected peer costs: one process with one interface, and as
 * many peers in a second process, each with an interface of its own.
 *
 *   idle [PEERS [NETDEV]]
 *
 * Prints one JSON object: sockets and bytes of memory per peer, both taken
 * from the kernel (/proc), before and after, at rest.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/alone.h"
#include "bench/memory.h"
#include "util/parse.h"

#define ALL_MS	      120000 /* for all peers */
#define FD_SPARE      256
#define FDS_PER_IFACE 16 /* more than an interface and its peer need */

static void die(const char *what, int err)
{
	fprintf(stderr, "idle: %s: %s\n", what, strerror(err));
	exit(1);
}

static void raise_fd_limit(unsigned long want)
{
	struct rlimit lim;

	getrlimit(RLIMIT_NOFILE, &lim);
	if (lim.rlim_max < want)
		lim.rlim_max = want; /* root may */
	lim.rlim_cur = lim.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &lim))
		die("cannot raise the limit of open files", errno);
}

/* Private memory of this process in bytes: what its peers make it hold. */
static long resident(void)
{
	const long kib = private_kib();

	if (kib < 0)
		die("/proc/self/smaps_rollup", errno);
	return kib * 1024;
}

static unsigned int sockets(void)
{
	char path[64], to[64];
	unsigned int n = 0;
	struct dirent *d;
	ssize_t len;
	DIR *dir = opendir("/proc/self/fd");

	if (!dir)
		die("/proc/self/fd", errno);
	while ((d = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%.20s", d->d_name);
		len = readlink(path, to, sizeof(to) - 1);
		if (len > 0 && !strncmp(to, "socket:", 7))
			n++;
	}
	closedir(dir);
	return n;
}

static void open_side(struct side *s, const char *netdev)
{
	int err = side_init(s, &weft_tcp_ops, netdev, AF_UNSPEC);

	if (err)
		die(netdev, -err);
	s->hook = drop_message;
}

static void progress(struct side *s)
{
	side_progress(s);
	if (s->errors)
		die("a peer failed", -s->error);
}

static void send_one(struct side *s)
{
	char byte = 1;
	struct iovec iov = { &byte, 1 };
	const uint64_t end = now_ms() + ALL_MS;
	int err;

	while ((err = weft_tcp_ops.message(s->ep, 1, &iov, 1)) == -EAGAIN) {
		progress(s);
		check(now_ms() < end, "no connection");
	}
	if (err)
		die("message", -err);
}

/*
 * The second process: @count peers of the one whose address comes by @from;
 * each sends one message and then sleeps until @from is closed.
 */
static void be_peers(unsigned int count, const char *netdev, int from)
{
	struct side *peers = calloc(count, sizeof(*peers));
	struct pollfd p = { from, POLLIN, 0 };
	struct side hub;
	unsigned int i;
	int err;

	if (!peers || read(from, &hub.attr.addr, sizeof(hub.attr.addr)) !=
			      sizeof(hub.attr.addr))
		die("peers", errno);
	for (i = 0; i < count; i++) {
		open_side(&peers[i], netdev);
		err = side_dial(&peers[i], &hub);
		if (err)
			die("ep_create", -err);
		send_one(&peers[i]);
	}
	while (poll(&p, 1, 1) == 0)
		for (i = 0; i < count; i++)
			progress(&peers[i]);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *netdev = argc > 2 ? argv[2] : "lo";
	struct side hub;
	uint64_t count = 1000, end;
	unsigned int before, idle;
	int pipefd[2], status;
	long memory;
	pid_t child;

	if (argc > 1 && weft_parse_u64(argv[1], 1, 100000, &count))
		die(argv[1], EINVAL);
	raise_fd_limit(count * FDS_PER_IFACE + FD_SPARE);
	if (pipe(pipefd))
		die("pipe", errno);
	/* First, so that no local page is shared when memory is counted. */
	child = fork();
	if (child < 0)
		die("fork", errno);
	if (!child) {
		close(pipefd[1]);
		be_peers(count, netdev, pipefd[0]);
	}
	close(pipefd[0]);
	open_side(&hub, netdev);
	progress(&hub);
	before = sockets();
	memory = resident();
	if (write(pipefd[1], &hub.attr.addr, sizeof(hub.attr.addr)) !=
	    sizeof(hub.attr.addr))
		die("pipe", errno);
	end = now_ms() + ALL_MS;
	while (hub.messages < count) {
		progress(&hub);
		check(now_ms() < end, "not all peers came");
	}
	/* At rest: nothing is under way any more. */
	for (idle = 0; idle < 100; idle++)
		if (weft_tcp_ops.progress(hub.iface))
			idle = 0;
	printf("{\"peers\": %u, \"sockets_per_peer\": %.2f, "
	       "\"bytes_per_peer\": %ld}\n",
	       (unsigned int)count,
	       (double)(sockets() - before) / (double)count,
	       (resident() - memory) / (long)count);
	fflush(stdout);
	close(pipefd[1]);
	waitpid(child, &status, 0);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

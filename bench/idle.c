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
#include <sys/wait.h>
#include <unistd.h>

#include "devices/device.h"
#include "util/clock.h"
#include "util/parse.h"

#define WAIT_MS	      120000
#define FD_SPARE      256
#define FDS_PER_IFACE 16 /* more than an interface and its peer need */

static unsigned int arrived;

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	(void)arg;
	(void)id;
	(void)data;
	(void)len;
	arrived++;
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	(void)arg;
	(void)tag;
	(void)size;
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	(void)arg;
	(void)ep;
	(void)user;
	fprintf(stderr, "idle: a peer failed: %s\n", strerror(-err));
	exit(1);
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	(void)arg;
	(void)ep;
	(void)user;
}

static const struct weft_iface_cb callbacks = {
	.on_message = on_message,
	.on_notify = on_notify,
	.on_error = on_error,
	.on_ready = on_ready,
};

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
	char line[128];
	long kib, sum = 0;
	FILE *f = fopen("/proc/self/smaps_rollup", "re");

	if (!f)
		die("/proc/self/smaps_rollup", errno);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "Private_", 8)) {
			kib = 0;
			for (char *p = strchr(line, ':'); p && *p; p++)
				if (*p >= '0' && *p <= '9')
					kib = kib * 10 + (*p - '0');
			sum += kib * 1024;
		}
	fclose(f);
	return sum;
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

static struct weft_iface *open_iface(const char *netdev)
{
	const struct weft_iface_params params = {
		.netdev = netdev,
		.cb = &callbacks,
	};
	struct weft_iface *iface;
	int err = weft_tcp_ops.iface_open(&params, &iface);

	if (err)
		die(netdev, -err);
	return iface;
}

static void send_one(struct weft_iface *iface, struct weft_ep *ep)
{
	uint64_t end = weft_now_ms() + WAIT_MS;
	char byte = 1;
	struct iovec iov = { &byte, 1 };
	int err;

	while ((err = weft_tcp_ops.message(ep, 1, &iov, 1, NULL)) == -EAGAIN) {
		weft_tcp_ops.progress(iface);
		if (weft_now_ms() > end)
			die("no connection", ETIMEDOUT);
	}
	if (err)
		die("message", -err);
}

/*
 * The second process: @count peers of the one whose address comes by @from;
 * each says one word and then rests until @from is closed.
 */
static void be_peers(unsigned int count, const char *netdev, int from)
{
	struct weft_iface **iface = calloc(count, sizeof(*iface));
	struct weft_ep **ep = calloc(count, sizeof(*ep));
	struct pollfd p = { from, POLLIN, 0 };
	struct weft_address hub;
	unsigned int i;
	int err;

	if (!iface || !ep || read(from, &hub, sizeof(hub)) != sizeof(hub))
		die("peers", errno);
	for (i = 0; i < count; i++) {
		iface[i] = open_iface(netdev);
		err = weft_tcp_ops.ep_create(iface[i], &hub, NULL, &ep[i]);
		if (err)
			die("ep_create", -err);
		send_one(iface[i], ep[i]);
	}
	while (poll(&p, 1, 1) == 0)
		for (i = 0; i < count; i++)
			weft_tcp_ops.progress(iface[i]);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *netdev = argc > 2 ? argv[2] : "lo";
	struct weft_iface_attr attr;
	struct weft_iface *hub;
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
	/* First, so that no page of ours is shared when memory is counted. */
	child = fork();
	if (child < 0)
		die("fork", errno);
	if (!child) {
		close(pipefd[1]);
		be_peers(count, netdev, pipefd[0]);
	}
	close(pipefd[0]);
	hub = open_iface(netdev);
	weft_tcp_ops.iface_query(hub, &attr);
	weft_tcp_ops.progress(hub);
	before = sockets();
	memory = resident();
	if (write(pipefd[1], &attr.addr, sizeof(attr.addr)) !=
	    sizeof(attr.addr))
		die("pipe", errno);
	end = weft_now_ms() + WAIT_MS;
	while (arrived < count) {
		weft_tcp_ops.progress(hub);
		if (weft_now_ms() > end)
			die("not all peers came", ETIMEDOUT);
	}
	/* At rest: nothing is under way any more. */
	for (idle = 0; idle < 100; idle++)
		if (weft_tcp_ops.progress(hub))
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

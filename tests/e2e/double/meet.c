/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The unique id is the address of a thread in the process that made it, as in
 * NCCL: of the interface that NCCL_SOCKET_IFNAME names, else this host's alone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "tests/e2e/double/double.h"

#define MAX_RANKS    64
#define MEET_SECONDS 60

struct id {
	char magic[8];
	uint64_t cookie;
	struct sockaddr_in addr;
};
static const char magic[8] = "weftdbl";

_Static_assert(sizeof(struct id) <= sizeof(ncclUniqueId), "an id has no room");

struct hello {
	uint64_t cookie;
	int32_t rank, nranks, device;
	char host[64];
	char handle[NCCL_HANDLE_SIZE];
};

struct answer {
	int32_t result;
	char handle[NCCL_HANDLE_SIZE];
};

struct root {
	int fd;
	uint64_t cookie;
};

static bool move_all(int fd, void *data, size_t len, bool out)
{
	char *at = data;
	ssize_t n;

	while (len) {
		n = out ? send(fd, at, len, MSG_NOSIGNAL)
			: recv(fd, at, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

static void limit_waits(int fd)
{
	struct timeval t = { .tv_sec = MEET_SECONDS };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
}

/* As NCCL: "Duplicate GPU detected". */
static ncclResult_t judge(const struct hello *all, int n)
{
	int i, k;

	for (i = 0; i < n; i++)
		for (k = 0; k < i; k++)
			if (all[i].device == all[k].device &&
			    !strcmp(all[i].host, all[k].host)) {
				double_warn(
					"ranks %d and %d are both on GPU %d of %s",
					all[k].rank, all[i].rank, all[i].device,
					all[i].host);
				return ncclInvalidUsage;
			}
	return ncclSuccess;
}

/* Serves one meeting, after which the id is used up. */
static void *serve(void *arg)
{
	struct hello all[MAX_RANKS], h;
	struct root *root = arg;
	struct answer answer;
	int fds[MAX_RANKS], fd, n = 0, want = MAX_RANKS, i;

	for (i = 0; i < MAX_RANKS; i++)
		fds[i] = -1;
	while (n < want && (fd = accept(root->fd, NULL, NULL)) >= 0) {
		limit_waits(fd);
		if (!move_all(fd, &h, sizeof(h), false) ||
		    h.cookie != root->cookie || h.nranks > MAX_RANKS ||
		    h.rank < 0 || h.rank >= h.nranks || fds[h.rank] >= 0) {
			close(fd);
			continue;
		}
		want = h.nranks;
		all[h.rank] = h;
		fds[h.rank] = fd;
		n++;
	}
	close(root->fd);
	free(root);
	for (i = 0; i < n; i++) {
		answer.result = judge(all, n);
		memcpy(answer.handle, all[(i + 1) % n].handle,
		       sizeof(answer.handle));
		move_all(fds[i], &answer, sizeof(answer), true);
		close(fds[i]);
	}
	return NULL;
}

static struct sockaddr_in own_address(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *name = getenv("NCCL_SOCKET_IFNAME");
	struct ifaddrs *all, *a;

	if (!name || getifaddrs(&all))
		return addr;
	for (a = all; a; a = a->ifa_next)
		if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET &&
		    !strcmp(a->ifa_name, name))
			addr.sin_addr =
				((struct sockaddr_in *)(void *)a->ifa_addr)
					->sin_addr;
	freeifaddrs(all);
	return addr;
}

ncclResult_t meet_new_id(ncclUniqueId *out)
{
	struct sockaddr_in addr = own_address();
	socklen_t len = sizeof(addr);
	struct root *root = calloc(1, sizeof(*root));
	struct id id = { 0 };
	pthread_t thread;

	if (!root)
		return ncclSystemError;
	root->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (getrandom(&root->cookie, sizeof(root->cookie), 0) < 0 ||
	    bind(root->fd, (struct sockaddr *)&addr, len) < 0 ||
	    listen(root->fd, MAX_RANKS) < 0 ||
	    getsockname(root->fd, (struct sockaddr *)&addr, &len) < 0) {
		double_warn("cannot listen for the ranks: %s", strerror(errno));
		goto err;
	}
	memcpy(id.magic, magic, sizeof(magic));
	id.cookie = root->cookie;
	id.addr = addr;
	memset(out, 0, sizeof(*out));
	memcpy(out, &id, sizeof(id));
	if (!pthread_create(&thread, NULL, serve, root)) {
		pthread_detach(thread);
		return ncclSuccess;
	}
err:
	if (root->fd >= 0)
		close(root->fd);
	free(root);
	return ncclSystemError;
}

ncclResult_t meet(const ncclUniqueId *from, int rank, int nranks, int device,
		  const char *handle, char *next)
{
	struct hello h = { .rank = rank, .nranks = nranks, .device = device };
	struct answer answer;
	bool met = false;
	struct id id;
	int fd;

	memcpy(&id, from, sizeof(id));
	if (memcmp(id.magic, magic, sizeof(magic))) {
		double_warn("the unique id is none of ncclGetUniqueId's");
		return ncclInvalidArgument;
	}
	h.cookie = id.cookie;
	gethostname(h.host, sizeof(h.host) - 1);
	memcpy(h.handle, handle, sizeof(h.handle));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return ncclSystemError;
	limit_waits(fd);
	if (!connect(fd, (struct sockaddr *)&id.addr, sizeof(id.addr)) &&
	    move_all(fd, &h, sizeof(h), true) &&
	    move_all(fd, &answer, sizeof(answer), false))
		met = true;
	close(fd);
	if (!met) {
		double_warn("rank %d did not meet the others: the unique id "
			    "is used up, or a rank did not come",
			    rank);
		return ncclSystemError;
	}
	memcpy(next, answer.handle, sizeof(answer.handle));
	return (ncclResult_t)answer.result;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rank LIBRARY RANK RANKS MEETING [ROUNDS]: a rank of a job.  Each round is one
 * communicator: who is on this host, memory of a name, descriptors.  The ranks
 * speak by a socket of their own at MEETING, as they would over a network.
 * LIBRARY is opened, or "-" where the program was linked with it.
 *
 * TEST_DIE=bind|shm|end	it is killed once that is done
 * TEST_NO_SOCKET	it makes no sockets of NCCL's kind
 * TEST_CHILD=COMMAND	is run by the shell, once, at TEST_AT (end)
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "tests/nccl/introduce/nccl.h"

#define RANKS	8
#define SIZE	16384u
#define LIMIT_S 120

struct word { /* what each tells all others */
	struct nccl_place place;
	uint64_t hash;
	char suffix[NCCL_SUFFIX + 2];
};

static const struct nccl_calls *nccl;
static int rank, ranks, peers[RANKS]; /* peers[0] is the hub */
static uint64_t own_hash;	      /* as of a pid and a PID namespace */

static void __attribute__((noreturn, format(printf, 1, 2)))
fail(const char *fmt, ...)
{
	int err = errno;
	va_list ap;

	printf("rank %d: ", rank);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(": %s\n", strerror(err));
	fflush(stdout);
	_exit(1);
}

/*
 * What a test wants to happen in the first communicator, at "bind", "shm",
 * "end".
 */
static void reached(const char *where)
{
	const char *die = getenv("TEST_DIE"), *at = getenv("TEST_AT");
	const char *child = getenv("TEST_CHILD");
	char *command;

	if (die && !strcmp(die, where))
		raise(SIGKILL);
	if (!child || strcmp(at ? at : "end", where))
		return;
	command = strdup(child);
	unsetenv("TEST_CHILD");
	if (system(command))
		fail("%s", command);
	free(command);
}

/* --- what a network is there for ------------------------------------------ */

static void meet(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int i, from, fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	mode_t mask;

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	if (rank) {
		/* the alarm ends what lasts */
		while (connect(fd, (struct sockaddr *)&sun, sizeof(sun))) {
			if (errno != ENOENT && errno != ECONNREFUSED)
				fail("connect to %s", path);
			nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
		}
		peers[0] = fd;
		send(fd, &rank, sizeof(rank), 0);
		return;
	}
	mask = umask(0); /* another user may connect once it is bound */
	if (bind(fd, (struct sockaddr *)&sun, sizeof(sun)) || listen(fd, RANKS))
		fail("listen at %s", path);
	umask(mask);
	for (i = 1; i < ranks; i++) {
		int peer = accept(fd, NULL, NULL);

		if (recv(peer, &from, sizeof(from), 0) != sizeof(from))
			fail("accept");
		peers[from] = peer;
	}
	close(fd);
	unlink(path);
}

static void gather(const struct word *mine, struct word *all)
{
	const size_t len = (size_t)ranks * sizeof(*all);
	int i;

	if (rank) {
		if (send(peers[0], mine, sizeof(*mine), MSG_NOSIGNAL) < 0 ||
		    recv(peers[0], all, len, 0) != (ssize_t)len)
			fail("the other ranks are gone");
		return;
	}
	all[0] = *mine;
	for (i = 1; i < ranks; i++)
		if (recv(peers[i], &all[i], sizeof(*all), 0) != sizeof(*all))
			fail("rank %d is gone", i);
	for (i = 1; i < ranks; i++)
		if (send(peers[i], all, len, MSG_NOSIGNAL) < 0)
			fail("rank %d is gone", i);
}

static void barrier(void)
{
	struct word none = { { 0, 0 }, 0, "" }, all[RANKS];

	gather(&none, all);
}

/* --- a communicator ------------------------------------------------------- */

static unsigned char value(int from, int to, int round, size_t i)
{
	return (unsigned char)(i * 31 + (i >> 8) +
			       (size_t)(from * 7 + to * 13 + round * 5 + 1));
}

static bool same(const struct word *all, int a, int b)
{
	return all[a].place.host == all[b].place.host &&
	       all[a].place.shm_dev == all[b].place.shm_dev;
}

/* Who is alone in its job passes descriptors to itself. */
static bool is_peer(const struct word *all, int i)
{
	return same(all, i, rank) && (i != rank || ranks == 1);
}

static int first_of_host(const struct word *all)
{
	int i;

	for (i = 0; !same(all, i, rank); i++)
		;
	return i;
}

static bool without_socket(void)
{
	return getenv("TEST_NO_SOCKET");
}

static int open_socket(uint64_t hash)
{
	const int sock = nccl->ipc_open(rank, hash);

	if (sock < 0)
		fail("bind");
	reached("bind");
	return sock;
}

static void pass_descriptors(const struct word *all, int round, int sock)
{
	int i, fd, from;
	unsigned char *p;
	uint32_t k;

	if (sock < 0 && !without_socket())
		sock = open_socket(all[rank].hash);
	barrier();
	if (sock < 0) {
		barrier();
		return;
	}
	for (i = 0; i < ranks; i++) {
		if (!is_peer(all, i))
			continue;
		fd = memfd_create("weft test", 0);
		if (fd < 0 || ftruncate(fd, SIZE))
			fail("memfd");
		p = mmap(NULL, SIZE, PROT_WRITE | PROT_READ, MAP_SHARED, fd, 0);
		for (k = 1; k < SIZE; k++)
			p[k] = value(rank, i, round, k);
		p[0] = (unsigned char)rank;
		munmap(p, SIZE);
		if (nccl->ipc_send(sock, fd, i, all[i].hash))
			fail("sendmsg to rank %d", i);
		close(fd);
	}
	for (i = 0; i < ranks; i++) {
		if (!is_peer(all, i))
			continue;
		fd = nccl->ipc_recv(sock);
		if (fd < 0)
			fail("recvmsg");
		p = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			fail("mmap");
		from = p[0];
		for (k = 1; k < SIZE; k++)
			if (p[k] != value(from, rank, round, k))
				fail("wrong byte %u of rank %d's", k, from);
		munmap(p, SIZE);
		close(fd);
	}
	barrier();
	nccl->ipc_close(sock, rank, all[rank].hash);
}

static void share_memory(struct word *all, int round)
{
	const int maker = first_of_host(all);
	struct word mine = all[rank];
	unsigned char *p = NULL;
	uint32_t k;
	int i;

	if (maker == rank) {
		p = nccl->shm_make(mine.suffix, SIZE);
		if (!p)
			fail("mkstemp");
		reached("shm");
		for (k = RANKS; k < SIZE; k++)
			p[k] = value(rank, rank, round, k);
	}
	gather(&mine, all);
	if (maker != rank) {
		p = nccl->shm_open(all[maker].suffix, SIZE);
		if (!p)
			fail("open of rank %d's memory", maker);
		for (k = RANKS; k < SIZE; k++)
			if (p[k] != value(maker, maker, round, k))
				fail("wrong byte %u in memory", k);
		p[rank] = 1;
	}
	barrier();
	for (i = 0; maker == rank && i < ranks; i++)
		if (i != rank && same(all, i, rank) && !p[i])
			fail("rank %d did not write", i);
	if (maker == rank && nccl->shm_unlink(mine.suffix))
		fail("unlink");
	munmap(p, SIZE);
	barrier();
}

/* Only NCCL sees it, neither the rest of the process nor a child. */
static void expect_no_id(void)
{
	const char *id = getenv("NCCL_HOSTID");

	if (id && !strncmp(id, "weft-", 5))
		fail("the program has NCCL's host id");
}

static void communicator(int round)
{
	struct word mine = { { 0, 0 }, 0, "" }, all[RANKS];
	int i, n = 0, sock = -1;

	mine.hash = own_hash + (uint64_t)round;
	if (nccl->load())
		fail("plugin");
	/*
	 * as releases before 2.26: the socket is there before the id is asked
	 * for
	 */
	if (getenv("TEST_SOCKET_FIRST"))
		sock = open_socket(mine.hash);
	if (nccl->place(&mine.place))
		fail("stat of /dev/shm");
	gather(&mine, all);
	for (i = 0; i < ranks; i++)
		n += i != rank && same(all, i, rank);
	/* a rank without a peer takes part in the barriers */
	pass_descriptors(all, round, sock);
	share_memory(all, round);
	if (!round) {
		printf("rank %d: with %d of %d\n", rank, n, ranks - 1);
		fflush(stdout);
		expect_no_id();
		reached("end");
	}
	nccl->unload();
}

/* --- what is left of a communicator --------------------------------------- */

#define SETTLED 10 /* rounds that may leave something */

struct kept {
	int fds, maps;
	long rss; /* KiB */
};

static struct kept count_kept(void)
{
	struct kept k = { 0, 0, 0 };
	char line[4096];
	FILE *f;
	int fd;

	for (fd = 0; fd < 1024; fd++)
		k.fds += fcntl(fd, F_GETFD) >= 0;
	f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof(line), f))
		k.maps++;
	if (f)
		fclose(f);
	f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmRSS: %ld", &k.rss);
	if (f)
		fclose(f);
	return k;
}

static void compare_kept(struct kept first, struct kept last)
{
	errno = 0;
	if (last.fds > first.fds)
		fail("%d descriptors, first %d", last.fds, first.fds);
	if (last.maps > first.maps + 4) /* malloc() may take a few */
		fail("%d mappings, first %d", last.maps, first.maps);
	if (last.rss > first.rss + 1024)
		fail("%ld KiB of memory, first %ld", last.rss, first.rss);
}

int main(int argc, char **argv)
{
	int i, line, rounds = argc > 5 ? atoi(argv[5]) : 1;
	void *lib = RTLD_DEFAULT;
	struct timespec now;
	struct kept first;

	if (argc < 5)
		return 2;
	rank = atoi(argv[2]);
	ranks = atoi(argv[3]);
	alarm(LIMIT_S);
	if (strcmp(argv[1], "-"))
		lib = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL);
	nccl = lib || !strcmp(argv[1], "-") ? dlsym(lib, "nccl_calls") : NULL;
	if (!nccl) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	own_hash = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
	if (ranks > 1)
		meet(argv[4]);
	for (i = 0; i < rounds; i++) {
		communicator(i);
		if (i + 1 == SETTLED)
			first = count_kept();
	}
	if (rounds > SETTLED)
		compare_kept(first, count_kept());
	line = getenv("TEST_NO_SOCKET") ? 0 : nccl->others();
	if (line)
		fail("names of others, nccl.c:%d", line);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's files and sockets in the shared folder, and what is left of them. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl_net/introduce/files.h"

static struct weft_samehost host = {
	.introduced = true,
	.id = "weft-0123456789abcdef0123456789abcdef",
	.folder = "/tmp/weft-files-XXXXXX",
};

static void begin(void)
{
	cr_assert(mkdtemp(host.folder) != NULL);
}

static void end(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", host.folder);
	cr_expect(zero(int, system(command)));
}

TestSuite(files, .init = begin, .fini = end, .timeout = 60);

/* How many there are whose names begin so; the last one's path. */
static unsigned int there(const char *prefix, char path[160])
{
	DIR *d = opendir(host.folder);
	unsigned int n = 0;
	struct dirent *e;

	cr_assert(d != NULL);
	while ((e = readdir(d))) {
		if (strncmp(e->d_name, prefix, strlen(prefix)))
			continue;
		n++;
		if (path)
			snprintf(path, 160, "%s/%.60s", host.folder, e->d_name);
	}
	closedir(d);
	return n;
}

/* As NCCL names them: abstract, or a path. */
static socklen_t address(struct sockaddr_un *sa, const char *name,
			 bool abstract)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	snprintf(sa->sun_path, sizeof(sa->sun_path), "/tmp/%s", name);
	if (abstract)
		sa->sun_path[0] = '\0';
	return sizeof(*sa);
}

static int bound(const char *name, bool abstract)
{
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa;
	socklen_t len = address(&sa, name, abstract);
	int ret;

	cr_assert(ge(int, fd, 0));
	ret = weft_nccl_bind(fd, (struct sockaddr *)&sa, len);
	if (!ret)
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

static int send_to(int fd, const char *name)
{
	struct sockaddr_un sa;
	struct iovec iov = { "x", 1 };
	struct msghdr msg = {
		.msg_name = &sa,
		.msg_namelen = address(&sa, name, true),
		.msg_iov = &iov,
		.msg_iovlen = 1,
	};

	return weft_nccl_sendmsg(fd, &msg, 0) == 1 ? 0 : -errno;
}

Test(files, paths_are_unchanged_before_begin)
{
	char path[] = "/dev/shm/nccl-XXXXXX";
	int fd, s;

	cr_expect(eq(str, (char *)weft_nccl_stat_path("/dev/shm"), "/dev/shm"));
	fd = weft_nccl_mkstemp(path);
	cr_expect(zero(int, access(path, F_OK)));
	cr_expect(zero(int, weft_nccl_unlink(path)));
	s = bound("nccl-socket-0-1", true);
	cr_expect(ge(int, s, 0));
	cr_expect(zero(uint, there("n", NULL)));
	close(fd);
	close(s);
}

Test(files, nccls_files_are_created_in_the_run_folder)
{
	char path[] = "/dev/shm/nccl-XXXXXX", real[160];
	int fd, again;

	weft_nccl_files_begin(&host);
	cr_expect(
		eq(str, (char *)weft_nccl_stat_path("/dev/shm"), host.folder));
	fd = weft_nccl_mkstemp(path);
	cr_assert(ge(int, fd, 0));
	cr_expect(ne(str, path, "/dev/shm/nccl-XXXXXX"));
	cr_expect(eq(int, access(path, F_OK), -1));
	cr_assert(eq(uint, there("nccl-", real), 1));
	cr_expect(eq(str, strrchr(real, '/'), strrchr(path, '/')));
	again = weft_nccl_open(path, O_RDWR | O_CLOEXEC, 0);
	cr_expect(ge(int, again, 0));
	cr_expect(zero(int, weft_nccl_unlink(path)));
	cr_expect(zero(uint, there("nccl-", NULL)));
	cr_expect(eq(int, weft_nccl_open(path, O_RDWR, 0), -1));
	cr_expect(eq(int, errno, ENOENT));
	close(fd);
	close(again);
}

Test(files, other_paths_and_sockets_are_unchanged)
{
	static const char *const others[] = {
		"/dev/shm/", "/dev/shmx", "/dev", "", "dev/shm",
	};
	char elsewhere[64], deeper[160];
	struct sockaddr_un sa;
	socklen_t len;
	size_t i;
	int fd;

	weft_nccl_files_begin(&host);
	for (i = 0; i < sizeof(others) / sizeof(*others); i++)
		cr_expect(eq(ptr, (void *)weft_nccl_stat_path(others[i]),
			     (void *)others[i]));
	cr_expect(eq(ptr, (void *)weft_nccl_stat_path(NULL), NULL));
	snprintf(elsewhere, sizeof(elsewhere), "/tmp/nccl-XXXXXX");
	fd = weft_nccl_mkstemp(elsewhere);
	cr_expect(zero(int, access(elsewhere, F_OK)));
	cr_expect(zero(int, weft_nccl_unlink(elsewhere)));
	close(fd);
	cr_expect(zero(uint, there("n", NULL)));
	snprintf(deeper, sizeof(deeper), "%s/nccl-x", host.folder);
	cr_assert(zero(int, mkdir(deeper, 0700)));
	snprintf(deeper, sizeof(deeper), "%s/nccl-x/keep", host.folder);
	fd = open(deeper, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	close(fd);
	cr_expect(eq(int, weft_nccl_unlink("/dev/shm/nccl-x/keep"), -1));
	cr_expect(zero(int, access(deeper, F_OK)));

	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	len = address(&sa, "nccl-sockets", true);
	cr_expect(zero(int, weft_nccl_bind(fd, (struct sockaddr *)&sa, len)));
	close(fd);
	/* no name at all: the kernel finds one */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	cr_expect(zero(int, weft_nccl_bind(fd, (struct sockaddr *)&sa,
					   sizeof(sa_family_t))));
	close(fd);
	cr_expect(zero(uint, there("n-", NULL)));
}

Test(files, sockets_of_both_kinds_are_found_by_nccls_name)
{
	char c;
	int a, b;

	weft_nccl_files_begin(&host);
	a = bound("nccl-socket-0-1f", true);
	b = bound("nccl-socket-1-1f", false);
	cr_assert(ge(int, a, 0));
	cr_assert(ge(int, b, 0));
	cr_expect(eq(uint, there("n-", NULL), 2));
	cr_expect(zero(int, send_to(a, "nccl-socket-1-1f")));
	cr_expect(eq(long, recv(b, &c, 1, MSG_DONTWAIT), 1));
	cr_expect(eq(int, send_to(a, "nccl-socket-2-1f"), -ENOENT));
	close(a);
	close(b);
}

Test(files, bound_name_is_refused_and_stale_file_replaced)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char path[160];
	int a, b;

	weft_nccl_files_begin(&host);
	a = bound("nccl-socket-0-1", true);
	cr_expect(eq(int, bound("nccl-socket-0-1", true), -EADDRINUSE));
	cr_expect(eq(uint, there("n-", NULL), 1));
	close(a);
	b = bound("nccl-socket-0-1", true);
	cr_expect(ge(int, b, 0), "closed, it would be free");
	cr_expect(eq(uint, there("n-", path), 1));
	/* of another process, which is dead */
	close(b);
	cr_expect(zero(int, unlink(path)));
	a = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	cr_assert(zero(int, bind(a, (struct sockaddr *)&sa, sizeof(sa))));
	close(a);
	b = bound("nccl-socket-0-1", true);
	cr_expect(ge(int, b, 0));
	close(b);
}

Test(files, names_depend_on_the_host_id)
{
	char one[160], other[160];

	weft_nccl_files_begin(&host);
	close(bound("nccl-socket-0-1", true));
	there("n-", one);
	host.id[6]++;
	close(bound("nccl-socket-0-1", true));
	there("n-", other);
	cr_expect(ne(str, one, other));
}

Test(files, ten_thousand_closed_sockets_leave_two_files)
{
	char name[32];
	int i, a, b;

	weft_nccl_files_begin(&host);
	for (i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "nccl-socket-0-%x", i);
		a = bound(name, true);
		snprintf(name, sizeof(name), "nccl-socket-1-%x", i);
		b = bound(name, true);
		cr_assert(ge(int, a, 0));
		cr_assert(ge(int, b, 0));
		close(a);
		close(b);
	}
	cr_expect(le(uint, there("n-", NULL), 2));
}

Test(files, unlink_of_a_socket_by_its_path)
{
	int fd;

	weft_nccl_files_begin(&host);
	fd = bound("nccl-socket-0-1", false);
	cr_expect(eq(uint, there("n-", NULL), 1));
	cr_expect(zero(int, weft_nccl_unlink("/tmp/nccl-socket-0-1")));
	cr_expect(zero(uint, there("n-", NULL)));
	cr_expect(eq(int, weft_nccl_unlink("/tmp/nccl-socket-0-1"), -1));
	cr_expect(eq(int, errno, ENOENT));
	close(fd);
}

/* A process that makes one of each, and what it does then. */
static pid_t one_with_files(bool ends, int *ready)
{
	char path[] = "/dev/shm/nccl-XXXXXX";
	int pipes[2];
	pid_t pid;

	cr_assert(zero(int, pipe2(pipes, O_CLOEXEC)));
	pid = fork();
	cr_assert(ge(int, pid, 0));
	if (!pid) {
		weft_nccl_files_begin(&host);
		if (weft_nccl_mkstemp(path) < 0 ||
		    bound("nccl-socket-7-7", true) < 0)
			_exit(1);
		if (ends)
			exit(0);
		if (write(pipes[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(pipes[1]);
	*ready = pipes[0];
	return pid;
}

static void reap(pid_t pid, int ready)
{
	int status;

	cr_assert(eq(int, waitpid(pid, &status, 0), pid));
	close(ready);
}

static void age(const char *path)
{
	const struct timespec old[2] = { { 1, 0 }, { 1, 0 } };

	cr_assert(
		zero(int, utimensat(AT_FDCWD, path, old, AT_SYMLINK_NOFOLLOW)));
}

Test(files, files_of_a_live_process_are_kept)
{
	char c, path[160];
	int ready;
	const pid_t pid = one_with_files(false, &ready);

	cr_assert(eq(long, read(ready, &c, 1), 1));
	there("n-", path);
	age(path);
	weft_nccl_files_begin(&host);
	cr_expect(eq(uint, there("n-", NULL), 1));
	cr_expect(eq(uint, there("nccl-", NULL), 1));
	kill(pid, SIGKILL);
	reap(pid, ready);
}

Test(files, files_of_a_killed_process_are_removed)
{
	char c, path[160];
	int ready;
	const pid_t pid = one_with_files(false, &ready);

	cr_assert(eq(long, read(ready, &c, 1), 1));
	kill(pid, SIGKILL);
	reap(pid, ready);
	cr_expect(eq(uint, there("nccl-", NULL), 1));
	there("n-", path);
	age(path);
	weft_nccl_files_begin(&host);
	cr_expect(zero(uint, there("n-", NULL)));
	cr_expect(zero(uint, there("nccl-", NULL)));
}

/* It might be one that is being made. */
Test(files, young_socket_of_a_dead_process_is_kept)
{
	char c;
	int ready;
	const pid_t pid = one_with_files(false, &ready);

	cr_assert(eq(long, read(ready, &c, 1), 1));
	kill(pid, SIGKILL);
	reap(pid, ready);
	weft_nccl_files_begin(&host);
	cr_expect(eq(uint, there("n-", NULL), 1));
}

Test(files, exit_removes_own_sockets)
{
	int ready;
	const pid_t pid = one_with_files(true, &ready);

	reap(pid, ready);
	cr_expect(zero(uint, there("n-", NULL)));
}

Test(files, exit_of_a_forked_child_keeps_the_parents_socket)
{
	int a, b, status;
	pid_t pid;

	weft_nccl_files_begin(&host);
	a = bound("nccl-socket-0-1", true);
	for (b = 0; b < 2; b++) {
		pid = fork();
		if (!pid) {
			close(a);
			weft_nccl_unlink("/tmp/nccl-socket-0-1");
			if (b)
				close(bound("nccl-socket-0-2", true));
			weft_nccl_unlink("/tmp/nccl-socket-0-1");
			exit(0);
		}
		cr_assert(eq(int, waitpid(pid, &status, 0), pid));
		cr_expect(eq(uint, there("n-", NULL), 1));
	}
	b = bound("nccl-socket-0-3", true);
	cr_expect(zero(int, send_to(b, "nccl-socket-0-1")));
	close(a);
	close(b);
}

Test(files, cookie_folders_and_fifos_are_kept)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/cookie", host.folder);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	close(fd);
	snprintf(path, sizeof(path), "%s/n-folder", host.folder);
	cr_assert(zero(int, mkdir(path, 0700)));
	snprintf(path, sizeof(path), "%s/nccl-fifo", host.folder);
	cr_assert(zero(int, mkfifo(path, 0600)));
	weft_nccl_files_begin(&host);
	cr_expect(eq(uint, there("cookie", NULL), 1));
	cr_expect(eq(uint, there("n-folder", NULL), 1));
	cr_expect(eq(uint, there("nccl-fifo", NULL), 1));
}

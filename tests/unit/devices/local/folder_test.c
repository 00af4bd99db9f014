/* SPDX-License-Identifier: BSD-3-Clause */
/* The folder that pods share: whose it must be, and who is dead in it. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "devices/local/local.h"
#include "tests/unit/devices/nvl_pair.h"

static char sub[64]; /* in it: of this user */
static struct weft_folder *run;

static void begin(void)
{
	begin_folder();
	snprintf(sub, sizeof(sub), "%s/weft-%u", run_folder, geteuid());
	load_fake();
}

static void finish(void)
{
	weft_folder_close(run);
	end_folder();
}

TestSuite(folder, .init = begin, .fini = finish, .timeout = 60);

static const char *in(const char *dir, const char *name)
{
	static char path[2][160];
	static unsigned int which;
	char *p = path[which++ % 2];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static bool there(const char *name)
{
	struct stat st;

	return !lstat(in(sub, name), &st);
}

/* ---- whose it is -------------------------------------------------------- */

Test(folder, folder_is_created_with_mode_0700)
{
	struct stat st;

	umask(0);
	run = weft_folder_open();
	cr_assert(run != NULL);
	cr_assert(eq(int, lstat(sub, &st), 0));
	cr_expect(eq(uint, st.st_mode, S_IFDIR | 0700));
	cr_expect(eq(uint, st.st_uid, geteuid()));
	cr_expect(there("cookie"));
	cr_expect(eq(uint, log_lines(""), 0));
}

/* Logged once, with what to do about it; nothing is written there. */
static void refused(void)
{
	run = weft_folder_open();
	cr_expect(eq(ptr, run, NULL));
	cr_expect(not(there("cookie")));
	cr_expect(eq(uint, log_lines("WEFT_RUN_DIR"), 1));
}

Test(folder, folder_open_to_others_is_refused)
{
	cr_assert(eq(int, mkdir(sub, 0700), 0));
	cr_assert(eq(int, chmod(sub, 0755), 0));
	refused();
	cr_expect(eq(uint, log_lines("not a folder of this user alone"), 1));
	cr_expect(eq(uint, log_lines(""), 1), "and not that it be mounted");
}

/* ---- who was there first ------------------------------------------------- */

/* The names that are tried, in their order. */
static const char *name_of(unsigned int i)
{
	static char name[80];

	snprintf(name, sizeof(name), i ? "%s.%u" : "%s", sub, i);
	return name;
}

static uint64_t id_now(void)
{
	struct weft_folder *one = weft_folder_open();
	const uint64_t id = weft_folder_id(one);

	weft_folder_close(one);
	return id;
}

/* Not there, but by the second name; no user is blocked. */
static void evaded(void)
{
	struct stat st;

	run = weft_folder_open();
	cr_assert(run != NULL);
	cr_expect(not(there("cookie")));
	cr_assert(eq(int, lstat(in(name_of(1), "cookie"), &st), 0));
	cr_expect(eq(uint, log_lines(""), 0));
}

Test(folder, symbolic_link_in_place_of_the_folder_is_evaded)
{
	cr_assert(eq(int, mkdir(in(run_folder, "other"), 0700), 0));
	cr_assert(eq(int, symlink("other", sub), 0));
	evaded();
	cr_expect(eq(int, rmdir(in(run_folder, "other")), 0),
		  "nothing is in it");
}

Test(folder, fifo_in_place_of_the_folder_is_evaded)
{
	cr_assert(eq(int, mkfifo(sub, 0700), 0));
	evaded();
}

Test(folder, folder_of_another_user_is_evaded)
{
	if (geteuid())
		cr_skip_test("only root can give a folder away");
	cr_assert(eq(int, mkdir(sub, 0777), 0));
	cr_assert(eq(int, chown(sub, 12345, 12345), 0));
	evaded();
}

Test(folder, user_who_takes_the_name_later_parts_no_peers)
{
	const uint64_t id = id_now();

	for (unsigned int i = 1; i < 8; i++)
		cr_assert(eq(int, mkfifo(name_of(i), 0600), 0));
	cr_expect(eq(u64, id_now(), id));
}

Test(folder, user_who_gives_the_name_up_parts_no_peers)
{
	uint64_t id;

	cr_assert(eq(int, mkfifo(name_of(0), 0600), 0));
	cr_assert(eq(int, mkfifo(name_of(1), 0600), 0));
	id = id_now();
	cr_assert(ne(u64, id, 0));
	unlink(name_of(0));
	cr_expect(eq(u64, id_now(), id));
	cr_expect(eq(uint, log_lines(""), 0));
}

Test(folder, who_takes_all_names_is_named)
{
	char owner[32];
	unsigned int i;

	for (i = 0; i < 8; i++) {
		cr_assert(eq(int, mkfifo(name_of(i), 0644), 0));
		if (!geteuid())
			cr_assert(eq(int, chown(name_of(i), 12345, -1), 0));
	}
	snprintf(owner, sizeof(owner), "user %u (not a folder, mode 644)",
		 geteuid() ? geteuid() : 12345);
	refused();
	cr_expect(eq(uint, log_lines(sub), 1));
	cr_expect(eq(uint, log_lines(owner), 1));
	cr_expect(eq(uint, log_lines(""), 1), "and not that it be mounted");
	cr_expect(zero(u64, id_now()));
	cr_expect(eq(uint, log_lines(""), 1), "once");
}

/* It may be the one that other containers have open. */
Test(folder, own_folder_that_is_open_to_others_is_not_evaded)
{
	struct stat st;

	cr_assert(eq(int, mkdir(sub, 0700), 0));
	cr_assert(eq(int, chmod(sub, 0770), 0));
	refused();
	cr_expect(ne(int, lstat(name_of(1), &st), 0));
}

/* ---- what the file system lacks ------------------------------------------ */

static bool no_links;

/* linkat() of this program: as where the file system has no hard links. */
int linkat(int from_dir, const char *from, int to_dir, const char *to,
	   int flags)
{
	if (!no_links)
		return syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
	errno = EPERM;
	return -1;
}

Test(folder, folder_without_hard_links_is_refused)
{
	no_links = true;
	refused();
	cr_expect(eq(uint, log_lines(strerror(EOPNOTSUPP)), 1));
	cr_expect(eq(uint, log_lines(""), 1), "and not that others own it");
}

/* ---- what another user left in it -------------------------------------- */

/* Logged once, with what helps against it. */
static void cookie_refused(const char *why)
{
	run = weft_folder_open();
	cr_expect(eq(ptr, run, NULL));
	cr_expect(eq(uint, log_lines("/cookie'"), 1));
	cr_expect(eq(uint, log_lines(why), 1));
	cr_expect(eq(uint, log_lines("remove it"), 1));
	cr_expect(eq(uint, log_lines(""), 1), "and not that it be mounted");
}

Test(folder, cookie_fifo_is_refused, .timeout = 10)
{
	cr_assert(eq(int, mkdir(sub, 0700), 0));
	cr_assert(eq(int, mkfifo(in(sub, "cookie"), 0600), 0));
	cookie_refused("not a regular file");
}

Test(folder, cookie_behind_a_symbolic_link_is_refused)
{
	cr_assert(eq(int, mkdir(sub, 0700), 0));
	cr_assert(eq(int, symlink("/dev/zero", in(sub, "cookie")), 0));
	cookie_refused("symbolic link");
}

static void leave_cookie(const char *bytes)
{
	int fd;

	cr_assert(eq(int, mkdir(sub, 0700), 0));
	fd = open(in(sub, "cookie"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(
		eq(long, write(fd, bytes, strlen(bytes)), (long)strlen(bytes)));
	close(fd);
}

Test(folder, cookie_of_another_user_is_refused)
{
	if (geteuid())
		cr_skip_test("only root can give a file away");
	leave_cookie("0123456789abcdef");
	cr_assert(eq(int, chown(in(sub, "cookie"), 12345, 12345), 0));
	cookie_refused("another user");
}

Test(folder, short_cookie_is_refused)
{
	leave_cookie("0123456789abcde");
	cookie_refused("damaged");
}

Test(folder, long_cookie_is_refused)
{
	leave_cookie("0123456789abcdef0");
	cookie_refused("damaged");
}

Test(folder, lock_fifo_is_not_opened, .timeout = 10)
{
	cr_assert(eq(int, mkdir(sub, 0700), 0));
	cr_assert(eq(int, mkfifo(in(sub, "l-0123456789abcdef"), 0600), 0));
	run = weft_folder_open();
	cr_assert(run != NULL);
	cr_expect(there("l-0123456789abcdef"), "not ours to remove");
	cr_expect(lt(int, weft_folder_listen(run, 0x0123456789abcdef), 0));
	cr_expect(eq(uint, log_lines("cannot lock"), 1));
}

/* ---- who is dead in it -------------------------------------------------- */

#define LOCK "l-0123456789abcdef"
#define SOCK "s-0123456789abcdef"

/* A listening socket, as a process leaves it that is killed; of @backlog. */
static int leave(int backlog)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert(eq(int, mkdir(sub, 0700), 0));
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", in(sub, SOCK));
	cr_assert(eq(int, bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0));
	cr_assert(eq(int, listen(fd, backlog), 0));
	return fd;
}

static int leave_lock(void)
{
	int fd = open(in(sub, LOCK), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	cr_assert(ge(int, fd, 0));
	return fd;
}

static void sweep(bool stays)
{
	run = weft_folder_open();
	cr_assert(run != NULL);
	cr_expect(eq(int, there(SOCK), stays));
	cr_expect(eq(int, there(LOCK), stays));
	cr_expect(eq(uint, log_lines(""), 0));
}

Test(folder, files_of_a_killed_process_are_removed)
{
	close(leave(1));
	close(leave_lock());
	sweep(false);
}

Test(folder, lock_without_socket_is_removed)
{
	cr_assert(eq(int, mkdir(sub, 0700), 0));
	close(leave_lock());
	sweep(false);
}

/* One that has its lock and does not listen yet, or is in another pod. */
Test(folder, held_lock_keeps_socket_and_lock)
{
	int fd;

	close(leave(1));
	fd = leave_lock();
	cr_assert(eq(int, flock(fd, LOCK_EX), 0));
	sweep(true);
	close(fd);
}

/* Another process that starts has a look at the new lock. */
Test(folder, lock_that_is_looked_at_is_waited_for)
{
	const struct timespec look = { .tv_nsec = 20000000 };
	int fd, ready[2];
	char byte;

	run = weft_folder_open();
	cr_assert(run != NULL);
	cr_assert(eq(int, pipe2(ready, O_CLOEXEC), 0));
	if (!fork()) {
		fd = leave_lock();
		flock(fd, LOCK_EX);
		byte = (char)write(ready[1], "", 1);
		nanosleep(&look, NULL);
		_exit(0);
	}
	cr_assert(eq(long, read(ready[0], &byte, 1), 1));
	fd = weft_folder_listen(run, 0x0123456789abcdef);
	cr_expect(ge(int, fd, 0));
	cr_expect(eq(uint, log_lines(""), 0));
	close(fd);
	close(ready[0]);
	close(ready[1]);
	wait(NULL);
}

/* Where locks of other pods are not seen, as in some shared file systems. */
Test(folder, listening_socket_is_kept)
{
	int fd = leave(1);

	close(leave_lock());
	sweep(true);
	close(fd);
}

/* It is not skipped because others wait to be accepted. */
Test(folder, socket_with_full_backlog_is_kept)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = leave(0), waits[8], i;

	close(leave_lock());
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", in(sub, SOCK));
	for (i = 0; i < 8; i++) {
		waits[i] = socket(
			AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (connect(waits[i], (struct sockaddr *)&sa, sizeof(sa)))
			break;
	}
	cr_assert(lt(int, i, 8));
	cr_assert(eq(int, errno, EAGAIN));
	sweep(true);
	for (; i >= 0; i--)
		close(waits[i]);
	close(fd);
}

/* What exists by another name is not ours to remove. */
Test(folder, files_of_other_names_are_kept)
{
	const char *const names[] = { "l-0123", "s-fedcba9876543210", "b-gpu",
				      "cookie", "x" };
	unsigned int i;
	int fd;

	cr_assert(eq(int, mkdir(sub, 0700), 0));
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		fd = open(in(sub, names[i]), O_RDWR | O_CREAT | O_CLOEXEC,
			  0600);
		cr_assert(eq(long, write(fd, "0123456789abcdef", 16), 16));
		close(fd);
	}
	run = weft_folder_open();
	cr_assert(run != NULL);
	for (i = 0; i < ARRAY_SIZE(names); i++)
		cr_expect(there(names[i]), "%s", names[i]);
}

/* Two that listen, and one of them ends in order: the other's files stay. */
Test(folder, close_removes_own_files_only)
{
	struct weft_folder *second;
	int fd, other;

	run = weft_folder_open();
	second = weft_folder_open();
	cr_assert(run && second);
	cr_expect(eq(u64, weft_folder_id(run), weft_folder_id(second)));
	fd = weft_folder_listen(run, 0x0123456789abcdef);
	other = weft_folder_listen(second, 0xfedcba9876543210);
	cr_assert(fd >= 0 && other >= 0);
	cr_expect(there(SOCK));
	weft_folder_unlisten(second, 0xfedcba9876543210);
	weft_folder_close(second);
	cr_expect(not(there("s-fedcba9876543210")));
	cr_expect(not(there("l-fedcba9876543210")));
	cr_expect(there(SOCK));
	cr_expect(there(LOCK));
	close(other);
	weft_folder_unlisten(run, 0x0123456789abcdef);
	cr_expect(not(there(SOCK)));
	close(fd);
}

/* ---- who may be dialled ------------------------------------------------- */

/* As a user whom modes stop; false: this process cannot be one. */
static bool drop_root(void)
{
	if (geteuid())
		return true;
	return !chown(run_folder, 65534, 65534) && !seteuid(65534);
}

/* Its socket in the folder alone, whose mode is then @mode. */
static struct weft_address behind_a_mode(struct side *s, mode_t mode)
{
	struct weft_iface_attr attr;
	char path[128];

	cr_assert(eq(int, open_side(s), 0));
	nvl->iface_query(s->iface, &attr);
	snprintf(path, sizeof(path), "%s/weft-%u/s-%016llx", run_folder,
		 geteuid(), (unsigned long long)weft_key_id(attr.addr.key));
	cr_assert(eq(int, chmod(path, mode), 0));
	attr.addr.ns_id &= BIT(24) - 1; /* in another network namespace */
	return attr.addr;
}

Test(folder, socket_without_permission_is_unreachable)
{
	const char *why = NULL;
	struct weft_address addr;
	unsigned int i;

	if (!drop_root())
		cr_skip_test("no other user can be taken on here");
	cr_assert(eq(int, open_side(&a), 0));
	addr = behind_a_mode(&b, 0);
	for (i = 0; i < 3; i++)
		cr_expect(not(nvl->reaches(a.iface, &addr, &why)));
	cr_assert(why != NULL);
	cr_expect(strstr(why, "may not be dialled") != NULL);
	cr_expect(eq(uint, log_lines("SELinux"), 1));
	cr_expect(eq(uint, log_lines("AppArmor"), 1));
	cr_expect(eq(uint, log_lines(""), 1));
	/* and a caller that does not ask first gets an error */
	cr_assert(eq(int, nvl->ep_create(a.iface, &addr, NULL, &a.ep), 0));
	wait_for(a.errors);
	cr_expect(eq(int, a.error, -EACCES));
	cr_expect(eq(uint, log_lines(""), 1));
	side_close(&a);
	side_close(&b);
	if (!getuid())
		cr_assert(eq(int, seteuid(0), 0));
}

static unsigned int dials;

/* connect() of this program, counted. */
int connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	dials++;
	return syscall(SYS_connect, fd, sa, len);
}

/* It is asked once, and that leaves nothing behind. */
Test(folder, reachable_peer_is_probed_once_and_connected)
{
	struct weft_address addr;
	unsigned int i;

	cr_assert(eq(int, open_side(&a), 0));
	addr = behind_a_mode(&b, 0600);
	dials = 0;
	for (i = 0; i < 1000; i++) {
		cr_assert(nvl->reaches(a.iface, &addr, NULL));
		progress_all();
	}
	cr_expect(eq(uint, dials, 1));
	cr_assert(eq(int, nvl->ep_create(a.iface, &addr, NULL, &a.ep), 0));
	wait_for(nvl->ready(a.ep));
	cr_expect(eq(uint, a.errors + b.errors, 0));
	cr_expect(eq(uint, log_lines(""), 0));
	side_close(&a);
	side_close(&b);
}

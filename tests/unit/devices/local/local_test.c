/* SPDX-License-Identifier: BSD-3-Clause */
/* Where peers of a host meet: each way in alone, and what a sandbox refuses. */
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/common/memfd.h"
#include "tests/lib/proc.h"
#include "tests/lib/refuse.h"
#include "tests/unit/devices/sides.h"

static void begin(void)
{
	begin_folder();
	log_keep();
}

TestSuite(local, .init = begin, .fini = end_pair, .timeout = 60);

/* ---- what a sandbox refuses ---------------------------------------------- */

static const struct weft_dev_ops *const devices[] = { &weft_shm_ops,
						      &weft_nvlink_ops };

static void expect_works(int wanted, const char *part)
{
	for (size_t i = 0; i < 2; i++) {
		const char *why = "";

		cr_expect(eq(int, devices[i]->works(&why), wanted), "%s",
			  devices[i]->name);
		cr_expect(yes(!part || strstr(why, part)), "%s: %s",
			  devices[i]->name, why);
	}
	/* what to make of it is for the caller */
	cr_expect(eq(uint, log_lines(""), 0));
}

Test(local, devices_work_where_nothing_is_refused)
{
	const char *why;

	expect_works(0, NULL);
	cr_expect(zero(int, weft_tcp_ops.works(&why)));
}

/* Where they went on the kernel would end the process, by SIGXFSZ. */
Test(local, devices_do_not_work_where_files_must_be_small)
{
	const struct rlimit limit = { 1 << 20, 1 << 20 };
	void *p;

	cr_assert(zero(int, setrlimit(RLIMIT_FSIZE, &limit)));
	expect_works(-EFBIG, "ulimit -f");
	cr_expect(eq(int, weft_memfd_make("weft-test", 2 << 20, &p), -EFBIG));
}

Test(local, devices_do_not_work_without_memfd_create)
{
	if (refuse_memfd(ENOSYS))
		cr_skip_test("no seccomp filter is available here");
	expect_works(-ENOSYS, "memfd_create");
}

/* What cannot be sealed cannot be shared. */
Test(local, devices_do_not_work_without_seals)
{
	if (refuse_seals(EPERM))
		cr_skip_test("no seccomp filter is available here");
	expect_works(-EPERM, "memfd_create");
}

Test(local, devices_do_not_work_where_seals_have_no_effect)
{
	if (refuse_seals(0))
		cr_skip_test("no seccomp filter is available here");
	expect_works(-EOPNOTSUPP, "memfd_create");
}

Test(local, devices_do_not_work_without_sockets)
{
	const char *why = "";

	if (refuse_call(SYS_socket, SOCK_STREAM | SOCK_CLOEXEC, EPERM))
		cr_skip_test("no seccomp filter is available here");
	expect_works(-EPERM, "Unix socket");
	cr_expect(eq(int, weft_tcp_ops.works(&why), -EPERM));
	cr_expect(eq(str, (char *)why, "no TCP socket can be made"));
}

/* No peer could be known to be of this host. */
Test(local, devices_do_not_work_without_proc)
{
	const char *why = "";

	hidden = "/proc/";
	cr_expect(eq(int, weft_shm_ops.works(&why), -ENOENT));
	cr_expect(ne(ptr, strstr(why, "boot_id cannot be read"), NULL));
	cr_expect(eq(uint, log_lines("mount /proc"), 1));
}

/* ---- one way in is enough ------------------------------------------------ */

enum { ABSTRACT = 1, FOLDER = 2 };
static int unbound, unwatched; /* of which kind none is bound, or polled */

static int kind_of(int fd)
{
	struct sockaddr_un sa;
	socklen_t len = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &len) ||
	    sa.sun_family != AF_UNIX ||
	    len <= offsetof(struct sockaddr_un, sun_path))
		return 0;
	return sa.sun_path[0] ? FOLDER : ABSTRACT;
}

/* bind() and epoll_ctl() of this program. */
int bind(int fd, const struct sockaddr *sa, socklen_t len)
{
	const struct sockaddr_un *un = (const void *)sa;
	const int kind = un->sun_path[0] ? FOLDER : ABSTRACT;

	if (sa->sa_family != AF_UNIX || !(unbound & kind))
		return (int)syscall(SYS_bind, fd, sa, len);
	errno = EACCES;
	return -1;
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	if (op != EPOLL_CTL_ADD || !(unwatched & kind_of(fd)))
		return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
	errno = ENOSPC;
	return -1;
}

static void meet(void)
{
	cr_assert(zero(int, side_init(&a, &weft_shm_ops, "shm", AF_UNSPEC)));
	cr_assert(zero(int, side_init(&b, &weft_shm_ops, "shm", AF_UNSPEC)));
	dial_both();
	cr_expect(until(a.ops->ready(a.ep) && b.ops->ready(b.ep)));
}

Test(local, peers_meet_in_the_folder_alone)
{
	unbound = ABSTRACT;
	expect_works(0, NULL);
	meet();
}

Test(local, peers_meet_by_abstract_names_alone)
{
	unbound = FOLDER;
	expect_works(0, NULL);
	meet();
}

Test(local, abstract_socket_that_cannot_be_watched_is_done_without)
{
	unwatched = ABSTRACT;
	meet();
}

Test(local, socket_in_the_folder_that_cannot_be_watched_is_done_without)
{
	unwatched = FOLDER;
	meet();
}

Test(local, without_any_way_in_nothing_is_opened)
{
	const char *why = "";

	unbound = ABSTRACT | FOLDER;
	cr_expect(eq(int, weft_shm_ops.works(&why), -EACCES));
	cr_expect(ne(ptr, strstr(why, "WEFT_RUN_DIR"), NULL));
	cr_expect(eq(int, side_init(&a, &weft_shm_ops, "shm", AF_UNSPEC),
		     -ENODEV));
}

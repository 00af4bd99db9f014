/* SPDX-License-Identifier: BSD-3-Clause */
/* What another user may have left in place of a file of weft's. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "util/file.h"

static char folder[] = "/tmp/weft-file-XXXXXX";
static const char *why;
static int dir;

static void begin(void)
{
	cr_assert(mkdtemp(folder) != NULL);
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert(ge(int, dir, 0));
	why = NULL;
}

static void end(void)
{
	unlinkat(dir, "it", 0);
	unlinkat(dir, "it", AT_REMOVEDIR);
	unlinkat(dir, "other", 0);
	close(dir);
	rmdir(folder);
}

TestSuite(file, .init = begin, .fini = end, .timeout = 10);

static void make(const char *name)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	cr_assert(ge(int, fd, 0));
	close(fd);
}

/* However it is opened: -@err, and @text says why. */
static void refused(int err, const char *text)
{
	static const int ways[] = { O_RDONLY, O_WRONLY | O_APPEND | O_CREAT,
				    O_RDWR };
	unsigned int i;

	for (i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		why = NULL;
		cr_expect(eq(int,
			     weft_file_open(dir, "it", ways[i] | O_NOFOLLOW,
					    0600, NULL, &why),
			     -err),
			  "way %u", i);
		cr_assert(why != NULL);
		cr_expect(strstr(why, text) != NULL, "way %u: %s", i, why);
	}
}

Test(file, creates_and_opens_regular_file)
{
	struct statx st;
	int fd;

	cr_expect(eq(int, weft_file_open(dir, "it", O_RDONLY, 0, NULL, &why),
		     -ENOENT));
	cr_expect(eq(str, (char *)why, strerror(ENOENT)));
	fd = weft_file_open(dir, "it", O_RDWR | O_CREAT, 0640, &st, &why);
	cr_assert(ge(int, fd, 0));
	cr_expect(eq(uint, st.stx_mode & 0777, 0640));
	cr_expect(eq(uint, st.stx_uid, geteuid()));
	cr_expect(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	cr_expect(eq(int, (int)write(fd, "x", 1), 1));
	close(fd);
}

Test(file, fifo_is_refused)
{
	cr_assert(zero(int, mkfifoat(dir, "it", 0600)));
	refused(EINVAL, "not a regular file");
}

/* A writer gets no ENXIO: it opens. */
Test(file, fifo_with_reader_is_refused)
{
	int fd;

	cr_assert(zero(int, mkfifoat(dir, "it", 0600)));
	fd = openat(dir, "it", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	cr_assert(ge(int, fd, 0));
	refused(EINVAL, "not a regular file");
	close(fd);
}

Test(file, socket_is_refused)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/it", folder);
	cr_assert(zero(int, bind(fd, (struct sockaddr *)&sa, sizeof(sa))));
	refused(EINVAL, "not a regular file");
	close(fd);
}

Test(file, folder_is_refused)
{
	cr_assert(zero(int, mkdirat(dir, "it", 0700)));
	cr_expect(eq(int, weft_file_open(dir, "it", O_RDONLY, 0, NULL, &why),
		     -EINVAL));
	cr_expect(eq(int, weft_file_open(dir, "it", O_WRONLY, 0, NULL, &why),
		     -EISDIR));
}

Test(file, symbolic_link_is_followed_unless_nofollow)
{
	int fd;

	make("other");
	cr_assert(zero(int, symlinkat("other", dir, "it")));
	refused(ELOOP, "symbolic link");
	fd = weft_file_open(dir, "it", O_RDONLY, 0, NULL, &why);
	cr_expect(ge(int, fd, 0), "where links are of use: %s", why);
	close(fd);
}

/* Where links are followed, what they lead to is what counts. */
Test(file, link_to_device_is_refused)
{
	cr_assert(zero(int, symlinkat("/dev/zero", dir, "it")));
	cr_expect(eq(int, weft_file_open(dir, "it", O_RDONLY, 0, NULL, &why),
		     -EINVAL));
}

Test(file, file_of_another_user_is_refused)
{
	if (geteuid())
		cr_skip_test("only root can give a file away");
	make("it");
	cr_assert(zero(int, fchownat(dir, "it", 12345, 12345, 0)));
	refused(EPERM, "another user");
}

Test(file, file_of_root_is_opened)
{
	int fd;

	if (geteuid())
		cr_skip_test("only root can become another user");
	make("it");
	cr_assert(zero(int, fchmodat(dir, "it", 0644, 0)));
	cr_assert(zero(int, chmod(folder, 0755)));
	cr_assert(zero(int, seteuid(65534)));
	fd = weft_file_open(dir, "it", O_RDONLY, 0, NULL, &why);
	cr_expect(ge(int, fd, 0), "%s", why);
	close(fd);
	cr_assert(zero(int, seteuid(0)));
}

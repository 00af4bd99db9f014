/* SPDX-License-Identifier: BSD-3-Clause */
/* The job secret: which files are accepted, and the errors for others. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/folder.h"
#include "tests/unit/settings/with.h"

static void begin(void)
{
	clean();
	folder_begin();
	cr_assert(zero(int, chdir(folder)));
}

TestSuite(settings_secret, .init = begin, .fini = folder_end, .timeout = 10);

static int secret_of(const char *text, mode_t mode, const uint8_t **bytes,
		     size_t *len)
{
	char path[] = "./other-XXXXXX";
	const int fd = mkstemp(path);
	int err;

	cr_assert(ge(int, fd, 0));
	cr_assert(eq(sz, (size_t)write(fd, text, strlen(text)), strlen(text)));
	cr_assert(zero(int, fchmod(fd, mode)));
	close(fd);
	with("WEFT_SECRET_FILE", path);
	err = weft_settings_secret(bytes, len);
	cr_expect(eq(int, weft_settings_secret(bytes, len), err), "again");
	unlink(path);
	return err;
}

Test(settings_secret, secret_file_is_read_and_checked)
{
	const uint8_t *bytes = NULL;
	size_t len = 7;
	char big[5000];

	cr_expect(zero(int, weft_settings_secret(&bytes, &len)));
	cr_expect(zero(sz, len), "none is set");

	cr_assert(zero(int, secret_of("0123456789abcdef", 0600, &bytes, &len)));
	cr_expect(eq(sz, len, 16));
	cr_expect(zero(int, memcmp(bytes, "0123456789abcdef", 16)));
	cr_expect(zero(int, caught.count), "%s", caught.text);

	cr_expect(eq(int, secret_of("0123456789abcde", 0600, &bytes, &len),
		     -EINVAL));
	cr_expect(eq(int, caught.count, 1), "once");
	cr_expect(eq(int, secret_of("", 0600, &bytes, &len), -EINVAL));
	memset(big, 'x', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	cr_expect(eq(int, secret_of(big, 0600, &bytes, &len), -EINVAL));
	with("WEFT_SECRET_FILE", "/nonexistent/secret");
	cr_expect(eq(int, weft_settings_secret(&bytes, &len), -ENOENT));
	cr_expect(has(caught.text, "/nonexistent/secret"), "%s", caught.text);
	with("WEFT_SECRET_FILE", "/tmp");
	cr_expect(lt(int, weft_settings_secret(&bytes, &len), 0), "a folder");
}

/* Modes of which the group is the question: root may let it read. */
Test(settings_secret, group_may_read_roots_file_only)
{
	static const mode_t refused[] = { 0444, 0604, 0644, 0660, 0420, 0450 };
	const uint8_t *bytes = NULL;
	const bool root = !geteuid();
	unsigned int i;
	size_t len;

	for (i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		cr_expect(eq(int,
			     secret_of("0123456789abcdef", refused[i], &bytes,
				       &len),
			     -EPERM),
			  "%03o", refused[i]);
		cr_expect(has(caught.text, "chmod 600"), "%s", caught.text);
		cr_expect(eq(int, has(caught.text, "defaultMode: 0440"), root),
			  "%s", caught.text);
	}
	if (root) {
		cr_expect(zero(int, secret_of("0123456789abcdef", 0440, &bytes,
					      &len)),
			  "%s", caught.text);
		cr_expect(eq(sz, len, 16));
		cr_expect(zero(int, secret_of("0123456789abcdef", 0640, &bytes,
					      &len)),
			  "%s", caught.text);
		cr_assert(zero(int, chown(".", 12345, 12345)));
		cr_assert(zero(int, setegid(12345)));
		cr_assert(zero(int, seteuid(12345)));
	}
	cr_expect(eq(int, secret_of("0123456789abcdef", 0640, &bytes, &len),
		     -EPERM));
	cr_expect(eq(int, secret_of("0123456789abcdef", 0440, &bytes, &len),
		     -EPERM));
	cr_expect(has(caught.text, "chmod 600"), "%s", caught.text);
	cr_expect(zero(int, secret_of("0123456789abcdef", 0400, &bytes, &len)));
	if (root)
		cr_assert(zero(int, seteuid(0)));
}

static void write_secret(const char *path)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	cr_assert(eq(int, (int)write(fd, "0123456789abcdef", 16), 16));
	close(fd);
	with("WEFT_SECRET_FILE", "secret");
}

Test(settings_secret, fifo_is_refused)
{
	const uint8_t *bytes = NULL;
	size_t len;

	cr_assert(zero(int, mkfifo("secret", 0600)));
	with("WEFT_SECRET_FILE", "secret");
	cr_expect(eq(int, weft_settings_secret(&bytes, &len), -EINVAL));
	cr_expect(has(caught.text, "not a regular file"), "%s", caught.text);
}

Test(settings_secret, file_of_another_user_is_refused)
{
	const uint8_t *bytes = NULL;
	size_t len;

	if (geteuid())
		cr_skip_test("only root can give a file away");
	write_secret("secret");
	cr_assert(zero(int, chown("secret", 12345, 12345)));
	cr_expect(eq(int, weft_settings_secret(&bytes, &len), -EPERM));
	cr_expect(has(caught.text, "another user"), "%s", caught.text);
}

/* secret -> ..data/secret, which another link may stand for. */
Test(settings_secret, kubernetes_mount_is_accepted)
{
	const uint8_t *bytes = NULL;
	size_t len = 0;

	cr_assert(zero(int, mkdir("..data", 0700)));
	cr_assert(zero(int, symlink("..data/secret", "secret")));
	write_secret("..data/secret");
	cr_expect(zero(int, weft_settings_secret(&bytes, &len)));
	cr_expect(eq(sz, len, 16));
	cr_expect(zero(int, caught.count), "%s", caught.text);
}

/* Who wrote that meant a secret: a run without one is not what was asked. */
Test(settings_secret, empty_variable_is_refused)
{
	const uint8_t *bytes = NULL;
	size_t len = 7;

	with("WEFT_SECRET_FILE", "");
	cr_expect(eq(int, weft_settings_secret(&bytes, &len), -EINVAL));
	cr_expect(eq(int, weft_settings_secret(&bytes, &len), -EINVAL));
	cr_expect(eq(int, caught.count, 1), "once");
	cr_expect(has(caught.text, "WEFT_SECRET_FILE is set but empty"), "%s",
		  caught.text);
	clearenv();
	weft_settings_reset();
	cr_expect(zero(int, weft_settings_secret(&bytes, &len)), "unset");
	cr_expect(zero(sz, len));
}

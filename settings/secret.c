/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings/table.h"
#include "util/file.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/util.h"

#define SECRET_MIN  16 /* bytes: less can be guessed off line */
#define SECRET_MAX  4096
#define SECRET_SIZE (SECRET_MAX + 1)

static struct {
	bool done;
	int err;
	size_t len;
	uint8_t *bytes; /* SECRET_SIZE; NULL: not read */
} secret;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int read_secret(const char *path)
{
	const char *why;
	struct statx st;
	int fd, err = 0;
	ssize_t n;

	/*
	 * Kubernetes mounts secrets behind symbolic links; they belong to root
	 * and, if the pod has an fsGroup, that group may read them.
	 */
	fd = weft_file_open(AT_FDCWD, path, O_RDONLY, 0, &st, &why);
	if (fd < 0) {
		weft_error(
			"cannot use '%s', named by WEFT_SECRET_FILE: %s; nothing may connect",
			path, why);
		return fd;
	}
	/* as with PostgreSQL's keys: root may let a group read it */
	if (st.stx_mode & (st.stx_uid ? 077 : 037)) {
		weft_error(
			"'%s', named by WEFT_SECRET_FILE, is open to others (mode %03o); nothing may connect until chmod 600%s",
			path, st.stx_mode & 0777,
			st.stx_uid
				? ""
				: " (or 640, for its group; in a Kubernetes Secret defaultMode: 0440)");
		err = -EPERM;
		goto close_fd;
	}
	secret.bytes = weft_secret_alloc(SECRET_SIZE);
	if (!secret.bytes) {
		err = weft_fail(-ENOMEM, "no memory for the job secret");
		goto close_fd;
	}
	do {
		n = read(fd, secret.bytes + secret.len,
			 SECRET_SIZE - secret.len);
		if (n > 0)
			secret.len += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0) {
		err = weft_fail(
			-errno,
			"cannot read '%s', named by WEFT_SECRET_FILE; nothing may connect",
			path);
	} else if (secret.len < SECRET_MIN || secret.len > SECRET_MAX) {
		weft_error(
			"'%s', named by WEFT_SECRET_FILE, has %s than %d bytes; nothing may connect ('head -c 32 /dev/urandom > FILE' makes a good one)",
			path, secret.len < SECRET_MIN ? "less" : "more",
			secret.len < SECRET_MIN ? SECRET_MIN : SECRET_MAX);
		err = -EINVAL;
	}
close_fd:
	close(fd);
	return err;
}

static int check_unset(void)
{
	if (!secure_getenv("WEFT_SECRET_FILE"))
		return 0;
	weft_error(
		"WEFT_SECRET_FILE is set but empty; nothing may connect until it names a file or is unset");
	return -EINVAL;
}

int weft_settings_secret(const uint8_t **bytes, size_t *len)
{
	const char *path = weft_settings()->secret_file;
	int err;

	pthread_mutex_lock(&lock);
	if (!secret.done) {
		secret.len = 0;
		secret.err = *path ? read_secret(path) : check_unset();
		secret.done = true;
	}
	err = secret.err;
	if (!err) {
		*bytes = secret.bytes;
		*len = secret.len;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

void weft_settings_secret_reset(void)
{
	pthread_mutex_lock(&lock);
	weft_secret_free(secret.bytes, SECRET_SIZE);
	memset(&secret, 0, sizeof(secret));
	pthread_mutex_unlock(&lock);
}

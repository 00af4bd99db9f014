/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/host.h"
#include "settings/settings.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/util.h"

#define COOKIE_LEN 16
#define NAMES	   8  /* how many are tried */
#define NAME_LEN   32 /* "weft-4294967295.7" */

/* ---- its name ------------------------------------------------------------ */

/*
 * weft-<uid>, or weft-<uid>.1 and so on if another user has taken that: in a
 * folder that all may write to, any user can.
 */
static void make_name(unsigned int i, char name[NAME_LEN])
{
	if (i)
		snprintf(name, NAME_LEN, "weft-%u.%u", geteuid(), i);
	else
		snprintf(name, NAME_LEN, "weft-%u", geteuid());
}

static bool is_ours(const struct statx *st)
{
	return S_ISDIR(st->stx_mode) && st->stx_uid == geteuid();
}

/*
 * Find the first name that is a folder of this user, else the first free one:
 * so processes that start before and after another user takes a name find the
 * same folder.  0: it exists; -ENOENT: create it; -EPERM: all are taken, the
 * first one as @taken tells; or -errno.
 */
static int choose_name(int parent, char name[NAME_LEN], struct statx *taken)
{
	unsigned int i, unused = NAMES;
	struct statx st;

	for (i = 0; i < NAMES; i++) {
		make_name(i, name);
		if (statx(parent, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS,
			  &st)) {
			if (errno != ENOENT)
				return -errno;
			unused = weft_min(unused, i);
		} else if (is_ours(&st)) {
			return 0;
		} else if (!i) {
			*taken = st;
		}
	}
	make_name(unused % NAMES, name);
	return unused < NAMES ? -ENOENT : -EPERM;
}

/* ---- opening ------------------------------------------------------------- */

static void warn_taken(const char *dir, const struct statx *st)
{
	weft_warn_once(
		"'%s/weft-%u' belongs to user %u (%s, mode %o), and the names up to .%u are taken, too: containers do not meet in '%s'; remove them, or set WEFT_RUN_DIR to a folder in which other users cannot make any",
		dir, geteuid(), st->stx_uid,
		S_ISDIR(st->stx_mode) ? "a folder" : "not a folder",
		st->stx_mode & 07777, NAMES - 1, dir);
}

/* -EPERM: others have access; logged. */
static int check_dir(int fd, const char *path)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st))
		return -errno;
	if (!is_ours(&st) || (st.stx_mode & 077)) {
		weft_warn_once(
			"'%s' is not a folder of this user alone (owner %u, mode %o), so it is not used; remove it, or set WEFT_RUN_DIR",
			path, st.stx_uid, st.stx_mode & 07777);
		return -EPERM;
	}
	return 0;
}

/*
 * In sysfs, for example, or in an immutable folder.  Not -EPERM, which means
 * that the cause was logged.
 */
static int creation_error(void)
{
	return errno == EPERM ? -EACCES : -errno;
}

/* 0: @name exists now.  Another user may take a free one meanwhile. */
static int make_folder(int parent, const char *dir, char name[NAME_LEN])
{
	struct statx taken = { 0 };
	unsigned int tries;
	int err = -EBUSY;

	for (tries = 0; tries <= NAMES; tries++) {
		err = choose_name(parent, name, &taken);
		if (err != -ENOENT)
			break;
		if (!mkdirat(parent, name, 0700))
			return 0;
		if (errno != EEXIST)
			return creation_error();
	}
	if (err == -EPERM)
		warn_taken(dir, &taken);
	return err;
}

/* Open or create the folder of this user in @dir. */
static int open_user_folder(const char *dir, char *path, size_t len)
{
	char name[NAME_LEN];
	int parent, fd = -1, err;

	make_name(0, name);
	snprintf(path, len, "%s/%s", dir, name);
	parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return -errno;
	err = make_folder(parent, dir, name);
	snprintf(path, len, "%s/%s", dir, name);
	if (!err) {
		fd = openat(parent, name,
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		err = fd < 0 ? -errno : check_dir(fd, path);
	}
	close(parent);
	if (err && fd >= 0)
		close(fd);
	return err ? err : fd;
}

/* ---- its cookie ---------------------------------------------------------- */

/* -EBADMSG: not a cookie; logged. */
static int read_cookie(struct weft_rundir *dir, uint8_t cookie[COOKIE_LEN],
		       struct statx *st)
{
	const char *why;
	int fd, err = 0;

	fd = weft_file_open(dir->fd, "cookie", O_RDONLY | O_NOFOLLOW, 0, st,
			    &why);
	if (fd == -EINVAL || fd == -EPERM || fd == -ELOOP) {
		err = -EBADMSG;
	} else if (fd < 0) {
		return fd;
	} else if (st->stx_size != COOKIE_LEN ||
		   read(fd, cookie, COOKIE_LEN) != COOKIE_LEN) {
		err = -EBADMSG;
		why = "it is damaged";
	}
	if (err)
		weft_warn_once(
			"cannot use '%s/cookie': %s; remove it, and weft makes a new one; until then containers do not meet in this folder",
			dir->path, why);
	if (fd >= 0)
		close(fd);
	return err;
}

/* Atomic: write it under a random name, then link it. */
static int make_cookie(int dir)
{
	uint8_t cookie[COOKIE_LEN];
	uint64_t name;
	char tmp[32];
	int fd, err;

	err = weft_random(cookie, sizeof(cookie));
	if (!err)
		err = weft_random(&name, sizeof(name));
	if (err)
		return err;
	snprintf(tmp, sizeof(tmp), "t-%016" PRIx64, name);
	fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return creation_error();
	if (write(fd, cookie, sizeof(cookie)) != sizeof(cookie))
		err = -ENOSPC; /* a short write of 16 bytes */
	close(fd);
	if (!err && linkat(dir, tmp, dir, "cookie", 0) && errno != EEXIST)
		/* link(2): the file system has no hard links */
		err = errno == EPERM ? -EOPNOTSUPP : -errno;
	unlinkat(dir, tmp, 0);
	return err;
}

/*
 * The cookie identifies a folder that is really shared.  Include device and
 * inode, because a container image may have been built with a cookie in it.
 */
static int compute_id(struct weft_rundir *dir)
{
	uint8_t cookie[COOKIE_LEN];
	struct statx st;
	uint64_t parts[4];
	uint8_t data[COOKIE_LEN + sizeof(parts)];
	int err;

	err = read_cookie(dir, cookie, &st);
	if (err == -ENOENT) {
		err = make_cookie(dir->fd);
		if (!err)
			err = read_cookie(dir, cookie, &st);
	}
	if (err)
		return err;
	parts[0] = weft_host_id();
	parts[1] = st.stx_dev_major;
	parts[2] = st.stx_dev_minor;
	parts[3] = st.stx_ino;
	memcpy(data, cookie, COOKIE_LEN);
	memcpy(data + COOKIE_LEN, parts, sizeof(parts));
	dir->id = weft_hash_u64("weft run folder", data, sizeof(data));
	if (!dir->id)
		dir->id = 1;
	return 0;
}

static int open_in(const char *in, struct weft_rundir *dir)
{
	int err;

	dir->id = 0;
	dir->fd = open_user_folder(in, dir->path, sizeof(dir->path));
	err = dir->fd < 0 ? dir->fd : compute_id(dir);
	if (!err)
		return 0;
	weft_info("no run folder in '%s' (%s)", in, strerror(-err));
	if (dir->fd >= 0)
		close(dir->fd);
	dir->fd = -1;
	return err;
}

int weft_rundir_open(struct weft_rundir *dir)
{
	const char *named = weft_settings()->run_dir;
	int err;

	if (named && *named)
		return open_in(named, dir);
	err = open_in("/run/weft", dir);
	if (!err)
		return 0;
	/* warn: /run/weft exists for this, and /dev/shm may not be shared */
	if (err != -ENOENT && err != -EPERM && err != -EBADMSG)
		weft_warn_once(
			"'/run/weft' cannot be used by uid %u (%s): give it mode 1777, or set WEFT_RUN_DIR; /dev/shm is used, which containers may not share",
			geteuid(), strerror(-err));
	return open_in("/dev/shm", dir);
}

void weft_rundir_close(struct weft_rundir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	dir->fd = -1;
}

/* Open an existing folder. */
static int check_ours(int parent, const char *name)
{
	struct statx st;

	if (statx(parent, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st))
		return -errno;
	if (!is_ours(&st) || (st.stx_mode & 077))
		return -EPERM;
	return faccessat(parent, name, W_OK | X_OK, AT_EACCESS) ? -errno : 0;
}

/* What open_in() would return, without creating anything. */
static int check_in(const char *dir, char *path, size_t len)
{
	struct statx st;
	char name[NAME_LEN];
	int parent, err;

	make_name(0, name);
	snprintf(path, len, "%s/%s", dir, name);
	parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return -errno;
	err = choose_name(parent, name, &st);
	snprintf(path, len, "%s/%s", dir, name);
	if (err == -ENOENT)
		err = faccessat(parent, ".", W_OK | X_OK, AT_EACCESS) ? -errno
								      : 0;
	else if (!err)
		err = check_ours(parent, name);
	close(parent);
	return err;
}

int weft_rundir_check(char *path, size_t len)
{
	const char *named = weft_settings()->run_dir;

	if (named && *named)
		return check_in(named, path, len);
	if (!check_in("/run/weft", path, len))
		return 0;
	return check_in("/dev/shm", path, len);
}

static int find_in(const char *in, struct weft_rundir *dir)
{
	char name[NAME_LEN];
	struct statx taken;
	int parent, err;

	snprintf(dir->path, sizeof(dir->path), "%s", in);
	parent = open(in, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return -errno;
	err = choose_name(parent, name, &taken);
	if (!err)
		err = check_ours(parent, name);
	if (!err) {
		snprintf(dir->path, sizeof(dir->path), "%s/%s", in, name);
		dir->fd =
			openat(parent, name,
			       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		err = dir->fd < 0 ? -errno : 0;
	}
	close(parent);
	return err;
}

/* The @i-th folder that processes of this user may use, or NULL. */
static const char *folder_at(unsigned int i)
{
	static const char *const usual[] = { "/run/weft", "/dev/shm" };
	const char *named = weft_settings()->run_dir;

	if (named && *named)
		return i ? NULL : named;
	return i < ARRAY_SIZE(usual) ? usual[i] : NULL;
}

int weft_rundir_find(unsigned int i, struct weft_rundir *dir)
{
	const char *in = folder_at(i);

	*dir = (struct weft_rundir){ .fd = -1 };
	return in ? find_in(in, dir) : -ERANGE;
}

int weft_rundir_make(struct weft_rundir *dir)
{
	const char *in;
	unsigned int i;
	int err = 0;

	*dir = (struct weft_rundir){ .fd = -1 };
	for (i = 0; dir->fd < 0 && (in = folder_at(i)); i++) {
		/* first, because the next call warns */
		err = check_in(in, dir->path, sizeof(dir->path));
		if (err)
			continue;
		dir->fd = open_user_folder(in, dir->path, sizeof(dir->path));
		err = dir->fd < 0 ? dir->fd : 0;
	}
	return err;
}

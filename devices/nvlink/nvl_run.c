/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The folder that pods share: WEFT_RUN_DIR, else /run/weft, else /dev/shm.
 *
 * In it, a folder "weft-<uid>" of ours alone (0700, checked each time) with
 *   cookie      random bytes: who reads the same ones is in the same folder
 *   s-<id>      the socket of a listening interface, <id> from its random key
 *   l-<id>      flocked as long as that interface lives
 *   b-<gpu>     the GPU's budget for rings (nvl_budget.c)
 * Nothing here is believed: it says whom to dial, the hello says who answers.
 * Kernel locks and not pids tell what is stale: pids mean nothing across pods.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "bootstrap/hash.h"
#include "bootstrap/host.h"
#include "bootstrap/settings.h"
#include "devices/nvlink.h"
#include "devices/nvlink/nvl.h"
#include "util/file.h"
#include "util/log.h"

#define COOKIE_LEN	16

struct nvl_run {
	int dir;			/* the weft-<uid> folder */
	int lock;			/* our l-<id>; -1 */
	uint64_t id;
	char path[200];			/* for messages */
};

static int check_dir(int fd, const char *path)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st))
		return -errno;
	if (!S_ISDIR(st.stx_mode) || st.stx_uid != geteuid() ||
	    (st.stx_mode & 077)) {
		weft_warn_once("'%s' is not a folder of this user alone (owner "
			       "%u, mode %o); it is not used, so pods without a "
			       "common network namespace use TCP", path,
			       st.stx_uid, st.stx_mode & 07777);
		return -EPERM;
	}
	return 0;
}

/* Opens or makes DIR/weft-<uid>. */
static int open_folder(const char *dir, char *path, size_t len)
{
	char sub[32];
	int parent, fd, err;

	snprintf(sub, sizeof(sub), "weft-%u", geteuid());
	snprintf(path, len, "%s/%s", dir, sub);
	parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return -errno;
	if (mkdirat(parent, sub, 0700) && errno != EEXIST) {
		err = -errno;
		close(parent);
		return err;
	}
	fd = openat(parent, sub,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	err = fd < 0 ? -errno : check_dir(fd, path);
	close(parent);
	if (err && fd >= 0)
		close(fd);
	return err ? err : fd;
}

/* -EBADMSG: it is none, which has been said. */
static int read_cookie(struct nvl_run *run, uint8_t cookie[COOKIE_LEN],
		       struct statx *st)
{
	const char *why;
	int fd, err = 0;

	fd = weft_file_open(run->dir, "cookie", O_RDONLY | O_NOFOLLOW, 0, st,
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
		weft_warn_once("cannot use '%s/cookie': %s; remove it, and weft "
			       "makes a new one; until then pods do not meet "
			       "in this folder", run->path, why);
	if (fd >= 0)
		close(fd);
	return err;
}

/* Whole or not at all: written under a random name and then linked. */
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
		return -errno;
	if (write(fd, cookie, sizeof(cookie)) != sizeof(cookie))
		err = -ENOSPC;		/* of 16 bytes: the disk is full */
	close(fd);
	if (!err && linkat(dir, tmp, dir, "cookie", 0) && errno != EEXIST)
		err = -errno;
	unlinkat(dir, tmp, 0);
	return err;
}

/*
 * The cookie alone would do for a folder that is really shared.  Device and
 * inode go in too, because an image can be built with a cookie in it.
 */
static int identify(struct nvl_run *run)
{
	uint8_t cookie[COOKIE_LEN];
	struct statx st;
	uint64_t parts[4];
	uint8_t data[COOKIE_LEN + sizeof(parts)];
	int err;

	err = read_cookie(run, cookie, &st);
	if (err == -ENOENT) {
		err = make_cookie(run->dir);
		if (!err)
			err = read_cookie(run, cookie, &st);
	}
	if (err)
		return err;
	parts[0] = weft_host_id();
	parts[1] = st.stx_dev_major;
	parts[2] = st.stx_dev_minor;
	parts[3] = st.stx_ino;
	memcpy(data, cookie, COOKIE_LEN);
	memcpy(data + COOKIE_LEN, parts, sizeof(parts));
	run->id = weft_hash_u64("weft run folder", data, sizeof(data));
	if (!run->id)
		run->id = 1;
	return 0;
}

/* A socket nobody listens on, whose lock nobody holds, is of the dead. */
static void remove_stale(struct nvl_run *run, const char *lock_name)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	const char *why;
	char name[32];
	int fd, s;

	fd = weft_file_open(run->dir, lock_name, O_RDONLY | O_NOFOLLOW, 0,
			    NULL, &why);
	if (fd < 0)
		return;
	if (flock(fd, LOCK_EX | LOCK_NB))
		goto out;
	snprintf(name, sizeof(name), "s-%s", lock_name + 2);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s < 0)
		goto out;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s",
		 run->dir, name);
	if (connect(s, (struct sockaddr *)&sa, sizeof(sa)) &&
	    (errno == ECONNREFUSED || errno == ENOENT)) {
		unlinkat(run->dir, name, 0);
		unlinkat(run->dir, lock_name, 0);
	}
	close(s);
out:
	close(fd);
}

static void sweep(struct nvl_run *run)
{
	struct dirent *e;
	DIR *d;
	int fd;

	/* a descriptor of its own: a DIR moves the offset of what it got */
	fd = openat(run->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(d)))
		if (e->d_name[0] == 'l' && e->d_name[1] == '-' &&
		    strlen(e->d_name) == 18)
			remove_stale(run, e->d_name);
	closedir(d);
}

static int open_at(const char *dir, struct nvl_run **out)
{
	struct nvl_run *run = calloc(1, sizeof(*run));
	int err;

	if (!run)
		return -ENOMEM;
	run->lock = -1;
	run->dir = open_folder(dir, run->path, sizeof(run->path));
	err = run->dir < 0 ? run->dir : identify(run);
	if (err) {
		weft_info("no folder for pods in '%s' (%s)", dir,
			  strerror(-err));
		if (run->dir >= 0)
			close(run->dir);
		free(run);
		return err;
	}
	sweep(run);
	*out = run;
	return 0;
}

/* 0, or why open_at() would not work; makes nothing. */
static int look_at(const char *dir, char *path, size_t len)
{
	struct statx st;
	int parent, err = 0;
	char sub[32];

	snprintf(sub, sizeof(sub), "weft-%u", geteuid());
	snprintf(path, len, "%s/%s", dir, sub);
	parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return -errno;
	if (!statx(parent, sub, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st)) {
		if (!S_ISDIR(st.stx_mode))
			err = -ENOTDIR;
		else if (st.stx_uid != geteuid() || (st.stx_mode & 077))
			err = -EPERM;
		else if (faccessat(parent, sub, W_OK | X_OK, AT_EACCESS))
			err = -errno;
	} else if (faccessat(parent, ".", W_OK | X_OK, AT_EACCESS)) {
		err = -errno;
	}
	close(parent);
	return err;
}

int weft_nvl_folder(char *path, size_t len)
{
	const char *named = weft_settings()->run_dir;

	if (named && *named)
		return look_at(named, path, len);
	if (!look_at("/run/weft", path, len))
		return 0;
	return look_at("/dev/shm", path, len);
}

struct nvl_run *nvl_run_open(void)
{
	const char *named = weft_settings()->run_dir;
	struct nvl_run *run = NULL;

	if (named && *named) {
		if (open_at(named, &run) != -EBADMSG && !run)
			weft_warn_once("the folder of WEFT_RUN_DIR ('%s') "
				       "cannot be used: mount it with write "
				       "access for uid %u; peers in other "
				       "network namespaces are reached by TCP",
				       named, geteuid());
		return run;
	}
	if (open_at("/run/weft", &run))
		open_at("/dev/shm", &run);
	return run;
}

void nvl_run_close(struct nvl_run *run)
{
	if (!run)
		return;
	if (run->lock >= 0)
		close(run->lock);
	close(run->dir);
	free(run);
}

uint64_t nvl_run_id(const struct nvl_run *run)
{
	return run ? run->id : 0;
}

/* Through /proc, so that neither length nor a swapped folder matters. */
static void socket_path(struct nvl_run *run, uint64_t id,
			struct sockaddr_un *sa)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	snprintf(sa->sun_path, sizeof(sa->sun_path),
		 "/proc/self/fd/%d/s-%016" PRIx64, run->dir, id);
}

/* The lock first: a socket without one would be swept away. */
static int take_lock(struct nvl_run *run, uint64_t id)
{
	struct statx st;
	char name[32];
	int fd, tries;

	snprintf(name, sizeof(name), "l-%016" PRIx64, id);
	for (tries = 0; tries < 8; tries++) {
		fd = nvl_run_open_file(run, name);
		if (fd < 0)
			return fd;
		/* a sweeper may have locked and unlinked it in between */
		if (!flock(fd, LOCK_EX | LOCK_NB) &&
		    !statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &st) &&
		    st.stx_nlink) {
			run->lock = fd;
			return 0;
		}
		close(fd);
	}
	return -EBUSY;
}

int nvl_run_listen(struct nvl_run *run, uint64_t id)
{
	struct sockaddr_un sa;
	int fd, err;

	err = take_lock(run, id);
	if (err)
		return weft_fail(err, "cannot lock a file in '%s'", run->path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return weft_fail(errno, "cannot make a Unix socket");
	socket_path(run, id, &sa);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || listen(fd, SOMAXCONN)) {
		err = weft_fail(errno, "cannot listen in '%s'; on EACCES see "
				"whether SELinux or AppArmor forbids sockets "
				"there", run->path);
		close(fd);
		return err;
	}
	return fd;
}

void nvl_run_unlisten(struct nvl_run *run, uint64_t id)
{
	char name[32];

	snprintf(name, sizeof(name), "s-%016" PRIx64, id);
	unlinkat(run->dir, name, 0);
	snprintf(name, sizeof(name), "l-%016" PRIx64, id);
	unlinkat(run->dir, name, 0);
	if (run->lock >= 0)
		close(run->lock);
	run->lock = -1;
}

int nvl_run_connect(struct nvl_run *run, int fd, uint64_t id)
{
	struct sockaddr_un sa;

	socket_path(run, id, &sa);
	return connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ? -errno : 0;
}

int nvl_run_open_file(const struct nvl_run *run, const char *name)
{
	const char *why;

	return weft_file_open(run->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW,
			      0600, NULL, &why);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What devices keep in the run folder (host/rundir.h):
 *   s-<id>      the socket of a listening interface, <id> from its random key
 *   l-<id>      flocked as long as that interface lives
 * Nothing here is trusted: it says which socket to dial, and the hello proves
 * the peer.  Locks, not pids, tell which files are stale: pids mean nothing in
 * another container.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/common/forked.h"
#include "devices/local/folder.h"
#include "host/rundir.h"
#include "settings/settings.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/log.h"
#include "util/parse.h"

#define LOCK_MS 1000 /* longest wait for a lock that another process keeps */

struct weft_folder {
	struct weft_rundir dir;
	int lock; /* our l-<id>; -1 */
};

int weft_folder_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? weft_fail(-errno, "cannot make a Unix socket") : fd;
}

/* Through /proc: the path is short, and the folder cannot be exchanged. */
static void socket_path(const struct weft_folder *run, uint64_t id,
			struct sockaddr_un *sa)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	snprintf(sa->sun_path, sizeof(sa->sun_path),
		 "/proc/self/fd/%d/s-%016" PRIx64, run->dir.fd, id);
}

static void remove_files(const struct weft_folder *run, uint64_t id)
{
	char name[32];

	snprintf(name, sizeof(name), "s-%016" PRIx64, id);
	unlinkat(run->dir.fd, name, 0);
	snprintf(name, sizeof(name), "l-%016" PRIx64, id);
	unlinkat(run->dir.fd, name, 0);
}

/* A socket without a listener whose lock is free: its owner is dead. */
static void remove_stale_file(struct weft_folder *run, const char *lock_name)
{
	struct sockaddr_un sa;
	const char *why;
	char text[32];
	uint64_t id;
	int fd, s = -1;

	snprintf(text, sizeof(text), "0x%s", lock_name + 2);
	if (weft_parse_u64(text, 0, UINT64_MAX, &id))
		return;
	fd = weft_file_open(run->dir.fd, lock_name, O_RDONLY | O_NOFOLLOW, 0,
			    NULL, &why);
	if (fd < 0)
		return;
	if (!flock(fd, LOCK_EX | LOCK_NB))
		s = weft_folder_socket();
	if (s >= 0) {
		socket_path(run, id, &sa);
		if (connect(s, (struct sockaddr *)&sa, sizeof(sa)) &&
		    (errno == ECONNREFUSED || errno == ENOENT))
			remove_files(run, id);
		close(s);
	}
	close(fd);
}

static void sweep_folder(struct weft_folder *run)
{
	struct dirent *e;
	DIR *d;
	int fd;

	/* a descriptor of its own: a DIR moves the offset of what it got */
	fd = openat(run->dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(d)))
		if (e->d_name[0] == 'l' && e->d_name[1] == '-' &&
		    strlen(e->d_name) == 18)
			remove_stale_file(run, e->d_name);
	closedir(d);
}

struct weft_folder *weft_folder_open(void)
{
	struct weft_folder *run = calloc(1, sizeof(*run));
	struct weft_setting_info named;
	int err;

	if (!run)
		return NULL;
	run->lock = -1;
	err = weft_rundir_open(&run->dir);
	if (!err) {
		sweep_folder(run);
		return run;
	}
	weft_settings_named("WEFT_RUN_DIR", &named);
	if (*named.value && err != -EPERM && err != -EBADMSG)
		weft_warn_once(
			"cannot use '%s', in the folder of %s: %s; mount that folder with write access for uid %u; peers in other network namespaces are reached over TCP",
			run->dir.path, weft_setting_variable(&named),
			strerror(-err), geteuid());
	free(run);
	return NULL;
}

void weft_folder_close(struct weft_folder *run)
{
	if (!run)
		return;
	if (run->lock >= 0)
		close(run->lock);
	weft_rundir_close(&run->dir);
	free(run);
}

void weft_folder_forget(struct weft_folder *run)
{
	weft_forked_close(&run->lock);
	weft_rundir_close(&run->dir);
}

uint64_t weft_folder_id(const struct weft_folder *run)
{
	return run ? run->dir.id : 0;
}

/*
 * Take the lock first: a socket without one would be removed.  Each process
 * that starts tries every lock for a moment, so if many start at once the first
 * try often fails.
 */
static int take_lock(struct weft_folder *run, uint64_t id)
{
	const uint64_t end = weft_now_ms() + LOCK_MS;
	struct statx st;
	const char *why;
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "l-%016" PRIx64, id);
	do {
		fd = weft_file_open(run->dir.fd, name,
				    O_RDWR | O_CREAT | O_NOFOLLOW, 0600, NULL,
				    &why);
		if (fd < 0)
			return fd;
		/* another process may have locked and unlinked it in between */
		if (!flock(fd, LOCK_EX | LOCK_NB) &&
		    !statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &st) &&
		    st.stx_nlink) {
			run->lock = fd;
			return 0;
		}
		close(fd);
		sched_yield();
	} while (weft_now_ms() < end);
	return -EBUSY;
}

int weft_folder_listen(struct weft_folder *run, uint64_t id)
{
	struct sockaddr_un sa;
	int fd, err;

	err = take_lock(run, id);
	if (err)
		return weft_fail(err, "cannot lock a file in '%s'",
				 run->dir.path);
	fd = weft_folder_socket();
	if (fd < 0)
		return fd;
	socket_path(run, id, &sa);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	    listen(fd, SOMAXCONN)) {
		err = weft_fail(
			-errno,
			"cannot listen in '%s'; on EACCES see whether SELinux or AppArmor forbids sockets there, on ENOENT whether there is a /proc",
			run->dir.path);
		close(fd);
		return err;
	}
	return fd;
}

void weft_folder_unlisten(struct weft_folder *run, uint64_t id)
{
	remove_files(run, id);
	if (run->lock >= 0)
		close(run->lock);
	run->lock = -1;
}

int weft_folder_connect(struct weft_folder *run, int fd, uint64_t id)
{
	struct sockaddr_un sa;

	socket_path(run, id, &sa);
	return connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ? -errno : 0;
}

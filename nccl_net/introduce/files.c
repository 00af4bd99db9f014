/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/introduce/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "util/file.h"
#include "util/fork.h"
#include "util/hash.h"
#include "util/list.h"

static const char shm[] = "/dev/shm", shm_file[] = "/dev/shm/nccl-";
static const char socket_name[] = "tmp/nccl-socket-";

#define PATH_LEN 128 /* the folder and a name of NCCL's */
#define SUFFIX	 6   /* "XXXXXX" of mkstemp() */
#define TRIES	 8
/* bind() creates the file before its socket can be seen to be alive. */
#define SWEEP_AGE_S 2

struct own_socket { /* a socket of this process */
	struct weft_list link;
	unsigned int forks; /* util/fork.h: whose it is */
	struct sockaddr_un sa;
};

static _Atomic(const struct weft_samehost *) host;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list sockets = { &sockets, &sockets };

/* ---- names -------------------------------------------------------------- */

const char *weft_nccl_stat_path(const char *path)
{
	const struct weft_samehost *h = atomic_load(&host);

	return h && path && !strcmp(path, shm) ? h->folder : path;
}

/* False: it is not a name of NCCL, or has no translation. */
static bool move_file(const char *path, char to[PATH_LEN])
{
	const struct weft_samehost *h = atomic_load(&host);
	const size_t len = sizeof(shm_file) - 1;

	if (!h || !path || strncmp(path, shm_file, len) ||
	    strchr(path + len, '/'))
		return false;
	return snprintf(to, PATH_LEN, "%s/%s", h->folder, path + sizeof(shm)) <
	       PATH_LEN;
}

static void move_name(const struct weft_samehost *h, const char *name,
		      size_t len, struct sockaddr_un *to)
{
	const struct weft_bytes part = { name, len };
	uint8_t hash[16];
	size_t at, i;

	weft_hash(hash, sizeof(hash), h->id, strlen(h->id), &part, 1);
	memset(to, 0, sizeof(*to));
	to->sun_family = AF_UNIX;
	at = (size_t)snprintf(to->sun_path, sizeof(to->sun_path), "%s/n-",
			      h->folder);
	for (i = 0; i < 12; i++)
		at += (size_t)snprintf(to->sun_path + at,
				       sizeof(to->sun_path) - at, "%02x",
				       hash[i]);
}

/* Abstract or, where NCCL_IPC_USE_ABSTRACT_SOCKET is 0, a path. */
static bool move_address(const void *sa, socklen_t len, struct sockaddr_un *to)
{
	const struct weft_samehost *h = atomic_load(&host);
	const size_t before = offsetof(struct sockaddr_un, sun_path) + 1;
	const struct sockaddr_un *un = sa;
	const char *name = un ? un->sun_path + 1 : NULL;

	if (!h || !un || len < before + sizeof(socket_name) ||
	    len > sizeof(*un) || un->sun_family != AF_UNIX ||
	    (un->sun_path[0] && un->sun_path[0] != '/') ||
	    memcmp(name, socket_name, sizeof(socket_name) - 1))
		return false;
	move_name(h, name, strnlen(name, len - before), to);
	return true;
}

static bool move_socket(const char *path, struct sockaddr_un *to)
{
	const struct weft_samehost *h = atomic_load(&host);

	if (!h || !path || path[0] != '/' ||
	    strncmp(path + 1, socket_name, sizeof(socket_name) - 1))
		return false;
	move_name(h, path + 1, strlen(path + 1), to);
	return true;
}

/* ---- sockets ------------------------------------------------------------ */

static bool is_dead(const struct sockaddr_un *sa)
{
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool dead;

	if (fd < 0)
		return false;
	dead = connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) &&
	       errno == ECONNREFUSED;
	close(fd);
	return dead;
}

static void del_socket(struct own_socket *m)
{
	weft_list_del(&m->link);
	free(m);
}

/*
 * Removes sockets that NCCL has closed, and @sa if it is not NULL; in a forked
 * child none of its parent's.
 */
static void remove_dead(const struct sockaddr_un *gone)
{
	struct own_socket *m, *tmp;

	weft_list_for_each (m, tmp, &sockets, link) {
		if (m->forks != weft_forks())
			continue;
		if (gone && !strcmp(gone->sun_path, m->sa.sun_path)) {
			del_socket(m);
		} else if (is_dead(&m->sa)) {
			unlink(m->sa.sun_path);
			del_socket(m);
		}
	}
}

static void add_socket(const struct sockaddr_un *sa)
{
	struct own_socket *m = malloc(sizeof(*m));

	/* on failure the next process removes it */
	if (!m)
		return;
	m->sa = *sa;
	m->forks = weft_forks();
	weft_list_add_tail(&sockets, &m->link);
}

int weft_nccl_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
	struct sockaddr_un to;
	int ret;

	if (!move_address(sa, len, &to))
		return bind(fd, sa, len);
	pthread_mutex_lock(&lock);
	remove_dead(NULL);
	ret = bind(fd, (struct sockaddr *)&to, sizeof(to));
	if (ret && errno == EADDRINUSE) {
		/* as an abstract name would be */
		if (is_dead(&to) && !unlink(to.sun_path))
			ret = bind(fd, (struct sockaddr *)&to, sizeof(to));
		else
			errno = EADDRINUSE;
	}
	if (!ret)
		add_socket(&to);
	pthread_mutex_unlock(&lock);
	return ret;
}

ssize_t weft_nccl_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct sockaddr_un to;
	struct msghdr moved;

	if (!msg || !move_address(msg->msg_name, msg->msg_namelen, &to))
		return sendmsg(fd, msg, flags);
	moved = *msg;
	moved.msg_name = &to;
	moved.msg_namelen = sizeof(to);
	return sendmsg(fd, &moved, flags);
}

/* At exit; NCCL need not have closed them. */
__attribute__((destructor)) static void leave(void)
{
	struct own_socket *m, *tmp;

	/* If a thread of NCCL is in bind(), the next process removes them. */
	if (pthread_mutex_trylock(&lock))
		return;
	weft_list_for_each (m, tmp, &sockets, link)
		if (m->forks == weft_forks())
			unlink(m->sa.sun_path);
	pthread_mutex_unlock(&lock);
}

/* ---- files -------------------------------------------------------------- */

/* False: another process is removing it. */
static bool lock_file(int fd)
{
	struct statx st;

	return !flock(fd, LOCK_SH | LOCK_NB) &&
	       !statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &st) && st.stx_nlink;
}

int weft_nccl_mkstemp(char *path)
{
	char to[PATH_LEN], *suffix;
	int fd, tries = TRIES;

	if (!move_file(path, to))
		return mkstemp(path);
	suffix = to + strlen(to) - SUFFIX;
	do {
		memset(suffix, 'X', SUFFIX);
		fd = mkstemp(to);
		if (fd >= 0 && lock_file(fd)) {
			memcpy(path + strlen(path) - SUFFIX, suffix, SUFFIX);
			return fd;
		}
		if (fd >= 0) {
			unlink(to);
			close(fd);
			errno = EBUSY;
			fd = -1;
		}
	} while (errno == EBUSY && --tries);
	return fd;
}

int weft_nccl_open(const char *path, int flags, mode_t mode)
{
	char to[PATH_LEN];
	int fd;

	if (!move_file(path, to))
		return open(path, flags, mode);
	fd = open(to, flags, mode);
	if (fd >= 0)
		lock_file(fd);
	return fd;
}

static bool is_parents(const struct sockaddr_un *sa)
{
	struct own_socket *m, *tmp;

	weft_list_for_each (m, tmp, &sockets, link)
		if (m->forks != weft_forks() &&
		    !strcmp(m->sa.sun_path, sa->sun_path))
			return true;
	return false;
}

int weft_nccl_unlink(const char *path)
{
	struct sockaddr_un sa;
	char to[PATH_LEN];
	bool parents;

	if (move_file(path, to))
		return unlink(to);
	if (!move_socket(path, &sa))
		return unlink(path);
	pthread_mutex_lock(&lock);
	parents = is_parents(&sa);
	remove_dead(&sa);
	pthread_mutex_unlock(&lock);
	return parents ? 0 : unlink(sa.sun_path);
}

/* ---- what the dead have left -------------------------------------------- */

static void remove_stale_socket(int dir, const char *folder, const char *name)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct statx st;

	if (statx(dir, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st) ||
	    !S_ISSOCK(st.stx_mode) ||
	    st.stx_mtime.tv_sec + SWEEP_AGE_S > time(NULL))
		return;
	if (snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", folder, name) <
		    (int)sizeof(sa.sun_path) &&
	    is_dead(&sa))
		unlinkat(dir, name, 0);
}

static void remove_stale_file(int dir, const char *name)
{
	const char *why;
	const int fd =
		weft_file_open(dir, name, O_RDONLY | O_NOFOLLOW, 0, NULL, &why);

	if (fd < 0)
		return;
	if (!flock(fd, LOCK_EX | LOCK_NB))
		unlinkat(dir, name, 0);
	close(fd);
}

static void remove_stale_files(const char *folder)
{
	DIR *d = opendir(folder);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (!strncmp(e->d_name, "n-", 2))
			remove_stale_socket(dirfd(d), folder, e->d_name);
		else if (!strncmp(e->d_name, shm_file + sizeof(shm),
				  sizeof(shm_file) - sizeof(shm) - 1))
			remove_stale_file(dirfd(d), e->d_name);
	}
	if (d)
		closedir(d);
}

void weft_nccl_files_begin(const struct weft_samehost *h)
{
	const struct weft_samehost *none = NULL;

	if (atomic_compare_exchange_strong(&host, &none, h))
		remove_stale_files(h->folder);
}

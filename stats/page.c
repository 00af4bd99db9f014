/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats/page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "host/rundir.h"
#include "util/file.h"
#include "util/log.h"
#include "util/util.h"

#define TRIES 4

static int page_fd = -1; /* locked as long as this process lives */
static char page_path[256];
static unsigned int users;
static uint64_t last_serial;
static struct weft_page_row *rows[WEFT_PAGE_ROWS];
static struct weft_page_head head, head_shot; /* shots: as last written */
static struct weft_page_row shots[WEFT_PAGE_ROWS];

/* ---- the file ------------------------------------------------------------ */

/* The owner of a file without a lock has ended, or has only just created it. */
static void remove_stale_page(int dir, const char *name)
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

static void sweep_folder(int dir)
{
	/* a descriptor of its own: a DIR moves the offset of what it got */
	const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(d)))
		if (e->d_name[0] == 'c' && e->d_name[1] == '-')
			remove_stale_page(dir, e->d_name);
	closedir(d);
}

/*
 * Create it under a name that readers skip, so that they only see a locked
 * file.
 */
static int make_file(int dir, char name[32])
{
	uint64_t random;
	int fd, err;

	if (!weft_file_allows(WEFT_PAGE_SIZE))
		return -EFBIG;
	err = weft_random(&random, sizeof(random));
	if (err)
		return err;
	snprintf(name, 32, "c-%016" PRIx64 ".new", random);
	fd = openat(dir, name,
		    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (!flock(fd, LOCK_EX | LOCK_NB) && !ftruncate(fd, WEFT_PAGE_SIZE))
		return fd;
	err = -errno;
	unlinkat(dir, name, 0);
	close(fd);
	return err;
}

void weft_page_program(char *to, size_t len)
{
	if (weft_file_read("/proc/self/comm", to, len) <= 0)
		snprintf(to, len, "%s", program_invocation_short_name);
}

static void fill_head(const char *runtime)
{
	struct utsname host;
	struct statx ns;

	head = (struct weft_page_head){
		.magic = WEFT_PAGE_MAGIC,
		.version = WEFT_PAGE_VERSION,
		.head_size = sizeof(struct weft_page_head),
		.row_size = sizeof(struct weft_page_row),
		.rows = WEFT_PAGE_ROWS,
		.pid = (uint64_t)getpid(),
		.since_s = (uint64_t)time(NULL),
	};
	if (!statx(AT_FDCWD, "/proc/self/ns/pid", 0, STATX_INO, &ns))
		head.pid_ns = ns.stx_ino;
	snprintf(head.runtime, sizeof(head.runtime), "%s", runtime);
	weft_page_program(head.program, sizeof(head.program));
	if (!uname(&host))
		snprintf(head.host, sizeof(head.host), "%.63s", host.nodename);
}

static int publish_file(int dir, char name[32])
{
	char final[32];

	snprintf(final, sizeof(final), "%.18s", name);
	if (renameat(dir, name, dir, final))
		return -errno;
	memcpy(name, final, sizeof(final));
	return 0;
}

/* The descriptor of a page with a head. */
static int make_page(int dir, char name[32])
{
	const int fd = make_file(dir, name);
	int err = 0;

	if (fd < 0)
		return fd;
	if (pwrite(fd, &head, sizeof(head), 0) != sizeof(head))
		err = -ENOSPC;
	if (!err)
		err = publish_file(dir, name);
	if (!err)
		return fd;
	unlinkat(dir, name, 0);
	close(fd);
	return err;
}

static void open_page(void)
{
	struct weft_rundir dir;
	unsigned int tries;
	char name[32];
	int fd;

	fd = weft_rundir_make(&dir);
	if (!fd) {
		sweep_folder(dir.fd);
		/* a sweeper may see it in the moment before it is locked */
		for (tries = 0, fd = -EBUSY; fd < 0 && tries < TRIES; tries++)
			fd = make_page(dir.fd, name);
	}
	if (fd < 0) {
		weft_info(
			"'weft status' does not see this process: no file in '%s' (%s)",
			dir.path, strerror(-fd));
	} else {
		snprintf(page_path, sizeof(page_path), "%s/%s", dir.path, name);
		page_fd = fd;
	}
	weft_rundir_close(&dir);
}

/* ---- writing ------------------------------------------------------------- */

/* Writes @now, unless @shot shows that it is written already: false. */
static bool write_part(const void *now, void *shot, size_t size, size_t at)
{
	static bool said;

	if (!memcmp(now, shot, size))
		return false;
	if (weft_file_allows(WEFT_PAGE_SIZE) &&
	    pwrite(page_fd, now, size, (off_t)at) == (ssize_t)size) {
		memcpy(shot, now, size);
	} else if (!said) {
		said = true;
		weft_debug("cannot write counters to '%s'", page_path);
	}
	return true;
}

static bool write_head(void)
{
	return write_part(&head, &head_shot, sizeof(head), 0);
}

/* Copies counters to which other threads add; @from NULL: a free row. */
static void copy_row(struct weft_page_row *to, const struct weft_page_row *from)
{
	memset(to, 0, sizeof(*to));
	if (!from)
		return;
	memcpy(to, from, offsetof(struct weft_page_row, c));
#define X(name, help)                                                \
	atomic_init(&to->c.name, atomic_load_explicit(&from->c.name, \
						      memory_order_relaxed));
	WEFT_COUNTERS(X)
#undef X
}

bool weft_page_write(void)
{
	struct weft_page_row now;
	unsigned int i;
	bool changed;

	if (page_fd < 0)
		return false;
	changed = write_head();
	for (i = 0; i < head.used; i++) {
		copy_row(&now, rows[i]);
		changed |= write_part(&now, &shots[i], sizeof(now),
				      sizeof(head) + i * sizeof(now));
	}
	return changed;
}

void weft_page_introduced(const char *id)
{
	snprintf(head.introduced, sizeof(head.introduced), "%s", id);
	if (page_fd >= 0)
		write_head();
}

void weft_page_note(enum weft_level level, const char *text)
{
	if (page_fd < 0 || level > WEFT_LOG_INFO)
		return;
	head.errors += level == WEFT_LOG_ERROR;
	snprintf(head.message, sizeof(head.message), "%s", text);
	head.message_s = (uint64_t)time(NULL);
	write_head();
}

/* ---- its life ------------------------------------------------------------ */

void weft_page_open(const char *runtime)
{
	if (users++)
		return;
	memset(shots, 0, head.used * sizeof(*shots));
	fill_head(runtime);
	head_shot = head;
	open_page();
}

void weft_page_close(void)
{
	if (--users || page_fd < 0)
		return;
	unlink(page_path);
	close(page_fd);
	page_fd = -1;
}

void weft_page_forget(void)
{
	if (page_fd >= 0)
		close(page_fd);
	page_fd = -1;
	users = 0;
	memset(rows, 0, sizeof(rows));
}

void weft_page_leave(void)
{
	if (page_fd >= 0)
		unlink(page_path);
}

/* ---- rows ---------------------------------------------------------------- */

void weft_page_show(struct weft_page_row *row)
{
	unsigned int i;

	for (i = 0; i < WEFT_PAGE_ROWS && rows[i]; i++)
		;
	if (i == WEFT_PAGE_ROWS) {
		head.unlisted++;
		return;
	}
	row->serial = ++last_serial;
	rows[i] = row;
	head.used = weft_max(head.used, i + 1);
}

void weft_page_hide(struct weft_page_row *row)
{
	unsigned int i;

	for (i = 0; i < head.used && rows[i] != row; i++)
		;
	if (i < head.used)
		rows[i] = NULL;
	else
		head.unlisted--;
}

bool weft_page_head_ok(const struct weft_page_head *page, const char **why)
{
	if (page->magic != WEFT_PAGE_MAGIC)
		*why = "it is not a page of weft's counters";
	else if (page->version != WEFT_PAGE_VERSION)
		*why = "it is of another release of weft";
	else if (page->head_size != sizeof(*page) ||
		 page->row_size != sizeof(struct weft_page_row) ||
		 page->rows != WEFT_PAGE_ROWS || page->used > WEFT_PAGE_ROWS)
		*why = "it is damaged";
	else
		return true;
	return false;
}

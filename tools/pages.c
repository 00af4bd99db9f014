/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tool.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/parse.h"
#include "util/util.h"

/*
 * Another process wrote the text: it may lack its end, or contain control
 * characters.
 */
static void clean_text(char *text, size_t len)
{
	size_t i;

	text[len - 1] = '\0';
	for (i = 0; text[i]; i++)
		if (text[i] < ' ' || text[i] > '~')
			text[i] = '?';
}

/*
 * The pid of the process that holds the lock, from /proc/locks: proc_locks(5).
 */
static uint64_t find_holder(const struct statx *st)
{
	char line[256], file[64], *at, *pid;
	FILE *f = fopen("/proc/locks", "re");
	uint64_t n = 0;

	snprintf(file, sizeof(file), " %02x:%02x:%llu ", st->stx_dev_major,
		 st->stx_dev_minor, (unsigned long long)st->stx_ino);
	while (f && !n && fgets(line, sizeof(line), f)) {
		at = strstr(line, file);
		if (!at || !strstr(line, " FLOCK "))
			continue;
		*at = '\0';
		pid = strrchr(line, ' ');
		if (pid)
			weft_parse_u64(pid + 1, 1, INT32_MAX, &n);
	}
	if (f)
		fclose(f);
	return n;
}

/* The pid in the page, which is valid only in its PID namespace. */
static uint64_t own_pid(const struct weft_page_head *head)
{
	struct statx ns;

	return !statx(AT_FDCWD, "/proc/self/ns/pid", 0, STATX_INO, &ns) &&
			       ns.stx_ino == head->pid_ns
		       ? head->pid
		       : 0;
}

/* Keeps those that are in use.  False: out of memory. */
static bool read_rows(struct page *page, int fd, unsigned int used)
{
	const size_t size = sizeof(*page->rows);
	unsigned int i;
	ssize_t n;

	page->rows = calloc(used ? used : 1, size);
	if (!page->rows)
		return false;
	n = pread(fd, page->rows, used * size, sizeof(page->head));
	for (i = 0; n > 0 && i < (size_t)n / size; i++) {
		if (!page->rows[i].serial)
			continue;
		memmove(&page->rows[page->nrows], &page->rows[i], size);
		clean_text(page->rows[page->nrows].device,
			   sizeof(page->rows->device));
		clean_text(page->rows[page->nrows].netdev,
			   sizeof(page->rows->netdev));
		clean_text(page->rows[page->nrows].where,
			   sizeof(page->rows->where));
		page->nrows++;
	}
	return true;
}

/*
 * 1: @page is filled in; 0: it has ended, or *@why says why it is skipped;
 * -ENOMEM.
 */
static int read_page(int dir, const char *name, struct page *page,
		     const char **why)
{
	struct weft_page_head *head = &page->head;
	struct statx st;
	int ok = 0;
	int fd;

	fd = weft_file_open(dir, name, O_RDONLY | O_NOFOLLOW, 0, &st, why);
	if (fd == -ENOENT)
		*why = NULL;
	if (fd < 0)
		return 0;
	if (!flock(fd, LOCK_SH | LOCK_NB)) {
		*why = NULL; /* of a process that was killed */
	} else if (st.stx_size != WEFT_PAGE_SIZE ||
		   pread(fd, head, sizeof(*head), 0) != sizeof(*head)) {
		*why = "it does not have the size of a page";
	} else if (weft_page_head_ok(head, why)) {
		clean_text(head->runtime, sizeof(head->runtime));
		clean_text(head->program, sizeof(head->program));
		clean_text(head->host, sizeof(head->host));
		clean_text(head->introduced, sizeof(head->introduced));
		clean_text(head->message, sizeof(head->message));
		page->pid = find_holder(&st);
		if (!page->pid)
			page->pid = own_pid(head);
		snprintf(page->name, sizeof(page->name), "%s", name);
		ok = read_rows(page, fd, head->used) ? 1 : -ENOMEM;
	}
	close(fd);
	return ok;
}

static int add_page(struct pages *pages, const struct page *page)
{
	struct page *list =
		realloc(pages->list, (pages->n + 1) * sizeof(*pages->list));

	if (!list)
		return -ENOMEM;
	pages->list = list;
	list[pages->n++] = *page;
	return 0;
}

static int read_file(struct pages *pages, int dir, const char *name,
		     bool report)
{
	struct page page = { .pid = 0 };
	const char *why = NULL;
	char text[PAGE_NAME];
	int err = read_page(dir, name, &page, &why);

	if (err > 0)
		err = add_page(pages, &page);
	if (err)
		free(page.rows);
	if (why && report) {
		snprintf(text, sizeof(text), "%s", name);
		clean_text(text, sizeof(text));
		tool_error("status", "skipped '%s/%s': %s", pages->path, text,
			   why);
	}
	return err;
}

static int compare_age(const void *a, const void *b)
{
	const struct weft_page_head *x = &((const struct page *)a)->head,
				    *y = &((const struct page *)b)->head;

	if (x->since_s != y->since_s)
		return x->since_s < y->since_s ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static bool is_page_name(const char *name)
{
	return !strncmp(name, "c-", 2) && !strchr(name, '.') &&
	       strlen(name) < PAGE_NAME;
}

int pages_read(unsigned int i, bool report, struct pages *pages)
{
	struct weft_rundir dir;
	struct dirent *e;
	DIR *d = NULL;
	int err;

	memset(pages, 0, sizeof(*pages));
	err = weft_rundir_find(i, &dir);
	snprintf(pages->path, sizeof(pages->path), "%s", dir.path);
	if (err)
		return err;
	d = fdopendir(dir.fd);
	if (!d) {
		weft_rundir_close(&dir);
		return -ENOMEM;
	}
	pages->read_ns = weft_now_ns();
	while (!err && (e = readdir(d)))
		if (is_page_name(e->d_name))
			err = read_file(pages, dir.fd, e->d_name, report);
	closedir(d);
	if (pages->n)
		qsort(pages->list, pages->n, sizeof(*pages->list), compare_age);
	return err;
}

void pages_free(struct pages *pages)
{
	unsigned int i;

	for (i = 0; i < pages->n; i++)
		free(pages->list[i].rows);
	free(pages->list);
	memset(pages, 0, sizeof(*pages));
}

bool page_has(const struct page *p, uint64_t id)
{
	unsigned int i;

	for (i = 0; i < p->nrows; i++)
		if (p->rows[i].id == id)
			return true;
	return false;
}

bool pages_introduced(const struct page *a, const struct page *b)
{
	return *a->head.introduced &&
	       !strcmp(a->head.introduced, b->head.introduced);
}

const struct page *pages_find(const struct pages *pages, uint64_t id)
{
	unsigned int i;

	for (i = 0; id && i < pages->n; i++)
		if (page_has(&pages->list[i], id))
			return &pages->list[i];
	return NULL;
}

uint64_t page_row_out(const struct weft_page_row *row)
{
	return row->c.tx_message_bytes + row->c.tx_put_bytes +
	       row->c.tx_get_bytes;
}

uint64_t page_row_in(const struct weft_page_row *row)
{
	return row->c.rx_message_bytes + row->c.rx_put_bytes + row->c.get_bytes;
}

void page_format(const struct page *p, char *to, size_t len)
{
	size_t n = (size_t)snprintf(to, len, "%s", p->head.program);

	if (p->pid && n < len)
		n += (size_t)snprintf(to + n, len - n, " %" PRIu64, p->pid);
	if (p->pid != p->head.pid && n < len)
		snprintf(to + n, len - n, " (%" PRIu64 " in %s)", p->head.pid,
			 p->head.host);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The page of counters that a process shares: what is in it, and when it goes.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "settings/settings.h"
#include "stats/stats.h"
#include "tests/lib/folder.h"
#include "util/log.h"
#include "util/util.h"

static char sub[64];

static void begin(void)
{
	folder_begin();
	snprintf(sub, sizeof(sub), "%s/weft-%u", folder, geteuid());
	setenv("WEFT_RUN_DIR", folder, 1);
	setenv("WEFT_STATS", "0", 1);
	weft_settings_reset();
}

TestSuite(page, .init = begin, .fini = folder_end, .timeout = 60);

/* LeakSanitizer cannot look at a process that was forked beside a thread. */
static int forked;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return forked;
}

static unsigned int warnings;

static void swallow(void *arg, enum weft_level level, const char *at, int line,
		    const char *said)
{
	(void)arg, (void)at, (void)line, (void)said;
	warnings += level <= WEFT_LOG_WARN;
}

/* How many pages there are; the path of the last one. */
static unsigned int count_pages(char path[128])
{
	DIR *d = opendir(sub);
	unsigned int n = 0;
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] == 'c' && e->d_name[1] == '-') {
			snprintf(path, 128, "%s/%.40s", sub, e->d_name);
			n++;
		}
	if (d)
		closedir(d);
	return n;
}

/* As before a long sleep. */
static void write_now(void)
{
	static uint64_t now = 5000000;

	cr_assert(eq(u64, weft_stats_sleep(now += 1000), UINT64_MAX));
}

struct copy {
	struct weft_page_head head;
	struct weft_page_row rows[WEFT_PAGE_ROWS];
};

/* The only page there is, and its path. */
static struct copy *read_page(char path[128])
{
	static struct copy copy;
	struct stat st;
	FILE *f;

	cr_assert(eq(uint, count_pages(path), 1));
	cr_assert(zero(int, stat(path, &st)));
	cr_expect(eq(uint, st.st_mode, S_IFREG | 0600));
	cr_expect(eq(ulong, (unsigned long)st.st_size, WEFT_PAGE_SIZE));
	f = fopen(path, "r");
	cr_assert(ne(ptr, f, NULL));
	cr_assert(eq(sz, fread(&copy, 1, sizeof(copy), f), sizeof(copy)));
	fclose(f);
	return &copy;
}

static bool is_locked(const char *path)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	const bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB);

	cr_assert(ge(int, fd, 0));
	close(fd);
	return locked;
}

Test(page, counters_are_copied_to_it)
{
	struct weft_stats *s;
	struct weft_counters *c;
	char path[128];
	const char *why;
	struct copy *p;

	weft_stats_runtime("ucx");
	s = weft_stats_open("tcp", "eth0");
	weft_stats_own_id(s, 0x1234);
	cr_expect(zero(u64, read_page(path)->rows[0].serial), "no peer yet");
	c = weft_stats_peer(s, 0xabc, "10.0.0.5:77");
	weft_count(c, tx_puts, 3);
	weft_count(c, rx_put_bytes, 1ull << 40);
	write_now();
	p = read_page(path);
	cr_expect(weft_page_head_ok(&p->head, &why), "%s", why);
	cr_expect(eq(u64, p->head.pid, (uint64_t)getpid()));
	cr_expect(eq(str, p->head.runtime, (char *)"ucx"));
	cr_expect(eq(str, p->head.program, (char *)"page_test"));
	cr_expect(eq(uint, p->head.used, 1));
	cr_expect(ne(u64, p->rows[0].serial, 0));
	cr_expect(eq(u64, p->rows[0].id, 0x1234));
	cr_expect(eq(u64, p->rows[0].peer, 0xabc));
	cr_expect(eq(str, p->rows[0].device, (char *)"tcp"));
	cr_expect(eq(str, p->rows[0].netdev, (char *)"eth0"));
	cr_expect(eq(str, p->rows[0].where, (char *)"10.0.0.5:77"));
	cr_expect(eq(u64, p->rows[0].c.tx_puts, 3));
	cr_expect(eq(u64, p->rows[0].c.rx_put_bytes, 1ull << 40));
	cr_expect(is_locked(path));
	weft_stats_close(s);
	cr_expect(zero(uint, count_pages(path)), "it goes with the last one");
}

Test(page, interfaces_of_a_process_share_it)
{
	struct weft_stats *a = weft_stats_open("tcp", "eth0"),
			  *b = weft_stats_open("shm", "shm");
	char path[128];
	struct copy *p;

	weft_count(weft_stats_peer(a, 1, "x"), tx_puts, 9);
	weft_stats_peer(b, 2, "y");
	write_now();
	cr_expect(eq(u64, read_page(path)->rows[0].c.tx_puts, 9));
	weft_stats_close(a);
	p = read_page(path);
	cr_expect(zero(u64, p->rows[0].serial), "a's row is free");
	cr_expect(eq(str, p->rows[1].device, (char *)"shm"));
	a = weft_stats_open("ib", "mlx5_0:1");
	weft_count(weft_stats_peer(a, 3, "z"), gets, 4);
	write_now();
	p = read_page(path);
	cr_expect(eq(u64, p->rows[0].peer, 3), "and taken again");
	cr_expect(eq(u64, p->rows[0].c.gets, 4));
	cr_expect(zero(u64, p->rows[0].c.tx_puts), "with counters of its own");
	cr_expect(ne(u64, p->rows[0].serial, 1), "by another one");
	weft_stats_close(a);
	weft_stats_close(b);
	cr_expect(zero(uint, count_pages(path)));
}

Test(page, ticks_write_it_four_times_a_second)
{
	struct weft_stats *s = weft_stats_open("tcp", "lo");
	struct weft_counters *c = weft_stats_peer(s, 1, "x");
	char path[128];

	weft_count(c, gets, 1);
	weft_stats_tick(1000000);
	cr_expect(eq(u64, read_page(path)->rows[0].c.gets, 1));
	weft_count(c, gets, 1);
	weft_stats_tick(1000249);
	cr_expect(eq(u64, read_page(path)->rows[0].c.gets, 1));
	weft_stats_tick(1000250);
	cr_expect(eq(u64, read_page(path)->rows[0].c.gets, 2));
	weft_stats_close(s);
}

static void expect_gets(unsigned int n)
{
	char path[128];

	cr_expect(eq(u64, read_page(path)->rows[0].c.gets, n));
}

Test(page, sleeps_write_it_no_more_often_and_the_last_is_not_missed)
{
	struct weft_stats *s = weft_stats_open("tcp", "lo");
	struct weft_counters *c = weft_stats_peer(s, 1, "x");
	const uint64_t never = UINT64_MAX;

	weft_count(c, gets, 1);
	cr_expect(eq(u64, weft_stats_sleep(1000000), never));
	expect_gets(1);
	weft_count(c, gets, 1);
	cr_expect(eq(u64, weft_stats_sleep(1000001), 1000250));
	weft_count(c, gets, 1);
	cr_expect(eq(u64, weft_stats_sleep(1000002), never), "one wakes");
	expect_gets(1);
	weft_stats_tick(1000250);
	expect_gets(3);
	cr_expect(eq(u64, weft_stats_sleep(1000251), never), "all is written");
	weft_count(c, gets, 1);
	cr_expect(eq(u64, weft_stats_sleep(1000252), never));
	expect_gets(4);
	weft_count(c, gets, 1);
	cr_expect(eq(u64, weft_stats_sleep(1000253), 1000502));
	/* the one that was to wake has closed */
	weft_stats_close(weft_stats_open("tcp", "eth0"));
	expect_gets(5);
	weft_count(c, gets, 1);
	cr_expect(eq(u64, weft_stats_sleep(1000254), never));
	expect_gets(6);
	weft_stats_close(s);
}

/* Whatever others do to the file, its owner lives and counts on. */
Test(page, file_cut_short_does_no_harm)
{
	struct weft_stats *s = weft_stats_open("tcp", "lo");
	struct weft_counters *c = weft_stats_peer(s, 1, "x");
	char path[128];

	cr_assert(eq(uint, count_pages(path), 1));
	cr_assert(zero(int, truncate(path, 0)));
	weft_count(c, gets, 3);
	write_now();
	weft_stats_peer(s, 2, "y");
	write_now();
	cr_assert(zero(int, unlink(path)));
	weft_count(c, gets, 4);
	write_now();
	cr_expect(eq(u64, c->gets, 7));
	weft_stats_close(s);
}

/* What could not be written is written later. */
Test(page, limit_set_later_ends_no_process)
{
	struct weft_stats *s = weft_stats_open("tcp", "lo");
	struct weft_counters *c = weft_stats_peer(s, 1, "x");
	struct rlimit limit, before;
	char path[128];

	cr_assert(zero(int, getrlimit(RLIMIT_FSIZE, &before)));
	limit = (struct rlimit){ 100, before.rlim_max };
	cr_assert(zero(int, setrlimit(RLIMIT_FSIZE, &limit)));
	weft_count(c, gets, 3);
	write_now();
	cr_assert(zero(int, setrlimit(RLIMIT_FSIZE, &before)));
	cr_expect(zero(u64, read_page(path)->rows[0].c.gets));
	write_now();
	cr_expect(eq(u64, read_page(path)->rows[0].c.gets, 3));
	weft_stats_close(s);
}

static unsigned int count_fds(void)
{
	unsigned int n = 0;
	int fd;

	for (fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

Test(page, process_takes_one_descriptor)
{
	const unsigned int before = count_fds();
	struct weft_stats *s[4];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(s); i++) {
		s[i] = weft_stats_open("tcp", "lo");
		weft_stats_peer(s[i], 1, "x");
		write_now();
		cr_expect(eq(uint, count_fds(), before + 1));
	}
	for (i = 0; i < ARRAY_SIZE(s); i++)
		weft_stats_close(s[i]);
	cr_expect(eq(uint, count_fds(), before));
}

static int ready[2];

static void report(void)
{
	if (write(ready[1], "", 1) != 1)
		_exit(1);
}

static void report_and_stay(void)
{
	report();
	for (;;)
		pause();
}

/* The child of the process that has the page outlives it. */
static void fork_and_stay(void)
{
	if (fork())
		for (;;)
			pause();
	alarm(60);
	report_and_stay();
}

/* A child that has opened a page, once it has reported. */
static pid_t start(void (*then)(void))
{
	pid_t pid;
	char c;

	cr_assert(zero(int, pipe(ready)));
	pid = fork();
	if (!pid) {
		forked = 1;
		weft_stats_peer(weft_stats_open("tcp", "lo"), 1, "x");
		then();
		exit(0);
	}
	cr_assert(eq(int, (int)read(ready[0], &c, 1), 1));
	return pid;
}

Test(page, process_that_exits_removes_it)
{
	const pid_t pid = start(report);
	char path[128];

	waitpid(pid, NULL, 0);
	cr_expect(zero(uint, count_pages(path)));
}

Test(page, next_process_removes_it_after_a_kill)
{
	const pid_t pid = start(report_and_stay);
	char path[128], second[128];
	struct weft_stats *s;

	cr_expect(eq(uint, count_pages(path), 1));
	s = weft_stats_open("tcp", "lo");
	cr_expect(eq(uint, count_pages(second), 2),
		  "that of a living one stays");
	weft_stats_close(s);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cr_expect(not(is_locked(path)));
	s = weft_stats_open("tcp", "lo");
	cr_expect(eq(uint, count_pages(second), 1));
	cr_expect(ne(str, second, path));
	weft_stats_close(s);
}

Test(page, forked_child_does_not_keep_its_parents)
{
	struct weft_stats *s;
	char path[128];
	pid_t pid;

	pid = start(fork_and_stay);
	cr_assert(eq(uint, count_pages(path), 1));
	cr_expect(is_locked(path));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cr_expect(not(is_locked(path)), "held by the child");
	s = weft_stats_open("tcp", "lo");
	cr_expect(eq(uint, count_pages(path), 1), "only the new one");
	weft_stats_close(s);
}

/* Of @peer, that stand first in any page. */
static unsigned int count_rows(uint64_t peer)
{
	DIR *d = opendir(sub);
	struct weft_page_row row;
	unsigned int n = 0;
	struct dirent *e;
	int fd;

	while (d && (e = readdir(d))) {
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
		if (pread(fd, &row, sizeof(row),
			  sizeof(struct weft_page_head)) == sizeof(row))
			n += row.serial && row.peer == peer;
		close(fd);
	}
	closedir(d);
	return n;
}

Test(page, forked_child_neither_writes_nor_removes_its_parents)
{
	const unsigned int before = count_fds();
	struct weft_stats *s = weft_stats_open("tcp", "lo");
	struct weft_counters *c = weft_stats_peer(s, 1, "x");
	char path[128];
	pid_t pid = fork();
	int status, fd;

	if (!pid) {
		forked = 1;
		weft_log_set_sink(swallow, NULL);
		weft_error("the child's");
		weft_count(c, gets, 5);
		if (count_fds() != before)
			exit(2);
		/* has the number that the page had */
		fd = memfd_create("other", MFD_CLOEXEC);
		write_now();
		if (lseek(fd, 0, SEEK_END))
			exit(3);
		/* one of its own beside its parent's */
		s = weft_stats_open("tcp", "lo");
		weft_stats_peer(s, 2, "y");
		write_now();
		exit(count_pages(path) != 2 || count_rows(1) ? 4 : 0);
	}
	waitpid(pid, &status, 0);
	cr_expect(zero(int, status));
	cr_expect(zero(u64, read_page(path)->head.errors));
	cr_expect(zero(u64, read_page(path)->rows[0].serial));
	cr_expect(eq(uint, read_page(path)->head.pid, (uint64_t)getpid()));
	weft_stats_close(s);
}

/* Counting goes on where no page can be made. */
static void count_without_page(void)
{
	struct weft_stats *s;
	struct weft_counters *c;
	char path[128];

	weft_log_set_sink(swallow, NULL);
	s = weft_stats_open("tcp", "lo");
	cr_expect(zero(uint, count_pages(path)));
	c = weft_stats_peer(s, 1, "x");
	weft_count(c, gets, 7);
	weft_stats_peer_ended(s, c);
	cr_expect(eq(u64, weft_stats_peer(s, 1, "x")->gets, 7));
	write_now();
	weft_stats_close(s);
	weft_log_set_sink(NULL, NULL);
	cr_expect(zero(uint, warnings));
}

Test(page, none_without_a_folder)
{
	setenv("WEFT_RUN_DIR", "/proc/nosuch", 1);
	weft_settings_reset();
	count_without_page();
}

Test(page, none_in_a_folder_of_others)
{
	cr_assert(zero(int, mkdir(sub, 0700)));
	cr_assert(zero(int, chmod(sub, 0777)));
	count_without_page();
}

Test(page, none_beyond_the_limit_of_a_file)
{
	const struct rlimit limit = { WEFT_PAGE_SIZE - 1, WEFT_PAGE_SIZE - 1 };

	cr_assert(zero(int, setrlimit(RLIMIT_FSIZE, &limit)));
	count_without_page();
}

Test(page, peers_without_a_row_are_counted_and_said)
{
	enum { MORE = 3 };
	struct weft_counters *c[WEFT_PAGE_ROWS + MORE];
	struct weft_stats *s = weft_stats_open("tcp", "lo");
	char path[128];
	unsigned int i;

	for (i = 0; i < WEFT_PAGE_ROWS + MORE; i++) {
		c[i] = weft_stats_peer(s, 1000 + i, "x");
		weft_count(c[i], gets, i);
	}
	write_now();
	cr_expect(eq(uint, read_page(path)->head.unlisted, MORE));
	cr_expect(eq(uint, read_page(path)->head.used, WEFT_PAGE_ROWS));
	for (i = 0; i < WEFT_PAGE_ROWS + MORE; i++) {
		weft_stats_peer_ended(s, c[i]);
		cr_expect(eq(u64, c[i]->gets, i));
		if (i == 200) /* before any is merged with others */
			break;
	}
	weft_stats_close(s);
	cr_expect(zero(uint, count_pages(path)));
}

Test(page, messages_are_kept)
{
	struct weft_stats *s = weft_stats_open("tcp", "lo");
	char path[128];
	struct copy *p;

	weft_log_set_sink(swallow, NULL);
	weft_error("the peer at %s is gone", "10.0.0.5");
	weft_warn("a warning");
	weft_log_set_sink(NULL, NULL);
	p = read_page(path);
	cr_expect(eq(u64, p->head.errors, 1));
	cr_expect(eq(str, p->head.message, (char *)"a warning"));
	cr_expect(ge(u64, p->head.message_s, p->head.since_s));
	weft_stats_close(s);
}

Test(page, introduced_process_needs_no_interface)
{
	char path[128];

	weft_stats_runtime("nccl");
	weft_stats_introduced("weft-0123");
	cr_expect(
		eq(str, read_page(path)->head.introduced, (char *)"weft-0123"));
	cr_expect(is_locked(path));
	weft_stats_close(weft_stats_open("tcp", "lo"));
	cr_expect(
		eq(str, read_page(path)->head.introduced, (char *)"weft-0123"));
}

Test(page, damaged_head_is_refused)
{
	struct weft_stats *s = weft_stats_open("tcp", "lo");
	struct weft_page_head good, bad;
	const char *why = NULL;
	char path[128];

	good = read_page(path)->head;
	cr_assert(weft_page_head_ok(&good, &why));
	bad = good;
	bad.magic ^= 1;
	cr_expect(not(weft_page_head_ok(&bad, &why)));
	cr_expect(eq(str, (char *)why,
		     (char *)"it is not a page of weft's counters"));
	bad = good;
	bad.version++;
	cr_expect(not(weft_page_head_ok(&bad, &why)));
	cr_expect(eq(str, (char *)why,
		     (char *)"it is of another release of weft"));
	bad = good;
	bad.used = WEFT_PAGE_ROWS + 1;
	cr_expect(not(weft_page_head_ok(&bad, &why)));
	cr_expect(eq(str, (char *)why, (char *)"it is damaged"));
	bad = good;
	bad.rows++;
	cr_expect(not(weft_page_head_ok(&bad, &why)));
	bad = good;
	bad.row_size--;
	cr_expect(not(weft_page_head_ok(&bad, &why)));
	bad = good;
	bad.head_size--;
	cr_expect(not(weft_page_head_ok(&bad, &why)));
	weft_stats_close(s);
}

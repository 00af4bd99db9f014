/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stats/stats.h"
#include "settings/settings.h"
#include "tests/lib/folder.h"
#include "util/log.h"

static bool has(const char *hay, const char *needle)
{
	return strstr(hay, needle) != NULL;
}

static char file[64], text[1 << 18];

static void to_file(void)
{
	folder_begin();
	snprintf(file, sizeof(file), "%s/out", folder);
	setenv("WEFT_STATS", file, 1);
	weft_settings_reset();
}

static const char *slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	text[n] = '\0';
	if (f)
		fclose(f);
	return text;
}

static int lines(void)
{
	const char *p = slurp(file);
	int n = 0;

	while ((p = strchr(p, '\n'))) {
		n++;
		p++;
	}
	return n;
}

Test(stats, row_per_peer, .init = to_file, .fini = folder_end)
{
	struct weft_stats *s = weft_stats_open("tcp", "eth0");
	struct weft_counters *a, *b;

	weft_stats_runtime("nccl");
	weft_stats_own_id(s, 0x1234);
	a = weft_stats_peer(s, 0xabc, "10.0.0.5:77");
	b = weft_stats_peer(s, 0xdef, "evil\"\n\\name");
	cr_assert(ne(ptr, a, b));
	cr_expect(eq(ptr, weft_stats_peer(s, 0xabc, "elsewhere"), a),
		  "a peer that comes back");
	weft_count(a, tx_puts, 3);
	weft_count(a, tx_put_bytes, 1ull << 40);
	weft_count(b, rx_messages, 1);
	cr_expect(zero(int, lines()), "nothing is written before the end");
	weft_stats_close(s);
	cr_expect(eq(int, lines(), 2));
	cr_expect(has(text, "{\"weft\":\"tcp\",\"runtime\":\"nccl\","
			    "\"netdev\":\"eth0\",\"pid\":"));
	cr_expect(has(text, ",\"id\":\"0000000000001234\","
			    "\"peer\":\"0000000000000abc\","));
	cr_expect(has(text, "\"peer\":\"0000000000000abc\","
			    "\"where\":\"10.0.0.5:77\",\"tx_messages\":0,"));
	cr_expect(has(text, ",\"tx_puts\":3,\"tx_put_bytes\":1099511627776,"));
	cr_expect(has(text, "\"where\":\"evil???name\""));
	cr_expect(has(text, ",\"streams_given_up\":0}\n"));
}

/* LeakSanitizer cannot look at a process that was forked beside a thread. */
static int forked;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return forked;
}

Test(stats, exit_writes_rows_of_own_process_only, .init = to_file,
     .fini = folder_end)
{
	struct weft_stats *s;
	pid_t pid = fork();

	if (!pid) {
		forked = 1;
		s = weft_stats_open("tcp", "lo");
		weft_count(weft_stats_peer(s, 1, "x"), tx_messages, 5);
		if (!fork())
			exit(0); /* has the rows, but they are not its */
		wait(NULL);
		exit(0);
	}
	waitpid(pid, NULL, 0);
	cr_expect(eq(int, lines(), 1), "%s", text);
	cr_expect(has(text, "\"tx_messages\":5,"));
}

Test(stats, percent_p_becomes_process_id, .init = to_file, .fini = folder_end)
{
	char name[128];
	struct weft_stats *s;

	snprintf(name, sizeof(name), "%s/%%p.json", folder);
	setenv("WEFT_STATS", name, 1);
	weft_settings_reset();
	s = weft_stats_open("tcp", "lo");
	weft_stats_peer(s, 1, NULL);
	weft_stats_close(s);
	snprintf(name, sizeof(name), "%s/%d.json", folder, getpid());
	cr_expect(has(slurp(name), "\"netdev\":\"lo\""), "%s", name);
}

static pid_t forked_and_gone(void)
{
	pid_t pid = fork();

	if (!pid)
		exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

/* A forked child, and an interface without peers, leave no file behind. */
Test(stats, process_without_rows_leaves_no_file, .init = to_file,
     .fini = folder_end)
{
	pid_t pid, children[2] = { 0 };
	char name[128];
	int report[2], i;

	snprintf(name, sizeof(name), "%s/%%p.json", folder);
	setenv("WEFT_STATS", name, 1);
	weft_settings_reset();
	cr_assert(zero(int, pipe(report)));
	pid = fork();
	if (!pid) {
		forked = 1;
		weft_stats_open("tcp", "eth0"); /* no peers */
		children[0] = forked_and_gone();
		weft_stats_peer(weft_stats_open("tcp", "lo"), 1, "x");
		children[1] = forked_and_gone();
		exit(write(report[1], children, sizeof(children)) < 0);
	}
	waitpid(pid, NULL, 0);
	cr_assert(eq(int, (int)read(report[0], children, sizeof(children)),
		     (int)sizeof(children)));
	for (i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%s/%d.json", folder, children[i]);
		cr_expect(ne(int, access(name, F_OK), 0), "'%s' is there",
			  name);
	}
	snprintf(file, sizeof(file), "%s/%d.json", folder, pid);
	cr_expect(eq(int, lines(), 1), "%s", text);
	cr_expect(has(text, "\"netdev\":\"lo\""), "%s", text);
}

static struct {
	int count;
	char text[1024];
} caught;

static void catch (void *arg, enum weft_level level, const char *at, int line,
		   const char *said)
{
	(void)arg, (void)level, (void)at, (void)line;
	caught.count++;
	snprintf(caught.text, sizeof(caught.text), "%s", said);
}

/* Rows of one peer, at the place where another was first. */
static void write_a_row(void)
{
	struct weft_stats *s = weft_stats_open("tcp", "lo");

	weft_log_set_sink(catch, NULL);
	weft_stats_peer(s, 1, "x");
	weft_stats_close(s);
	weft_log_set_sink(NULL, NULL);
}

Test(stats, symbolic_link_is_not_followed, .init = to_file, .fini = folder_end)
{
	char victim[80];

	snprintf(victim, sizeof(victim), "%s/victim", folder);
	cr_assert(zero(int, symlink(victim, file)));
	write_a_row();
	cr_expect(ne(int, access(victim, F_OK), 0), "it was followed");
	cr_expect(eq(int, caught.count, 1));
	cr_expect(has(caught.text, "WEFT_STATS: it is a symbolic link"), "%s",
		  caught.text);
}

Test(stats, hard_link_is_not_written_to, .init = to_file, .fini = folder_end)
{
	char victim[80];
	FILE *f;

	snprintf(victim, sizeof(victim), "%s/victim", folder);
	f = fopen(victim, "w");
	cr_assert(f && fputs("as it was", f) >= 0 && !fclose(f));
	cr_assert(zero(int, link(victim, file)));
	write_a_row();
	write_a_row();
	cr_expect(eq(str, (char *)slurp(victim), "as it was"));
	cr_expect(eq(int, caught.count, 1), "once");
	cr_expect(has(caught.text, "WEFT_STATS: it has a second name"), "%s",
		  caught.text);
}

Test(stats, fifo_does_not_block, .init = to_file, .fini = folder_end,
     .timeout = 10)
{
	cr_assert(zero(int, mkfifo(file, 0600)));
	write_a_row();
	cr_expect(eq(int, caught.count, 1));
	cr_expect(has(caught.text, "it is not a regular file"), "%s",
		  caught.text);
}

Test(stats, off_by_default, .init = to_file, .fini = folder_end)
{
	struct weft_stats *s;

	setenv("WEFT_STATS", "0", 1);
	weft_settings_reset();
	s = weft_stats_open("tcp", "lo");
	weft_count(weft_stats_peer(s, 1, "x"), tx_messages, 5);
	weft_stats_close(s);
	cr_expect(zero(int, access("0", F_OK) == 0));
	cr_expect(zero(int, lines()));
}

Test(stats, null_stats_is_accepted)
{
	struct weft_counters *c = weft_stats_peer(NULL, 1, "x");

	cr_assert(ne(ptr, c, NULL));
	weft_count(c, gets, 1);
	weft_stats_close(NULL);
}

/* The number after @name in all lines, added up. */
static uint64_t sum_of(const char *name)
{
	const char *p = slurp(file);
	uint64_t sum = 0;

	while ((p = strstr(p, name))) {
		p += strlen(name);
		sum += strtoull(p, NULL, 10);
	}
	return sum;
}

/* Nothing is kept for each peer ever seen, and yet nothing is lost. */
Test(stats, ended_peers_are_merged, .init = to_file, .fini = folder_end)
{
	enum { MANY = 5000 };
	struct weft_stats *s = weft_stats_open("tcp", "lo");
	struct weft_counters *c, *stays = weft_stats_peer(s, 1, "stays");
	unsigned int i;

	for (i = 0; i < MANY; i++) {
		c = weft_stats_peer(s, 1000 + i, "x");
		cr_assert(eq(ptr, weft_stats_peer(s, 1000 + i, "x"), c));
		weft_count(c, tx_messages, i);
		atomic_store(&c->streams_max, 1 + i % 4);
		weft_stats_peer_ended(s, c);
		weft_count(c, tx_messages, 1);
		weft_stats_peer_ended(s, c);
	}
	weft_count(stays, tx_messages, 3);
	/* one that comes back soon finds its row; it ends again */
	c = weft_stats_peer(s, 1000 + MANY - 1, "x");
	cr_expect(eq(u64, c->tx_messages, MANY));
	weft_stats_peer_ended(s, c);
	weft_stats_close(s);
	cr_expect(eq(int, lines(), 1 + 256 + 1));
	cr_expect(has(text, "\"peer\":\"0000000000000000\","
			    "\"where\":\"4744 peers that have ended\""));
	cr_expect(eq(u64, sum_of("\"tx_messages\":"),
		     3 + (uint64_t)MANY * (MANY - 1) / 2 + MANY));
	cr_expect(eq(u64, sum_of("\"streams_max\":"), 256 / 4 * 10 + 4));
}

static struct weft_stats *shared;

static void *count(void *arg)
{
	int i;

	for (i = 0; i < 10000; i++)
		weft_count(weft_stats_peer(shared, (uint64_t)i % 7, "x"),
			   tx_messages, 1);
	return NULL;
}

Test(stats, threads_count_together, .init = to_file, .fini = folder_end)
{
	uint64_t sum = 0;
	pthread_t t[4];
	int i;

	shared = weft_stats_open("tcp", "lo");
	for (i = 0; i < 4; i++)
		cr_assert(zero(int, pthread_create(&t[i], NULL, count, NULL)));
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < 7; i++)
		sum += weft_stats_peer(shared, (uint64_t)i, "x")->tx_messages;
	cr_expect(eq(u64, sum, 40000));
	weft_stats_close(shared);
	cr_expect(eq(int, lines(), 7));
}

static char said[1024];
static unsigned int warnings, infos;

static void take(void *arg, enum weft_level level, const char *at, int line,
		 const char *message)
{
	(void)arg, (void)at, (void)line;
	warnings += level == WEFT_LOG_WARN;
	infos += level == WEFT_LOG_INFO;
	snprintf(said, sizeof(said), "%s", message);
}

Test(stats, detour_is_said_once_and_warned_of_after_a_gigabyte)
{
	struct weft_stats *s = weft_stats_open("tcp", "eth0");
	struct weft_counters *a = weft_stats_peer(s, 1, "10.0.0.5:77"),
			     *b = weft_stats_peer(s, 2, "10.0.0.6:77");

	weft_log_set_sink(take, NULL);
	weft_log_set_level(WEFT_LOG_INFO);
	weft_stats_detour(a, WEFT_BARRIER_NO_SHM, false);
	weft_stats_detour(a, WEFT_BARRIER_NO_SHM, false);
	cr_expect(eq(str, said,
		     (char *)"the peer at 10.0.0.5:77 is on this host, but "
			     "goes over TCP: this process offers no weft_shm; "
			     "add it to UCX_TLS"));
	cr_expect(eq(uint, infos, 1));
	weft_count(a, tx_put_bytes, 600000000);
	weft_count(a, rx_put_bytes, 400000000);
	weft_count(b, rx_put_bytes, 2000000000);
	weft_stats_tick(1000000);
	cr_expect(zero(uint, warnings));
	weft_count(a, rx_messages, 1);
	weft_count(a, rx_message_bytes, 1);
	weft_stats_tick(1000250);
	weft_stats_tick(1000500);
	cr_expect(eq(uint, warnings, 1));
	cr_expect(has(said, "more than 1 GB has gone over TCP to and from the "
			    "peer at 10.0.0.5:77, which is on this host: "
			    "this process offers no weft_shm"));
	weft_log_set_sink(NULL, NULL);
	weft_stats_close(s);
}

Test(stats, detour_that_was_chosen_is_no_warning)
{
	struct weft_stats *s = weft_stats_open("tcp", "eth0");
	struct weft_counters *c = weft_stats_peer(s, 1, "10.0.0.5:77");

	weft_log_set_sink(take, NULL);
	weft_stats_detour(c, WEFT_BARRIER_NO_SHM, true);
	weft_count(c, get_bytes, 2000000000);
	weft_stats_tick(1000000);
	cr_expect(zero(uint, warnings));
	cr_expect(zero(uint, infos), "INFO is not the default level");
	weft_log_set_sink(NULL, NULL);
	weft_stats_close(s);
}

/* As to_file(), for Prometheus; in the folder itself if @whole. */
static void to_prometheus(bool whole)
{
	char to[128];

	to_file();
	snprintf(to, sizeof(to), "prometheus:%s%s", folder,
		 whole ? "" : "/out");
	setenv("WEFT_STATS", to, 1);
	weft_settings_reset();
}

static unsigned int count_files(void)
{
	char command[128];
	unsigned int n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "ls %s | wc -l", folder);
	f = popen(command, "r");
	cr_assert(eq(int, fscanf(f, "%u", &n), 1));
	pclose(f);
	return n;
}

Test(stats, prometheus_gets_the_sums_of_interfaces, .fini = folder_end)
{
	struct weft_stats *s, *other;
	struct weft_counters *c;

	to_prometheus(false);
	weft_stats_runtime("ucx");
	s = weft_stats_open("tcp", "eth0");
	other = weft_stats_open("shm", "shm");
	weft_stats_tick(1000000);
	cr_expect(zero(uint, count_files()), "there is nothing to tell");
	c = weft_stats_peer(s, 1, "x");
	weft_count(c, tx_puts, 3);
	atomic_store(&c->streams_max, 4);
	c = weft_stats_peer(s, 2, "y");
	weft_count(c, tx_puts, 4);
	atomic_store(&c->streams_max, 2);
	weft_count(weft_stats_peer(other, 3, "z"), gets, 5);
	weft_stats_tick(1004999);
	cr_expect(zero(uint, count_files()));
	weft_stats_tick(1005300);
	cr_expect(eq(uint, count_files(), 1));
	slurp(file);
	cr_expect(has(text, "# HELP weft_tx_puts_total puts completed at their "
			    "source\n# TYPE weft_tx_puts_total counter\n"
			    "weft_tx_puts_total{host=\""));
	cr_expect(has(text, "program=\"stats_test\",runtime=\"ucx\",device="
			    "\"tcp\",interface=\"eth0\"} 7\n"));
	cr_expect(has(text, "# TYPE weft_streams_max gauge\n"));
	cr_expect(has(text, "interface=\"eth0\"} 4\n"));
	/* what is closed stays in the sums */
	weft_stats_close(s);
	weft_stats_close(other);
	s = weft_stats_open("tcp", "eth0");
	weft_count(weft_stats_peer(s, 1, "x"), tx_puts, 10);
	weft_stats_close(s);
	slurp(file);
	cr_expect(has(text, "interface=\"eth0\"} 17\n"));
	cr_expect(has(text, "interface=\"shm\"} 5\n"));
	cr_expect(not(has(text, "{\"weft\"")));
	cr_expect(eq(uint, count_files(), 1), "nothing else is left");
}

static struct weft_stats *counted_meanwhile;

/* What takes long where the file system is slow. */
int rename(const char *from, const char *to)
{
	if (counted_meanwhile)
		weft_count(weft_stats_peer(counted_meanwhile, 2, "y"), gets, 6);
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

Test(stats, peers_come_while_prometheus_file_is_written, .fini = folder_end,
     .timeout = 60)
{
	struct weft_stats *s;

	to_prometheus(false);
	s = counted_meanwhile = weft_stats_open("tcp", "lo");
	weft_count(weft_stats_peer(s, 1, "x"), gets, 5);
	weft_stats_tick(1000000);
	slurp(file);
	cr_expect(has(text, "interface=\"lo\"} 5\n"));
	counted_meanwhile = NULL;
	weft_stats_close(s);
	slurp(file);
	cr_expect(has(text, "interface=\"lo\"} 11\n"));
}

Test(stats, prometheus_has_a_file_for_each_process_in_a_folder,
     .fini = folder_end)
{
	struct weft_stats *s;
	int status;
	pid_t pid;

	to_prometheus(true);
	s = weft_stats_open("tcp", "lo");
	weft_count(weft_stats_peer(s, 1, "x"), gets, 5);
	weft_stats_tick(1000000);
	cr_expect(eq(uint, count_files(), 1));
	pid = fork();
	if (!pid) {
		forked = 1;
		s = weft_stats_open("tcp", "lo");
		weft_count(weft_stats_peer(s, 1, "x"), gets, 6);
		exit(0);
	}
	waitpid(pid, &status, 0);
	cr_expect(zero(int, status));
	cr_expect(eq(uint, count_files(), 2));
	weft_stats_close(s);
	snprintf(file, sizeof(file), "cat %.40s/*-%d-.prom", folder, pid);
	cr_expect(zero(int, system(file)));
}

Test(stats, prometheus_without_a_place_is_a_warning, .fini = folder_end)
{
	struct weft_stats *s;

	to_prometheus(false);
	setenv("WEFT_STATS", "prometheus:/proc/nosuch/x.prom", 1);
	weft_settings_reset();
	weft_log_set_sink(take, NULL);
	s = weft_stats_open("tcp", "lo");
	weft_stats_peer(s, 1, "x");
	weft_stats_tick(1000000);
	weft_stats_close(s);
	weft_log_set_sink(NULL, NULL);
	cr_expect(eq(uint, warnings, 1));
	cr_expect(has(said, "cannot write counters to '/proc/nosuch/x.prom', "
			    "named by WEFT_STATS: No such file"));
}

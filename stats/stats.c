/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "settings/settings.h"
#include "stats/output.h"
#include "stats/prometheus.h"
#include "stats/stats.h"
#include "util/list.h"
#include "util/log.h"
#include "util/table.h"

#define WRITE_MS   250	      /* between writes to the page */
#define EXPORT_MS  5000	      /* between files for Prometheus */
#define ENDED_ROWS 256	      /* of ended peers; the others share one */
#define DETOUR_MAX 1000000000 /* bytes, before that is a warning */

/* One peer of one interface. */
struct row {
	struct weft_list link;
	struct weft_list ended_link;
	struct weft_entry entry; /* by the peer's id */
	unsigned int users;
	bool detour_said;	    /* or chosen: there is no warning to come */
	struct weft_page_row shown; /* names and counters */
};

struct weft_stats {
	struct weft_list link;
	struct weft_list rows;
	struct weft_table by_id;
	struct weft_list ended; /* rows without users, oldest first */
	unsigned int nended;
	struct row rest; /* merged rows of ended peers */
	unsigned int nrest;
	char device[15]; /* as in a row of the page */
	char netdev[64];
	uint64_t id;
	pid_t pid; /* a child does not print its parent's rows */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Of the file for Prometheus: no older one replaces a newer.  Taken first. */
static pthread_mutex_t export_lock = PTHREAD_MUTEX_INITIALIZER;
/* When the page was written, and when a caller of weft_stats_sleep() will */
static _Atomic uint64_t written_ms, promised_ms;
static _Atomic bool at_rest; /* as far as is known, all is written */
static struct weft_list open_stats = { &open_stats, &open_stats };
static struct weft_counters discarded;
static struct weft_sums closed; /* for Prometheus, of closed interfaces */
static const char *runtime = "";

/* Make @from safe for JSON: unusual characters become '?'. */
static void copy_name(char *to, size_t len, const char *from)
{
	size_t i;

	for (i = 0; i + 1 < len && from && from[i]; i++)
		to[i] = from[i] < ' ' || from[i] > '~' || from[i] == '"' ||
					from[i] == '\\'
				? '?'
				: from[i];
	to[i] = '\0';
}

void weft_stats_runtime(const char *name)
{
	runtime = name;
}

const char *weft_stats_loaded_by(void)
{
	return runtime;
}

/* ---- what weft status reads ---------------------------------------------- */

static void lock_stats(void)
{
	pthread_mutex_lock(&lock);
}

static void unlock_stats(void)
{
	pthread_mutex_unlock(&lock);
}

static void lock_all(void)
{
	pthread_mutex_lock(&export_lock);
	lock_stats();
}

static void unlock_all(void)
{
	unlock_stats();
	pthread_mutex_unlock(&export_lock);
}

static void disown_all(void)
{
	weft_page_forget();
	closed.n = 0;
	unlock_all();
}

/*
 * May be called inside any function, even of this file: so it never waits for
 * the lock.
 */
static void note_message(enum weft_level level, const char *text)
{
	if (pthread_mutex_trylock(&lock))
		return;
	weft_page_note(level, text);
	unlock_stats();
}

static void begin(void)
{
	pthread_atfork(lock_all, unlock_all, disown_all);
	weft_log_set_watch(note_message);
}

static bool write_page(void)
{
	bool changed;

	lock_stats();
	changed = weft_page_write();
	unlock_stats();
	return changed;
}

/*
 * A program that sleeps after each message does not write as often: a timer
 * wakes it after the last of them, and from then on it looks.
 */
uint64_t weft_stats_sleep(uint64_t now)
{
	const uint64_t due = atomic_load(&written_ms) + WRITE_MS;

	if (now < due && !atomic_load(&at_rest))
		return atomic_exchange(&promised_ms, due) == due ? UINT64_MAX
								 : due;
	if (write_page()) {
		atomic_store(&written_ms, now);
		atomic_store(&at_rest, false);
	} else {
		atomic_store(&at_rest, true);
	}
	return UINT64_MAX;
}

/* ---- what could have gone within the host -------------------------------- */

void weft_stats_detour(struct weft_counters *c, enum weft_barrier barrier,
		       bool chosen)
{
	struct row *r = container_of(c, struct row, shown.c);
	bool first;

	if (c == &discarded)
		return;
	lock_stats();
	first = !r->shown.barrier;
	if (first)
		r->detour_said = chosen;
	r->shown.barrier = (uint8_t)barrier;
	unlock_stats();
	if (first)
		weft_info(
			"the peer at %s is on this host, but goes over TCP: %s",
			r->shown.where, weft_barrier_text(barrier));
}

static bool is_long_detour(const struct row *r)
{
	const struct weft_counters *c = &r->shown.c;

	return r->shown.barrier && !r->detour_said &&
	       c->tx_message_bytes + c->tx_put_bytes + c->tx_get_bytes +
			       c->rx_message_bytes + c->rx_put_bytes +
			       c->get_bytes >
		       DETOUR_MAX;
}

/* With the lock. */
static struct row *find_long_detour(void)
{
	struct weft_stats *s, *ts;
	struct row *r, *tr;

	weft_list_for_each (s, ts, &open_stats, link)
		weft_list_for_each (r, tr, &s->rows, link)
			if (is_long_detour(r))
				return r;
	return NULL;
}

/* Logs without the lock, so that the page has it, too. */
static void warn_of_detour(void)
{
	char where[sizeof(((struct row *)0)->shown.where)];
	const char *barrier = NULL;
	struct row *r;

	lock_stats();
	r = find_long_detour();
	if (r) {
		r->detour_said = true;
		barrier = weft_barrier_text(r->shown.barrier);
		memcpy(where, r->shown.where, sizeof(where));
	}
	unlock_stats();
	if (barrier)
		weft_warn_once(
			"more than 1 GB has gone over TCP to and from the peer at %s, which is on this host: %s",
			where, barrier);
}

/* ---- rows ---------------------------------------------------------------- */

static void enter_page(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, begin);
	lock_stats();
	weft_page_open(runtime);
	unlock_stats();
}

void weft_stats_introduced(const char *id)
{
	enter_page();
	lock_stats();
	weft_page_introduced(id);
	unlock_stats();
}

struct weft_stats *weft_stats_open(const char *device, const char *netdev)
{
	struct weft_stats *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	weft_list_init(&s->rows);
	weft_list_init(&s->ended);
	copy_name(s->device, sizeof(s->device), device);
	copy_name(s->netdev, sizeof(s->netdev), netdev);
	s->pid = getpid();
	enter_page();
	lock_stats();
	weft_list_add_tail(&open_stats, &s->link);
	unlock_stats();
	return s;
}

void weft_stats_own_id(struct weft_stats *s, uint64_t id)
{
	if (s)
		s->id = id;
}

static void show_row(struct weft_stats *s, struct row *r, uint64_t peer_id,
		     const char *where)
{
	r->shown.id = s->id;
	r->shown.peer = peer_id;
	memcpy(r->shown.device, s->device, sizeof(s->device));
	memcpy(r->shown.netdev, s->netdev, sizeof(s->netdev));
	copy_name(r->shown.where, sizeof(r->shown.where), where);
	weft_page_show(&r->shown);
}

static struct row *get_row(struct weft_stats *s, uint64_t peer_id,
			   const char *where)
{
	struct weft_entry *e = weft_table_find(&s->by_id, peer_id);
	struct row *r;

	if (e)
		return container_of(e, struct row, entry);
	r = calloc(1, sizeof(*r));
	if (!r || weft_table_add(&s->by_id, &r->entry, peer_id)) {
		free(r);
		return NULL;
	}
	weft_list_init(&r->ended_link);
	show_row(s, r, peer_id, where);
	weft_list_add_tail(&s->rows, &r->link);
	return r;
}

struct weft_counters *weft_stats_peer(struct weft_stats *s, uint64_t peer_id,
				      const char *where)
{
	struct row *r;

	if (!s)
		return &discarded;
	lock_stats();
	r = get_row(s, peer_id, where);
	if (r && !r->users++) {
		s->nended -= !weft_list_empty(&r->ended_link);
		weft_list_del(&r->ended_link);
	}
	unlock_stats();
	return r ? &r->shown.c : &discarded;
}

/* Merge the oldest ended row into the common one. */
static void merge_ended_row(struct weft_stats *s)
{
	struct row *r = weft_list_first(&s->ended, struct row, ended_link);

	if (!s->nrest++)
		show_row(s, &s->rest, 0, "");
	snprintf(s->rest.shown.where, sizeof(s->rest.shown.where),
		 "%u peers that have ended", s->nrest);
	weft_counters_add(&s->rest.shown.c, &r->shown.c);
	weft_page_hide(&r->shown);
	s->nended--;
	weft_table_del(&s->by_id, &r->entry);
	weft_list_del(&r->ended_link);
	weft_list_del(&r->link);
	free(r);
}

void weft_stats_peer_ended(struct weft_stats *s, struct weft_counters *c)
{
	struct row *r;

	if (!s || !c || c == &discarded)
		return;
	lock_stats();
	r = container_of(c, struct row, shown.c);
	if (!--r->users) {
		weft_list_add_tail(&s->ended, &r->ended_link);
		if (++s->nended > ENDED_ROWS)
			merge_ended_row(s);
	}
	unlock_stats();
}

/* ---- output -------------------------------------------------------------- */

static void get_host(char *to, size_t len)
{
	struct utsname name;

	copy_name(to, len, uname(&name) ? "" : name.nodename);
}

/* One write() per line, so that lines of several processes do not mix. */
static void write_row(int fd, const struct weft_stats *s, struct row *r)
{
	char line[2048], host[65];
	int n;
	ssize_t done;

	get_host(host, sizeof(host));
	n = snprintf(line, sizeof(line),
		     "{\"weft\":\"%s\",\"runtime\":\"%s\",\"netdev\":\"%s\","
		     "\"pid\":%d,\"host\":\"%s\",\"id\":\"%016" PRIx64
		     "\",\"peer\":\"%016" PRIx64 "\",\"where\":\"%.*s\"",
		     s->device, runtime, s->netdev, (int)s->pid, host, s->id,
		     r->entry.key, (int)sizeof(r->shown.where) - 1,
		     r->shown.where);
#define X(name, help)                                                          \
	n += snprintf(                                                         \
		line + n, sizeof(line) - (size_t)n, ",\"" #name "\":%" PRIu64, \
		atomic_load_explicit(&r->shown.c.name, memory_order_relaxed));
	WEFT_COUNTERS(X)
#undef X
	n += snprintf(line + n, sizeof(line) - (size_t)n, "}\n");
	do
		done = write(fd, line, (size_t)n);
	while (done < 0 && errno == EINTR);
	if (done != n)
		weft_warn_once(
			"counters named by WEFT_STATS are incomplete: %s",
			done < 0 ? strerror(errno) : "the line was cut short");
}

/* Does @s have rows that this process may print? */
static bool has_rows(struct weft_stats *s)
{
	return !weft_list_empty(&s->rows) && s->pid == getpid();
}

static void write_rows(int fd, struct weft_stats *s)
{
	struct row *r, *tmp;

	weft_list_for_each (r, tmp, &s->rows, link)
		write_row(fd, s, r);
	if (s->nrest)
		write_row(fd, s, &s->rest);
}

static void add_rows(struct weft_sums *sums, struct weft_stats *s)
{
	struct row *r, *tmp;

	weft_list_for_each (r, tmp, &s->rows, link)
		weft_sums_add(sums, s->device, s->netdev, &r->shown.c);
	if (s->nrest)
		weft_sums_add(sums, s->device, s->netdev, &s->rest.shown.c);
}

/* With the lock: copies the sums to export, if any. */
static bool sum_up(struct weft_sums *all)
{
	struct weft_stats *s, *tmp;

	if (!weft_stats_export_path())
		return false;
	*all = closed;
	weft_list_for_each (s, tmp, &open_stats, link)
		if (s->pid == getpid())
			add_rows(all, s);
	return all->n;
}

/* With export_lock alone: a slow file system holds nothing else up. */
static void write_sums(const struct weft_sums *all)
{
	char path[WEFT_STATS_PATH_LEN], labels[256], host[65], program[32],
		comm[32];
	int err;

	get_host(host, sizeof(host));
	weft_page_program(comm, sizeof(comm));
	copy_name(program, sizeof(program), comm);
	snprintf(labels, sizeof(labels),
		 "host=\"%s\",pid=\"%d\",program=\"%s\",runtime=\"%s\"", host,
		 getpid(), program, runtime);
	weft_stats_name_export(weft_stats_export_path(), host, runtime, path);
	err = weft_prometheus_write(path, labels, all);
	if (err)
		weft_warn_once(
			"cannot write counters to '%s', named by WEFT_STATS: %s",
			path, strerror(-err));
}

static void export_rows(void)
{
	struct weft_sums all;
	bool any;

	if (!weft_stats_export_path())
		return;
	lock_all();
	any = sum_up(&all);
	unlock_stats();
	if (any)
		write_sums(&all);
	pthread_mutex_unlock(&export_lock);
}

static void hide_rows(struct weft_stats *s)
{
	struct row *r, *tmp;

	weft_list_for_each (r, tmp, &s->rows, link)
		weft_page_hide(&r->shown);
	if (s->nrest)
		weft_page_hide(&s->rest.shown);
	weft_page_close();
	weft_page_write();
	/* a promise may have ended with it */
	atomic_store(&at_rest, true);
}

static bool is_due(_Atomic uint64_t *last, uint64_t now, uint64_t every)
{
	if (now - atomic_load_explicit(last, memory_order_relaxed) < every)
		return false;
	atomic_store_explicit(last, now, memory_order_relaxed);
	return true;
}

void weft_stats_tick(uint64_t now)
{
	static _Atomic uint64_t exported;

	if (!is_due(&written_ms, now, WRITE_MS))
		return;
	write_page();
	atomic_store(&at_rest, true);
	warn_of_detour();
	if (is_due(&exported, now, EXPORT_MS))
		export_rows();
}

void weft_stats_close(struct weft_stats *s)
{
	const bool own = s && s->pid == getpid();
	struct row *r, *tmp;
	int fd = -1;

	if (!s)
		return;
	lock_stats();
	weft_list_del(&s->link);
	if (own)
		hide_rows(s);
	if (own && weft_stats_export_path())
		add_rows(&closed, s);
	unlock_stats();
	if (own)
		export_rows();
	if (has_rows(s))
		fd = weft_stats_open_output();
	if (fd >= 0) {
		write_rows(fd, s);
		close(fd);
	}
	weft_list_for_each (r, tmp, &s->rows, link)
		free(r);
	weft_table_free(&s->by_id);
	free(s);
}

/*
 * Print the rows of interfaces that are still open at exit or when the plugin
 * is unloaded.  Do not free them: threads of the program may still count.
 */
__attribute__((destructor)) static void write_at_exit(void)
{
	struct weft_stats *s, *tmp;
	struct weft_sums all;
	bool any = false;
	int fd = -1;

	if (pthread_mutex_trylock(&export_lock))
		return; /* exit() inside a call of weft: no deadlock */
	if (pthread_mutex_trylock(&lock))
		goto unlock_export;
	weft_page_leave();
	/* else the last one that closed did; the settings may be gone */
	if (!weft_list_empty(&open_stats))
		any = sum_up(&all);
	weft_list_for_each (s, tmp, &open_stats, link) {
		if (!has_rows(s))
			continue;
		/* do not create a file without rows */
		if (fd < 0)
			fd = weft_stats_open_output();
		if (fd < 0)
			break;
		write_rows(fd, s);
	}
	if (fd >= 0)
		close(fd);
	unlock_stats();
	if (any)
		write_sums(&all);
unlock_export:
	pthread_mutex_unlock(&export_lock);
}

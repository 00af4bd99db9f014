/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks: forked, watched, and asked how it went. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/lib/fds.h"
#include "tests/nccl/perf/perf.h"

#define TEXT  1024
#define GRACE 3 /* seconds from the first failure to the end */

/* Threads of the run-time library's that start with a program's first one. */
#ifdef __SANITIZE_THREAD__
#define OWN_THREADS 1
#else
#define OWN_THREADS 0
#endif

/* What a rank reports: one letter and a text. */
struct report {
	char kind; /* s(ay), f(ail), k (skipped), o(k),
		      g (another rank is to blame) */
	char text[TEXT];
};

double perf_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void send_report(struct perf *p, char kind, const char *fmt, va_list ap)
{
	struct report r = { .kind = kind };

	vsnprintf(r.text, sizeof(r.text), fmt, ap);
	/* A packet per report; ignore failures. */
	if (write(p->report, &r, sizeof(r)) < 0)
		_exit(3);
}

void perf_fail(struct perf *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	send_report(p, 'f', fmt, ap);
	va_end(ap);
	_exit(1);
}

/* Another rank ended or failed, and reports the cause. */
static void __attribute__((noreturn, format(printf, 2, 3)))
blame(struct perf *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	send_report(p, 'g', fmt, ap);
	va_end(ap);
	_exit(1);
}

static void __attribute__((noreturn)) gone(struct perf *p, int rank)
{
	blame(p, "rank %d is gone", rank);
}

void perf_skip(struct perf *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	send_report(p, 'k', fmt, ap);
	va_end(ap);
	_exit(0);
}

void perf_say(struct perf *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	send_report(p, 's', fmt, ap);
	va_end(ap);
}

void perf_check(struct perf *p, enum nccl_result r, const char *call)
{
	const char *why = perf_last_warning(), *colon = *why ? ": " : "";

	if (r == NCCL_REMOTE_ERROR)
		blame(p, "%s: %s%s%s", call, perf_result_text(r), colon, why);
	if (r)
		perf_fail(p, "%s: %s%s%s", call, perf_result_text(r), colon,
			  why);
}

void perf_tell(struct perf *p, int rank, const void *buf, size_t len)
{
	if (write(p->wire[rank], buf, len) != (ssize_t)len)
		gone(p, rank);
}

void perf_hear(struct perf *p, int rank, void *buf, size_t len)
{
	size_t have = 0;
	ssize_t n;

	while (have < len) {
		n = read(p->wire[rank], (char *)buf + have, len - have);
		if (n <= 0)
			gone(p, rank);
		have += n;
	}
}

void perf_meet(struct perf *p)
{
	char c = 0;
	int i;

	for (i = 0; i < p->ranks; i++)
		if (i != p->rank)
			perf_tell(p, i, &c, 1);
	for (i = 0; i < p->ranks; i++)
		if (i != p->rank)
			perf_hear(p, i, &c, 1);
}

static void enter_netns(struct perf *p, const char *name)
{
	char path[512];
	int fd;

	if (!name)
		return;
	snprintf(path, sizeof(path), "%s%s",
		 strchr(name, '/') ? "" : "/run/netns/", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
		perf_fail(p, "cannot enter network namespace '%s': %s", path,
			  strerror(errno));
	close(fd);
}

static void set_env(struct perf *p)
{
	char *name, *value;
	unsigned int i;

	for (i = 0; i < p->opt->nenv; i++) {
		if (p->opt->env[i][0] - '0' != p->rank)
			continue;
		name = strdup(p->opt->env[i] + 2);
		value = name ? strchr(name, '=') : NULL;
		if (value)
			*value++ = '\0';
		if (!value || setenv(name, value, 1))
			perf_fail(p, "cannot set '%s': %s", p->opt->env[i] + 2,
				  strerror(errno));
		free(name);
	}
}

/* A thread that was joined is listed for a moment longer. */
static int settle(const char *path, int want)
{
	struct timespec t = { 0, 10000000 };
	int i, n = count_entries(path);

	for (i = 0; i < 100 && n > want; i++) {
		nanosleep(&t, NULL);
		n = count_entries(path);
	}
	return n;
}

void perf_unload(struct perf *p)
{
	int left;

	perf_plugin_close(&p->plugin);
	left = settle("/proc/self/task", p->threads) - p->threads;
	if (left > 0)
		perf_fail(p, "%d threads are left after dlclose", left);
	left = count_entries("/proc/self/fd") - p->fds;
	if (left > 0)
		perf_fail(p, "%d descriptors are left after dlclose", left);
}

static void rank_main(struct perf *p, const struct perf_case *c)
{
	char why[TEXT / 2];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	perf_set_verbose(p->opt->verbose);
	enter_netns(p, p->opt->netns[p->rank % 2]);
	set_env(p);
	p->fds = count_entries("/proc/self/fd");
	p->threads = count_entries("/proc/self/task") + OWN_THREADS;
	if (!perf_plugin_open(&p->plugin, p->opt->plugin,
			      p->opt->api[p->rank % 2], why, sizeof(why)) ||
	    !perf_plugin_init(&p->plugin, why, sizeof(why)))
		perf_fail(p, "%s", why);
	c->run(p);
	perf_unload(p);
	if (write(p->report, &(struct report){ .kind = 'o' },
		  sizeof(struct report)) < 0)
		exit(3);
	exit(0);
}

struct ranks {
	const struct perf_case *c;
	pid_t pid[PERF_RANKS_MAX];
	int report[PERF_RANKS_MAX];
	bool over[PERF_RANKS_MAX];
	bool told[PERF_RANKS_MAX];  /* its own verdict came */
	bool ended[PERF_RANKS_MAX]; /* by us: it took too long */
	enum perf_verdict verdict;
	bool secondary; /* no report with a cause so far */
	char *text;
	size_t len;
};

static int start_ranks(struct ranks *r, const struct perf_options *opt)
{
	int wire[PERF_RANKS_MAX][PERF_RANKS_MAX], report[2], i, j, k;
	struct perf p;

	for (i = 0; i < r->c->ranks; i++)
		for (j = i + 1; j < r->c->ranks; j++) {
			int pair[2];

			if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0,
				       pair) < 0)
				return -errno;
			wire[i][j] = pair[0];
			wire[j][i] = pair[1];
		}
	fflush(NULL);
	for (i = 0; i < r->c->ranks; i++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
			       report) < 0)
			return -errno;
		r->pid[i] = fork();
		if (r->pid[i] < 0)
			return -errno;
		if (r->pid[i]) {
			close(report[1]);
			r->report[i] = report[0];
			continue;
		}
		memset(&p, 0, sizeof(p));
		p.opt = opt;
		p.rank = i;
		p.ranks = r->c->ranks;
		p.report = report[1];
		for (j = 0; j < p.ranks; j++) {
			if (j < i)
				close(r->report[j]);
			for (k = 0; k < p.ranks; k++)
				if (j != k && j != i)
					close(wire[j][k]);
			p.wire[j] = j == i ? -1 : wire[i][j];
		}
		rank_main(&p, r->c);
	}
	for (i = 0; i < r->c->ranks; i++)
		for (j = 0; j < r->c->ranks; j++)
			if (i != j)
				close(wire[i][j]);
	return 0;
}

static void verdict(struct ranks *r, enum perf_verdict v, int rank,
		    const char *text)
{
	/* The first cause counts. */
	if (!r->secondary &&
	    (v < r->verdict || (v == r->verdict && v != PERF_OK)))
		return;
	r->secondary = false;
	if (v == PERF_FAILED)
		snprintf(r->text, r->len, "rank %d: %s", rank, text);
	else if (v == PERF_SKIPPED)
		snprintf(r->text, r->len, "%s", text);
	r->verdict = v;
}

static void ended(struct ranks *r, int i)
{
	char text[64];
	int status;

	close(r->report[i]);
	r->report[i] = -1;
	r->over[i] = true;
	waitpid(r->pid[i], &status, 0);
	if (WIFSIGNALED(status) && !r->ended[i] &&
	    !(r->c->killed && i == r->c->ranks - 1)) {
		snprintf(text, sizeof(text), "died of signal %d (%s)",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
		verdict(r, PERF_FAILED, i, text);
	} else if (WIFEXITED(status) && WEXITSTATUS(status) && !r->told[i]) {
		snprintf(text, sizeof(text), "ended with status %d",
			 WEXITSTATUS(status));
		verdict(r, PERF_FAILED, i, text);
	}
}

static void hear_report(struct ranks *r, int i)
{
	struct report rep;
	size_t at;

	if (read(r->report[i], &rep, sizeof(rep)) != sizeof(rep)) {
		ended(r, i);
		return;
	}
	rep.text[sizeof(rep.text) - 1] = '\0';
	r->told[i] |= strchr("fgk", rep.kind) != NULL;
	switch (rep.kind) {
	case 'f':
		verdict(r, PERF_FAILED, i, rep.text);
		break;
	case 'g':
		if (r->verdict == PERF_OK) {
			verdict(r, PERF_FAILED, i, rep.text);
			r->secondary = true;
		}
		break;
	case 'k':
		verdict(r, PERF_SKIPPED, i, rep.text);
		break;
	case 's':
		if (r->verdict != PERF_OK)
			break;
		at = strlen(r->text);
		snprintf(r->text + at, r->len - at, "%s%s", at ? "\n" : "",
			 rep.text);
		break;
	}
}

static bool all_over(const struct ranks *r)
{
	int i;

	for (i = 0; i < r->c->ranks; i++)
		if (!r->over[i])
			return false;
	return true;
}

/*
 * Has the limit passed?  Of a processor that others want, too, a rank gets a
 * part of its time: the limit is as many times longer.
 */
static bool over_limit(double start, double limit)
{
	double load = 0;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (perf_now() - start < limit)
		return false;
	if (getloadavg(&load, 1) == 1 && cpus > 0 && load > cpus)
		limit *= load / cpus;
	return perf_now() - start >= limit;
}

enum perf_verdict perf_run(const struct perf_case *c,
			   const struct perf_options *opt, char *text,
			   size_t len)
{
	const double start = perf_now();
	const double limit = opt->time_limit * (c->slow ? c->slow : 1);
	struct ranks r = { .c = c, .text = text, .len = len };
	struct pollfd fd[PERF_RANKS_MAX];
	double grace = 0;
	int i;

	text[0] = '\0';
	signal(SIGPIPE, SIG_IGN);
	if (start_ranks(&r, opt) < 0) {
		snprintf(text, len, "cannot start processes: %s",
			 strerror(errno));
		return PERF_FAILED;
	}
	while (!all_over(&r)) {
		/* Once one has failed the others soon have, or never will. */
		if (r.verdict != PERF_OK && !grace)
			grace = perf_now() + GRACE;
		for (i = 0; i < c->ranks; i++)
			fd[i] = (struct pollfd){ r.report[i], POLLIN, 0 };
		if ((grace && perf_now() >= grace) ||
		    over_limit(start, limit)) {
			for (i = 0; i < c->ranks; i++)
				if (!r.over[i]) {
					if (r.verdict == PERF_OK)
						verdict(&r, PERF_FAILED, i,
							"no end in sight (time limit)");
					r.ended[i] = true;
					kill(r.pid[i], SIGKILL);
					ended(&r, i);
				}
			break;
		}
		if (poll(fd, c->ranks, 100) <= 0)
			continue;
		for (i = 0; i < c->ranks; i++)
			if (fd[i].revents)
				hear_report(&r, i);
	}
	return r.verdict;
}

int perf_main(void (*run)(struct perf *p), const struct perf_options *opt)
{
	const struct perf_case only = { .ranks = 2, .run = run };
	char text[2048];

	if (perf_run(&only, opt, text, sizeof(text)) == PERF_OK)
		return 0;
	fprintf(stderr, "%s\n", text);
	return 1;
}
